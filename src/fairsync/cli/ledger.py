"""``fairsync ledger``: back up the ledger of a running service, and restore it when the service is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer
from rich.console import Console

from fairsync.errors import InvalidInputError
from fairsync.ledger.backup import back_up
from fairsync.ledger.backup import restore as restore_backup

if TYPE_CHECKING:
    from fairsync.ledger.reader import Summary

ledger = typer.Typer(help="Back up the ledger of a service, and restore it.", no_args_is_help=True)

_Source = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A path or URL of a ledger (exposures.db, sqlite:///exposures.db), or the TOML file of a service.",
    ),
]
_ON_A_SERVER = "the ledger is on a server: back it up with the server's own tools, as docs/ledger.md says."


@ledger.command()
def backup(
    source: _Source,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="The backup to write. It is replaced atomically.")],
) -> None:
    """Copy a ledger to a file. The service may be running.

    fairsync ledger backup sqlite:///exposures.db /backup/exposures.db
    """
    path = ledger_path(source)
    _print(f"{file} is a copy of {path}", back_up(path, file))


@ledger.command()
def restore(
    source: _Source,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="A backup that `fairsync ledger backup` wrote.")],
) -> None:
    """Replace a ledger by a backup. The service must be stopped. The replaced ledger is kept under another name.

    fairsync ledger restore sqlite:///exposures.db /backup/exposures.db
    """
    path = ledger_path(source)
    summary, replaced = restore_backup(file, path)
    _print(f"{path} is restored from {file}", summary)
    if replaced is not None:
        _print(f"the replaced ledger is {replaced}")


def ledger_path(source: str) -> Path:
    """Return the file of a ledger, given by a path, a URL, or the configuration file of a service.

    Examples
    --------
    >>> ledger_path("sqlite:///exposures.db").name, ledger_path("sqlite:////var/lib/exposures.db").is_absolute()
    ('exposures.db', True)
    """
    if "://" in source:
        scheme = urlsplit(source).scheme
        if scheme in ("redis", "rediss", "unix"):
            raise InvalidInputError(_ON_A_SERVER)
        if scheme != "sqlite" or not source.startswith("sqlite:///"):
            raise InvalidInputError(f"{source!r} is no ledger: give a path, or a URL such as sqlite:///exposures.db.")
        path = unquote(source.removeprefix("sqlite:///"))
        if not path:
            raise InvalidInputError("the URL names no file: write it like sqlite:///exposures.db.")
        return Path(path)
    path_or_config = Path(source)
    return _configured_path(path_or_config) if path_or_config.suffix == ".toml" else path_or_config


def _configured_path(config: Path) -> Path:
    from fairsync.cli.serve import need_service

    need_service()
    from fairsync.service.settings import load_settings

    settings = load_settings(config).ledger
    if settings.kind == "redis":
        raise InvalidInputError(_ON_A_SERVER)
    if settings.kind == "memory" or settings.path is None:
        raise InvalidInputError("the ledger is in memory and ends with its process: set ledger.kind to 'sqlite'.")
    return settings.path


def _print(sentence: str, summary: Summary | None = None) -> None:
    if summary is not None:
        sentence += f": {summary.requests:,} requests in {summary.horizons:,} horizons, {summary.groups:,} groups"
    Console(soft_wrap=True, highlight=False).print(f"{sentence}.", markup=False)
