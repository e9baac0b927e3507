"""The rows of some groups of a catalog, found without a look at the other items."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog


class GroupRows:
    """The rows of each group.

    A price of +inf masks a group. Where nearly all groups are masked, as by the guard, only the rows of the open ones
    are searched. Rows are sorted by group when they are asked for the first time.

    Parameters
    ----------
    catalog
        The items.

    Examples
    --------
    >>> rows = GroupRows(Catalog(np.eye(4), ["a", "b", "c", "b"]))
    >>> rows.of(np.array([0, 1])).tolist()
    [0, 1, 3]
    >>> rows.in_order(np.array([1, 0])).tolist()
    [1, 3, 0]
    >>> rows.open(np.array([np.inf, np.inf, 0.5]), most=2).tolist(), rows.open(np.array([0.5, 0.0, np.inf]), most=2)
    ([2], None)
    """

    def __init__(self, catalog: Catalog) -> None:
        self._group_of, self._sizes = catalog.group_of, catalog.group_sizes

    @cached_property
    def _by_group(self) -> npt.NDArray[np.int64]:
        kind = np.int32 if len(self._group_of) < np.iinfo(np.int32).max else np.int64
        return np.argsort(self._group_of, kind="stable").astype(kind)

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self._sizes)

    def of(self, groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the rows of these groups, in ascending order."""
        return np.sort(self.in_order(groups))

    def in_order(self, groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the rows of these groups, group by group."""
        sizes = self._sizes[groups]
        ends = np.cumsum(sizes)
        places = np.arange(int(sizes.sum())) + np.repeat(self._ends[groups] - ends, sizes)
        return self._by_group[places].astype(np.int64)

    def open(self, prices: npt.NDArray[np.float64] | None, most: float) -> npt.NDArray[np.int64] | None:
        """Return the rows of all groups that are not masked; None if there are more than ``most``."""
        if prices is None or prices.max(initial=0.0) < np.inf:
            return None
        groups = np.flatnonzero(prices < np.inf)
        return self.of(groups) if self._sizes[groups].sum() <= most else None
