"""The entry to which one of several processes that share a ledger adds its counts."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

from fairsync.errors import LostLeaseError, RepeatedRequestError
from fairsync.ledger.base import Totals
from fairsync.ledger.rows import ENTRY_COLUMNS, totals_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.ledger.base import Entry
    from fairsync.ledger.database import Database, Transaction

# The number of a row, what is in it, and the session in which it was written.
_NO_ROW = 0, Totals.zero(0), 0


def _statement(repeated: str = "SELECT NULL::text AS request_id WHERE false", saved: str = "SELECT 1") -> str:
    """Return the statement that closes a lease and counts its entry.

    It returns the requests that count, or NULL if nothing was recorded; whether the idempotency key was known before;
    the request ids that were; the number of the row that holds the counts; and whether the lease was lost, and cannot
    be counted because there are caps. The lease is locked, so that it cannot expire meanwhile.

    Parameters
    ----------
    repeated
        Query of the request ids that are known.
    saved
        Statement that saves the answers.
    """
    return f"""
    WITH repeated AS ({repeated}), open AS (
        SELECT slot FROM leases WHERE number = :lease AND requests > 0 FOR UPDATE
    ), lost AS (
        SELECT 1 WHERE :lease > 0 AND NOT EXISTS (SELECT FROM open)
        AND EXISTS (SELECT FROM facts WHERE name = 'caps' AND value = '1')
    ), recorded AS (
        INSERT INTO keys (key, recorded_at) SELECT :key, {{now}}
        WHERE NOT EXISTS (SELECT FROM repeated) AND NOT EXISTS (SELECT FROM lost)
        ON CONFLICT (key) DO NOTHING RETURNING number
    ), saved AS ({saved}), closed AS (
        UPDATE leases SET requests = 0 WHERE number = :lease AND requests > 0 AND EXISTS (SELECT FROM recorded)
        RETURNING slot
    ), counted AS (
        SELECT CASE WHEN :lease = 0 OR EXISTS (SELECT FROM closed) THEN :requests::bigint ELSE 0 END AS requests
        FROM recorded
    ), added AS (
        UPDATE entries SET requests = entries.requests + counted.requests, relevance = relevance + :relevance::float8,
            cost = cost + :cost::float8, forced = forced + :forced, exposures = :exposures_sum,
            impressions = :impressions_sum
        FROM counted WHERE number = :own RETURNING number
    ), begun AS (
        INSERT INTO entries ({ENTRY_COLUMNS})
        SELECT requests, :relevance::float8, :cost::float8, :forced::bigint, :exposures::bytea, :impressions::bytea
        FROM counted WHERE NOT EXISTS (SELECT FROM added) RETURNING number
    )
    SELECT (SELECT requests FROM counted), EXISTS (SELECT FROM keys WHERE key = :key),
        ARRAY(SELECT request_id FROM repeated), (SELECT number FROM added), (SELECT number FROM begun),
        EXISTS (SELECT FROM lost)
    """


_ADD = _statement()
_ADD_WITH_ANSWERS = _statement(
    """
    SELECT request_id FROM answers WHERE request_id = ANY(:ids)
    UNION ALL SELECT request_id FROM expired_answers WHERE request_id = ANY(:ids)
    """,
    """
    INSERT INTO answers (request_id, answer, answered_at)
    SELECT one.*, {now} FROM unnest(:ids::text[], :answers::bytea[]) AS one WHERE EXISTS (SELECT FROM recorded)
    """,
)


class SharedEntry:
    """The row of the table ``entries`` that belongs to one process.

    Only this process changes it, so that it knows what is in it: each addition writes the new sum. When a horizon ends,
    the row is added to the totals and deleted, by any process; the next addition finds no row, and begins another one.

    Parameters
    ----------
    database
        The database of the ledger, in Postgres.
    """

    def __init__(self, database: Database) -> None:
        self._database, self._taking = database, threading.Lock()
        self._row: tuple[int, Totals, int] = _NO_ROW

    def add(self, lease: int, entry: Entry, key: str | None, answers: Mapping[str, bytes]) -> Entry | None:
        """Close a lease and count its entry; see :meth:`fairsync.SqlLedger.settle`."""
        with self._taking:  # another thread begins a row of its own; and if this fails, the row may have changed
            row, self._row = self._row, _NO_ROW
        one, (number, before, session) = Totals.of(entry), row
        after = before.grown(max(len(before.exposures), len(one.exposures))).plus(one)
        key = key or secrets.token_hex(16)  # a statement whose outcome is unknown is repeated
        sums = totals_values(after)
        values: dict[str, object] = {
            **totals_values(one),
            "exposures_sum": sums["exposures"],
            "impressions_sum": sums["impressions"],
            "key": key,
            "lease": lease,
            **({"ids": list(answers), "answers": list(answers.values())} if answers else {}),
        }
        query, attempts = _ADD_WITH_ANSWERS if answers else _ADD, 0

        def run(transaction: Transaction) -> list[tuple[Any, ...]]:
            nonlocal attempts
            attempts += 1
            # After a lost connection the server may be another one, or restored: what is in the row is not known.
            values["own"] = number if session == self._database.session else 0
            return transaction.execute(query, **values)

        ((requests, is_known, repeated, added, begun, is_lost),) = self._database.run(run, "statement")
        if requests is not None:
            self._row = (added, after, session) if added else (begun, one, self._database.session)
            return entry.counting(requests)
        if attempts == 1 and (is_known or repeated or is_lost):
            self._row = row
        if repeated and not is_known:
            raise RepeatedRequestError(repeated)
        if is_lost and not is_known:
            raise LostLeaseError(lease)
        return entry if attempts > 1 else None  # an attempt of ours was committed, and its outcome was not heard
