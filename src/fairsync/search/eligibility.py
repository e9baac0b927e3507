"""Eligibility: which items may be returned for each request."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog.selection import Selection
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from fairsync.catalog import Catalog

_Rows = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Eligibility:
    """The eligible items of n requests: those that meet the request's condition and are not excluded.

    Requests with the same condition share a selection, so that they can be searched together.

    Attributes
    ----------
    n_items : int
        The number of items of the catalog.
    selections : tuple of Selection
        The distinct selections.
    selection_of : numpy.ndarray
        (n,) int64, the position of each request's selection; -1 for all items.
    excluded : numpy.ndarray
        int64 rows of excluded items, request by request, in ascending order and distinct within each request.
    offsets : numpy.ndarray
        (n + 1,) int64: the rows of request i are ``excluded[offsets[i] : offsets[i + 1]]``.

    Examples
    --------
    >>> even = Selection(np.array([True, False, True, False]))
    >>> eligible = Eligibility.of(4, [even, None], [[2], [0, 1, 0]])
    >>> eligible.mask(0).tolist(), eligible.mask(1).tolist(), eligible.counts.tolist()
    ([True, False, False, False], [False, False, True, True], [1, 2])
    """

    n_items: int
    selections: tuple[Selection, ...]
    selection_of: _Rows
    excluded: _Rows
    offsets: _Rows

    @classmethod
    def of(
        cls,
        n_items: int,
        selections: Sequence[Selection | None],
        excluded: Sequence[npt.ArrayLike] | None = None,
    ) -> "Eligibility":
        """Return the eligibility of requests with these selections, None for all items, and excluded rows."""
        lists = [] if excluded is None else [np.unique(np.asarray(rows, dtype=np.int64)) for rows in excluded]
        if lists and len(lists) != len(selections):
            raise InvalidInputError(f"there are {len(selections)} selections and {len(lists)} lists of excluded rows.")
        lengths = [len(rows) for rows in lists] or [0] * len(selections)
        rows = np.concatenate([np.empty(0, dtype=np.int64), *lists])
        if len(rows) and (rows.min() < 0 or rows.max() >= n_items):
            raise InvalidInputError(f"excluded rows must be from 0 to {n_items - 1}.")
        return cls.joined(n_items, selections, rows, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    @classmethod
    def joined(
        cls, n_items: int, selections: Sequence[Selection | None], excluded: _Rows, offsets: _Rows
    ) -> "Eligibility":
        """Return the eligibility of requests whose excluded rows are joined already, sorted and distinct in each."""
        distinct = {id(one): one for one in selections if one is not None}
        for one in distinct.values():
            if one.n_items != n_items:
                raise InvalidInputError(f"a selection of {one.n_items} items does not fit {n_items} items.")
        place = {key: at for at, key in enumerate(distinct)}
        selection_of = np.array([place.get(id(one), -1) for one in selections], dtype=np.int64)
        return cls(n_items, tuple(distinct.values()), selection_of, excluded, offsets)

    def __len__(self) -> int:
        return len(self.selection_of)

    @property
    def lengths(self) -> _Rows:
        """(n,) The number of excluded items of each request."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> _Rows:
        """The request of each entry of ``excluded``."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def counts(self) -> _Rows:
        """(n,) The number of eligible items of each request."""
        sizes = np.array([*map(len, self.selections), self.n_items], dtype=np.int64)
        taken = self.owners[self._meets(self.owners, self.excluded)]
        return sizes[self.selection_of] - np.bincount(taken, minlength=len(self))

    def take(self, positions: npt.NDArray[np.integer]) -> "Eligibility":
        """Return the eligibility of some of the requests, in this order."""
        positions = np.asarray(positions, dtype=np.int64)
        if len(positions) == len(self) and (positions == np.arange(len(self))).all():
            return self
        lengths = self.lengths[positions]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][positions] - offsets[:-1], lengths)
        used, selections = self.selection_of[positions], self.selections
        if len(selections) > len(positions):  # a part must not carry the selections of all
            numbers, places = np.unique(used, return_inverse=True)
            selections = tuple(selections[number] for number in numbers if number >= 0)
            used = places - (len(numbers) - len(selections))
        return Eligibility(self.n_items, selections, used, self.excluded[at], offsets)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """(n,) The share of the items that meets the condition of each request, or an estimate: see `Selection`."""
        shares = np.array([*(chosen.share for chosen in self.selections), 1.0])
        return shares[self.selection_of]

    def selection(self, request: int) -> Selection | None:
        """Return the selection of one request; None for all items."""
        at = int(self.selection_of[request])
        return None if at < 0 else self.selections[at]

    def mask(self, request: int) -> npt.NDArray[np.bool_]:
        """Return (items,) whether each item is eligible for one request."""
        chosen = self.selection(request)
        mask = np.ones(self.n_items, dtype=bool) if chosen is None else chosen.mask.copy()
        mask[self.excluded[self.offsets[request] : self.offsets[request + 1]]] = False
        return mask

    def group_sizes(self, request: int, catalog: "Catalog") -> _Rows:
        """Return (G,) the number of eligible items of each group of the catalog for one request."""
        chosen = self.selection(request)
        there = self.selected_sizes(int(self.selection_of[request]), catalog)
        gone = self.excluded[self.offsets[request] : self.offsets[request + 1]]
        if chosen is not None:
            gone = gone[chosen.has(gone)]
        return there - np.bincount(catalog.group_of[gone], minlength=len(there)) if len(gone) else there

    def selected_sizes(self, at: int, catalog: "Catalog") -> _Rows:
        """Return (G,) the number of items of each group in a selection, given its position; -1 for all items."""
        return catalog.group_sizes if at < 0 else self.selections[at].group_sizes(catalog)

    def excluded_groups(self, group_of: npt.NDArray[np.integer]) -> tuple[_Rows, _Rows]:
        """Return the request and the group of each excluded item that meets the condition of its request."""
        owners = self.owners
        met = self._meets(owners, self.excluded)
        return owners[met], group_of[self.excluded[met]].astype(np.int64)

    def allows(self, owners: _Rows, rows: _Rows) -> npt.NDArray[np.bool_]:
        """Return whether item ``rows[j]`` is eligible for request ``owners[j]``, for each j."""
        allowed = self._meets(owners, rows)
        if len(self.excluded):
            keys = self.owners * self.n_items + self.excluded
            wanted = owners * self.n_items + rows
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            allowed &= keys[at] != wanted
        return allowed

    def within(self, rows: _Rows, order: _Rows | None = None) -> "Eligibility":
        """Return the eligibility in the rows of a part, or of an earlier version, of the catalog.

        Parameters
        ----------
        rows
            (items of the part,) the row of each of them in this catalog; -1 for an item that is not in it.
        order
            The order that sorts ``rows``; None if they ascend.

        Examples
        --------
        >>> eligible = Eligibility.of(4, [Selection(np.array([True, False, True, True]))], [[3]])
        >>> eligible.within(np.array([1, 2, 3])).mask(0).tolist()
        [False, True, False]
        """
        known = rows >= 0
        parts = tuple(Selection(chosen.mask[rows] & known) for chosen in self.selections)
        at = np.minimum(np.searchsorted(rows, self.excluded, sorter=order), len(rows) - 1)
        there = at if order is None else order[at]
        kept = rows[there] == self.excluded
        owners, there = self.owners[kept], there[kept]
        by_row = np.lexsort((there, owners))
        offsets = np.searchsorted(owners, np.arange(len(self) + 1))
        return Eligibility(len(rows), parts, self.selection_of, there[by_row], offsets)

    def _meets(self, owners: _Rows, rows: _Rows) -> npt.NDArray[np.bool_]:
        """Return whether item ``rows[j]`` meets the condition of request ``owners[j]``, for each j."""
        if len(self.selections) == 1 and not self.selection_of.any():
            return self.selections[0].has(rows)
        met = np.ones(len(rows), dtype=bool)
        if not self.selections:
            return met
        used = self.selection_of.take(owners)
        bounds, is_bounded = self._bounds
        for values, low, high in bounds:
            mine = values.take(rows)
            met &= (mine >= low.take(used)) & (mine <= high.take(used))
        if is_bounded.all():
            return met
        if len(self.selections) <= np.iinfo(np.int16).max:
            used = used.astype(np.int16)  # sorted by counting, in a tenth of the time
        order = np.argsort(used, kind="stable")
        edges = np.searchsorted(used.take(order), np.arange(len(self.selections) + 1, dtype=used.dtype)).tolist()
        for at in np.flatnonzero(~is_bounded[:-1]).tolist():
            mine = order[edges[at] : edges[at + 1]]
            if len(mine):
                met[mine] = self.selections[at].has(rows.take(mine))
        return met

    @cached_property
    def _bounds(self) -> tuple[list[tuple[npt.NDArray[Any], _Floats, _Floats]], npt.NDArray[np.bool_]]:
        """The bounds of all selections by the values that they are about, and which selections have any.

        At the end is what stands for all items.
        """
        by_values: dict[int, tuple[npt.NDArray[Any], _Floats, _Floats]] = {}
        is_bounded = np.array([*(chosen.bounds is not None for chosen in self.selections), True])
        for at, chosen in enumerate(self.selections):
            for values, low, high in chosen.bounds or ():
                if id(values) not in by_values:
                    nothing = np.full(len(is_bounded), np.inf)
                    by_values[id(values)] = values, -nothing, nothing
                _, lowest, highest = by_values[id(values)]
                lowest[at], highest[at] = max(lowest[at], low), min(highest[at], high)
        return list(by_values.values()), is_bounded
