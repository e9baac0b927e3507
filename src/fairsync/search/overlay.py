"""Incremental updates of an index: new items are searched in an overlay, removed items are filtered out."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange
from fairsync.search.base import Hits, Index, check_prices, rebuild_index
from fairsync.search.eligibility import Eligibility
from fairsync.search.exact import ExactIndex
from fairsync.search.filtering import search_eligible
from fairsync.search.sharded import Shard, merge

_Rows = npt.NDArray[np.int64]


class Overlay:
    """A built index, minus the items that were removed, plus the items that were added.

    The built index, of any kind, is not changed. Items that were removed, moved to another group or given another
    embedding are dropped from its answers, and it is asked for more items until enough are left. New and changed items
    are searched exactly beside it. If the built index is exact, so is the answer.

    Parameters
    ----------
    built
        The index over an earlier catalog.
    rows
        (items of the built index,) the present row of each item; -1 if it was removed or changed.
    sizes
        (groups of the built index,) the number of items of each group in the earlier catalog.
    catalog
        The present catalog.
    """

    def __init__(self, built: Index, rows: _Rows, sizes: _Rows, catalog: Catalog) -> None:
        self.built, self.rows, self.sizes, self.catalog = built, rows, sizes, catalog
        valid = rows[rows >= 0]
        self._n_valid = len(valid)
        new = np.ones(len(catalog), dtype=bool)
        new[valid] = False
        added = np.flatnonzero(new)
        self._added = Shard(catalog.part(added), added, ExactIndex) if len(added) else None
        self.applies_prices = built.applies_prices

    @property
    def wear(self) -> float:
        """Removed, changed and added items as a share of the catalog. Rebuild the index when it is large.

        A tenth costs little. Beyond that, more and more answers hold removed items, and more and more items are
        searched exactly.
        """
        removed = len(self.rows) - self._n_valid
        added = 0 if self._added is None else len(self._added.rows)
        return (removed + added) / len(self.catalog)

    @cached_property
    def _order(self) -> _Rows:
        return np.argsort(self.rows, kind="stable")

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        prices = check_prices(prices, self.catalog.n_groups)
        below = None if eligible is None else eligible.within(self.rows, self._order)
        answers = [self._below(users, None if prices is None else prices[: len(self.sizes)], k, below)]
        if self._added is not None:
            answers.append(self._added.search(users, prices, k, eligible))
        merged = merge(answers, self.catalog.group_of, self.catalog.rank, prices, k)
        return merged if answers[0].reached is None else replace(merged, reached=self._reached(answers[0].reached))

    def rebuild(self, catalog: Catalog) -> Index:
        """Return an index of the kind of the built one over another catalog; see `rebuild_index`."""
        return rebuild_index(self.built, catalog)

    def _reached(self, below: _Rows) -> _Rows:
        """Return a lower bound on the items searched: any item out of reach of the built index may be a present one."""
        reached = self.catalog.group_sizes.copy()
        reached[: len(self.sizes)] -= self.sizes - below
        return np.maximum(reached, 0)

    def _below(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None,
    ) -> Hits:
        """Return the best items of the built index that are still valid, in rows of the present catalog."""
        hits, reached = Hits.empty(len(users), k), None
        waiting = np.arange(len(users))
        wanted = k if self._n_valid == len(self.rows) else k + 8 + k // 4
        while len(waiting):
            ask = min(wanted, len(self.rows))
            mine = None if eligible is None else eligible.take(waiting)
            found = search_eligible(self.built, users[waiting], prices, ask, mine)
            if found.reached is not None:  # the part out of reach may change from one search to the next
                reached = found.reached if reached is None else np.minimum(reached, found.reached)
            rows = np.where(found.rows >= 0, self.rows[found.rows], -1)
            valid = rows >= 0
            over = found.rows[:, -1] < 0  # the built index has no more items
            done = (valid.sum(axis=1) >= k) | over | (ask == len(self.rows))
            who = np.flatnonzero(done)
            first = np.argsort(~valid[who], axis=1, kind="stable")[:, :k]  # valid items first, in their order
            width = first.shape[1]
            hits.rows[waiting[who], :width] = np.take_along_axis(rows[who], first, axis=1)
            relevance = np.where(valid, found.relevance, -np.inf)[who]
            hits.relevance[waiting[who], :width] = np.take_along_axis(relevance, first, axis=1)
            waiting, wanted = waiting[~done], 2 * wanted
        return replace(hits, reached=reached)


def follow(index: Index, change: CatalogChange, before: Catalog) -> Index:
    """Return an index over the catalog after a change, reusing what was built for the catalog before it.

    Parameters
    ----------
    index
        An index over the catalog before the change. It stays valid.
    change
        The change; see `fairsync.catalog.changes`.
    before
        The catalog before the change.

    Examples
    --------
    >>> from fairsync.catalog.changes import remove_items
    >>> from fairsync.search import OneHotIndex
    >>> catalog = Catalog(np.array([[1.0], [3.0], [2.0]]), ["a", "b", "b"])
    >>> change = remove_items(catalog, [1])
    >>> after = follow(OneHotIndex(catalog), change, catalog)
    >>> change.catalog.ids_of(after.search(np.ones((1, 1, 1)), None, k=1).rows).tolist()
    [[2]]
    """
    if change.catalog.group_of is before.group_of and not getattr(index, "stores_attributes", False):
        return index  # only attributes have changed, and the index knows none
    if isinstance(index, ExactIndex):  # it stores nothing but the catalog
        return ExactIndex(change.catalog, index.threads)
    if isinstance(index, Overlay):
        rows = np.where(index.rows >= 0, change.rows[index.rows], -1)
        return Overlay(index.built, rows, index.sizes, change.catalog)
    if callable(itself := getattr(index, "follow", None)):  # the index has a better way than an overlay
        followed: Index = itself(change)
        return followed
    return Overlay(index, change.rows, before.group_sizes, change.catalog)
