"""A ledger in a SQL database: a file of SQLite for one process, or Postgres, which several can share."""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.closing import Closable, NoCopies
from fairsync.errors import InvalidInputError, RepeatedRequestError, UnusableLedgerError
from fairsync.ledger.base import Totals
from fairsync.ledger.retention import Retention, delete_old
from fairsync.ledger.schema import open_horizon, open_tables
from fairsync.ledger.urls import is_postgres, open_database

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.ledger.base import Entry
    from fairsync.ledger.database import Database, Lock, Transaction

# Entries are added to the totals of their horizon when there are this many, so that there are few to read.
FOLD_AT = 32
# Old answers and keys are deleted once per this many new ones.
DELETE_EVERY = 1000

_COLUMNS = "requests, relevance, cost, forced, exposures, impressions"
# The totals of the horizon under way, and its latest entries, which have no start.
LATEST = f"""
SELECT number, {_COLUMNS}, began FROM horizons WHERE number = (SELECT max(number) FROM horizons)
UNION ALL SELECT number, {_COLUMNS}, -1.0 FROM entries
"""
_PAST = f"SELECT number, {_COLUMNS}, began FROM horizons WHERE number >= :first ORDER BY number"
_WRITE = f"INSERT INTO entries ({_COLUMNS}) VALUES (:requests, :relevance, :cost, :forced, :exposures, :impressions)"
_FOLD = """
UPDATE horizons SET requests = :requests, relevance = :relevance, cost = :cost, forced = :forced,
exposures = :exposures, impressions = :impressions WHERE number = :number
"""
_KNOWN = """
SELECT request_id FROM answers WHERE request_id IN {ids}
UNION ALL SELECT request_id FROM expired_answers WHERE request_id IN {ids}
"""
_ANSWERS = """
SELECT request_id, answer FROM answers WHERE request_id IN {ids}
UNION ALL SELECT request_id, NULL FROM expired_answers WHERE request_id IN {ids}
"""


@dataclass(frozen=True)
class Latest:
    """The horizon under way as a transaction sees it.

    Attributes
    ----------
    number : int
        Number of the horizon, from 0.
    totals : Totals
        Its totals.
    entries : list of int
        Numbers of the entries in it that are not yet part of the stored totals.
    """

    number: int
    totals: Totals
    entries: list[int]


