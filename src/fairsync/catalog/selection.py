"""Selections: the items of a catalog that meet a condition."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fairsync.catalog.catalog import Catalog
    from fairsync.catalog.conditions import Condition

_Rows = npt.NDArray[np.int64]

Bounds: TypeAlias = tuple[npt.NDArray[Any], float, float]
"""A value of each item, and the lowest and the highest value of those that are selected."""


class Selection:
    """Some of the items of a catalog, as a mask. It is immutable, and keeps what is computed from it.

    Parameters
    ----------
    mask
        (items,) whether each item is selected. The array is used in place: do not write to it later.
    conditions
        The conditions that the selected items meet, if they are known.

    Examples
    --------
    >>> some = Selection(np.array([True, False, True]))
    >>> len(some), some.rows.tolist(), some.has(np.array([1, 2])).tolist()
    (2, [0, 2], [False, True])
    """

    def __init__(self, mask: npt.NDArray[np.bool_], conditions: Sequence["Condition"] = ()) -> None:
        self._conditions, self.n_items = conditions, len(mask)
        self._mask: npt.NDArray[np.bool_] | None = _frozen(mask)
        self._rows: _Rows | None = None
        self._sizes: tuple[npt.NDArray[np.integer], npt.NDArray[np.int64]] | None = None

    bounds: Sequence[Bounds] | None = None
    """The bounds that all selected items keep, and no others; None if it is not known."""

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Selection({len(self):,} of {self.n_items:,} items)"

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """(items,) whether each item is selected."""
        assert self._mask is not None
        return self._mask

    @property
    def share(self) -> float:
        """The share of the items that is selected, 0 only if none is. If it is large, it may be an estimate."""
        return len(self) / self.n_items

    @property
    def conditions(self) -> "tuple[Condition, ...] | None":
        """The conditions that the selected items meet, in their standard form; None if they are not known."""
        return tuple(self._conditions) or None

    @property
    def where(self) -> dict[str, Any] | None:
        """The condition that the selected items meet, as `Catalog.select` takes it; None if it is not known."""
        return {one.attribute: one.given for one in self._conditions} or None

    @property
    def nbytes(self) -> int:
        """About the most memory that the selection takes, in bytes: a mask, rows if they are few, sizes of groups."""
        return 5 * self.n_items

    @property
    def rows(self) -> _Rows:
        """The rows of the selected items, in ascending order."""
        if self._rows is not None:
            return self._rows
        rows = np.flatnonzero(self.mask)
        if rows.nbytes <= self.n_items:  # they are asked for again and again only where they are few
            self._rows = rows
        return rows

    def has(self, rows: _Rows | slice) -> npt.NDArray[np.bool_]:
        """Return whether each of some items is selected."""
        return self.mask[rows]

    def group_sizes(self, catalog: "Catalog") -> npt.NDArray[np.int64]:
        """Return (G,) the number of selected items of each group of a catalog with these items."""
        last = self._sizes
        if last is None or last[0] is not catalog.group_of or len(last[1]) != catalog.n_groups:
            # The group of every item stays the same array as long as the catalog does.
            self._sizes = last = (catalog.group_of, catalog.group_sizes_of(self.mask))
        return last[1]

    @cached_property
    def _count(self) -> int:
        return int(np.count_nonzero(self.mask))


def _frozen(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    view = mask.view()
    view.flags.writeable = False
    return view
