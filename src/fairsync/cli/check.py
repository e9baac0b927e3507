"""``fairsync check``: explain a configuration, and check whether its promises are feasible."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fairsync.cli.serve import ConfigFile, need_service

if TYPE_CHECKING:
    from fairsync.service.check import ConfigurationCheck


def check(
    config: ConfigFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON only.")] = False,
) -> None:
    """Check a configuration of `fairsync serve` without starting the service.

    Reads the file, the environment and the catalog, and checks for each promise whether the expected traffic can
    deliver it. For a ledger on a Redis server, it checks whether the server answers, what is stored there, and whether
    data could be lost. The exit code is 1 if there is a problem to fix.
    """
    need_service()
    from fairsync.service.check import check as check_configuration
    from fairsync.service.settings import load_settings

    found = check_configuration(load_settings(config))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _show(found, Console(highlight=False))
    if found.problems:
        raise typer.Exit(1)


def _show(found: ConfigurationCheck, screen: Console) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    for subject, words in found.facts.items():
        facts.add_row(f"[bold]{subject}[/]", words)
    screen.print(facts)
    if found.verdicts:
        table = Table(title="Promises of the file", title_justify="left")
        for name in ("group", "window", "floor", "largest", "to be safe", ""):
            # A truncated number would be read as another number.
            table.add_column(name, no_wrap=name in ("floor", "largest", "to be safe"), overflow="fold")
        for verdict in found.verdicts:
            promise = verdict.promise
            safe = promise.floor <= verdict.largest_safe
            word = "can be kept" if safe else "if traffic comes as expected" if verdict.accepted else "cannot be kept"
            numbers = (promise.floor, verdict.largest, verdict.largest_safe)
            table.add_row(str(promise.group), str(promise.window), *(f"{number:,}" for number in numbers), word)
        screen.print(table)
    for warning in found.warnings:
        screen.print(warning, style="yellow", markup=False)
    for problem in found.problems:
        screen.print(problem, style="red", markup=False)
    if not found.problems:
        screen.print("No problems found." if not found.warnings else "The service can start.", style="green")
