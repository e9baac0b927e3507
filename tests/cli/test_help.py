"""Help pages."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fairsync.cli import app


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    below = getattr(command, "commands", {})
    return [path, *(found for name, one in below.items() for found in commands(one, (*path, name)))]


@pytest.mark.parametrize("path", commands(typer.main.get_command(app)), ids=" ".join)
def test_flags_have_no_type(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert "--help" in shown.stdout
    assert "bool" not in shown.stdout
