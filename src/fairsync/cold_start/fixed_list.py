"""A fixed list: items that some requests begin with, in a given order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.search.scoring import relevance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.search.base import Hits
    from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class FixedList:
    """A list of items, and which of n requests begin with it.

    Attributes
    ----------
    rows : numpy.ndarray
        Rows of the items in the catalog, in order.
    requests : numpy.ndarray
        (n,) whether each request begins with the list.
    """

    rows: NDArray[np.int64]
    requests: NDArray[np.bool_]

    def take(self, positions: slice | NDArray[np.integer]) -> FixedList | None:
        """Return the list for some of the requests; None if none of them begins with it."""
        requests = self.requests[positions]
        return FixedList(self.rows, requests) if requests.any() else None

    def put_first(
        self, hits: Hits, k: int, catalog: Catalog, users: NDArray[np.floating[Any]], eligible: Eligibility | None
    ) -> Hits:
        """Return the hits with the eligible items of the list before all others.

        Parameters
        ----------
        hits
            (n, width) lists that were found, the best first.
        k
            Items of the list that a request gets at most.
        catalog, users
            The items, and the (n, interests, d) user vectors, to which the items of the list have their relevance.
        eligible
            The items that each request may get; None for all items.

        Examples
        --------
        >>> from fairsync.catalog import Catalog
        >>> from fairsync.search import Hits
        >>> catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "b", "b"])
        >>> hits = Hits(np.array([[0, 1, 2]]), np.array([[3.0, 2.0, 1.0]]))
        >>> popular = FixedList(np.array([2]), np.array([True]))
        >>> popular.put_first(hits, 2, catalog, np.ones((1, 1, 1)), None).rows
        array([[2, 0, 1]])
        """
        rows, scores = hits.rows.copy(), hits.relevance.copy()
        width = rows.shape[1]
        for i in np.flatnonzero(self.requests):
            owners = np.full(len(self.rows), i)
            first = (self.rows if eligible is None else self.rows[eligible.allows(owners, self.rows)])[:k]
            vector = users[i : i + 1].astype(np.float64)
            own = relevance(catalog, vector, np.zeros(len(first), dtype=np.int64), first)
            others = ~np.isin(rows[i], first)
            rows[i] = np.concatenate([first, rows[i][others]])[:width]
            scores[i] = np.concatenate([own, scores[i][others]])[:width]
        return replace(hits, rows=rows, relevance=scores)

    def order(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the places, along the last axis, of the items of the list in its order, then of all others.

        Examples
        --------
        >>> FixedList(np.array([7, 2]), np.array([True])).order(np.array([2, 5, 7])).tolist()
        [2, 0, 1]
        """
        by_row = np.argsort(self.rows)
        place = by_row[np.minimum(np.searchsorted(self.rows, rows, sorter=by_row), len(by_row) - 1)]
        place[self.rows[place] != rows] = len(self.rows)
        return np.argsort(place, axis=-1, kind="stable")

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the places of all items in their order: `order` where a request begins with the list, else as found.

        Examples
        --------
        >>> FixedList(np.array([7, 2]), np.array([True, False])).places(np.array([[2, 5, 7], [2, 5, 7]])).tolist()
        [[2, 0, 1], [0, 1, 2]]
        """
        places = np.tile(np.arange(rows.shape[1]), (len(rows), 1))
        places[self.requests] = self.order(rows[self.requests])
        return places
