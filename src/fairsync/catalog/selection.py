"""Selections: the items of a catalog that meet a condition."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fairsync.catalog.conditions import Condition


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
    >>> len(some), some.rows.tolist(), some.group_sizes(np.array([1, 0, 1]), 2).tolist()
    (2, [0, 2], [0, 2])
    """

    def __init__(self, mask: npt.NDArray[np.bool_], conditions: Sequence["Condition"] = ()) -> None:
        self._conditions = conditions
        self.mask = mask.view()
        self.mask.flags.writeable = False
        self._count = int(np.count_nonzero(mask))
        self._sizes: tuple[npt.NDArray[np.integer], npt.NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Selection({self._count:,} of {len(self.mask):,} items)"

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
        """The most memory that the selection takes, in bytes."""
        return self.mask.nbytes + 8 * self._count

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """The rows of the selected items, in ascending order."""
        return np.flatnonzero(self.mask)

    def group_sizes(self, group_of: npt.NDArray[np.integer], n_groups: int) -> npt.NDArray[np.int64]:
        """Return (G,) the number of selected items of each group, given the group of every item."""
        last = self._sizes
        if last is None or last[0] is not group_of or len(last[1]) != n_groups:
            # The group of every item stays the same array as long as the catalog does.
            self._sizes = last = (group_of, np.bincount(group_of[self.mask], minlength=n_groups).astype(np.int64))
        return last[1]
