"""The formats of a ledger's file: each is made from the one before, the first from nothing."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from fairsync.errors import InvalidInputError


def _to_1(db: sqlite3.Connection) -> None:
    """Make room for the counts of every horizon, for keys, and for what policies have learnt."""
    db.execute(
        "CREATE TABLE horizons (number INTEGER PRIMARY KEY, requests INTEGER NOT NULL, relevance REAL NOT NULL,"
        " cost REAL, forced INTEGER NOT NULL, exposures BLOB NOT NULL)"
    )
    db.execute("CREATE TABLE receipts (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE)")
    db.execute("CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
    db.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")


def _to_2(db: sqlite3.Connection) -> None:
    """Add when horizons began, exposures that were really shown, and answers to requests with ids.

    Some files have had these while they still called themselves format 1.
    """
    if "began" not in {column[1] for column in db.execute("PRAGMA table_info(horizons)")}:
        db.execute("ALTER TABLE horizons ADD COLUMN began REAL NOT NULL DEFAULT 0")
        db.execute("ALTER TABLE horizons ADD COLUMN shown BLOB")
    db.execute(
        "CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY AUTOINCREMENT, request TEXT NOT NULL UNIQUE,"
        " answer BLOB NOT NULL)"
    )


# The step at place v makes format v + 1. A step is never changed once files were written by it: add another.
_STEPS: list[Callable[[sqlite3.Connection], None]] = [_to_1, _to_2]


def read_format(db: sqlite3.Connection, path: Path) -> int:
    """Return the format of a file, 0 if it is new; refuse what is no ledger, or one of a later version.

    Examples
    --------
    >>> read_format(sqlite3.connect(":memory:"), Path("new.db"))
    0
    """
    number = int(db.execute("PRAGMA user_version").fetchone()[0])
    if number > len(_STEPS):
        raise InvalidInputError(
            f"{path} was written by a later version of FairSync (format {number}, this one reads up to {len(_STEPS)}):"
            " update FairSync."
        )
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables if number == 0 else not {"horizons", "kept", "facts"} <= tables:
        raise InvalidInputError(f"{path} is a database, but no ledger: give another path.")
    return number


def bring_up_to_date(db: sqlite3.Connection, path: Path, n_groups: int) -> None:
    """Make the tables of a new file, and change those of an older one; to be called within a transaction.

    Examples
    --------
    >>> db = sqlite3.connect(":memory:")
    >>> bring_up_to_date(db, Path("new.db"), n_groups=3)
    >>> read_format(db, Path("new.db")) == len(_STEPS)
    True
    """
    number = read_format(db, path)
    for step in _STEPS[number:]:
        step(db)
    if number == 0:
        db.execute("INSERT INTO facts VALUES ('groups', ?)", [json.dumps(n_groups)])
    if number < len(_STEPS):
        db.execute(f"PRAGMA user_version = {len(_STEPS)}")
