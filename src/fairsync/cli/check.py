"""``fairsync check``: explain a configuration, and whether its promises can be kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fairsync.cli.serve import ConfigFile, need_service, settings_file
from fairsync.text import shortened

if TYPE_CHECKING:
    from fairsync.promises import Promise
    from fairsync.service.check import ConfigurationCheck

_LONGEST_NAME = 100  # characters: the conditions of a promise may list thousands of labels


def check(
    config: ConfigFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
) -> None:
    """Check a configuration of `fairsync serve` without starting the service.

    Reads the file, the environment variables, the catalog and the ledger. Shows for each promise whether the expected
    traffic can carry it. Shows what the ledger holds, and, if it is in Postgres, whether the server's
    settings may lose data. Exits with code 1 if there is a problem.
    """
    need_service()
    from fairsync.service.check import check as check_settings
    from fairsync.service.settings import load_settings

    found = check_settings(load_settings(settings_file(config)))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print(found, Console(highlight=False))
    if found.problems:
        raise typer.Exit(1)


def _print(found: ConfigurationCheck, screen: Console) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    for subject, words in found.facts.items():
        facts.add_row(f"[bold]{subject}[/]", words)
    screen.print(facts)
    if found.verdicts:
        table = Table(title="Promises in the settings", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in ("promise", "window", "promised", "largest", "safe", "verdict"):
            # A truncated number would be misread, so that only names are wrapped.
            table.add_column(heading, no_wrap=heading != "promise", overflow="fold")
        for verdict in found.verdicts:
            promise = verdict.promise
            asked = promise.promise.at_least or 0
            safe = asked <= verdict.largest_safe
            word = "can be kept" if safe else "if traffic is as expected" if verdict.accepted else "cannot be kept"
            largest = [_number(number) if asked else "" for number in (verdict.largest, verdict.largest_safe)]
            window = str(promise.window).replace(", ", ",\n")
            name = shortened(promise.promise.name, _LONGEST_NAME)
            table.add_row(name, window, _bounds(promise.promise), *largest, word)
        screen.print(table)
    for warning in found.warnings:
        screen.print(warning, style="yellow", markup=False)
    for problem in found.problems:
        screen.print(problem, style="red", markup=False)
    if not found.problems:
        screen.print("No problems found." if not found.warnings else "The service can start.", style="green")


def _bounds(promise: Promise) -> str:
    """Return the bounds of a promise, one in a line."""
    bounds = {"≥ {}": promise.at_least, "≤ {}": promise.at_most, "≤ {} per list": promise.at_most_per_list}
    return "\n".join(form.format(_number(one)) for form, one in bounds.items() if one is not None)


def _number(bound: float) -> str:
    """Return a number of exposures, or a share of all slots."""
    return f"{bound:,}" if isinstance(bound, int) else f"{100 * bound:g} %"
