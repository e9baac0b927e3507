"""What requests may get of a catalog in this process, as rows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.conditions import parse_conditions, unknown_label
from fairsync.catalog.names import check_same_kind
from fairsync.eligibility.rules import Rules, id_lists, joined_ids
from fairsync.errors import InvalidInputError
from fairsync.search.eligibility import Eligibility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Selection, Where
    from fairsync.eligibility.rules import Exclude

# Lists of different lengths are sorted in one table, unless that has this many times as many places as there are rows.
_MOST_PADDED = 4
# A list of a single request is short up to this many ids.
_FEW = 64


class CatalogRules(Rules):
    """What each of n requests may get of a catalog.

    Parameters
    ----------
    exclude
        For each request the ids to leave out; None for none. Or a scipy sparse matrix of (requests, items), whose
        columns are rows of the catalog.
    where, allow_empty
        As for `Rules`.
    catalog, n
        The items, and the number of requests.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), {"region": ["DE", "AT", "DE"]}, ids=["x", "y", "z"])
    >>> rules = CatalogRules([["x", "gone"], []], {"region": "DE"}, catalog, 2)
    >>> rules.eligibility(0, 1).mask(0).tolist(), rules.eligibility(1, 2).mask(0).tolist(), rules.unknown.tolist()
    ([False, False, True], [True, False, True], [1, 0])
    """

    def __init__(
        self,
        exclude: Exclude | None,
        where: Where | Sequence[Where | None] | None,
        catalog: Catalog,
        n: int,
        *,
        allow_empty: bool = False,
    ) -> None:
        self._catalog = catalog
        self._rows, self._offsets, unknown = _excluded_rows(exclude, catalog, n)
        super().__init__(where, unknown, allow_empty=allow_empty)

    def check(self) -> None:
        """Raise for a condition that would be refused, whichever request has it, before any is answered."""

        def check_one(where: Where) -> None:  # selections of all requests at once may not fit the memory
            if self._allow_empty:
                parse_conditions(where, self._catalog.condition_columns)
            else:
                self._selection(where)

        self._each(range(len(self.unknown)), check_one)

    def eligibility_of(self, requests: Sequence[int]) -> Eligibility | None:
        """Return the items that these requests may get, in this order; see `Rules.eligibility_of`."""
        rows, offsets = self._rows, self._offsets
        if requests != range(len(self.unknown)):
            at = np.asarray(requests, dtype=np.int64)
            starts, lengths = offsets[at], np.diff(offsets)[at]
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            rows = rows[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]
        if self._where is None:  # as a rule, and single requests are to take no time for more
            nothing = np.array([-1] * len(requests))
            return Eligibility(len(self._catalog), (), nothing, rows, offsets) if len(rows) else None
        selections = self._each(requests, self._selection)
        if not len(rows) and all(one is None for one in selections):
            return None
        return Eligibility.joined(len(self._catalog), selections, rows, offsets)

    def _selection(self, where: Where) -> Selection | None:
        chosen = self._catalog.select(where)
        if chosen is not None and not chosen.share and not self._allow_empty:
            why = unknown_label(where, self._catalog.condition_columns)
            raise InvalidInputError(f"no item meets the condition {dict(where)!r:.200}" + (f": {why}" if why else "."))
        return chosen


def _excluded_rows(
    exclude: Exclude | None, catalog: Catalog, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the excluded rows, sorted and distinct in each request, their offsets, and numbers of unknown ids."""
    if n == 1 and type(exclude) is list and len(exclude) == 1 and type(exclude[0]) is list and len(exclude[0]) <= _FEW:
        few = _few_excluded(exclude[0], catalog)
        if few is not None:
            return few
    rows, lengths = _excluded(exclude, catalog, n)
    unknown = np.zeros(n, dtype=np.int64)
    if not len(rows):
        return rows, np.zeros(n + 1, dtype=np.int64), unknown
    if n == 1:
        rows.sort()
        unknown[0] = rows.searchsorted(0)
        rows = rows[unknown[0] :]
        fresh = rows[1:] != rows[:-1]
        if not fresh.all():
            rows = np.concatenate([rows[:1], rows[1:][fresh]])
        return rows, np.array([0, len(rows)]), unknown
    if rows.min() < 0:
        owners = np.repeat(np.arange(n), lengths)
        unknown = np.bincount(owners[rows < 0], minlength=n)
        rows, lengths = rows[rows >= 0], lengths - unknown
    width = int(lengths.max())
    if n * width > _MOST_PADDED * len(rows):
        return *_sorted_by_key(rows, lengths, len(catalog)), unknown
    # Short lists side by side are sorted several times as fast as all of them together.
    nothing = len(catalog)
    table = np.full((n, width), nothing, dtype=np.int32 if nothing <= np.iinfo(np.int32).max else np.int64)
    if len(rows) == table.size:
        table[:] = rows.reshape(n, width)
    else:
        table[np.arange(width) < lengths[:, None]] = rows
    table.sort(axis=1)
    kept = table < nothing
    kept[:, 1:] &= table[:, 1:] != table[:, :-1]
    offsets = np.concatenate([[0], np.cumsum(np.count_nonzero(kept, axis=1))])
    return (table[kept] if offsets[-1] < table.size else table.ravel()).astype(np.int64), offsets, unknown


def _few_excluded(
    ids: list[Any], catalog: Catalog
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return what `_excluded_rows` does for a few words of one request; None if one of the ids is no word.

    The scan before has emptied the caches, so that each line of code takes several times as long as usual.
    """
    try:
        found = catalog.rows_of_few(ids)
    except TypeError:
        return None
    known = sorted(set(found) - {-1})
    each = np.array([0, len(known), found.count(-1), *known], dtype=np.int64)  # one array takes less time than three
    return each[3:], each[:2], each[2:3]


def _sorted_by_key(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], n_items: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows sorted and distinct in each request, and their offsets, for lists of very different lengths."""
    n = len(lengths)
    keys = np.unique(np.repeat(np.arange(n), lengths) * n_items + rows)
    offsets = np.searchsorted(keys, np.arange(n + 1) * n_items)
    return keys - np.repeat(np.arange(n) * n_items, np.diff(offsets)), offsets


def _excluded(exclude: Exclude | None, catalog: Catalog, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the excluded rows, request by request, -1 for unknown ids, and how many each request has."""
    if exclude is None:
        return np.empty(0, dtype=np.int64), np.zeros(n, dtype=np.int64)
    if hasattr(exclude, "tocsr"):
        if exclude.shape != (n, len(catalog)):
            raise InvalidInputError(
                f"exclude has shape {exclude.shape}: a matrix must have one row per request and one column per item,"
                f" ({n}, {len(catalog)})."
            )
        entries = exclude.tocsr()
        there = np.asarray(entries.data) != 0
        lengths = np.diff(np.concatenate([[0], np.cumsum(there)])[entries.indptr])
        return np.asarray(entries.indices)[there].astype(np.int64), lengths
    lists = id_lists(exclude, n)
    lengths = np.array([len(one) for one in lists], dtype=np.int64)
    if not any(map(len, lists)):
        return np.empty(0, dtype=np.int64), lengths
    if catalog.ids_are_words:
        try:
            words = [one.tolist() if isinstance(one, np.ndarray) else one for one in lists]
            return catalog.rows_of_words(words), lengths
        except TypeError:  # an id that is no word: it is named below
            pass
    ids = joined_ids(lists)
    check_same_kind(ids, catalog.ids_of([0]), "ids")
    return catalog.rows_of(ids), lengths
