"""The counts and leases of coordinators that share a ledger in Postgres, as rows that one of them has read."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairsync.coordination.lease_table import LeaseTable
from fairsync.ledger.rows import LATEST
from fairsync.loop.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.ledger import SqlLedger
    from fairsync.ledger.database import Transaction
    from fairsync.ledger.rows import Latest

    Row = tuple[Any, ...]

# Entries of processes that have ended are added to the totals when there are this many, so that there are few to read.
_MAX_ENTRIES = 64
# A row of a lease that was closed is used by another coordinator if its own has not used it for this long.
_UNUSED_SECONDS = 60.0
# In the last column of the rows of a state: a lease that is open, one that has expired, a row for a new one, a row that
# another coordinator uses again, the number of the terms; and what a grant at once has done.
_OPEN, _EXPIRED, _FREE, _USED, _TERMS_NUMBER, _GRANTED = -2.0, -3.0, -4.0, -5.0, -6.0, -7.0
_STATE = f"""
{LATEST}
UNION ALL SELECT number, requests, CASE WHEN replica = :replica THEN 1.0 ELSE 0.0 END, NULL, slot, NULL, NULL,
CASE WHEN requests = 0 AND (replica = :replica OR expires_at < {{now}} - {_UNUSED_SECONDS}) THEN {_FREE}
WHEN requests = 0 THEN {_USED} WHEN expires_at <= {{now}} OR number = :retried THEN {_EXPIRED} ELSE {_OPEN} END
FROM leases
UNION ALL SELECT value::bigint, 0, 0.0, NULL, 0, NULL, NULL, {_TERMS_NUMBER} FROM facts WHERE name = 'terms'
"""
_GRANT = """
UPDATE leases SET number = :number, requests = :requests, expires_at = {now} + :seconds, replica = :replica
WHERE slot = :slot
"""
_GRANT_IN_NEW_ROW = """
INSERT INTO leases (number, requests, expires_at, replica) VALUES (:number, :requests, {now} + :seconds, :replica)
"""
# Grants a lease unless the limit is exceeded, and returns the state before it. It is not flushed to the disk.
_GRANT_AT_ONCE = f"""
WITH granted AS (
    UPDATE grants SET requests = requests + :requests
    WHERE horizon = :horizon AND terms = :terms AND requests + :requests <= :most
    AND NOT EXISTS (SELECT FROM leases WHERE requests > 0 AND expires_at <= {{now}}) RETURNING requests
), leased AS (
    UPDATE leases SET number = :number, requests = :requests, expires_at = {{now}} + :seconds
    WHERE slot = :slot AND replica = :replica AND requests = 0 AND EXISTS (SELECT FROM granted) RETURNING slot
)
{_STATE}
UNION ALL SELECT granted.requests, 0, 0.0, NULL, leased.slot, NULL, NULL, {_GRANTED}
FROM granted, leased, set_config('synchronous_commit', 'off', true)
"""
_SET_GRANTS = """
INSERT INTO grants VALUES (1, :horizon, :terms, :requests)
ON CONFLICT (id) DO UPDATE SET horizon = excluded.horizon, terms = excluded.terms, requests = excluded.requests
"""
_CLOSE = "UPDATE leases SET requests = 0 WHERE number = :number AND requests > 0"


@dataclass(frozen=True)
class OpenLeases:
    """The horizon under way and its open leases, as a transaction has read them.

    Attributes
    ----------
    latest : Latest
        The horizon under way.
    leases : LeaseTable
        The open leases of all coordinators.
    mine : int
        Requests of the open leases of this coordinator.
    """

    latest: Latest
    leases: LeaseTable
    mine: int


class SharedRows:
    """The horizon and the leases as they were read last, and the rows in which this coordinator writes its leases.

    Parameters
    ----------
    ledger
        The ledger, opened with ``shared=True``.

    Attributes
    ----------
    progress : Progress
        The counts of the horizon.
    horizon : int
        The number of the horizon.
    granted : int
        Requests of the horizon that were leased so far, those settled included, as far as is known.
    expired : list of int
        Numbers of leases that have expired and are not closed yet.
    retried : int
        The number of a lease that may have been granted although the connection broke; 0 if there is none.
    """

    def __init__(self, ledger: SqlLedger) -> None:
        self.ledger = ledger
        self.progress, self.horizon, self.granted = Progress(ledger.totals()), 0, 0
        self.expired: list[int] = []
        self.retried = 0
        self._replica = secrets.token_hex(8)  # the owner of leases
        self._n_entries = 0  # entries that are not part of the stored totals
        self._free: list[int] = []  # rows in which leases can be written
        self._own: dict[int, tuple[int, int]] = {}  # row and requests of this coordinator's leases, by number
        self._slot = 0  # the row of the latest lease; 0 if it is a new one, whose number is not known yet
        # The requests of the horizon that were leased when this coordinator got its latest lease, that one included,
        # and whether nobody had leased any since the one before it.
        self._granted, self._in_a_row = -1, False

    @property
    def own_requests(self) -> int:
        """Requests of the open leases of this coordinator."""
        return sum(requests for _, requests in self._own.values())

    @property
    def is_alone(self) -> bool:
        """Whether nobody else leases requests, as far as is known, and no lease is open."""
        return self._in_a_row and self.granted == self._granted == self.progress.totals.requests

    @property
    def can_grant_at_once(self) -> bool:
        """Whether there is a row for a lease, and few entries to read."""
        return bool(self._free) and self._n_entries < _MAX_ENTRIES

    def query(self, transaction: Transaction) -> Sequence[Row]:
        """Read the rows."""
        return transaction.execute(_STATE, replica=self._replica, retried=self.retried)

    def take(self, rows: Sequence[Row], n_groups: int) -> OpenLeases:
        """Continue with rows that were read under a promise with this number of groups."""
        latest = self.ledger.make_latest([row for row in rows if row[-1] > _OPEN])
        n_groups = max(n_groups, len(latest.totals.exposures))  # more if it is of another catalog
        self.begin(latest, n_groups)
        self.expired = [row[0] for row in rows if row[-1] == _EXPIRED]
        open_ = [row for row in rows if row[-1] == _OPEN]
        table = LeaseTable({row[0]: row[1] for row in open_})
        used = {slot for slot, _ in self._own.values()}
        self._free = [row[4] for row in rows if row[-1] == _FREE and row[4] not in used]
        self.granted = latest.totals.requests + table.requests
        return OpenLeases(latest, table, sum(row[1] for row in open_ if row[2]))

    def begin(self, latest: Latest, n_groups: int) -> None:
        """Continue with a horizon, of which nothing is leased."""
        self.progress, self.horizon = Progress(latest.totals.grown(n_groups)), latest.number
        self.granted, self._n_entries = latest.totals.requests, latest.n_entries

    def grant_at_once(
        self, number: int, requests: int, seconds: float, key: int, most: int, n_groups: int
    ) -> int | None:
        """Write a lease by one statement, unless too much is leased, or horizon or promise are others.

        Parameters
        ----------
        number, requests, seconds
            The lease, and the seconds until it expires.
        key
            The number of the promise, or of the quota, under which it is granted.
        most
            The most requests of the horizon that may be leased.
        n_groups
            The number of groups of the promise.

        Returns
        -------
        int or None
            The requests of the horizon that were leased before it; None if nothing was granted.
        """
        slot = self._slot = self._free.pop()
        rows = self.ledger.database.run(
            lambda transaction: transaction.execute(
                _GRANT_AT_ONCE,
                replica=self._replica,
                retried=0,
                number=number,
                requests=requests,
                seconds=seconds,
                slot=slot,
                horizon=self.horizon,
                terms=key,
                most=most,
            ),
            "statement",
        )
        granted = next((row[0] for row in rows if row[-1] == _GRANTED), None)
        if granted is None:
            return None
        self.take(rows, n_groups)
        self._free = [one for one in self._free if one != slot]  # the rows are those before the grant
        before = int(granted) - requests
        self._note(before, requests)
        self.granted = max(granted, self.granted)
        return before

    def grant(self, transaction: Transaction, number: int, requests: int, seconds: float, key: int) -> None:
        """Write a lease in an exclusive transaction, in which `granted` counts all other leases."""
        if self._n_entries >= _MAX_ENTRIES:
            self.ledger.add_entries(transaction)
        self._slot = self._free.pop() if self._free else 0
        self._note(self.granted, requests)
        self.granted += requests
        transaction.execute(_SET_GRANTS, horizon=self.horizon, terms=key, requests=self.granted)
        transaction.execute_last(
            _GRANT if self._slot else _GRANT_IN_NEW_ROW,
            slot=self._slot,
            number=number,
            requests=requests,
            seconds=seconds,
            replica=self._replica,
        )

    def _note(self, before: int, requests: int) -> None:
        """Note a lease of this coordinator, before which so many requests of the horizon were leased."""
        self._in_a_row = before == self._granted == self.progress.totals.requests
        self._granted = before + requests

    def set_grants(self, transaction: Transaction, latest: Latest, leased: int, key: int) -> None:
        """Write how many requests of a horizon were leased so far."""
        requests = latest.totals.requests + leased
        transaction.execute(_SET_GRANTS, horizon=latest.number, terms=key, requests=requests)

    def keep(self, number: int, requests: int) -> None:
        """Remember a lease of this coordinator: the one that was granted last."""
        self._own[number] = self._slot, requests

    def forget(self, number: int) -> None:
        """Forget a lease of this coordinator that was closed; its row is used again."""
        slot, _ = self._own.pop(number, (0, 0))
        if slot:
            self._free.append(slot)

    def close_expired(self, transaction: Transaction) -> None:
        """Close the leases that have expired."""
        for number in self.expired:
            transaction.execute(_CLOSE, number=number)

    def release(self, number: int) -> None:
        """Close a lease without counts."""
        self.ledger.database.run(lambda transaction: transaction.execute(_CLOSE, number=number), "statement")
        self.forget(number)


def terms_number(rows: Sequence[Row]) -> int:
    """Return the number of the promise under which rows were written; 0 if there is none."""
    return next((int(row[0]) for row in rows if row[-1] == _TERMS_NUMBER), 0)
