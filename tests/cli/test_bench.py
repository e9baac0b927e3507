"""The bench command."""

import json
from pathlib import Path

from typer.testing import CliRunner

from fairsync.cli import app


def test_the_command_writes_what_it_prints(tmp_path: Path) -> None:
    given = ["bench", "items", "--index", "exact", "--index", "one-hot", "--most-items", "1000", "--k", "5"]
    done = CliRunner().invoke(app, [*given, "--groups", "4", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "As items grow" in done.output
    document = json.loads((tmp_path / "bench.json").read_text())
    assert [(one["point"]["index"], one["point"]["items"]) for one in document["figures"]] == [
        ("exact", 1000),
        ("one-hot", 1000),
    ]
    assert (tmp_path / "growth.png").stat().st_size > 10_000
