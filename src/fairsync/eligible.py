"""What a caller says about eligible items (`exclude`, `where`), checked and turned into rows of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from fairsync.catalog.arrays import to_values
from fairsync.catalog.conditions import parse_conditions
from fairsync.catalog.names import check_names, check_same_kind, words_array
from fairsync.errors import InvalidInputError
from fairsync.search.eligibility import Eligibility

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Selection, Where

T = TypeVar("T")
# Words that take no more space than this in a numpy array need no other.
_MOST_LETTERS = 1 << 24

Exclude: TypeAlias = Any
"""For each request a list of ids; or a scipy sparse matrix, (requests, items), whose nonzero entries are excluded."""


class Rules:
    """What each of n requests may get, as the caller said it: checked, but conditions are evaluated part by part.

    A call may have more requests, each with a condition of its own, than there is memory for their selections.

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

    Attributes
    ----------
    unknown : numpy.ndarray
        (n,) the number of excluded ids of each request that the catalog does not hold.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), {"region": ["DE", "AT", "DE"]}, ids=["x", "y", "z"])
    >>> rules = Rules([["x", "gone"], []], {"region": "DE"}, catalog, 2)
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
        self._catalog, self._where, self._allow_empty = catalog, _checked_where(where, n), allow_empty
        self._rows, self._offsets, self.unknown = _excluded_rows(exclude, catalog, n)

    def check(self) -> None:
        """Raise for a condition that would be refused, whichever request has it, before any is answered."""

        def check_one(where: Where) -> None:  # selections of all requests at once may not fit the memory
            if self._allow_empty:
                parse_conditions(where, self._catalog.attributes)
            else:
                self._selection(where)

        self._each(range(len(self.unknown)), check_one)

    def eligibility(self, start: int, stop: int) -> Eligibility | None:
        """Return the items that the requests from ``start`` to ``stop`` may get; None if all may get every item.

        A condition that no item meets is refused.
        """
        return self.eligibility_of(range(start, stop))

    def eligibility_of(self, requests: Sequence[int]) -> Eligibility | None:
        """Return the items that these requests may get, in this order; see `eligibility`."""
        selections = self._each(requests, self._selection)
        at = np.asarray(requests, dtype=np.int64)
        starts, lengths = self._offsets[at], np.diff(self._offsets)[at]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if not offsets[-1] and all(one is None for one in selections):
            return None
        rows = self._rows[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]
        return Eligibility.joined(len(self._catalog), selections, rows, offsets)

    def _each(self, requests: Sequence[int], evaluate: Callable[[Where], T]) -> list[T | None]:
        """Evaluate the condition of each of these requests; None for those without one."""
        where = self._where
        if where is None:
            return [None] * len(requests)
        if isinstance(where, Mapping):
            return [evaluate(where)] * len(requests)
        found: list[T | None] = []
        for i in requests:
            one = where[i]
            try:
                found.append(None if one is None else evaluate(one))
            except InvalidInputError as error:
                raise InvalidInputError(f"request {i}: {error}") from None
        return found

    def _selection(self, where: Where) -> Selection | None:
        chosen = self._catalog.select(where)
        if chosen is not None and not len(chosen) and not self._allow_empty:
            raise InvalidInputError(f"no item meets the condition {dict(where)!r:.200}.")
        return chosen


def make_eligibility(
    exclude: Exclude | None, where: Where | Sequence[Where | None] | None, catalog: Catalog, n: int
) -> tuple[Eligibility | None, NDArray[np.int64]]:
    """Return the items that each of n requests may get, and the number of unknown ids that each excludes.

    The parameters are those of `Rules`, which does the same part by part.
    """
    rules = Rules(exclude, where, catalog, n)
    return rules.eligibility(0, n), rules.unknown


def _checked_where(where: Where | Sequence[Where | None] | None, n: int) -> Where | Sequence[Where | None] | None:
    if where is None or isinstance(where, Mapping):
        return where
    if isinstance(where, str | bytes) or not isinstance(where, Sequence):
        raise InvalidInputError(
            f'where must be a dict such as {{"region": "DE"}}, or one for each request, got {where!r:.80}.'
        )
    if len(where) != n:
        raise InvalidInputError(f"there are {n} requests, and {len(where)} conditions in where.")
    return where


def _excluded_rows(
    exclude: Exclude | None, catalog: Catalog, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the excluded rows, sorted and distinct in each request, their offsets, and numbers of unknown ids."""
    owners, rows, unknown = _excluded(exclude, catalog, n)
    keys = owners * len(catalog) + rows
    if n * len(catalog) < np.iinfo(np.int32).max:
        keys = keys.astype(np.int32)  # sorted in half the time
    keys.sort()
    first = np.ones(len(keys), dtype=bool)
    first[1:] = keys[1:] != keys[:-1]
    keys = keys[first].astype(np.int64)
    offsets = np.searchsorted(keys, np.arange(n + 1) * len(catalog))
    return keys - np.repeat(np.arange(n) * len(catalog), np.diff(offsets)), offsets, unknown


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
    exclude = to_values(exclude)
    if isinstance(exclude, str | bytes | Mapping) or not isinstance(exclude, Sequence | np.ndarray):
        raise InvalidInputError(f"exclude must be a list of ids for each request, got {exclude!r:.80}.")
    if len(exclude) != n:
        raise InvalidInputError(f"there are {n} requests, and exclude has {len(exclude)} lists of ids.")
    lists = [() if one is None else to_values(one) for one in exclude]
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
