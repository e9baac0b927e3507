"""What candidate lists gave to each promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.selected_rows import SelectedRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.promises import Promise
    from fairsync.report.gave_way import GaveWay


@dataclass(frozen=True)
class PromiseResult:
    """One promise under one policy at one k.

    Attributes
    ----------
    name : str
        The name of the promise.
    at_least, at_most : int or None
        Its bounds as numbers of exposures.
    at_most_per_list : int or None
        The most items in one list.
    exposures : int
        Its exposures in all lists.
    most_per_list : int or None
        The most items that a list had; None without a limit per list.
    kept : bool
        Whether all bounds hold.
    priority : int
        Its priority, 1 first.
    gave_way : str or None
        Why it gave way: ``capacity``, ``max_price`` or ``budget``; None if it did not.
    """

    name: str
    at_least: int | None
    at_most: int | None
    at_most_per_list: int | None
    exposures: int
    most_per_list: int | None
    kept: bool
    priority: int = 1
    gave_way: str | None = None


def measure_promises(
    catalog: Catalog,
    promises: Sequence[Promise],
    rows: NDArray[np.int64],
    gave_way: Mapping[Label, GaveWay] | None = None,
) -> tuple[PromiseResult, ...]:
    """Return what candidate lists gave to each promise.

    Parameters
    ----------
    catalog
        The items.
    promises
        The promises.
    rows
        (n, k) Candidates as catalog rows, -1 where a list is short.
    gave_way
        The promises that gave way, by name.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.promises import Promise
    >>> catalog = Catalog(np.eye(4), {"category": ["toys", "toys", "books", "books"], "new": [True, False, True, True]})
    >>> promises = [Promise({"category": "toys"}, at_most=0.5), Promise({"new": True}, at_least=4)]
    >>> [(one.name, one.exposures, one.kept) for one in measure_promises(catalog, promises, np.array([[0, 1], [1, 2]]))]
    [('category=toys', 3, False), ('new=True', 2, False)]
    """
    slots, reasons = rows.size, {name: one.reason for name, one in (gave_way or {}).items()}
    shown, selected = np.bincount(rows[rows >= 0], minlength=len(catalog)), SelectedRows(catalog)
    results = []
    for promise in promises:
        if promise.is_rule:  # its items have promises of their own
            continue
        items = selected.of(promise.where)
        low, high, limit = promise.floor(slots), promise.cap(slots), promise.at_most_per_list
        exposures, most = int(shown[items].sum()), None
        if limit is not None:
            inside = np.zeros(len(catalog) + 1, dtype=bool)  # the last entry stands for -1
            inside[items] = True
            most = int(inside[rows].sum(axis=1).max(initial=0))
        kept = low <= exposures and (high is None or exposures <= high) and (limit is None or (most or 0) <= limit)
        results.append(
            PromiseResult(
                promise.name,
                None if promise.at_least is None else low,
                high,
                limit,
                exposures,
                most,
                bool(kept),
                promise.priority,
                reasons.get(promise.name),
            )
        )
    return tuple(results)
