"""Rows of a ledger's tables as totals, and totals as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import UnusableLedgerError
from fairsync.ledger.base import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ENTRY_COLUMNS = "requests, relevance, cost, forced, exposures, impressions"
HORIZON = f"SELECT number, {ENTRY_COLUMNS}, began FROM horizons WHERE number = (SELECT max(number) FROM horizons)"
ENTRIES = f"SELECT number, {ENTRY_COLUMNS}, -1.0 FROM entries"
# The totals of the horizon under way, and the entries to be added to it, which have no start.
LATEST = f"{HORIZON} UNION ALL {ENTRIES}"


@dataclass(frozen=True)
class Latest:
    """The horizon under way as a transaction sees it.

    Attributes
    ----------
    number : int
        Number of the horizon, from 0.
    totals : Totals
        Its totals.
    n_entries : int
        Number of entries in them that are not part of the stored totals yet.
    """

    number: int
    totals: Totals
    n_entries: int = 0


def make_latest(rows: Sequence[tuple[Any, ...]], address: str) -> Latest:
    """Return the horizon under way from the rows of the query LATEST; the address is for messages."""
    ordered = sorted(rows, key=lambda row: (row[-1] < 0, row[0]))
    if not ordered or ordered[0][-1] < 0:
        raise UnusableLedgerError(f"{address} is damaged: it has no horizon. Restore a backup.")
    base, *entries = ordered
    totals = make_totals(base)
    for row in entries:
        totals = totals.plus(make_totals(row))
    return Latest(base[0], totals, len(entries))


def make_totals(row: tuple[Any, ...]) -> Totals:
    """Return the totals in a row: number, the columns of an entry, and the start of the horizon."""
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


def totals_values(totals: Totals) -> dict[str, object]:
    """Return the columns of an entry."""
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
