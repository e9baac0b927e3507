"""Migrations of a ledger's SQLite file: each format is made from the one before."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from fairsync.errors import InvalidInputError


def _to_1(db: sqlite3.Connection) -> None:
    """Create the tables of horizons, idempotency keys (receipts), saved values (kept) and facts."""
    db.execute(
        "CREATE TABLE horizons (number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL,"
        " cost REAL, forced INTEGER NOT NULL, exposures BLOB NOT NULL)"
    )
    db.execute("CREATE TABLE receipts (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE)")
    db.execute("CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
    db.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


def _to_2(db: sqlite3.Connection) -> None:
    """Add the start of each horizon, impressions (shown), and answers by request id.

    Some files of format 1 have these already.
    """
    if "began" not in {column[1] for column in db.execute("PRAGMA table_info(horizons)")}:
        db.execute("ALTER TABLE horizons ADD COLUMN began REAL NOT NULL DEFAULT 0")
        db.execute("ALTER TABLE horizons ADD COLUMN shown BLOB")
    db.execute(
        "CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE,"
        " answer BLOB NOT NULL)"
    )


# The migration at index v makes format v + 1. Never change a released migration: append another one.
MIGRATIONS: list[Callable[[sqlite3.Connection], None]] = [_to_1, _to_2]


def read_format(db: sqlite3.Connection, path: Path) -> int:
    """Return the format of a file, 0 if it is new; refuse a file that is no ledger, or of a later version.

    Examples
    --------
    >>> read_format(sqlite3.connect(":memory:"), Path("new.db"))
    0
    """
    number = int(db.execute("PRAGMA user_version").fetchone()[0])
    if number > len(MIGRATIONS):
        raise InvalidInputError(
            f"{path} was written by a later version of FairSync (format {number}, this one reads up to"
            f" {len(MIGRATIONS)}): update FairSync."
        )
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables if number == 0 else not {"horizons", "kept", "facts"} <= tables:
        raise InvalidInputError(f"{path} is a database, but no ledger: give another path.")
    return number


def migrate(db: sqlite3.Connection, path: Path, n_groups: int) -> None:
    """Create the tables of a new file, or migrate those of an older one. Call it within a transaction.

    Examples
    --------
    >>> db = sqlite3.connect(":memory:")
    >>> migrate(db, Path("new.db"), n_groups=3)
    >>> read_format(db, Path("new.db")) == len(MIGRATIONS)
    True
    """
    number = read_format(db, path)
    for migration in MIGRATIONS[number:]:
        migration(db)
    if number == 0:
        db.execute("INSERT INTO facts VALUES ('groups', ?)", [json.dumps(n_groups)])
    if number < len(MIGRATIONS):
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
