"""Search a catalog on top of an engine by over-fetching, and here what over-fetching does not decide."""

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits, Index, check_prices
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from fairsync.search.over_fetch import Eligible, Fetched, OverFetching, PricedSearch, Rows, doubled
from fairsync.search.rounding import Float32Items, Float32Queries, any_reference_serves
from fairsync.search.scoring import reference_price

Floats: TypeAlias = npt.NDArray[np.float32]
Fetch: TypeAlias = Callable[[Floats, int], tuple[Floats, Rows]]
"""(n, d) vectors and a count -> (n, count) scores and rows of the best items by inner product, best first. The row is
-1 if the engine finds no more items, or an item that is not in the catalog."""

# The first count to fetch, in multiples of k. Each further attempt doubles it.
_FIRST = 2
# Items that are not in the catalog come in clusters: a few more than their share.
_SPARE = 8
# If fewer than one item in this many is eligible, most of the fetched items would be dropped.
_RARE = 16


class CertifiedSearch(OverFetching):
    """Search a catalog under prices on top of an engine. Requests that need too many items are searched exactly here.

    A subclass asks the engine (`fetch`), and says whether it ranks under prices (`ranks_under`) and returns eligible
    items only (`filters`).

    Parameters
    ----------
    catalog
        The items that the engine holds.
    items
        Their vectors, in row order, or the scale of these.
    exact
        The index that answers if over-fetching does not.
    most
        The most items to fetch for one vector.
    alive
        The share of the engine's items that are in the catalog. The others are dropped, so more are fetched at once.
    """

    applies_prices = "over-fetch"

    def __init__(self, catalog: Catalog, items: Float32Items, exact: Index, most: int, alive: float = 1.0) -> None:
        self.catalog, self.most, self.alive = catalog, most, alive
        self.exact, self._items = exact, items

    def queries(
        self, users: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, reference: float
    ) -> Float32Queries:
        """Return users and prices in the unit of the items; see `OverFetching.queries`."""
        return Float32Queries.of(self._items, users, prices, reference)

    def ranks_under(self, prices: npt.NDArray[np.float64]) -> bool:
        """Return whether `fetch` ranks items under these prices, instead of adding the bonuses to what it fetched."""
        return False

    def filters(self, eligible: Eligibility) -> bool:
        """Return whether `fetch` returns eligible items only. Otherwise they are dropped later."""
        return False

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        prices = check_prices(prices, self.catalog.n_groups)
        spread = np.zeros(self.catalog.n_groups) if prices is None else prices
        goal, reference = reference_price(self.catalog.group_sizes, spread, k)
        vectors = np.asarray(users, dtype=np.float64)
        waiting = np.flatnonzero(vectors.any(axis=(1, 2)))
        open_items = int(self.catalog.group_sizes[spread < np.inf].sum())
        ranked = prices is None or self.ranks_under(prices)
        if goal == 0 or len(waiting) == 0 or (open_items * _RARE < len(self.catalog) and not ranked):
            return search_eligible(self.exact, users, prices, k, eligible)
        hits = Hits.empty(len(vectors), k)
        done = np.zeros(len(vectors), dtype=bool)
        count = goal if ranked else _FIRST * goal
        if self.alive < 1:
            count = math.ceil(count / self.alive) + _SPARE
        if eligible is not None:  # the others have references of their own
            waiting = waiting[any_reference_serves(self._items, vectors[waiting], prices)]
        wanted = PricedSearch(vectors, prices, goal, eligible, reference)
        for at, first in self._depths(waiting, count, goal, eligible):
            # More than all items are asked for once, at most.
            counts = doubled(first, min(self.most, max(first, 2 * len(self.catalog) - 1)))
            done[self.deepen(wanted, at, counts, hits)] = True
        rest = np.flatnonzero(~done)
        if len(rest):
            mine = None if eligible is None else eligible.take(rest)
            last = search_eligible(self.exact, vectors[rest], prices, k, mine)
            hits.rows[rest], hits.relevance[rest] = last.rows, last.relevance
        return hits

    def _depths(self, waiting: Rows, count: int, goal: int, eligible: Eligibility | None) -> Iterator[tuple[Rows, int]]:
        """Yield users with the count to fetch first. Users for whom few items are eligible are left out."""
        if eligible is None:
            yield waiting, count
            return
        if self.filters(eligible):
            yield waiting[eligible.counts[waiting] >= goal], count
            return
        shares = eligible.shares[waiting]
        worth = (shares * _RARE >= 1) & (eligible.counts[waiting] >= goal)
        # Excluded items are likely to be among the best: a history. Steps of two, so that users are searched together.
        counts = count / np.maximum(shares, 1 / _RARE) + np.minimum(eligible.lengths[waiting], count)
        steps = np.ceil(np.log2(counts / count)).astype(np.int64)
        for step in np.unique(steps[worth]):
            yield waiting[worth & (steps == step)], count << int(step)


class OverFetch(CertifiedSearch):
    """Search under prices on top of an engine that ranks by inner product only.

    Parameters
    ----------
    catalog, items, exact, most, alive
        As for `CertifiedSearch`.
    fetch
        A function that asks the engine; see `Fetch`.

    Examples
    --------
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog(np.array([[3.0], [2.0], [1.0]], dtype=np.float32), ["a", "b", "b"])
    >>> items = Float32Items.of(catalog.embeddings)
    >>> def fetch(vectors, count):
    ...     scores = vectors @ items.values.T
    ...     rows = np.argsort(-scores, axis=1)[:, :count]
    ...     return np.take_along_axis(scores, rows, axis=1), rows
    >>> index = OverFetch(catalog, items, fetch, ExactIndex(catalog), most=3)
    >>> index.search(np.ones((1, 1, 1)), np.array([0.0, -1.5]), k=1).rows
    array([[1]])
    """

    def __init__(
        self,
        catalog: Catalog,
        items: Float32Items,
        fetch: Fetch,
        exact: Index,
        most: int,
        alive: float = 1.0,
    ) -> None:
        super().__init__(catalog, items, exact, most, alive)
        self._fetch = fetch

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligible | None) -> Fetched:
        """Ask the engine, and add the bonuses; see `OverFetching`."""
        # One item more than needed tells whether any is left behind.
        vectors, ask = np.ascontiguousarray(queries.columns.T), min(count + 1, len(self.catalog))
        scores, rows = self._fetch(vectors, ask)
        beyond = np.where((rows >= 0).sum(axis=1) == len(self.catalog), -np.inf, scores[:, -1])
        if queries.bonus is None:
            return Fetched(scores, rows, beyond)
        return Fetched(scores + queries.bonus[self.catalog.group_of[rows]], rows, beyond + queries.bonus.max())
