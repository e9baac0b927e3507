"""Over-fetching, to apply prices on engines that rank without them: fetch more, subtract prices, check it is enough."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits, Index, check_prices
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from fairsync.search.rounding import Float32Items, Float32Queries, any_reference_serves
from fairsync.search.scoring import reference_price, settle

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.int64]
Fetch: TypeAlias = Callable[[Floats, int], tuple[Floats, Rows]]
"""(n, d) vectors and a count -> (n, count) scores and rows of the best items by inner product, best first. The row is
-1 if the engine finds no more items, or an item that is not in the catalog."""

# The first count to fetch, in multiples of k. Each further attempt doubles it.
_FIRST = 2
# Items that are not in the catalog come in clusters: a few more than their share.
_SPARE = 8
# If fewer than one item in this many is eligible, most of the fetched items would be dropped.
_RARE = 16


@dataclass(frozen=True)
class Fetched:
    """What an engine returned for each of n vectors.

    Attributes
    ----------
    scores : numpy.ndarray
        (n, count) scores plus bonuses.
    rows : numpy.ndarray
        (n, count) rows of the catalog; -1 if there are no more, or for an item that is not in the catalog.
    beyond : numpy.ndarray
        (n,) the highest score plus bonus that any other item may have; -inf if there is no other.
    """

    scores: npt.NDArray[np.floating]
    rows: Rows
    beyond: npt.NDArray[np.floating]


class CertifiedSearch(ABC):
    """Search under prices on top of an engine, with a certificate: the answer is as certain as the engine's ranking.

    An item that was not fetched has at most the score that the engine says, and gains at most the highest subsidy. If k
    fetched items are above that bound, the answer is certain; else twice as many are fetched. Requests that would need
    more than ``most`` are answered by an exact index.

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

    @abstractmethod
    def fetch(self, queries: Float32Queries, count: int, eligible: Eligibility | None) -> Fetched:
        """Return the best ``count`` items or more for each column of the queries.

        Parameters
        ----------
        queries
            Users and bonuses.
        count
            The number of items for each vector.
        eligible
            The items that each user may get; None for all. The columns are those of the first interest of every user,
            then of the second, and so on.
        """

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
        for at, first in self._depths(waiting, count, goal, eligible):
            self._deepen(vectors, prices, (goal, reference), k, eligible, at, first, hits, done)
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

    def _deepen(
        self,
        vectors: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        target: tuple[int, float],
        k: int,
        eligible: Eligibility | None,
        waiting: Rows,
        count: int,
        hits: Hits,
        done: npt.NDArray[np.bool_],
    ) -> None:
        """Fetch more and more for these users until the answer is sure or ``most`` is reached."""
        goal, reference = target
        while len(waiting) and count <= self.most:
            queries = Float32Queries.of(self._items, vectors[waiting], prices, reference)
            mine = None if eligible is None else eligible.take(waiting)
            sure, over, owners, rows = self._try(queries, len(waiting), goal, count, mine)
            found = settle(self.catalog, vectors[waiting], prices, k, owners, rows)
            at = waiting[sure]
            hits.rows[at], hits.relevance[at] = found.rows[sure], found.relevance[sure]
            done[at] = True
            waiting = waiting[~over]
            if count >= len(self.catalog):
                break
            count *= 2

    def margin(self, queries: Float32Queries) -> npt.NDArray[np.float64]:
        """Return (n,) how far below the k-th best fetched score an item can be and still belong to the best k."""
        return queries.margin

    def _try(
        self, queries: Float32Queries, n: int, k: int, count: int, eligible: Eligibility | None
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], Rows, Rows]:
        """Return for which of n users this count is enough, for which a higher one changes nothing, and the candidates.

        Candidates are pairs of owner and row.
        """
        fetched = self.fetch(queries, count, eligible)
        rows, priced = fetched.rows, fetched.scores
        # An item that no interest has fetched is below the highest of these, and so is what others may add to one.
        beyond = fetched.beyond.reshape(-1, n).max(axis=0)
        owners = np.broadcast_to((np.arange(len(rows)) % n)[:, None], rows.shape)
        kept = (rows >= 0) & (priced > -np.inf)
        owners, rows, priced = owners[kept], rows[kept], priced[kept]
        if eligible is not None:
            allowed = eligible.allows(owners, rows)
            owners, rows, priced = owners[allowed], rows[allowed], priced[allowed]
        # If several interests found an item, its best score counts.
        order = np.lexsort((-priced, rows, owners))
        owners, rows, priced = owners[order], rows[order], priced[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (np.diff(owners) != 0) | (np.diff(rows) != 0)
        owners, rows, priced = owners[first], rows[first], priced[first]
        order = np.lexsort((-priced, owners))
        starts = np.searchsorted(owners, np.arange(n + 1))
        enough = np.diff(starts) >= k
        needed = np.full(n, -np.inf)
        needed[enough] = priced[order[starts[:-1][enough] + k - 1]] - self.margin(queries)[enough]
        near = priced >= needed[owners]
        sure = enough & (beyond < needed)
        return sure, sure | (beyond == -np.inf), owners[near], rows[near]


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

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligibility | None) -> Fetched:
        """Ask the engine, and add the bonuses; see `CertifiedSearch`."""
        # One item more than needed tells whether any is left behind.
        vectors, ask = np.ascontiguousarray(queries.columns.T), min(count + 1, len(self.catalog))
        scores, rows = self._fetch(vectors, ask)
        beyond = np.where((rows >= 0).sum(axis=1) == len(self.catalog), -np.inf, scores[:, -1])
        if queries.bonus is None:
            return Fetched(scores, rows, beyond)
        return Fetched(scores + queries.bonus[self.catalog.group_of[rows]], rows, beyond + queries.bonus.max())
