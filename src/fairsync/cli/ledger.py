"""``fairsync ledger``: look into a ledger, check it, back it up, restore it, migrate it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fairsync.cli.command import Command
from fairsync.cli.ledger_contents import ShownLedger
from fairsync.errors import InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.backup import back_up
from fairsync.ledger.backup import restore as restore_backup
from fairsync.ledger.reader import LedgerReader
from fairsync.ledger.schema import FORMAT
from fairsync.ledger.urls import MEMORY, describe_url

if TYPE_CHECKING:
    from fairsync.ledger.reader import Summary

ledger = typer.Typer(
    help="Look into the ledger of a service, check it, back it up, restore it and migrate it.", no_args_is_help=True
)

_Source = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A path or URL (exposures.db, sqlite:///exposures.db, postgresql://user@host/database?schema=fairsync), or"
        " the TOML file of a service. Passwords are best left to libpq: PGPASSWORD, or ~/.pgpass.",
    ),
]
_TIMEOUT = 3.0  # seconds for which a Postgres server that is away, or a ledger that is in use, is tried again


@ledger.command(cls=Command)
def show(
    source: _Source,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")] = False,
    most: Annotated[
        int, typer.Option("--groups", min=1, help="Groups and selections to list, those with most exposures first.")
    ] = 20,
) -> None:
    """Show what a ledger holds. The service may be running.

    fairsync ledger show service.toml

    fairsync ledger show postgresql://fairsync@db.internal/shop --json
    """
    with LedgerReader(find_url(source), timeout=_TIMEOUT) as reader:
        shown = ShownLedger.read(reader)
    if as_json:
        typer.echo(json.dumps(shown.to_dict(), indent=2, ensure_ascii=False))
    else:
        Console(highlight=False).print(*shown.tables(most), sep="\n")


@ledger.command(cls=Command)
def check(source: _Source) -> None:
    """Look for damage, and for settings of the server that may lose exposures. The service may be running.

    fairsync ledger check /backup/exposures.db

    Exits with code 1 if it finds something.
    """
    url = find_url(source)
    with LedgerReader(url, timeout=_TIMEOUT) as reader:
        summary, found = reader.summary(), reader.check()
        if summary.format == 0:
            raise InvalidInputError(f"there is no ledger in {describe_url(url)}: check the URL.")
        found += ShownLedger.find_damage(reader)
    for one in found:
        Console(soft_wrap=True, highlight=False).print(one, style="red", markup=False)
    if found:
        raise typer.Exit(1)
    _print(f"{describe_url(url)} is undamaged", summary)


@ledger.command(cls=Command)
def backup(
    source: _Source,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="The backup to write. It is replaced atomically.")],
) -> None:
    """Write a consistent snapshot of a ledger to one SQLite file. The service may be running.

    fairsync ledger backup sqlite:///exposures.db /backup/exposures.db

    fairsync ledger backup postgresql://fairsync@db.internal/shop /backup/exposures.db
    """
    url = find_url(source)
    _print(f"{file} is a backup of {describe_url(url)}", back_up(url, file))


@ledger.command(cls=Command)
def restore(
    source: _Source,
    file: Annotated[Path, typer.Argument(dir_okay=False, help="A backup that `fairsync ledger backup` wrote.")],
) -> None:
    """Replace a ledger by a backup. The service must be stopped. The replaced ledger is kept under another name.

    fairsync ledger restore sqlite:///exposures.db /backup/exposures.db

    A backup of a ledger in SQLite can be restored in Postgres, and the other way round. This moves a ledger:

    fairsync ledger restore postgresql://fairsync@db.internal/shop /backup/exposures.db
    """
    url = find_url(source)
    summary, replaced = restore_backup(file, url)
    _print(f"{describe_url(url)} is restored from {file}", summary)
    if replaced is not None:
        _print(f"the replaced ledger is {replaced}")


@ledger.command(cls=Command)
def migrate(source: _Source) -> None:
    """Migrate a ledger to the present format, in one transaction. The service must be stopped.

    fairsync ledger migrate sqlite:///exposures.db

    A service does so by itself when it starts. Earlier versions of FairSync refuse the present format: make a backup
    first, to be able to go back.
    """
    url = find_url(source)
    with LedgerReader(url, timeout=_TIMEOUT) as reader:
        before = reader.summary()
    if before.format == FORMAT:
        _print(f"{describe_url(url)} has the present format, {FORMAT}: nothing was changed")
        return
    with SqlLedger(url, None, timeout=_TIMEOUT):
        pass
    _print(f"{describe_url(url)} is migrated from format {before.format} to {FORMAT}", before)


def find_url(source: str) -> str:
    """Return the URL or path of a ledger, given by itself or by the configuration file of a service.

    Examples
    --------
    >>> find_url("sqlite:///exposures.db"), find_url("exposures.db")
    ('sqlite:///exposures.db', 'exposures.db')
    """
    url = source
    if "://" not in source and Path(source).suffix == ".toml":
        from fairsync.cli.serve import need_service

        need_service()
        from fairsync.service.settings import load_settings

        url = load_settings(source).ledger.url
    if url == MEMORY:
        raise InvalidInputError(
            "the ledger is in memory and ends with its process: name one in SQLite or Postgres, such as"
            " sqlite:///exposures.db."
        )
    describe_url(url)  # refuses a URL that names no ledger
    return url


def _print(sentence: str, summary: Summary | None = None) -> None:
    if summary is not None:
        sentence += f": {summary.requests:,} requests in {summary.horizons:,} horizons, {summary.groups:,} columns"
    Console(soft_wrap=True, highlight=False).print(f"{sentence}.", markup=False)
