"""An index that goes on while its catalog changes: what is new lies over what was built."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange
from fairsync.search.base import Hits, Index, check_prices
from fairsync.search.exact import ExactIndex
from fairsync.search.sharded import Shard, merge

_Rows = npt.NDArray[np.int64]


class Overlay:
    """A built index, less the items that are gone, plus the items that are new.

    What was built stays as it is, whatever kind of index it is. Items that were removed, moved or given another
    embedding are passed over in its answers, and it is asked for more until enough are left. Items that are new or
    changed are searched exactly beside it. If the built index is exact, so is the answer.

    Parameters
    ----------
    built
        The index below.
    rows
        (items below,) the row of each item that it was built for in the catalog now, -1 if it is gone or not the same.
    sizes
        (groups below,) how many items each group had then.
    catalog
        As it is now.
    """

    def __init__(self, built: Index, rows: _Rows, sizes: _Rows, catalog: Catalog) -> None:
        self.built, self.rows, self.sizes, self.catalog = built, rows, sizes, catalog
        alive = rows[rows >= 0]
        self._n_alive = len(alive)
        new = np.ones(len(catalog), dtype=bool)
        new[alive] = False
        fresh = np.flatnonzero(new)
        self._fresh = Shard(catalog.part(fresh), fresh, ExactIndex) if len(fresh) else None
        self.applies_prices = built.applies_prices

    @property
    def wear(self) -> float:
        """The share of what lies over the built index: dead items below and new ones above. Build anew at some point.

        A tenth costs little. Beyond, more and more answers hold dead items, and more and more is searched exactly.
        """
        dead = len(self.rows) - self._n_alive
        fresh = 0 if self._fresh is None else len(self._fresh.rows)
        return (dead + fresh) / len(self.catalog)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        prices = check_prices(prices, self.catalog.n_groups)
        answers = [self._below(users, None if prices is None else prices[: len(self.sizes)], k)]
        if self._fresh is not None:
            answers.append(self._fresh.search(users, prices, k))
        merged = merge(answers, self.catalog.group_of, self.catalog.rank, prices, k)
        return merged if answers[0].reached is None else replace(merged, reached=self._reached(answers[0].reached))

    def _reached(self, below: _Rows) -> _Rows:
        """Return how many items were searched, at least: each one out of reach below may be one that still counts."""
        reached = self.catalog.group_sizes.copy()
        reached[: len(self.sizes)] -= self.sizes - below
        return np.maximum(reached, 0)

    def _below(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Return the best living items of the built index, in rows of the catalog now."""
        hits, reached = Hits.empty(len(users), k), None
        waiting = np.arange(len(users))
        wanted = k if self._n_alive == len(self.rows) else k + 8 + k // 4
        while len(waiting):
            ask = min(wanted, len(self.rows))
            found = self.built.search(users[waiting], prices, ask)
            if found.reached is not None:  # what is out of reach may change from one question to the next
                reached = found.reached if reached is None else np.minimum(reached, found.reached)
            rows = np.where(found.rows >= 0, self.rows[found.rows], -1)
            living = rows >= 0
            over = found.rows[:, -1] < 0  # there is no more
            done = (living.sum(axis=1) >= k) | over | (ask == len(self.rows))
            who = np.flatnonzero(done)
            first = np.argsort(~living[who], axis=1, kind="stable")[:, :k]  # the living first, in their order
            width = first.shape[1]
            hits.rows[waiting[who], :width] = np.take_along_axis(rows[who], first, axis=1)
            relevance = np.where(living, found.relevance, -np.inf)[who]
            hits.relevance[waiting[who], :width] = np.take_along_axis(relevance, first, axis=1)
            waiting, wanted = waiting[~done], 2 * wanted
        return replace(hits, reached=reached)


def follow(index: Index, change: CatalogChange, before: Catalog) -> Index:
    """Return an index over the catalog after a change, with as little work as can be.

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
    if isinstance(index, ExactIndex):  # it holds nothing but the catalog
        return ExactIndex(change.catalog, index.threads)
    if isinstance(index, Overlay):
        rows = np.where(index.rows >= 0, change.rows[index.rows], -1)
        return Overlay(index.built, rows, index.sizes, change.catalog)
    if callable(itself := getattr(index, "follow", None)):  # it has a better way than to be laid over
        followed: Index = itself(change)
        return followed
    return Overlay(index, change.rows, before.group_sizes, change.catalog)
