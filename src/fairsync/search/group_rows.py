"""The rows of some groups of a catalog, found without a look at the other items."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.price_range import price_range


class GroupRows:
    """The rows of each group.

    A price of +inf masks a group. Where nearly all groups are masked, as by the guard, only the rows of the open ones
    are searched. Rows are sorted by group when they are asked for the first time.

    Parameters
    ----------
    catalog
        The items.

    Attributes
    ----------
    n_groups : int
        The number of groups.

    Examples
    --------
    >>> rows = GroupRows(Catalog(np.eye(4), ["a", "b", "c", "b"]))
    >>> rows.of(np.array([0, 1])).tolist()
    [0, 1, 3]
    >>> [part.tolist() for part in rows.in_order(np.array([1, 0]))]
    [[1, 3, 0], [2, 1]]
    >>> rows.open(np.array([np.inf, np.inf, 0.5]), most=2).tolist(), rows.open(np.array([0.5, 0.0, np.inf]), most=2)
    ([2], None)
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._sizes, self.n_groups = catalog, catalog.group_sizes, catalog.n_groups

    @cached_property
    def _starts(self) -> npt.NDArray[np.signedinteger]:
        return np.concatenate([[0], np.cumsum(self._sizes)]).astype(self._catalog.rows_by_group.dtype)

    def of(self, groups: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the rows of these groups, in ascending order."""
        return np.sort(self.in_order(groups)[0])

    def in_order(self, groups: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.signedinteger]]:
        """Return the rows of these groups, group by group, and the number of rows of each."""
        starts = self._starts[groups]
        sizes = self._starts[groups + 1] - starts
        places = np.arange(int(sizes.sum())) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return self._catalog.rows_by_group[places].astype(np.int64), sizes

    def open(self, prices: npt.NDArray[np.float64] | None, most: float) -> npt.NDArray[np.int64] | None:
        """Return the rows of all groups that are not masked; None if there are more than ``most``."""
        if prices is None or price_range(prices)[1] < np.inf:
            return None
        groups = np.flatnonzero(prices < np.inf)
        return self.of(groups) if self._sizes[groups].sum() <= most else None
