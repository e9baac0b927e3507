"""``fairsync ledger``: copies of the ledger of a service, made while it runs, and put back when it is stopped."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fairsync.cli.serve import ConfigFile, need_service
from fairsync.errors import InvalidInputError
from fairsync.ledger.sqlite_backup import back_up
from fairsync.ledger.sqlite_backup import restore as put_back

if TYPE_CHECKING:
    from fairsync.ledger.sqlite_backup import Summary

ledger = typer.Typer(help="Back up the ledger of a service, and restore it.", no_args_is_help=True)


@ledger.command()
def backup(
    config: ConfigFile,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="To be written; what it held stays until it is.")],
) -> None:
    """Copy the ledger of a configuration to a file, whether or not the service runs.

    fairsync ledger backup deploy/one-process.toml /backup/exposures.db
    """
    path = _path_of(config)
    _say(f"{file} has all of {path}", back_up(path, file))


@ledger.command()
def restore(
    config: ConfigFile,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="That `fairsync ledger backup` wrote.")],
) -> None:
    """Put a backup in the place of the ledger. The service must have been stopped; what was there is set aside.

    fairsync ledger restore deploy/one-process.toml /backup/exposures.db
    """
    path = _path_of(config)
    summary, aside = put_back(file, path)
    _say(f"{path} is as {file} has it", summary)
    if aside is not None:
        _say(f"what was there is {aside}")


def _path_of(config: Path) -> Path:
    need_service()
    from fairsync.service.settings import load_settings

    settings = load_settings(config).ledger
    if settings.kind == "redis":
        raise InvalidInputError("the ledger is on a server: copy the server's files, as docs/ledger.md says.")
    if settings.kind == "memory" or settings.path is None:
        raise InvalidInputError("the ledger is in memory, and gone with the process: set ledger.kind to 'sqlite'.")
    return settings.path


def _say(words: str, summary: Summary | None = None) -> None:
    if summary is not None:
        words += f": {summary.requests:,} requests in {summary.horizons:,} horizons, {summary.groups:,} groups"
    Console(soft_wrap=True, highlight=False).print(f"{words}.", markup=False)
