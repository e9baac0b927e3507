"""The schema of a ledger's tables: its formats, and migrations from one to the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

from fairsync.errors import InvalidInputError
from fairsync.ledger.base import Totals

if TYPE_CHECKING:
    from fairsync.ledger.database import Database, Transaction

# The present format. Formats 1 and 2 were of SQLite only.
FORMAT = 4


def open_tables(database: Database, transaction: Transaction, n_groups: int | None) -> int:
    """Create the tables of a new ledger, or migrate those of an earlier format. Call it in an exclusive transaction.

    Parameters
    ----------
    database, transaction
        The database, and the transaction under way.
    n_groups
        Number of groups of a new ledger; None if there must be one.

    Returns
    -------
    int
        The format that was found, 0 for a new ledger.
    """
    found = database.read_format(transaction)
    check_format(found, database.address)
    if found == 0:
        if n_groups is None:
            raise InvalidInputError(f"there is no ledger in {database.address}: check the URL.")
        database.make_room(transaction)
        create_tables(database, transaction)
        open_horizon(transaction, 0, Totals.zero(n_groups))
    else:
        for number in range(found, FORMAT):
            _MIGRATIONS[number](database, transaction)
    if found < FORMAT:
        database.write_format(transaction, FORMAT)
    return found


def check_format(number: int, address: str) -> None:
    """Refuse a format of a later version."""
    if number > FORMAT:
        raise InvalidInputError(
            f"{address} was written by a later version of FairSync (format {number}, this one reads up to {FORMAT}):"
            " update FairSync."
        )


def create_tables(database: Database, transaction: Transaction) -> None:
    """Create empty tables of the present format."""
    for statement in read_schema().split(";"):
        if statement.strip():
            transaction.execute(statement.format(**database.types))
    database.make_append_only(transaction, "audit")


def open_horizon(transaction: Transaction, number: int, totals: Totals) -> None:
    """Add a horizon without exposures."""
    transaction.execute(
        "INSERT INTO horizons (number, requests, relevance, cost, forced, began, exposures)"
        " VALUES (:number, 0, 0.0, 0.0, 0, :began, :exposures)",
        number=number,
        began=totals.began,
        exposures=totals.exposures.astype("<i8").tobytes(),
    )


def read_schema() -> str:
    """Return the text of ``schema.sql``, without comments."""
    text = files("fairsync.ledger").joinpath("schema.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def _to_2(database: Database, transaction: Transaction) -> None:
    """Add the start of each horizon, impressions, and answers. Some files of format 1 have these already."""
    if "began" not in {row[0] for row in transaction.execute("SELECT name FROM pragma_table_info('horizons')")}:
        transaction.execute("ALTER TABLE horizons ADD COLUMN began REAL NOT NULL DEFAULT 0")
        transaction.execute("ALTER TABLE horizons ADD COLUMN shown BLOB")
    transaction.execute(
        "CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE,"
        " answer BLOB NOT NULL)"
    )


def _to_3(database: Database, transaction: Transaction) -> None:
    """Copy all tables to those of ``schema.sql``. Keys and answers count as recorded now."""
    before = ("horizons", "receipts", "kept", "facts", "answers")
    for table in before:
        transaction.execute(f"ALTER TABLE {table} RENAME TO before_{table}")
    create_tables(database, transaction)
    for statement in (
        "INSERT INTO horizons SELECT number, requests, relevance, cost, forced, began, exposures, shown"
        " FROM before_horizons",
        "INSERT INTO keys (key, recorded_at) SELECT key, :now FROM before_receipts ORDER BY number",
        "INSERT INTO answers (request_id, answer, answered_at)"
        " SELECT request, answer, :now FROM before_answers WHERE length(answer) > 0 ORDER BY number",
        "INSERT INTO expired_answers (request_id)"
        " SELECT request FROM before_answers WHERE length(answer) = 0 ORDER BY number",
        "INSERT INTO saved SELECT name, value FROM before_kept",
    ):
        transaction.execute(statement, **({"now": time.time()} if ":now" in statement else {}))
    ((groups,),) = transaction.execute("SELECT value FROM before_facts WHERE name = 'groups'") or [(None,)]
    if groups is None:
        raise InvalidInputError(
            f"{database.address} is damaged: it does not say how many groups it counts. Restore a backup."
        )
    latest = transaction.execute("SELECT number, exposures FROM horizons ORDER BY number DESC LIMIT 1")
    if not latest:
        open_horizon(transaction, 0, Totals.zero(int(groups)))
    else:  # groups may have been added without a count since
        number, counts = latest[0]
        grown = bytes(counts).ljust(8 * int(groups), b"\0")
        transaction.execute("UPDATE horizons SET exposures = :grown WHERE number = :number", grown=grown, number=number)
    for table in before:
        transaction.execute(f"DROP TABLE before_{table}")


def _to_4(database: Database, transaction: Transaction) -> None:
    """Add the audit. Files of formats 1 and 2 have it by now, because `_to_3` makes the present tables."""
    ((statement,),) = [[one] for one in read_schema().split(";") if "CREATE TABLE audit" in one]
    statement = statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
    transaction.execute(statement.format(**database.types))
    database.make_append_only(transaction, "audit")


_Migration: TypeAlias = Callable[["Database", "Transaction"], None]
# The migration of number v makes format v + 1. Never change a released one: append another.
_MIGRATIONS: dict[int, _Migration] = {1: _to_2, 2: _to_3, 3: _to_4}
