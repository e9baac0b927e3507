"""Over-fetching, to apply prices on engines that rank without them: fetch more, subtract prices, check it is enough."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.rounding import Float32Queries
from fairsync.search.scoring import settle

Rows: TypeAlias = npt.NDArray[np.int64]


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


class Eligible(Protocol):
    """The items that each of some users may get, as far as over-fetching needs to know them."""

    def take(self, positions: npt.NDArray[np.integer]) -> "Eligible":
        """Return those of some of the users, in this order."""
        ...

    def allows(self, owners: Rows, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return whether item ``rows[j]`` is eligible for user ``owners[j]``, for each j."""
        ...


@dataclass(frozen=True)
class PricedSearch:
    """What is searched for.

    Attributes
    ----------
    users : numpy.ndarray
        (n, interests, d) float64.
    prices : numpy.ndarray or None
        (G,) the prices.
    goal : int
        The number of items that must be certain for each user.
    eligible : Eligible or None
        The items that each user may get; None for all.
    reference : float
        The price from which others may be counted; see `fairsync.search.scoring.reference_price`.
    """

    users: npt.NDArray[np.float64]
    prices: npt.NDArray[np.float64] | None
    goal: int
    eligible: Eligible | None = None
    reference: float = 0.0


class OverFetching(ABC):
    """The loop of over-fetching, with its certificate: the answer is as certain as the engine's ranking.

    An item that was not fetched has at most the score that the engine says, and gains at most the highest subsidy. If k
    fetched items are above that bound, the answer is certain; else twice as many are fetched.

    Attributes
    ----------
    catalog : Catalog
        The items that the engine holds, or those of them that it has found.
    """

    catalog: Catalog

    @abstractmethod
    def queries(
        self, users: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, reference: float
    ) -> Float32Queries:
        """Return what the engine is asked for these users; prices may be counted from the reference price."""

    @abstractmethod
    def fetch(self, queries: Float32Queries, count: int, eligible: Eligible | None) -> Fetched:
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

    def margin(self, queries: Float32Queries) -> npt.NDArray[np.float64]:
        """Return (n,) how far below the k-th best fetched score an item can be and still belong to the best k."""
        return queries.margin

    def deepen(self, search: PricedSearch, waiting: Rows, counts: Iterable[int], hits: Hits) -> Rows:
        """Fetch more and more for some users until their answers are certain, or there is nothing more to fetch.

        Parameters
        ----------
        search
            What is searched for, of all users.
        waiting
            The users to search for now.
        counts
            The numbers of items to fetch, one after another.
        hits
            Where the answers are written: also those that are not certain, from the last attempt.

        Returns
        -------
        numpy.ndarray
            The users whose answers are certain.
        """
        certain = []
        for count in counts:
            if not len(waiting):
                break
            users = search.users[waiting]
            queries = self.queries(users, search.prices, search.reference)
            mine = None if search.eligible is None else search.eligible.take(waiting)
            sure, over, owners, rows = self._try(queries, len(waiting), search.goal, count, mine)
            found = settle(self.catalog, users, search.prices, hits.rows.shape[1], owners, rows)
            hits.rows[waiting], hits.relevance[waiting] = found.rows, found.relevance
            certain.append(waiting[sure])
            waiting = waiting[~over]
        return np.concatenate([np.empty(0, dtype=np.int64), *certain])

    def _try(
        self, queries: Float32Queries, n: int, k: int, count: int, eligible: Eligible | None
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


def doubled(first: int, most: int) -> Iterator[int]:
    """Yield a count, then twice as much, and so on, as long as it is not above the most.

    Examples
    --------
    >>> list(doubled(3, 20))
    [3, 6, 12]
    """
    while first <= most:
        yield first
        first *= 2
