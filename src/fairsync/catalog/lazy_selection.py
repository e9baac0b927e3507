"""Selections of conditions: of the few items that a search asks for, without a mask of all items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.conditions import bounds_of, meets
from fairsync.catalog.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.conditions import Condition

# If a sample has fewer than this share of selected items, all items are looked at, because a search depends on it.
_MANY = 0.25
# One item in this many is looked up in less time than all of them are looked at.
_MOST_LOOKED_UP = 64


class LazySelection(Selection):
    """The items that meet conditions. They are looked up as they are asked for; all of them if many are.

    Most conditions that come with one request only are met by many items, of which a search asks for few.

    Parameters
    ----------
    conditions
        The conditions, at least one.
    columns
        The attribute of each condition.
    sample
        The rows of some items, by which the share of those that meet the conditions is estimated.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> from fairsync.catalog.conditions import Condition
    >>> prices = make_column("price", [9.5, 3.0, 4.0], 3)
    >>> chosen = LazySelection([Condition("price", high=4.0)], [prices], np.arange(3))
    >>> chosen.share, chosen.has(np.array([0, 2])).tolist(), chosen.rows.tolist()
    (0.6666666666666666, [False, True], [1, 2])
    """

    def __init__(self, conditions: Sequence[Condition], columns: Sequence[Column], sample: NDArray[np.int64]) -> None:
        self._conditions, self._columns, self.n_items = conditions, columns, len(columns[0])
        self._mask = self._rows = self._sizes = None
        self._looked_up = 0
        bounds = [None if one.negated else bounds_of(one, of) for one, of in zip(conditions, columns, strict=True)]
        self.bounds = None if None in bounds else [one for one in bounds if one is not None]
        self._sampled = float(np.count_nonzero(self._meet(sample))) / len(sample)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(items,) whether each item is selected."""
        if self._mask is None:
            self._mask = self._meet(slice(None))
            self._mask.flags.writeable = False
        return self._mask

    @property
    def share(self) -> float:
        """The share of the items that is selected, an estimate if it is large; see `Selection.share`."""
        return super().share if self._mask is not None or self._sampled < _MANY else self._sampled

    def has(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Return whether each of some items is selected."""
        if isinstance(rows, np.ndarray):
            self._looked_up += len(rows)
        if self._mask is not None or self._looked_up * _MOST_LOOKED_UP > self.n_items:
            return super().has(rows)
        return self._meet(rows)

    def _meet(self, rows: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        met = meets(self._conditions[0], self._columns[0], rows)
        for condition, column in zip(self._conditions[1:], self._columns[1:], strict=True):
            met &= meets(condition, column, rows)
        return met
