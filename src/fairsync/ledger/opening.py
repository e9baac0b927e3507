"""Open the ledger that a URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.ledger.memory import MemoryLedger
from fairsync.ledger.sql_ledger import SqlLedger
from fairsync.ledger.urls import MEMORY, is_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.ledger.base import Ledger
    from fairsync.ledger.retention import Retention


def open_ledger(
    url: str | Path,
    n_groups: int,
    *,
    shared: bool = False,
    timeout: float = 10.0,
    retention: Retention | None = None,
) -> Ledger:
    """Open a ledger, or create it.

    Parameters
    ----------
    url
        ``memory://``, ``sqlite:///exposures.db``, a path, or ``postgresql://user@host/database``.
    n_groups, timeout, retention
        As for :class:`SqlLedger`.
    shared
        Whether a ledger in Postgres is opened for several writers; others always have one.

    Examples
    --------
    >>> open_ledger("memory://", n_groups=2).totals().requests
    0
    """
    if url == MEMORY:
        return MemoryLedger(n_groups, retention)
    return SqlLedger(url, n_groups, shared=shared and is_postgres(url), timeout=timeout, retention=retention)


def open_existing(url: str | Path) -> Ledger | None:
    """Open a ledger that has been written before; None if there is none there.

    Examples
    --------
    >>> open_existing("sqlite:///no-such-folder/exposures.db") is None
    True
    """
    if url == MEMORY:
        return None
    try:
        return SqlLedger(url, None)
    except InvalidInputError:  # `open_ledger` says what is wrong, if it is more than that
        return None
