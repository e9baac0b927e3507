"""A ledger in one SQLite file: it survives a kill at any moment, and a power failure."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fairsync.closing import Closable, NoCopies
from fairsync.errors import FairSyncError, InvalidInputError, RepeatedRequestError
from fairsync.ledger.base import MAX_ANSWERS, MAX_KEYS, Entry, Totals
from fairsync.ledger.sqlite_backup import back_up
from fairsync.ledger.sqlite_lock import FileLock
from fairsync.ledger.sqlite_migrations import migrate, read_format

# Old keys and answers are deleted once per this many new ones.
DELETE_EVERY = 1000
_COLUMNS = "number, requests, relevance, cost, forced, began, exposures, shown"


class SqliteLedger(NoCopies, Closable):
    """A ledger in an SQLite file. When `record` returns, the entries are on the disk.

    The file has one writer at a time: a second process that opens it is refused while the first runs. A file of an
    earlier format is migrated to the current one, which earlier versions of FairSync refuse.

    Parameters
    ----------
    path
        Path of the file. It is created if it does not exist.
    n_groups
        Number of groups of a new file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> ledger = SqliteLedger(folder.name + "/exposures.db", n_groups=2)
    >>> ledger.record([Entry(np.array([1, 1]), 1, 0.5, 0.0)], key="first"), ledger.record([], key="first")
    (True, False)
    >>> ledger.close()
    >>> with SqliteLedger(folder.name + "/exposures.db", n_groups=2) as again:
    ...     again.totals().exposures.tolist()
    [1, 1]
    >>> folder.cleanup()
    """

    use_instead = "its file has one writer; open the file again after close(), or write a copy with back_up(path)"

    def __init__(self, path: str | Path, n_groups: int) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._n_groups = n_groups
        self._number, self._totals = 0, Totals.zero(n_groups)
        self._past: list[Totals] = []
        if not self.path.parent.is_dir():
            raise InvalidInputError(f"{self.path.parent} is no folder: make it first, or put the ledger elsewhere.")
        with self._access(), ExitStack() as opened:
            opened.callback(FileLock(self.path).release)
            self._db = sqlite3.connect(self.path, timeout=2.0, isolation_level=None, check_same_thread=False)
            opened.callback(self._db.close)
            self._open()
            self._files = opened.pop_all()

    def totals(self) -> Totals:
        """Return the totals of the horizon under way."""
        return self._totals

    def past(self) -> Sequence[Totals]:
        """Return the totals of the horizons before it, oldest first."""
        with self._access():
            first = len(self._past)  # past horizons do not change: each is read once
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM horizons WHERE number < ? ORDER BY number LIMIT -1 OFFSET ?",
                [self._number, first],
            )
            self._past = [*self._past, *(_make_totals(row) for row in rows)]
            self._past = [one.grown(self._n_groups) for one in self._past]
            return self._past

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries in one transaction, unless entries were recorded under this idempotency key before."""
        with self._access():
            number, totals = self._number, self._totals
            with self._transaction():
                if key is not None and not self._add_key(key):
                    return False
                self._write_answers(answers or {})
                for entry in entries:
                    if entry.opens_horizon:
                        self._write(number, totals)
                        number, totals = number + 1, Totals.zero(self._n_groups, entry.began)
                    totals = totals.after(entry)
                self._write(number, totals)
            self._number, self._totals = number, totals
            return True

    def answer(self, request_id: str) -> bytes | None:
        """Return the saved answer to a request; empty if it is too old to be saved still, None if there was none."""
        with self._access():
            row = self._db.execute("SELECT answer FROM answers WHERE request = ?", [request_id]).fetchone()
            return None if row is None else bytes(row[0])

    def grow(self, n_groups: int) -> None:
        """Add groups with zero exposures."""
        with self._access():
            grown = self._totals.grown(n_groups)
            with self._transaction():
                self._write(self._number, grown)
                self._db.execute("UPDATE facts SET value = ? WHERE name = 'groups'", [json.dumps(n_groups)])
            self._n_groups, self._totals = n_groups, grown

    def save(self, name: str, value: bytes) -> None:
        """Save a value beside the record."""
        with self._access(), self._transaction():
            self._db.execute("REPLACE INTO kept VALUES (?, ?)", [name, value])

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        with self._access():
            row = self._db.execute("SELECT value FROM kept WHERE name = ?", [name]).fetchone()
            return None if row is None else bytes(row[0])

    def back_up(self, path: str | Path) -> None:
        """Write a backup to another file, while this one is in use; see :mod:`fairsync.ledger.sqlite_backup`."""
        back_up(self.path, path)

    def close(self) -> None:
        """Close the file and release its lock."""
        with self._lock:
            self._files.close()

    def _open(self) -> None:
        read_format(self._db, self.path)  # before anything is written: the file may be no ledger
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            migrate(self._db, self.path, self._n_groups)
        self._n_groups = self._read_n_groups()
        self._totals = Totals.zero(self._n_groups)
        row = self._db.execute(f"SELECT {_COLUMNS} FROM horizons ORDER BY number DESC LIMIT 1").fetchone()
        if row is not None:
            self._number, self._totals = int(row[0]), _make_totals(row)

    def _read_n_groups(self) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE name = 'groups'").fetchone()
        if row is None:
            raise _DamageError("it does not say how many groups it counts")
        return int(json.loads(row[0]))

    def _write(self, number: int, totals: Totals) -> None:
        cost = None if np.isnan(totals.cost) else totals.cost
        exposures = totals.exposures.astype("<i8").tobytes()
        impressions = None if totals.impressions is None else totals.impressions.astype("<i8").tobytes()
        self._db.execute(
            f"REPLACE INTO horizons ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [number, totals.requests, totals.relevance, cost, totals.forced, totals.began, exposures, impressions],
        )

    def _write_answers(self, answers: Mapping[str, bytes]) -> None:
        repeated = [request for request in answers if self.answer(request) is not None]
        if repeated:
            raise RepeatedRequestError(repeated)
        for request, answer in answers.items():
            done = self._db.execute("INSERT INTO answers (request, answer) VALUES (?, ?)", [request, answer])
            if done.lastrowid is not None and done.lastrowid % DELETE_EVERY == 0:
                self._db.execute("DELETE FROM answers WHERE number <= ?", [done.lastrowid - MAX_KEYS])
                # Older answers were emptied the last time.
                old = [done.lastrowid - MAX_ANSWERS, done.lastrowid - MAX_ANSWERS - 2 * DELETE_EVERY]
                self._db.execute("UPDATE answers SET answer = x'' WHERE number <= ? AND number > ?", old)

    def _add_key(self, key: str) -> bool:
        """Save an idempotency key; return False if it is known."""
        done = self._db.execute("INSERT OR IGNORE INTO receipts (key) VALUES (?)", [key])
        if done.rowcount and done.lastrowid is not None and done.lastrowid % DELETE_EVERY == 0:
            self._db.execute("DELETE FROM receipts WHERE number <= ?", [done.lastrowid - MAX_KEYS])
        return bool(done.rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _access(self) -> Iterator[None]:
        """Hold the lock, and turn errors of SQLite into errors that say what to do."""
        with self._lock:
            try:
                yield
            except (sqlite3.DatabaseError, _DamageError) as error:
                reason = str(error)
                if "locked" in reason:
                    raise FairSyncError(
                        f"{self.path} is in use by another process: stop it first, or share a Redis ledger."
                    ) from error
                if isinstance(error, _DamageError) or "not a database" in reason or "malformed" in reason:
                    raise InvalidInputError(
                        f"{self.path} is damaged or no ledger ({reason}): restore a backup."
                    ) from error
                raise FairSyncError(f"{self.path} could not be used: {reason}. Nothing was changed.") from error


def _make_totals(row: tuple[int, int, float, float | None, int, float, bytes, bytes | None]) -> Totals:
    _, requests, relevance, cost, forced, began, exposures, impressions = row
    cost = float("nan") if cost is None else cost
    counted = None if impressions is None else _counts(impressions)
    return Totals(_counts(exposures), requests, relevance, cost, forced, began, counted)


def _counts(data: bytes) -> npt.NDArray[np.int64]:
    if len(data) % 8:
        raise _DamageError("a count is cut off")
    return np.frombuffer(data, dtype="<i8").astype(np.int64)


class _DamageError(Exception):
    """The file has content that this class cannot have written."""
