"""How many items of each group single requests may get, without a table of all requests by all groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies.base import sum_at_home

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class OwnSizes:
    """The eligible items of each group, for n requests: those that meet the condition, less those that are excluded.

    Requests share few conditions, and exclude items of few groups. There can be as many groups as items.

    Attributes
    ----------
    sizes : tuple of numpy.ndarray
        For each distinct condition (G,) the items of each group that meet it.
    condition_of : numpy.ndarray
        (n,) the position of each request's condition in ``sizes``.
    owners, groups, there, left : numpy.ndarray
        Of the ``there[j]`` items of group ``groups[j]`` that meet its condition, request ``owners[j]`` excludes some
        and may get the other ``left[j]``. No pair comes twice.

    Examples
    --------
    >>> from fairsync.catalog import Catalog, Selection
    >>> from fairsync.search.eligibility import Eligibility
    >>> even = Selection(np.array([True, False, True, False]))
    >>> eligible = Eligibility.of(4, [None, even], [[2, 3], [0]])
    >>> own = OwnSizes.of(eligible, Catalog(np.eye(4), [0, 1, 1, 1]))
    >>> own.sums(np.array([9, 9])).tolist(), own.shown(np.array([9, 2])).tolist(), own.lacks(np.array([1, 1])).tolist()
    ([1, 2], [2, 1], [False, True])
    """

    sizes: tuple[NDArray[np.int64], ...]
    condition_of: NDArray[np.int64]
    owners: NDArray[np.int64]
    groups: NDArray[np.int64]
    there: NDArray[np.int64]
    left: NDArray[np.int64]

    @classmethod
    def of(cls, eligible: Eligibility, catalog: Catalog, home: NDArray[np.int64] | None = None) -> OwnSizes:
        """Return the sizes of the groups of a catalog for all requests.

        If groups have another one as their home (`Terms.home`), their items are counted there.
        """
        used, condition_of = np.unique(eligible.selection_of, return_inverse=True)
        by_condition = tuple(eligible.selected_sizes(at, catalog) for at in used.tolist())
        owners, groups = eligible.excluded_groups(catalog.group_of)
        if home is not None:
            by_condition, groups = tuple(sum_at_home(one, home) for one in by_condition), home[groups]
        cells, lost = np.unique(owners * catalog.n_groups + groups, return_counts=True)
        owners, groups = np.divmod(cells, catalog.n_groups)
        there = np.zeros(len(cells), dtype=np.int64)
        for at, one in enumerate(by_condition):
            mine = condition_of[owners] == at
            there[mine] = one[groups[mine]]
        return cls(by_condition, condition_of, owners, groups, there, np.maximum(there - lost, 0))

    def lacks(self, least: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (n,) whether a request may get fewer items of some group than (G,) the least."""
        lacking = np.array([bool((one < least).any()) for one in self.sizes])[self.condition_of]
        lacking[self.owners[self.left < least[self.groups]]] = True
        return lacking

    def shown(self, most: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n,) the sum over groups of what each request may get, up to (G,) the most of each group."""
        whole = np.array([int(np.minimum(one, most).sum()) for one in self.sizes], dtype=np.int64)
        lost = np.zeros_like(self.condition_of)
        np.add.at(lost, self.owners, self._lost(most))
        return whole[self.condition_of] - lost

    def sums(self, most: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (G,) the sum over requests of what each may get of a group, up to the most."""
        total = np.zeros(len(most), dtype=np.int64)
        for one, requests in zip(self.sizes, np.bincount(self.condition_of).tolist(), strict=True):
            total += requests * np.minimum(one, most)
        np.subtract.at(total, self.groups, self._lost(most))
        return total

    def _lost(self, most: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what excluded items take away of each pair of a request and a group, up to the most of a group."""
        limit = most[self.groups]
        lost: NDArray[np.int64] = np.minimum(self.there, limit) - np.minimum(self.left, limit)
        return lost
