"""The audit fails for a known vulnerability, and says so where nothing could be looked up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[1] / ".ci" / "audit.py"
GOOD = {"name": "good", "version": "1.0", "vulns": []}
BAD = {"name": "bad", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}]}
UNKNOWN = {"name": "fairsync", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        ({"dependencies": [GOOD, UNKNOWN]}, 0, "audit: 1 packages, 0 known vulnerabilities; 1 unknown packages"),
        ({"dependencies": [GOOD, BAD]}, 1, "bad 2.0: PYSEC-1, fixed in 2.1"),
        ({"dependencies": [UNKNOWN]}, 0, "NOT AUDITED: the database knows none of the packages"),
        ("", 0, "NOT AUDITED: connection refused"),
        ([], 0, "NOT AUDITED: connection refused"),
    ],
)
def test_the_result_of_an_audit(tmp_path: Path, output: object, code: int, message: str) -> None:
    """pip-audit itself exits with 0 if it knows none of the packages, and with 1 if it cannot reach the database."""
    program = tmp_path / "answer.py"
    text = output if isinstance(output, str) else json.dumps(output)
    program.write_text(f"import sys\nprint({text!r})\nsys.exit('connection refused')\n")
    command = [sys.executable, str(AUDIT), sys.executable, str(program)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (code, "")
    assert message in run.stdout


def test_a_program_that_is_not_there_is_no_audit(tmp_path: Path) -> None:
    command = [sys.executable, str(AUDIT), str(tmp_path / "pip-audit")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "NOT AUDITED" in run.stdout
