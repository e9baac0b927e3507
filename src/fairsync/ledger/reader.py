"""Read a ledger without writing to it, also while a service uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.closing import Closable
from fairsync.errors import InvalidInputError
from fairsync.ledger.audit import read_audit, read_head
from fairsync.ledger.damage import find_damage
from fairsync.ledger.rows import LATEST, make_latest
from fairsync.ledger.schema import check_format
from fairsync.ledger.urls import open_database

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.ledger.base import Totals
    from fairsync.ledger.database import Database, Transaction

# The same as LATEST for the formats before 3, of which format 1 may lack two columns.
_LATEST_2 = "SELECT number, requests, relevance, cost, forced, exposures, shown, began"
_LATEST_1 = "SELECT number, requests, relevance, cost, forced, exposures, NULL, 0.0"
_LAST = " FROM horizons ORDER BY number DESC LIMIT 1"


@dataclass(frozen=True)
class Summary:
    """A summary of a ledger.

    Attributes
    ----------
    format : int
        Format of its tables; 0 if there are none.
    groups, horizons, requests : int
        Number of groups, of horizons, and of requests in all of them.
    """

    format: int
    groups: int
    horizons: int
    requests: int


@dataclass(frozen=True)
class Contents:
    """What a ledger holds.

    Attributes
    ----------
    summary : Summary
        Numbers of groups, horizons and requests.
    totals : Totals or None
        Totals of the horizon under way; None if no horizon has begun.
    answers, answer_bytes : int
        Number and size of the saved answers.
    answers_since : float or None
        Time of the oldest saved answer, in seconds since 1970; None if there is none, or if the format has no times.
    expired_answers : int
        Requests that are known, and whose answer is no longer saved.
    leases : int
        Open leases.
    items : int
        Items that were changed since the catalog's files were written.
    audit : int
        Entries of the audit.
    """

    summary: Summary
    totals: Totals | None
    answers: int = 0
    answer_bytes: int = 0
    answers_since: float | None = None
    expired_answers: int = 0
    leases: int = 0
    items: int = 0
    audit: int = 0


class LedgerReader(Closable):
    """A ledger that is only read. It may be of an earlier format, and another process may write to it.

    Parameters
    ----------
    url
        As for :class:`fairsync.SqlLedger`.
    timeout
        Seconds for which a Postgres server that is away is tried again.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fairsync.ledger import SqlLedger
    >>> with TemporaryDirectory() as folder, SqlLedger(f"{folder}/exposures.db", n_groups=2):
    ...     with LedgerReader(f"sqlite:///{folder}/exposures.db") as reader:
    ...         reader.summary()
    Summary(format=4, groups=2, horizons=1, requests=0)
    """

    def __init__(self, url: str | Path, timeout: float = 3.0) -> None:
        self.database = open_database(url, timeout=timeout, owner="none")

    def summary(self) -> Summary:
        """Return a summary; refuse tables that are no ledger, or of a later format."""
        return self.database.run(lambda transaction: summarize(self.database, transaction), "read")

    def contents(self) -> Contents:
        """Return what the ledger holds, from one snapshot; refuse as `summary` does."""
        return self.database.run(self._contents, "read")

    def load(self, name: str) -> bytes | None:
        """Return the value saved under this name, or None; see `Ledger.load`."""

        def read(transaction: Transaction) -> bytes | None:
            number = self.database.read_format(transaction)
            if number == 0:
                return None
            table = "kept" if number < 3 else "saved"
            rows = transaction.execute(f"SELECT value FROM {table} WHERE name = :name", name=name)
            return bytes(rows[0][0]) if rows else None

        return self.database.run(read, "read")

    def check(self) -> list[str]:
        """Return what is damaged, or may be lost, each as a sentence. The content of earlier formats is not checked."""

        def read(transaction: Transaction) -> list[str]:
            self.database.allow_long(transaction)
            found = summarize(self.database, transaction).format
            damage = find_damage(transaction) if found >= 3 else []
            damage += read_audit(transaction, 0).damage if found >= 4 else ()
            return [f"{self.database.address} is damaged: {one}. Restore a backup." for one in damage]

        return [*self.database.check(), *self.database.run(read, "read")]

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _contents(self, transaction: Transaction) -> Contents:
        summary, address = summarize(self.database, transaction), self.database.address
        if summary.format == 0:
            return Contents(summary, None)
        if summary.format < 3:
            return _contents_before_3(transaction, summary, address)
        totals = make_latest(transaction.execute(LATEST), address).totals
        ((answers, size, since),) = transaction.execute(
            "SELECT count(*), coalesce(sum(length(answer)), 0), min(answered_at) FROM answers"
        )
        expired, leases, items = (
            int(transaction.execute(f"SELECT count(*) FROM {table}")[0][0])
            for table in ("expired_answers", "leases WHERE requests > 0", "items")
        )
        audit = read_head(transaction)[0] if summary.format >= 4 else 0
        return Contents(summary, totals, answers, int(size), since, expired, leases, items, audit)


def summarize(database: Database, transaction: Transaction) -> Summary:
    """Return a summary of a ledger; refuse tables that are no ledger, or of a later format."""
    number = database.read_format(transaction)
    if number == 0:
        return Summary(0, 0, 0, 0)
    check_format(number, database.address)
    ((horizons, requests),) = transaction.execute("SELECT count(*), coalesce(sum(requests), 0) FROM horizons")
    if number < 3:
        rows = transaction.execute("SELECT value FROM facts WHERE name = 'groups'")
        if not rows:
            raise InvalidInputError(
                f"{database.address} is damaged: it does not say how many groups it counts. Restore a backup."
            )
        groups = int(rows[0][0])
    else:
        latest = transaction.execute("SELECT length(exposures) FROM horizons ORDER BY number DESC LIMIT 1")
        groups = latest[0][0] // 8 if latest else 0
        requests += transaction.execute("SELECT coalesce(sum(requests), 0) FROM entries")[0][0]
    return Summary(number, groups, int(horizons), int(requests))


def _contents_before_3(transaction: Transaction, summary: Summary, address: str) -> Contents:
    """Return what a ledger of format 1 or 2 holds."""
    tables = {row[0] for row in transaction.execute("SELECT name FROM sqlite_master")}
    columns = {row[0] for row in transaction.execute("SELECT name FROM pragma_table_info('horizons')")}
    rows = transaction.execute((_LATEST_2 if "shown" in columns else _LATEST_1) + _LAST)
    totals = make_latest(rows, address).totals.grown(summary.groups) if rows else None
    if "answers" not in tables:
        return Contents(summary, totals)
    ((answers, size, expired),) = transaction.execute(
        "SELECT coalesce(sum(length(answer) > 0), 0), coalesce(sum(length(answer)), 0),"
        " coalesce(sum(length(answer) = 0), 0) FROM answers"
    )
    return Contents(summary, totals, answers, size, expired_answers=expired)
