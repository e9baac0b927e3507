"""Approximate search on a graph of neighbours. It cannot take prices: they come by over-fetching."""

from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.search.base import Hits
from fairsync.search.exact import ExactIndex
from fairsync.search.inverted_lists import stretch
from fairsync.search.ivf import EXACT_BELOW
from fairsync.search.over_fetch import OverFetch
from fairsync.search.tuning import stand_ins

# What faiss says of its own types leaves out most of what is used here.
_faiss: Any = faiss

_NEIGHBOURS, _BUILD_BREADTH = 32, 80
_TUNED_K = 50
# Beyond this share of the catalog a walk on the graph is slower than scoring everything.
_MOST_SHARE = 64


class HnswIndex:
    """Search a graph (faiss HNSW), deeper and deeper until prices can change nothing more.

    It is kept for comparison and for catalogs that are searched without prices mostly: a subsidised item may stand
    thousands of places down by relevance, which `IvfIndex` finds directly and a graph only by walking that far.

    Parameters
    ----------
    catalog
        What to search.
    recall
        The share of the true best to find on average without prices, measured on vectors made from the catalog;
        `tune` measures it on past requests, which is better.
    exact_below
        Catalogs with fewer items are searched exactly.
    seed
        Where chance starts. With several threads faiss builds a slightly different graph every time all the same.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(500, 4)).astype(np.float32), rng.integers(3, size=500))
    >>> HnswIndex(catalog, exact_below=0).search(rng.normal(size=(6, 1, 4)), np.array([0.0, 0.5, 0.2]), k=10).rows.shape
    (6, 10)
    """

    applies_prices = "over-fetch"

    def __init__(self, catalog: Catalog, recall: float = 0.99, exact_below: int = EXACT_BELOW, seed: int = 0) -> None:
        if not 0 < recall < 1:
            raise InvalidInputError(f"recall must lie between 0 and 1, got {recall}; for 1 use the index 'exact'.")
        self.catalog, self.recall = catalog, recall
        self._exact = ExactIndex(catalog)
        self._search: ExactIndex | OverFetch = self._exact
        if len(catalog) < exact_below:
            return
        self._items = self._exact._items  # where these are a copy, one is enough
        self._graph = _faiss.IndexHNSWFlat(catalog.dim + 1, _NEIGHBOURS, _faiss.METRIC_L2)
        self._graph.hnsw.efConstruction = _BUILD_BREADTH
        self._graph.hnsw.rng = _faiss.RandomGenerator(seed + 1)
        # Neighbours as requests see them: half the breadth for the same recall.
        requests = stand_ins(catalog, seed)
        weights = stretch(requests)
        self._unstretch = np.linalg.inv(weights)
        wide, self._radius = _on_a_sphere(self._items.values @ weights)
        self._graph.add(wide)
        most = max(len(catalog) // _MOST_SHARE, 4 * _TUNED_K)
        self._search = OverFetch(catalog, self._items, self._walk, self._exact, most)
        self.tune(requests)

    def tune(self, users: npt.ArrayLike) -> "HnswIndex":
        """Choose how broadly to search so that requests like these have the recall asked for, without prices.

        Parameters
        ----------
        users
            (n, d) or (n, interests, d); some hundred past requests are plenty.

        Returns
        -------
        HnswIndex
            This index.
        """
        vectors = check_users(users, self.catalog).astype(np.float64)
        vectors = vectors[vectors.any(axis=(1, 2))]
        if len(vectors) == 0:
            raise InvalidInputError("users are empty, or zero: give at least one past request.")
        if self._search is self._exact:
            return self
        k = min(_TUNED_K, len(self.catalog))
        truth = self._exact.search(vectors, None, k).rows
        self.breadth = k
        while self.breadth < len(self.catalog):
            rows = self._search.search(vectors, None, k).rows
            hit = [len(np.intersect1d(found, wanted)) for found, wanted in zip(rows, truth, strict=True)]
            if np.mean(hit) >= self.recall * k:
                break
            self.breadth *= 2
        return self

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find k items of highest relevance minus price for each user; see `Index.search`."""
        return self._search.search(users, prices, k)

    def _walk(
        self, vectors: npt.NDArray[np.float32], count: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        turned = vectors @ self._unstretch
        lengths = np.linalg.norm(turned, axis=1, keepdims=True)
        queries = np.zeros((len(vectors), vectors.shape[1] + 1), dtype=np.float32)
        np.divide(turned, lengths, out=queries[:, :-1])
        broad = _faiss.SearchParametersHNSW(efSearch=max(self.breadth, count))
        distances, rows = self._graph.search(queries, count, params=broad)
        # Between two vectors of length 1, the squared distance is 2 minus twice the inner product.
        scores: npt.NDArray[np.float32] = (1 - distances / 2) * (lengths * self._radius)
        return scores, rows


def _on_a_sphere(items: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], np.float32]:
    """Return the items with one more dimension that makes them all of length 1, and the length they are divided by.

    Then the nearest are those of highest inner product, and no item is out of reach: in a graph made by inner product
    itself, short items are nobody's neighbours, and many can never be found.
    """
    n, dim = items.shape
    squares = np.einsum("ij,ij->i", items, items)
    # Where all items are zero, any length will do.
    radius = np.float32(np.sqrt(squares.max()) or 1.0)
    wide = np.empty((n, dim + 1), dtype=np.float32)
    np.divide(items, radius, out=wide[:, :-1])
    wide[:, -1] = np.sqrt(np.maximum(1 - squares / radius**2, 0))
    return wide, radius
