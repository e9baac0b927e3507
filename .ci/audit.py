"""Look up the installed packages in a database of known vulnerabilities, and fail if one has any.

    python .ci/audit.py .venv/bin/pip-audit

Where the database cannot be reached, that is said, and is no failure: tests must run without a network.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

# Seconds for all packages. A database that does not answer must not hold up everything else.
_LONGEST = 300


def main(command: Sequence[str]) -> int:
    """Run pip-audit and return the exit code."""
    try:
        run = subprocess.run(
            [*command, "--format", "json", "--progress-spinner", "off", "--timeout", "10"],
            capture_output=True, text=True, timeout=_LONGEST, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return _not_audited(f"{error}")
    try:
        packages = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _not_audited((run.stderr.strip().splitlines() or ["no answer"])[-1])
    audited = [one for one in packages if "vulns" in one]
    if not audited:
        return _not_audited("the database knows none of the packages")
    found = [(one, vulnerability) for one in audited for vulnerability in one["vulns"]]
    for one, vulnerability in found:
        fixed = ", ".join(vulnerability.get("fix_versions") or ["no version"])
        print(f"{one['name']} {one['version']}: {vulnerability['id']}, fixed in {fixed}")
    print(
        f"audit: {len(audited)} packages, {len(found)} known vulnerabilities; {len(packages) - len(audited)} unknown"
        " packages"
    )
    return 1 if found else 0


def _not_audited(reason: str) -> int:
    print(f"NOT AUDITED: {reason[:300]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
