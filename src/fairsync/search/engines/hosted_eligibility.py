"""Eligibility in a catalog that only an engine holds: by ids and conditions, with numbers of items by combination."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.search.eligibility import Eligibility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.search.engines.engine import Restricted


@dataclass(frozen=True)
class HostedEligibility(Eligibility):
    """The eligible items of n requests, for an engine that filters.

    ``excluded`` has the combination of each excluded item that exists, request by request.

    Attributes
    ----------
    restricted : tuple of Restricted
        The conditions and the excluded ids of each request, for the engine.
    selected : tuple of numpy.ndarray
        For each distinct condition, then for none: (combinations,) the items that meet it.
    is_met : numpy.ndarray
        Whether each excluded item meets the condition of its request.
    group_of_row : numpy.ndarray
        (combinations,) the group, or atom, of each.
    """

    restricted: tuple[Restricted, ...]
    selected: tuple[NDArray[np.int64], ...]
    is_met: NDArray[np.bool_]
    group_of_row: NDArray[np.int32]

    def under(self, group_of_row: NDArray[np.int32]) -> HostedEligibility:
        """Return the eligibility with sizes by other groups: the group of each combination is given."""
        return replace(self, group_of_row=group_of_row)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(n,) the number of eligible items of each request."""
        sizes = np.array([int(one.sum()) for one in self.selected], dtype=np.int64)
        return sizes[self.selection_of] - np.bincount(self.owners[self.is_met], minlength=len(self))

    def take(self, positions: NDArray[np.integer]) -> HostedEligibility:
        """Return the eligibility of some of the requests, in this order."""
        at = np.asarray(positions, dtype=np.int64)
        lengths = self.lengths[at]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][at] - offsets[:-1], lengths)
        return replace(
            self,
            selection_of=self.selection_of[at],
            excluded=self.excluded[entries],
            offsets=offsets,
            restricted=tuple(self.restricted[one] for one in at.tolist()),
            is_met=self.is_met[entries],
        )

    def group_sizes(self, request: int, catalog: Catalog) -> NDArray[np.int64]:
        """Return (G,) the number of eligible items of each group for one request; see `Eligibility.group_sizes`."""
        held = self.selected_sizes(int(self.selection_of[request]), catalog)
        mine = slice(int(self.offsets[request]), int(self.offsets[request + 1]))
        gone = self.group_of_row[self.excluded[mine][self.is_met[mine]]]
        left: NDArray[np.int64] = np.maximum(held - np.bincount(gone, minlength=len(held)), 0)
        return left

    def selected_sizes(self, at: int, catalog: Catalog) -> NDArray[np.int64]:
        """Return (G,) the number of items of each group that meet a condition; see `Eligibility.selected_sizes`."""
        return np.bincount(self.group_of_row, self.selected[at], catalog.n_groups).astype(np.int64)

    def excluded_groups(self, group_of: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the request and the group of each excluded item; see `Eligibility.excluded_groups`."""
        return self.owners[self.is_met], self.group_of_row[self.excluded[self.is_met]].astype(np.int64)

    def allows(self, owners: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return that all items are eligible: the engine has returned no others."""
        return np.ones(len(rows), dtype=bool)


def all_of(lists: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return lists of rows one after another."""
    return np.concatenate([np.empty(0, dtype=np.int64), *lists])
