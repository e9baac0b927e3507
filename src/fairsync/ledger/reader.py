"""Read a ledger without writing to it, also while a service uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.closing import Closable
from fairsync.ledger.schema import check_format
from fairsync.ledger.urls import open_database

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.ledger.database import Transaction


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
    Summary(format=3, groups=2, horizons=1, requests=0)
    """

    def __init__(self, url: str | Path, timeout: float = 3.0) -> None:
        self.database = open_database(url, timeout=timeout, owner="none")

    def summary(self) -> Summary:
        """Return a summary; refuse tables that are no ledger, or of a later format."""
        return self.database.run(self._summary, "read")

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
        """Return what is damaged, or may be lost, each as a sentence."""
        return self.database.check()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _summary(self, transaction: Transaction) -> Summary:
        number = self.database.read_format(transaction)
        if number == 0:
            return Summary(0, 0, 0, 0)
        check_format(number, self.database.address)
        ((horizons, requests),) = transaction.execute("SELECT count(*), coalesce(sum(requests), 0) FROM horizons")
        if number < 3:
            groups = int(transaction.execute("SELECT value FROM facts WHERE name = 'groups'")[0][0])
        else:
            latest = transaction.execute("SELECT length(exposures) FROM horizons ORDER BY number DESC LIMIT 1")
            groups = latest[0][0] // 8 if latest else 0
            requests += transaction.execute("SELECT coalesce(sum(requests), 0) FROM entries")[0][0]
        return Summary(number, groups, int(horizons), int(requests))
