"""Leader election by an advisory lock of Postgres: one of several coordinators on a ledger plans for all."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.ledger.postgres import LEADER, PostgresDatabase

if TYPE_CHECKING:
    from fairsync.ledger.database import Database, Transaction

# A leader asks every second or so. One that has been silent for this long is suspended, and loses the lead.
SILENT_SECONDS = 10.0
_POLL_SECONDS = 0.02
_HOLDER = """
SELECT pid, extract(epoch FROM clock_timestamp() - state_change)::float8 FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND classid = :ledger AND objid = :leader AND granted
AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class LeaderElection:
    """The lead of one process over a ledger.

    The lock belongs to the database session of the process, so that the server releases it when the process ends, and
    the leader's writes go through that session. A process that loses its session has lost the lead. It is told so once
    before it can lead again, because others may have changed what it knows. Until then its writes as a leader are
    refused (fencing).

    Parameters
    ----------
    database
        The database of the ledger.
    """

    def __init__(self, database: Database) -> None:
        assert isinstance(database, PostgresDatabase), "a shared ledger is in Postgres"
        self._database: PostgresDatabase = database
        self._lock: tuple[int, int] = database.advisory_lock(LEADER)
        self._session: int = 0  # the session that holds the lock

    @property
    def leads(self) -> bool:
        """Whether this process led when it last asked."""
        return bool(self._session)

    def ask(self, *, take: bool = False) -> bool:
        """Return whether this process leads; become the leader if there is none.

        Parameters
        ----------
        take
            Whether to end the session of another leader, and take its place.
        """
        deadline = time.monotonic() + self._database.timeout
        held, self._session = self._session, self._database.run(self._attempt, "read")
        if held and not take:
            return bool(self._session)
        while not self._session:
            holder = self._database.run(self._read_holder, "read")
            if not take and (holder is None or holder[1] < SILENT_SECONDS):
                return False
            if time.monotonic() > deadline:
                raise BackendUnavailableError("another process leads, and does not end: try again.")
            if holder is not None:
                pid = holder[0]
                self._database.run(lambda tx: tx.execute("SELECT pg_terminate_backend(:pid)", pid=pid), "read")  # noqa: B023
            time.sleep(_POLL_SECONDS)
            self._session = self._database.run(self._attempt, "read")
        return True

    def check(self, transaction: Transaction) -> None:
        """Refuse a write of a former leader that does not know yet that it has lost the lead."""
        if self._session and self._session != self._database.session:
            raise BackendUnavailableError(
                "the connection of the leader was lost, and another replica may have taken the lead: try again."
            )

    def step_down(self) -> None:
        """Release the lead at once."""
        if self._session:
            self._session, (ledger, leader) = 0, self._lock
            # If the server is away, it releases the lock when it notices that the session has ended.
            with suppress(FairSyncError):
                self._database.run(
                    lambda tx: tx.execute("SELECT pg_advisory_unlock(:ledger, :leader)", ledger=ledger, leader=leader),
                    "read",
                )

    def announce(self) -> None:
        """Announce a change to the other processes that share the ledger."""
        self._database.run(self._database.notify, "read")

    def take_news(self) -> bool:
        """Return whether another process has announced a change since the last call."""
        news, self._database.has_news = self._database.has_news, False
        return news

    def _attempt(self, transaction: Transaction) -> int:
        """Return the session that holds the lock now; 0 if another process does, or if the lock was lost."""
        session = self._database.session
        if self._session:
            return session if session == self._session else 0
        ledger, leader = self._lock
        ((held,),) = transaction.execute("SELECT pg_try_advisory_lock(:ledger, :leader)", ledger=ledger, leader=leader)
        return session if held else 0

    def _read_holder(self, transaction: Transaction) -> tuple[int, float] | None:
        ledger, leader = self._lock
        rows = transaction.execute(_HOLDER, ledger=ledger, leader=leader)
        return (rows[0][0], rows[0][1] or 0.0) if rows else None
