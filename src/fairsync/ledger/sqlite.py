"""A ledger's database in one SQLite file. It survives a kill at any moment, and a power failure."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from fairsync.errors import FairSyncError, InvalidInputError, UnusableLedgerError
from fairsync.ledger.file_lock import TIMEOUT_SECONDS, FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fairsync.ledger.database import Mode, Transaction

T = TypeVar("T")
_PLACEHOLDERS = {
    "{now}": "((julianday('now') - 2440587.5) * 86400.0)",
    "{ids}": "(SELECT value FROM json_each(:ids))",
    "{for_update}": "",
}


class SqliteDatabase:
    """An SQLite file. One process has it open at a time; others may read it.

    Parameters
    ----------
    path
        Path of the file. It is created with the first transaction if it does not exist.
    read_only
        Open an existing file without locking it, also while another process writes to it.
    """

    types = {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "integer": "INTEGER", "real": "REAL", "bytes": "BLOB"}  # noqa: RUF012
    session = 0

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path, self.address = Path(path), str(path)
        self._lock = threading.RLock()
        self._new: Path | None = None
        if not self.path.parent.is_dir():
            raise InvalidInputError(f"{self.path.parent} is no folder: make it first, or put the ledger elsewhere.")
        if read_only and not self.path.is_file():
            raise InvalidInputError(f"there is no file {self.path}: check the path.")
        if self.path.is_file() and not self.path.stat().st_size:
            raise InvalidInputError(
                f"{self.path} has no content, and is no ledger: restore a backup, or delete the file to begin a new"
                " ledger."
            )
        # SQLite would open it, and refuse the first write.
        if self.path.is_file() and not read_only and not _is_writable(self.path):
            raise FairSyncError(f"{self.path} is read-only: run this as a user who may write to it.")
        with self._access(), ExitStack() as opened:
            if read_only:
                self._db = _connect(self.path, read_only=True)
            else:
                opened.callback(FileLock(self.path).release)
                # A new ledger gets its name when it is complete, so that a crash leaves no empty file of that name.
                self._new = None if self.path.exists() else self.path.with_name(f"{self.path.name}.new")
                if self._new is not None:
                    self._new.unlink(missing_ok=True)
                self._db = _connect(self._new or self.path)
            opened.callback(self._close_file)
            self._identity = None if read_only or self._new else _identify(self.path)
            self._files = opened.pop_all()

    def run(self, action: Callable[[Transaction], T], mode: Mode = "write", *, durable: bool = True) -> T:
        """Run an action in a transaction; see :class:`fairsync.ledger.database.Database`."""
        with self._access():
            if self._identity is not None and _identify(self.path) != self._identity:
                raise FairSyncError(
                    f"the ledger {self.path} was deleted or replaced while it was in use: stop this process, restore"
                    " the file or a backup, and start again."
                )
            self._db.execute("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")
            try:
                result = action(self)
                self._db.execute("COMMIT")
                return result
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def execute(self, query: str, /, **values: object) -> list[tuple[Any, ...]]:
        """Run a query of the transaction under way, and return its rows."""
        return self._db.execute(_translate(query), values).fetchall()

    def execute_last(self, query: str, /, **values: object) -> None:
        """Run the last query of a transaction."""
        self.execute(query, **values)

    def insert(self, table: str, columns: Mapping[str, Sequence[object]], at: str | None = None) -> None:
        """Insert rows, given by columns."""
        names, values = list(columns), ["?"] * len(columns)
        if at is not None:
            names, values = [*names, at], [*values, _PLACEHOLDERS["{now}"]]
        query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(values)})"
        self._db.executemany(query, list(zip(*columns.values(), strict=True)))

    def read_format(self, transaction: Transaction) -> int:
        """Return the format of the file, 0 if it is new; refuse a file that is no ledger."""
        number = int(transaction.execute("PRAGMA user_version")[0][0])
        tables = {row[0] for row in transaction.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables if number == 0 else not {"horizons", "facts"} <= tables:
            raise InvalidInputError(f"{self.path} is a database, but no ledger: give another path.")
        return number

    def make_room(self, transaction: Transaction) -> None:
        """No-op: the file exists."""

    def write_format(self, transaction: Transaction, number: int) -> None:
        """Set the format of the file."""
        transaction.execute(f"PRAGMA user_version = {number}")

    def make_append_only(self, transaction: Transaction, table: str) -> None:
        """Have triggers refuse changes and deletions of rows of a table."""
        for verb in ("UPDATE", "DELETE"):
            transaction.execute(
                f"CREATE TRIGGER IF NOT EXISTS {table}_{verb.lower()} BEFORE {verb} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, 'rows of {table} can only be added'); END"
            )

    def allow_long(self, transaction: Transaction) -> None:
        """No-op: there is no limit."""

    def begin(self) -> None:
        """Give a new file its name, once it has its tables, and have it written to through a write-ahead log."""
        if self._new is not None:
            with self._access():
                self._db.close()
                os.replace(self._new, self.path)
                sync_folder(self.path.parent)
                self._new, self._db = None, _connect(self.path)
                self._identity = _identify(self.path)
        with self._access():
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")

    def check(self) -> list[str]:
        """Return what is damaged in the file."""
        with self._access():
            found = [str(row[0]) for row in self._db.execute("PRAGMA integrity_check(5)")]
        return [] if found == ["ok"] else [f"{self.address} is damaged: {one.rstrip('.')}." for one in found]

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy to a file that does not exist, while this one may be written to."""
        with self._access(), closing(sqlite3.connect(path, isolation_level=None)) as copied:
            try:
                self._db.backup(copied)
                copied.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.OperationalError as error:  # no room
                raise FairSyncError(f"{self.path} could not be copied to {path.parent}: {error}.") from error

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._lock:
            self._files.close()

    def _close_file(self) -> None:
        self._db.close()
        if self._new is not None:  # it never became a ledger
            self._new.unlink(missing_ok=True)

    @contextmanager
    def _access(self) -> Iterator[None]:
        """Hold the lock, and turn errors of SQLite into errors that say what to do."""
        with self._lock:
            try:
                yield
            except (sqlite3.Error, sqlite3.Warning) as error:
                reason = str(error)
                if "locked" in reason:
                    raise FairSyncError(
                        f"{self.path} is in use by another process: stop it first, or share a ledger in Postgres."
                    ) from error
                if "not a database" in reason or "malformed" in reason:
                    raise UnusableLedgerError(
                        f"{self.path} is damaged or no ledger ({reason}): restore a backup."
                    ) from error
                if "readonly" in reason or "unable to open" in reason:
                    reason += f"; {self.path.parent} must be writable, too"
                raise FairSyncError(f"{self.path} could not be used: {reason}. Nothing was changed.") from error


@lru_cache(maxsize=256)
def _translate(query: str) -> str:
    for name, text in _PLACEHOLDERS.items():
        query = query.replace(name, text)
    return query


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that a file's new name survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    mode = "ro" if read_only else "rwc"
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        timeout=TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