class SqlLedger(NoCopies, Closable):
    """A ledger in SQLite or Postgres. When `record` returns, the entries are on the disk.

    A file of SQLite has one writer at a time, and so has a ledger in Postgres unless it is opened with ``shared``: a
    second process is refused while the first runs. Tables of an earlier format are migrated to the present one, which
    earlier versions of FairSync refuse.

    Parameters
    ----------
    url
        ``sqlite:///exposures.db`` (a relative path; four slashes for an absolute one), a path, or
        ``postgresql://user:password@host/database?schema=fairsync``.
    n_groups
        Number of groups of a new ledger; None if there must be one already.
    shared
        Whether other processes may write to it as well: coordinators that share a promise do. Postgres only.
    timeout
        Seconds for which a Postgres server that is away is tried again.
    retention
        How long answers and idempotency keys are saved.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fairsync.ledger import Entry
    >>> folder = TemporaryDirectory()
    >>> ledger = SqlLedger(f"sqlite:///{folder.name}/exposures.db", n_groups=2)
    >>> ledger.record([Entry(np.array([1, 1]), 1, 0.5, 0.0)], key="first"), ledger.record([], key="first")
    (True, False)
    >>> ledger.close()
    >>> with SqlLedger(f"sqlite:///{folder.name}/exposures.db", n_groups=2) as again:
    ...     again.totals().exposures.tolist()
    [1, 1]
    >>> folder.cleanup()
    """

    use_instead = "it has one writer; open it again after close(), or write a copy with back_up(path)"

    def __init__(
        self,
        url: str | Path,
        n_groups: int | None,
        *,
        shared: bool = False,
        timeout: float = 10.0,
        retention: Retention | None = None,
    ) -> None:
        if shared and not is_postgres(url):
            raise InvalidInputError(f"a ledger in {url} cannot be shared: it needs Postgres (postgresql://...).")
        self.shared, self.retention = shared, retention or Retention()
        self.database: Database = open_database(url, timeout=timeout, owner="many" if shared else "one")
        self.fence: Callable[[Transaction], None] = lambda _: None
        self._past, self._written, self._unfolded = list[Totals](), 0, FOLD_AT
        self._reading = threading.Lock()
        try:
            self.database.run(lambda transaction: open_tables(self.database, transaction, n_groups), "all")
            self.database.begin()
        except BaseException:
            self.database.close()
            raise

    def __repr__(self) -> str:
        return f"SqlLedger({self.database.address!r})"

    def totals(self) -> Totals:
        """Return the totals of the horizon under way."""
        return self.database.run(self.read_latest, "none").totals

    def past(self) -> Sequence[Totals]:
        """Return the totals of the horizons before it, oldest first."""
        with self._reading:  # past horizons do not change: each is read once
            first = len(self._past)
            *rows, latest = self.database.run(lambda transaction: transaction.execute(_PAST, first=first), "none")
            n_groups = len(_make_totals(latest).exposures)
            self._past = [one.grown(n_groups) for one in [*self._past, *map(_make_totals, rows)]]
            return list(self._past)

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries in one transaction, unless entries were recorded under this idempotency key before."""
        if key is None and is_postgres(self.database.address):
            key = secrets.token_hex(16)  # a commit whose outcome is unknown is repeated
        lock: Lock = "entries" if self.shared else "leases"
        if any(entry.opens_horizon for entry in entries):
            lock = "all"
        return self.database.run(lambda transaction: self._record(transaction, entries, key, answers or {}), lock)

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; empty if it is too old to be saved still."""
        if not request_ids:
            return {}
        ids = json.dumps(list(request_ids))
        rows = self.database.run(lambda transaction: transaction.execute(_ANSWERS, ids=ids), "none")
        return {request_id: b"" if answer is None else bytes(answer) for request_id, answer in rows}

    def grow(self, n_groups: int) -> None:
        """Add groups with zero exposures."""
        self.database.run(lambda transaction: self.write_grown(transaction, n_groups), "all")

    def save(self, name: str, value: bytes) -> None:
        """Save a value beside the record."""

        def write(transaction: Transaction) -> None:
            self.fence(transaction)
            self.write_saved(transaction, name, value)

        self.database.run(write)

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        rows = self.database.run(
            lambda transaction: transaction.execute("SELECT value FROM saved WHERE name = :name", name=name), "none"
        )
        return bytes(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the database, and release its locks."""
        self.database.close()

    # The parts of transactions that coordinators share with this class.

    def read_latest(self, transaction: Transaction) -> Latest:
        """Return the horizon under way."""
        return self.make_latest(transaction.execute(LATEST))

    def make_latest(self, rows: Sequence[tuple[Any, ...]]) -> Latest:
        """Return the horizon under way from the rows of the query LATEST."""
        ordered = sorted(rows, key=lambda row: (row[-1] < 0, row[0]))
        if not ordered or ordered[0][-1] < 0:
            raise UnusableLedgerError(f"{self.database.address} is damaged: it has no horizon. Restore a backup.")
        base, *entries = ordered
        totals = _make_totals(base)
        for row in entries:
            totals = totals.plus(_make_totals(row))
        return Latest(base[0], totals, [row[0] for row in entries])

    def write(
        self, transaction: Transaction, entries: Sequence[Entry], key: str | None, answers: Mapping[str, bytes]
    ) -> bool:
        """Write entries of the horizon under way, unless the idempotency key is known: then return False."""
        if key is not None and not transaction.execute(
            "INSERT INTO keys (key, recorded_at) VALUES (:key, {now}) ON CONFLICT (key) DO NOTHING RETURNING number",
            key=key,
        ):
            return False
        if answers:
            ids = json.dumps(list(answers))
            repeated = [row[0] for row in transaction.execute(_KNOWN, ids=ids)]
            if repeated:
                raise RepeatedRequestError(repeated)
            values = list(answers.values())
            transaction.insert("answers", {"request_id": list(answers), "answer": values}, at="answered_at")
        for entry in entries:
            transaction.execute(_WRITE, **_values(Totals.zero(len(entry.counts)).after(entry)))
        self._written += max(len(answers), 1)
        if self._written >= DELETE_EVERY:
            self._written = 0
            delete_old(transaction, self.retention)
        return True

    def open_horizon(self, transaction: Transaction, latest: Latest, began: float) -> Latest:
        """End the horizon under way and begin the next one. Needs the lock on all."""
        self.fold(transaction, latest)
        zero = Totals.zero(len(latest.totals.exposures), began)
        open_horizon(transaction, latest.number + 1, zero)
        return Latest(latest.number + 1, zero, [])

    def fold(self, transaction: Transaction, latest: Latest) -> None:
        """Add the latest entries to the stored totals. Needs the lock on leases, or on all."""
        transaction.execute(_FOLD, number=latest.number, **_values(latest.totals))
        if latest.entries:
            ids = json.dumps([str(number) for number in latest.entries])
            transaction.execute("DELETE FROM entries WHERE CAST(number AS TEXT) IN {ids}", ids=ids)

    def write_grown(self, transaction: Transaction, n_groups: int) -> Latest:
        """Add groups with zero exposures. Needs the lock on all."""
        latest = self.read_latest(transaction)
        if len(latest.totals.exposures) < n_groups:
            latest = Latest(latest.number, latest.totals.grown(n_groups), latest.entries)
            self.fold(transaction, latest)
            latest = Latest(latest.number, latest.totals, [])
        return latest

    def write_saved(self, transaction: Transaction, name: str, value: bytes) -> None:
        """Save a value beside the record."""
        transaction.execute(
            "INSERT INTO saved VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name=name,
            value=value,
        )

    def _record(
        self, transaction: Transaction, entries: Sequence[Entry], key: str | None, answers: Mapping[str, bytes]
    ) -> bool:
        begins = [number for number, entry in enumerate(entries) if entry.opens_horizon]
        parts = [entries[start:end] for start, end in pairwise([0, *begins, len(entries)])]
        if not self.write(transaction, parts[0], key, answers):
            return False
        for part in parts[1:]:
            self.open_horizon(transaction, self.read_latest(transaction), part[0].began)
            self.write(transaction, part, None, {})
        self._unfolded += len(entries)
        if not self.shared and self._unfolded >= FOLD_AT:
            self.fold(transaction, self.read_latest(transaction))
            self._unfolded = 0
        return True


def _make_totals(row: tuple[Any, ...]) -> Totals:
    _, requests, relevance, cost, forced, exposures, impressions, began = row
    return Totals(
        _counts(exposures),
        requests,
        relevance,
        float("nan") if cost is None else cost,
        forced,
        began,
        None if impressions is None else _counts(impressions),
    )


def _values(totals: Totals) -> dict[str, object]:
    return {
        "requests": totals.requests,
        "relevance": totals.relevance,
        "cost": None if np.isnan(totals.cost) else totals.cost,
        "forced": totals.forced,
        "exposures": totals.exposures.astype("<i8").tobytes(),
        "impressions": None if totals.impressions is None else totals.impressions.astype("<i8").tobytes(),
    }


def _counts(data: bytes) -> NDArray[np.int64]:
    if len(data) % 8:
        raise UnusableLedgerError("the ledger is damaged: a count is cut off. Restore a backup.")
    return np.frombuffer(data, dtype="<i8").astype(np.int64)
