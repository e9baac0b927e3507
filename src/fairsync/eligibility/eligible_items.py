"""What a caller says about eligible items (`exclude`, `where`), checked and turned into rows of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from fairsync.catalog.arrays import to_values
from fairsync.catalog.conditions import parse_conditions
from fairsync.catalog.names import are_words, check_names, check_same_kind
from fairsync.errors import InvalidInputError
from fairsync.search.eligibility import Eligibility
from fairsync.search.engines.engine import Restricted
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.search.engines.hosted_eligibility import HostedEligibility, all_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Selection, Where
    from fairsync.catalog.conditions import Condition

T = TypeVar("T")
# Lists of different lengths are sorted in one table, unless that has this many times as many places as there are rows.
_MOST_PADDED = 4

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
        rows, offsets = self._rows, self._offsets
        if len(rows) and requests != range(len(self.unknown)):
            at = np.asarray(requests, dtype=np.int64)
            starts, lengths = offsets[at], np.diff(offsets)[at]
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            rows = rows[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)]
        elif not len(rows):
            offsets = np.zeros(len(requests) + 1, dtype=np.int64)
        if not len(rows) and all(one is None for one in selections):
            return None
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


class HostedRules(Rules):
    """What each of n requests may get of a catalog that only an engine holds; see `Rules`."""

    def __init__(
        self,
        exclude: Exclude | None,
        where: Where | Sequence[Where | None] | None,
        catalog: HostedCatalog,
        n: int,
        *,
        allow_empty: bool = False,
    ) -> None:
        self._hosted, self._where, self._allow_empty = catalog, _checked_where(where, n), allow_empty
        if exclude is not None and hasattr(exclude, "tocsr"):
            raise InvalidInputError("a matrix of excluded items needs a copy of the catalog: give lists of ids.")
        self._lists = [] if exclude is None else [list(dict.fromkeys(one)) for one in _id_lists(exclude, n)]
        ids = list(dict.fromkeys(chain.from_iterable(self._lists)))
        if ids:
            check_same_kind(_joined([ids]), catalog.ids, "ids")
        self._items = catalog.engine.fetch(ids) if ids else None
        rows = np.empty(0, dtype=np.int64) if self._items is None else catalog.combinations_of(self._items)
        names = [] if self._items is None else self._items.ids
        self._place = {name: at for at, name in enumerate(names) if rows[at] >= 0}
        self._rows = rows
        unknown = [sum(name not in self._place for name in one) for one in self._lists] or [0] * n
        self.unknown = np.array(unknown, dtype=np.int64)

    def check(self) -> None:
        """Raise for a condition that would be refused, whichever request has it, before any is answered."""
        self._each(range(len(self.unknown)), self._conditions)

    def eligibility_of(self, requests: Sequence[int]) -> HostedEligibility | None:
        """Return the items that these requests may get, in this order; see `Rules.eligibility`."""
        conditions = self._each(requests, self._conditions)
        lists = [self._lists[i] if self._lists else [] for i in requests]
        if not any(lists) and not any(conditions):
            return None
        distinct = [one for one in dict.fromkeys(conditions) if one]
        places = [np.array([self._place[name] for name in one if name in self._place], dtype=np.int64) for one in lists]
        meets = {one: self._hosted.meeting(self._items, one) for one in distinct} if self._items is not None else {}
        met = [
            meets[one][at] if one and meets else np.ones(len(at), bool)
            for one, at in zip(conditions, places, strict=True)
        ]
        sizes = (*map(self._hosted.selected, distinct), self._hosted.weights)
        return HostedEligibility(
            len(self._hosted), (), np.array([distinct.index(one) if one else -1 for one in conditions], dtype=np.int64),
            self._rows[all_of(places)], np.concatenate([[0], np.cumsum([len(at) for at in places], dtype=np.int64)]),
            tuple(Restricted(one or (), names) for one, names in zip(conditions, lists, strict=True)),
            sizes, np.concatenate([np.empty(0, dtype=bool), *met]), self._hosted.group_of,
        )  # fmt: skip

    def _conditions(self, where: Where) -> tuple[Condition, ...]:
        conditions = parse_conditions(where, self._hosted.conditioned_attributes)
        if conditions and not self._allow_empty and not self._hosted.selected(conditions).any():
            raise InvalidInputError(f"no item meets the condition {dict(where)!r:.200}.")
        return conditions


def make_rules(
    exclude: Exclude | None,
    where: Where | Sequence[Where | None] | None,
    catalog: Catalog,
    n: int,
    *,
    allow_empty: bool = False,
) -> Rules | None:
    """Return what each of n requests may get; None if all may get everything. The parameters are those of `Rules`."""
    if exclude is None and where is None:
        return None
    if isinstance(catalog, HostedCatalog):
        return HostedRules(exclude, where, catalog, n, allow_empty=allow_empty)
    return Rules(exclude, where, catalog, n, allow_empty=allow_empty)


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
    rows, lengths = _excluded(exclude, catalog, n)
    unknown = np.zeros(n, dtype=np.int64)
    if not len(rows):
        return rows, np.zeros(n + 1, dtype=np.int64), unknown
    if rows.min() < 0:
        owners = np.repeat(np.arange(n), lengths)
        unknown = np.bincount(owners[rows < 0], minlength=n)
        rows, lengths = rows[rows >= 0], lengths - unknown
    if n == 1:
        rows = np.sort(rows)
        fresh = rows[1:] != rows[:-1]
        if not fresh.all():
            rows = np.concatenate([rows[:1], rows[1:][fresh]])
        return rows, np.array([0, len(rows)]), unknown
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
    lists = _id_lists(exclude, n)
    lengths = np.fromiter(map(len, lists), np.int64, n)
    if not lengths.any():
        return np.empty(0, dtype=np.int64), lengths
    if are_words(catalog.ids[:1]):
        try:
            words = [one.tolist() if isinstance(one, np.ndarray) else one for one in lists]
            return catalog.rows_of_words(words), lengths
        except TypeError:  # an id that is no word: it is named below
            pass
    ids = _joined(lists)
    check_same_kind(ids, catalog.ids[:1], "ids")
    return catalog.rows_of(ids), lengths


def _id_lists(exclude: Exclude, n: int) -> list[Any]:
    """Return the ids that each of n requests excludes, or say what is wrong with them."""
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
    return lists


def _joined(lists: Sequence[Any]) -> NDArray[Any]:
    """Return the ids of all lists, one after another, at least one."""
    if all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in "iuU" for one in lists):
        filled = [one for one in lists if len(one)]
        if len({one.dtype.kind == "U" for one in filled}) == 1:
            return np.concatenate(filled)
    flat = list(chain.from_iterable(one.tolist() if isinstance(one, np.ndarray) else one for one in lists))
    # One look at the types: `check_names` looks at every value, and is needed only to say what is wrong.
    if set(map(type, flat)) == {int} and min(flat) >= -(2**63) and max(flat) < 2**63:
        return np.array(flat, dtype=np.int64)
    return check_names(flat, None, "excluded ids", "id")
