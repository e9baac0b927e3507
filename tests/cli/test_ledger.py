"""The ledger command takes a path or a URL, and says what to do with ledgers that it cannot copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fairsync.cli import app
from fairsync.ledger import SqlLedger

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> Any:
    given = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, ["ledger", *given], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_a_ledger_is_given_by_path_or_url(prefix: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "exposures of a day.db", tmp_path / "copy.db"
    with SqlLedger(path, 2):
        pass
    done = run("backup", f"{prefix}{path}", copy)
    assert done.exit_code == 0, done.output
    assert "0 requests in 0 horizons, 2 groups" in done.output
    path.unlink()
    done = run("restore", f"{prefix}{path}", copy)
    assert done.exit_code == 0, done.output
    with SqlLedger(path, 2) as ledger:
        assert np.array_equal(ledger.totals().exposures, [0, 0])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://localhost:6379/0", "back it up with the server's own tools"),
        ("rediss://localhost:6379/0", "back it up with the server's own tools"),
        ("mysql://localhost/exposures", "is no ledger: give a path, or a URL such as sqlite:///exposures.db"),
        ("sqlite://exposures.db", "is no ledger: give a path, or a URL such as sqlite:///exposures.db"),
        ("sqlite:///", "the URL names no file"),
    ],
)
def test_other_urls_are_refused_with_a_remedy(url: str, words: str, tmp_path: Path) -> None:
    refused = run("backup", url, tmp_path / "copy.db")
    assert refused.exit_code == 1
    assert words in refused.output
