"""What a caller says about eligible items (`exclude`, `where`), checked and turned into rows of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.catalog.names import check_names, check_same_kind, words_array
from fairsync.errors import InvalidInputError
from fairsync.search.eligibility import Eligibility

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Selection, Where

# Words that take no more space than this in a numpy array need no other.
_MOST_LETTERS = 1 << 24

Exclude: TypeAlias = Any
"""For each request a list of ids; or a scipy sparse matrix, (requests, items), whose nonzero entries are excluded."""


def make_eligibility(
    exclude: Exclude | None,
    where: Where | Sequence[Where | None] | None,
    catalog: Catalog,
    n: int,
    *,
    allow_empty: bool = False,
) -> tuple[Eligibility | None, NDArray[np.int64]]:
    """Return the items that each of n requests may get, or say what is wrong with what was asked.

    Parameters
    ----------
    exclude
        For each request the ids to leave out; None for none. Or a scipy sparse matrix of (requests, items), whose
        columns are rows of the catalog.
    where
        Conditions on attributes (see `Catalog.select`): one dict for all requests, or one for each, or None.
    catalog, n
        The items, and the number of requests.
    allow_empty
        Whether no item may meet a condition: nothing is eligible for such a request. Otherwise it is refused.

    Returns
    -------
    Eligibility or None
        None if every item is eligible for every request.
    numpy.ndarray
        (n,) the number of excluded ids of each request that the catalog does not hold.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), {"region": ["DE", "AT", "DE"]}, ids=["x", "y", "z"])
    >>> eligible, unknown = make_eligibility([["x", "gone"], []], {"region": "DE"}, catalog, 2)
    >>> eligible.mask(0).tolist(), eligible.mask(1).tolist(), unknown.tolist()
    ([False, False, True], [True, False, True], [1, 0])
    """
    selections = _selections(where, catalog, n, allow_empty=allow_empty)
    owners, rows, unknown = _excluded(exclude, catalog, n)
    if not len(rows) and all(one is None for one in selections):
        return None, unknown
    keys = owners * len(catalog) + rows
    if n * len(catalog) < np.iinfo(np.int32).max:
        keys = keys.astype(np.int32)  # sorted in half the time
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first].astype(np.int64)
    offsets = np.searchsorted(keys, np.arange(n + 1) * len(catalog))
    rows = keys - np.repeat(np.arange(n) * len(catalog), np.diff(offsets))
    return Eligibility.joined(len(catalog), selections, rows, offsets), unknown


def _selections(
    where: Where | Sequence[Where | None] | None, catalog: Catalog, n: int, *, allow_empty: bool
) -> Sequence[Selection | None]:
    if where is None:
        return [None] * n
    if isinstance(where, Mapping):
        chosen = catalog.select(where)
        if chosen is not None and not len(chosen) and not allow_empty:
            raise InvalidInputError(f"no item meets the condition {dict(where)!r:.200}.")
        return [chosen] * n
    if isinstance(where, str | bytes) or not isinstance(where, Sequence):
        raise InvalidInputError(
            f'where must be a dict such as {{"region": "DE"}}, or one for each request, got {where!r:.80}.'
        )
    if len(where) != n:
        raise InvalidInputError(f"there are {n} requests, and {len(where)} conditions in where.")
    selections: list[Selection | None] = []
    for i, one in enumerate(where):
        try:
            chosen = None if one is None else catalog.select(one)
        except InvalidInputError as error:
            raise InvalidInputError(f"request {i}: {error}") from None
        if chosen is not None and not len(chosen) and not allow_empty:
            raise InvalidInputError(f"request {i}: no item meets the condition {dict(one or {})!r:.200}.")
        selections.append(chosen)
    return selections


def _excluded(
    exclude: Exclude | None, catalog: Catalog, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the excluded pairs of request and row, and the number of unknown ids of each request."""
    nothing = np.empty(0, dtype=np.int64)
    if exclude is None:
        return nothing, nothing, np.zeros(n, dtype=np.int64)
    if hasattr(exclude, "tocoo"):
        if exclude.shape != (n, len(catalog)):
            raise InvalidInputError(
                f"exclude has shape {exclude.shape}: a matrix must have one row per request and one column per item,"
                f" ({n}, {len(catalog)})."
            )
        entries = exclude.tocoo()
        there = np.asarray(entries.data) != 0
        owners, rows = (np.asarray(one)[there].astype(np.int64) for one in (entries.row, entries.col))
        return owners, rows, np.zeros(n, dtype=np.int64)
    if isinstance(exclude, str | bytes | Mapping) or not isinstance(exclude, Sequence | np.ndarray):
        raise InvalidInputError(f"exclude must be a list of ids for each request, got {exclude!r:.80}.")
    if len(exclude) != n:
        raise InvalidInputError(f"there are {n} requests, and exclude has {len(exclude)} lists of ids.")
    lists = [() if one is None else one for one in exclude]
    for i, one in enumerate(lists):
        if isinstance(one, str | bytes | Mapping) or not isinstance(one, Iterable):
            raise InvalidInputError(
                f"exclude must have a list of ids for each request, got {one!r:.80} for request {i}."
            )
    ids = _joined(lists)
    lengths = np.fromiter(map(len, lists), np.int64, n)
    owners = np.repeat(np.arange(n), lengths)
    if not len(ids):
        return nothing, nothing, np.zeros(n, dtype=np.int64)
    check_same_kind(ids, catalog.ids[:1], "ids")
    rows = catalog.rows_of(ids)
    known = rows >= 0
    return owners[known], rows[known], np.bincount(owners[~known], minlength=n)


def _joined(lists: Sequence[Any]) -> NDArray[Any]:
    """Return the ids of all lists, one after another."""
    if lists and all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in "iuU" for one in lists):
        kinds = {one.dtype.kind == "U" for one in lists if len(one)}
        if len(kinds) <= 1:
            return np.concatenate([one for one in lists if len(one)] or [np.empty(0, dtype=np.int64)])
    flat = list(chain.from_iterable(one.tolist() if isinstance(one, np.ndarray) else one for one in lists))
    # One look at the types: `check_names` looks at every value, and is needed only to say what is wrong.
    types = set(map(type, flat))
    if types == {int} and min(flat) >= -(2**63) and max(flat) < 2**63:
        return np.array(flat, dtype=np.int64)
    if types == {str} and len(flat) * max(map(len, flat)) < _MOST_LETTERS:
        return np.array(flat)
    if types == {str}:
        return words_array(flat)
    return check_names(flat, None, "excluded ids", "id")
