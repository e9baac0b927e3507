"""Calls made up by schemathesis from the OpenAPI document: no 5xx, and no answer that the document does not know.

FAIRSYNC_SCHEMA_EXAMPLES=100 makes up more of them, for minutes, and also without tokens.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.running import TOKENS, make_settings, running, small_service

# Whether bodies that fit the document are accepted is not asked: it cannot say that lists must have the same length, or
# that a floor must be feasible.
UNASKED = "positive_data_acceptance"
EXAMPLES = int(os.environ.get("FAIRSYNC_SCHEMA_EXAMPLES", "6"))


@pytest.mark.parametrize("tokens", [True, False] if EXAMPLES > 6 else [True])
def test_no_call_gets_an_answer_that_is_not_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: bool
) -> None:
    pytest.importorskip("schemathesis")
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    limits = {"max_k": 60, "max_users": 20, "max_items": 20, "log": "problems"}
    with running(small_service(), make_settings(limits, tokens=tokens, promise={"k": 3})) as service:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{service.url}/openapi.json",
            *(["--header", f"Authorization: Bearer {TOKENS['admin']}"] if tokens else []),
            "--checks", "all", "--exclude-checks", UNASKED,
            "--max-examples", str(EXAMPLES), "--seed", "1", "--no-color",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert httpx.get(f"{service.url}/ready", timeout=60).status_code == 200
    failures = re.sub(r"(.{300}).*", r"\1 ...", done.stdout[done.stdout.find("FAILURES") :])
    assert done.returncode == 0, failures[:6000] + done.stderr[-1000:]
    assert "26 selected / 26 total" in done.stdout


def test_every_path_says_what_it_may_answer() -> None:
    with running(small_service()) as service:
        document = httpx.get(f"{service.url}/openapi.json", timeout=60).json()
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            answers = call["responses"]
            assert call["summary"], f"{method} {path}"
            assert ("429" in answers) == ("401" in answers), f"{method} {path}"
            assert ("503" in answers) == (path != "/health"), f"{method} {path}"
            if "requestBody" in call:
                assert {"400", "408", "413", "422"} <= set(answers), f"{method} {path}"
            for status, answer in answers.items():
                problem = "application/problem+json" in answer.get("content", {})
                assert problem == (status >= "400" and (path, status) != ("/ready", "503")), f"{method} {path} {status}"
            for status in {"429", "503"} & set(answers):
                assert "Retry-After" in answers[status]["headers"], f"{method} {path} {status}"
