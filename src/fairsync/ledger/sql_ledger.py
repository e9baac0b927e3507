"""A ledger in a SQL database: a file of SQLite for one process, or Postgres, which several can share."""

from __future__ import annotations

import json
import secrets
import threading
from typing import TYPE_CHECKING, Any

from fairsync.closing import Closable, NoCopies
from fairsync.errors import InvalidInputError, RepeatedRequestError, UnusableLedgerError
from fairsync.ledger.audit import append_audit, read_audit
from fairsync.ledger.base import Totals, sum_entries
from fairsync.ledger.retention import Retention, delete_old
from fairsync.ledger.rows import (
    ENTRIES,
    ENTRY_COLUMNS,
    HORIZON,
    LATEST,
    Latest,
    make_latest,
    make_totals,
    totals_values,
)
from fairsync.ledger.schema import open_horizon, open_tables
from fairsync.ledger.shared_entry import SharedEntry
from fairsync.ledger.urls import is_postgres, open_database, sqlite_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fairsync.ledger.audit import AuditPage, AuditRecord
    from fairsync.ledger.base import Entry
    from fairsync.ledger.database import Database, Transaction

# Old answers and keys are deleted once per this many new ones.
DELETE_EVERY = 1000

_PAST = f"SELECT number, {ENTRY_COLUMNS}, began FROM horizons WHERE number >= :first ORDER BY number"
_UPDATE = """
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
    >>> import numpy as np
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

    use_instead = "it has one writer; open it again after close(), or write a copy with fairsync.ledger.backup.back_up"

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
            raise InvalidInputError(
                f"a ledger in {sqlite_path(url)} cannot be shared: it needs Postgres (postgresql://...)."
            )
        self.shared, self.retention = shared, retention or Retention()
        self.database: Database = open_database(url, timeout=timeout, owner="many" if shared else "one")
        self.fence: Callable[[Transaction], None] | None = None  # a coordinator's check that it has not lost the lead
        self._past, self._written = list[Totals](), 0
        self._n_groups = 0  # the ledger has at least as many
        self._stored: tuple[Latest, int] | None = None  # the stored totals, and the session in which they were stored
        self._reading = threading.Lock()
        self._own = SharedEntry(self.database) if shared else None
        try:
            self.database.run(lambda transaction: open_tables(self.database, transaction, n_groups), "exclusive")
            self.database.begin()
        except BaseException:
            self.database.close()
            raise

    def __repr__(self) -> str:
        return f"SqlLedger({self.database.address!r})"

    def totals(self) -> Totals:
        """Return the totals of the horizon under way."""
        return self.database.run(self.read_latest, "statement").totals

    def past(self) -> Sequence[Totals]:
        """Return the totals of the horizons before it, oldest first."""
        with self._reading:  # past horizons do not change: each is read once
            first = len(self._past)
            *rows, latest = self.database.run(lambda transaction: transaction.execute(_PAST, first=first), "statement")
            n_groups = len(make_totals(latest).exposures)
            self._past = [one.grown(n_groups) for one in [*self._past, *map(make_totals, rows)]]
            return list(self._past)

    def record(
        self, entries: Sequence[Entry], key: str | None = None, answers: Mapping[str, bytes] | None = None
    ) -> bool:
        """Add entries in one transaction, unless entries were recorded under this idempotency key before."""
        if key is None and is_postgres(self.database.address):
            key = secrets.token_hex(16)  # a commit whose outcome is unknown is repeated
        if self._own is not None and entries and not any(entry.opens_horizon for entry in entries):
            return self.settle(0, sum_entries(entries), key, answers or {}) is not None
        written = False

        def write(transaction: Transaction) -> bool:
            # If the key is known to a second attempt, the first one was committed, and its outcome was not heard.
            nonlocal written
            written = self._write(transaction, entries, key, answers or {}) or written
            return written

        try:
            return self.database.run(write, "exclusive")
        except BaseException:
            self._stored = None
            raise

    def settle(self, lease: int, entry: Entry, key: str | None, answers: Mapping[str, bytes]) -> Entry | None:
        """Close a lease and record its entry in one statement, side by side with other processes.

        Parameters
        ----------
        lease
            Number of the lease. If it has been closed already, it was lost, and its requests, which were granted again,
            do not count. 0 for an entry that belongs to no lease.
        entry, key, answers
            As for `record`.

        Returns
        -------
        Entry or None
            The entry as it counts; None if entries were recorded under this key before.
        """
        assert self._own is not None, "the ledger was opened with shared=True"
        self._check_groups(len(entry.counts), lambda: len(self.totals().exposures))
        if self._is_deleting_due(len(answers)):
            self.database.run(lambda transaction: delete_old(transaction, self.retention))
        return self._own.add(lease, entry, key, answers)

    def knows(self, key: str) -> bool:
        """Return whether entries were recorded under this idempotency key."""
        query = "SELECT 1 FROM keys WHERE key = :key"
        return bool(self.database.run(lambda transaction: transaction.execute(query, key=key), "statement"))

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        """Return the saved answers to requests, by request id; empty if it is too old to be saved still."""
        if not request_ids:
            return {}
        ids = json.dumps(list(request_ids))
        rows = self.database.run(lambda transaction: transaction.execute(_ANSWERS, ids=ids), "statement")
        return {request_id: b"" if answer is None else bytes(answer) for request_id, answer in rows}

    def grow(self, n_groups: int) -> None:
        """Add groups with zero exposures."""
        self.database.run(lambda transaction: self.write_grown(transaction, n_groups), "exclusive")

    def save(self, name: str, value: bytes, audit: Sequence[AuditRecord] = ()) -> None:
        """Save a value beside the record, and add records to the audit in the same transaction."""

        def write(transaction: Transaction) -> None:
            self.check_fence(transaction)
            self.write_saved(transaction, name, value)
            append_audit(transaction, audit)

        self.database.run(write)

    def audit(self, limit: int, before: int | None = None) -> AuditPage:
        """Return the latest entries of the audit, or the latest ones before a number, and verify all of it."""
        return self.database.run(lambda transaction: read_audit(transaction, limit, before), "read")

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        return self.database.run(lambda transaction: self.read_saved(transaction, name), "statement")

    def close(self) -> None:
        """Close the database, and release its locks."""
        self.database.close()

    # The parts of transactions that coordinators share with this class.

    def read_latest(self, transaction: Transaction) -> Latest:
        """Return the horizon under way."""
        return self.make_latest(transaction.execute(LATEST))

    def make_latest(self, rows: Sequence[tuple[Any, ...]]) -> Latest:
        """Return the horizon under way from the rows of the query LATEST."""
        latest = make_latest(rows, self.database.address)
        self._n_groups = len(latest.totals.exposures)
        return latest

    def open_horizon(self, transaction: Transaction, began: float) -> Latest:
        """End the horizon under way and begin the next one. Needs an exclusive transaction."""
        latest = self.add_entries(transaction)
        zero = Totals.zero(len(latest.totals.exposures), began)
        open_horizon(transaction, latest.number + 1, zero)
        return Latest(latest.number + 1, zero)

    def add_entries(self, transaction: Transaction) -> Latest:
        """Add the entries of all processes to the stored totals. Needs an exclusive transaction."""
        # Locked, so that no process adds to a row that has been read; it begins another one.
        entries = transaction.execute(f"{ENTRIES} {{for_update}}")
        latest = self.make_latest([*transaction.execute(HORIZON), *entries])
        if entries:
            self._store(transaction, latest)
            ids = json.dumps([str(row[0]) for row in entries])
            transaction.execute("DELETE FROM entries WHERE CAST(number AS TEXT) IN {ids}", ids=ids)
        return Latest(latest.number, latest.totals)

    def write_grown(self, transaction: Transaction, n_groups: int) -> None:
        """Add groups with zero exposures. Needs an exclusive transaction."""
        self._stored = None
        stored = self.make_latest(transaction.execute(HORIZON))
        if len(stored.totals.exposures) < n_groups:
            self._store(transaction, Latest(stored.number, stored.totals.grown(n_groups)))
            self._n_groups = n_groups

    def check_fence(self, transaction: Transaction) -> None:
        """Refuse a write of a former leader."""
        if self.fence is not None:
            self.fence(transaction)

    def read_saved(self, transaction: Transaction, name: str) -> bytes | None:
        """Return the value saved under this name, or None."""
        rows = transaction.execute("SELECT value FROM saved WHERE name = :name", name=name)
        return bytes(rows[0][0]) if rows else None

    def write_saved(self, transaction: Transaction, name: str, value: bytes) -> None:
        """Save a value beside the record."""
        transaction.execute(
            "INSERT INTO saved VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            name=name,
            value=value,
        )

    def _write(
        self, transaction: Transaction, entries: Sequence[Entry], key: str | None, answers: Mapping[str, bytes]
    ) -> bool:
        """Add entries to the stored totals, unless the idempotency key is known: then return False."""
        if key is not None and not transaction.execute(
            "INSERT INTO keys (key, recorded_at) VALUES (:key, {now}) ON CONFLICT (key) DO NOTHING RETURNING number",
            key=key,
        ):
            return False
        if answers:
            repeated = [row[0] for row in transaction.execute(_KNOWN, ids=json.dumps(list(answers)))]
            if repeated:
                raise RepeatedRequestError(repeated)
            columns: dict[str, Sequence[object]] = {"request_id": list(answers), "answer": list(answers.values())}
            transaction.insert("answers", columns, at="answered_at")
        if entries:
            stored = self._read_stored(transaction)
            self._check_groups(max(len(entry.counts) for entry in entries), lambda: self._n_groups)
            for entry in entries:
                if entry.opens_horizon:
                    self._store(transaction, stored)
                    stored = self.open_horizon(transaction, entry.began)
                stored = Latest(stored.number, stored.totals.plus(Totals.of(entry)))
            self._store(transaction, stored)
            self._stored = (stored, self.database.session)
        if self._is_deleting_due(len(answers)):
            delete_old(transaction, self.retention)
        return True

    def _read_stored(self, transaction: Transaction) -> Latest:
        """Return the stored totals. A single writer knows them, as long as its connection is the same."""
        if self._own is None and self._stored is not None and self._stored[1] == self.database.session:
            return self._stored[0]
        return self.make_latest(transaction.execute(HORIZON))

    def _store(self, transaction: Transaction, latest: Latest) -> None:
        transaction.execute(_UPDATE, number=latest.number, **totals_values(latest.totals))

    def _check_groups(self, n_groups: int, known: Callable[[], int]) -> None:
        """Refuse counts of groups that the ledger does not have; others may have added some, which `known` tells."""
        if n_groups > self._n_groups and n_groups > known():
            raise UnusableLedgerError(
                f"an entry counts {n_groups} groups, and {self.database.address} has {self._n_groups}: add the groups"
                " to the promise first (promise(catalog=...))."
            )

    def _is_deleting_due(self, n_answers: int) -> bool:
        """Return whether there are a thousand new answers and keys, so that old ones should be deleted."""
        self._written += max(n_answers, 1)
        due = self._written >= DELETE_EVERY
        if due:
            self._written = 0
        return due
