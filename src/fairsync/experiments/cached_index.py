"""Exact search with cached scores of known requests.

A reproduction repeats the same requests hundreds of times: for every method, every K and every coefficient of a grid.
Only prices differ, and they are subtracted from scores that do not change. So the scores are computed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.search.base import Hits, check_prices
from fairsync.search.exact import ExactIndex
from fairsync.search.rounding import Float32Items, Float32Queries
from fairsync.search.scoring import reference_price, settle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.search.eligibility import Eligibility

_BYTES = 1 << 30
_BUNDLE = 16  # number of scores that are first compared by their maximum
_AT_ONCE = 64  # requests at a time, so that their scores nearly fit into the CPU cache


class CachedIndex:
    """Returns the same rows as :class:`~fairsync.search.ExactIndex`, including ties, and is faster for known requests.

    The float32 score of each item, the maximum over interests, is cached for each request. A search adds the effect of
    prices, selects all items that may be among the best k (see `fairsync.search.rounding`), and ranks these in float64.
    Unknown requests, and those with a zero vector, are searched by the exact index.

    Parameters
    ----------
    catalog
        The items.
    users
        (n, d) or (n, interests, d) User vectors of the expected requests, the most frequent first.
    most_bytes
        Memory for scores. Requests that do not fit are not cached.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), ["a", "b", "b"])
    >>> index = CachedIndex(catalog, np.array([[1.0, 0.0]]))
    >>> index.search(np.array([[[1.0, 0.0]]]), np.array([0.5, 0.0]), k=2).rows
    array([[1, 0]])
    """

    applies_prices = "bias"

    def __init__(self, catalog: Catalog, users: NDArray[np.floating[Any]], most_bytes: int = _BYTES) -> None:
        self.catalog = catalog
        self._plain = ExactIndex(catalog)
        self._items = Float32Items.of(catalog.embeddings)
        # The width is padded to whole bundles. Padding has the score -inf.
        self._width = -(-len(catalog) // _BUNDLE) * _BUNDLE
        self._group_of = np.zeros(self._width, dtype=np.intp)
        self._group_of[: len(catalog)] = catalog.group_of
        vectors = np.asarray(users, dtype=np.float64).reshape(len(users), -1, catalog.dim)
        vectors = vectors[vectors.any(axis=(1, 2))][: most_bytes // (4 * self._width)]
        self._place = {vector.tobytes(): place for place, vector in enumerate(vectors)}
        if len(vectors):
            queries = Float32Queries.of(self._items, vectors, None, 0.0)
            self._scores = self._score(queries.columns.reshape(catalog.dim, -1, len(vectors)))
            # The requests with the widest rounding margin, which bounds that of all others.
            self._longest = vectors[queries.margin == queries.margin.max()]

    def search(
        self,
        users: NDArray[np.floating[Any]],
        prices: NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Return the k items of highest relevance minus price for each user; see `Index.search`."""
        if eligible is not None:  # experiments that filter items repeat too few searches to gain by cached scores
            return self._plain.search(users, prices, k, eligible)
        vectors = np.asarray(users, dtype=np.float64)
        prices = check_prices(prices, self.catalog.n_groups)
        places = np.array([self._place.get(vector.tobytes(), -1) for vector in vectors], dtype=np.intp)
        hits = Hits.empty(len(vectors), k)
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            found = self._plain.search(vectors[unknown], prices, k)
            hits.rows[unknown], hits.relevance[unknown] = found.rows, found.relevance
        known = np.flatnonzero(places >= 0)
        for start in range(0, len(known), _AT_ONCE):
            who = known[start : start + _AT_ONCE]
            found = self._recall(vectors[who], places[who], prices, k)
            goal = found.rows.shape[1]
            hits.rows[who, :goal], hits.relevance[who, :goal] = found.rows, found.relevance
        return hits

    def _recall(
        self, users: NDArray[np.float64], places: NDArray[np.intp], prices: NDArray[np.float64] | None, k: int
    ) -> Hits:
        """Return the hits of cached requests: k items, or fewer if fewer are eligible."""
        goal, reference = min(k, len(self.catalog)), 0.0
        if prices is not None:
            goal, reference = reference_price(self.catalog.group_sizes, prices, k)
        if goal == 0:
            return Hits.empty(len(users), 0)
        queries = Float32Queries.of(self._items, self._longest, prices, reference)
        scores = self._scores[places]
        if queries.bonus is not None:
            scores += queries.bonus[self._group_of]
        # At least k distinct items reach the score of the k-th best bundle, which is close to the k-th best score.
        tops = scores.reshape(len(scores), _BUNDLE, -1).max(axis=1)
        if tops.shape[1] < goal:
            tops = scores
        kth = np.partition(tops, tops.shape[1] - goal, axis=1)[:, tops.shape[1] - goal]
        cut = (kth - queries.margin.max()).astype(np.float32)
        # One step down, since the conversion may have rounded up. Masked items have -inf and are excluded.
        cut = np.maximum(np.nextafter(cut, np.float32(-np.inf)), np.finfo(np.float32).min)
        owners, rows = np.divmod(np.flatnonzero(scores >= cut[:, None]), self._width)
        return settle(self.catalog, users, prices, goal, owners, rows)

    def _score(self, columns: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (n, width) scores of (d, interests, n) vectors, with -inf beyond the last item."""
        n = columns.shape[2]
        scores = np.full((n, self._width), -np.inf, dtype=np.float32)
        for start in range(0, n, _AT_ONCE):
            here = scores[start : start + _AT_ONCE, : len(self.catalog)]
            for interest in range(columns.shape[1]):
                np.maximum(here, columns[:, interest, start : start + _AT_ONCE].T @ self._items.values.T, out=here)
        return scores
