"""Help pages."""

import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fairsync.cli import app


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = typer.Context(command)
    below = command.list_commands(context) if hasattr(command, "commands") else []
    return [path, *(found for name in below for found in commands(command.get_command(context, name), (*path, name)))]


@pytest.mark.parametrize("path", commands(typer.main.get_command(app)), ids=" ".join)
def test_flags_have_no_type(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    assert "--help" in shown.stdout
    assert "bool" not in shown.stdout


def test_a_command_does_not_import_the_others() -> None:
    """Memory of a service: polars and training are of other commands."""
    code = "import sys; from fairsync.cli import app; app(standalone_mode=False); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code, "check", "--help"], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    assert "fairsync.cli.check" in loaded
    assert not loaded & {"fairsync.cli.demo", "fairsync.data", "polars", "torch"}


def test_a_misspelled_command_is_suggested() -> None:
    ended = CliRunner().invoke(app, ["serv"], env={"COLUMNS": "100", "NO_COLOR": "1"})
    assert "Did you mean 'serve'" in ended.output


def test_the_help_lists_commands_by_purpose() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "NO_COLOR": "1"}).stdout
    wanted = (
        "See it work",
        "demo ",
        "From a log to a service",
        "prepare ",
        "In production",
        "statement ",
        "Measure",
        "bench ",
    )
    places = [shown.index(f"─ {word} ─" if word[0].isupper() else f"│ {word}") for word in wanted]
    assert places == sorted(places)
