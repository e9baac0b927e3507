"""Approximate search on a graph of neighbours (HNSW). The graph knows no prices: they are applied by over-fetching."""

from importlib import import_module

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.approximate import EXACT_BELOW, ApproximateIndex
from fairsync.search.base import Hits, Index
from fairsync.search.certified_search import OverFetch
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from fairsync.search.inverted_lists import stretch
from fairsync.search.tuning import synthetic_requests, tune_breadth

_NEIGHBOURS, _BUILD_BREADTH = 32, 80
_TUNED_K = 50
# Beyond one item in this many of the catalog, a walk on the graph is slower than scoring everything.
_MOST_SHARE = 64


class HnswIndex(ApproximateIndex):
    """Search a graph (faiss HNSW), fetching more items until prices cannot change the answer any more.

    It is kept for comparison, and for catalogs that are mostly searched without prices. A subsidised item may rank
    thousands of places down by relevance: `IvfIndex` finds it directly, a graph only by walking that far.

    Parameters
    ----------
    catalog
        The items to search.
    recall
        The share of the true best items to find on average without prices. It is measured on vectors made from the
        catalog; `tune` measures it on past requests, which is better.
    exact_below
        Catalogs with fewer items are searched exactly.
    seed
        The seed of the random numbers. With several threads, faiss builds a slightly different graph every time anyway.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(500, 4)).astype(np.float32), rng.integers(3, size=500))
    >>> HnswIndex(catalog, exact_below=0).search(rng.normal(size=(6, 1, 4)), np.array([0.0, 0.5, 0.2]), k=10).rows.shape
    (6, 10)
    """

    applies_prices = "over-fetch"

    def __init__(self, catalog: Catalog, recall: float = 0.99, exact_below: int = EXACT_BELOW, seed: int = 0) -> None:
        super().__init__(catalog, recall, exact_below)
        self.seed = seed
        self._search: Index = self.exact
        if not self.is_approximate:
            return
        # Imported here, because it takes long; and as Any, because its stubs leave out most of what is used.
        faiss = import_module("faiss")
        items = self.exact.items
        self._graph = faiss.IndexHNSWFlat(catalog.dim + 1, _NEIGHBOURS, faiss.METRIC_L2)
        self._graph.hnsw.efConstruction = _BUILD_BREADTH
        self._graph.hnsw.rng = faiss.RandomGenerator(seed + 1)
        # Distances as requests see them: half the breadth reaches the same recall.
        requests = synthetic_requests(catalog, seed)
        weights = stretch(requests)
        self._unstretch = np.linalg.inv(weights)
        wide, self._radius = _on_a_sphere(items.values @ weights)
        self._graph.add(wide)
        most = max(len(catalog) // _MOST_SHARE, 4 * _TUNED_K)
        self._search = OverFetch(catalog, items, self._walk, self.exact, most)
        self.tune(requests)

    def rebuild(self, catalog: Catalog) -> "HnswIndex":
        """Return an index of the same kind over another catalog, not tuned to past requests; see `rebuild_index`."""
        return HnswIndex(catalog, self.recall, self.exact_below, self.seed)

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find k items of highest relevance minus price for each user; see `Index.search`."""
        return search_eligible(self._search, users, prices, k, eligible)

    def _tune(self, vectors: npt.NDArray[np.float64]) -> None:
        k = min(_TUNED_K, len(self.catalog))
        truth = self.exact.search(vectors, None, k).rows

        def search(breadth: int) -> npt.NDArray[np.int64]:
            self.breadth = breadth
            return self._search.search(vectors, None, k).rows

        self.breadth = tune_breadth(search, truth, self.recall, len(self.catalog))

    def _walk(
        self, vectors: npt.NDArray[np.float32], count: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        turned = vectors @ self._unstretch
        lengths = np.linalg.norm(turned, axis=1, keepdims=True)
        queries = np.zeros((len(vectors), vectors.shape[1] + 1), dtype=np.float32)
        # An interest of zero scores every item 0, whatever the walk finds.
        np.divide(turned, lengths, out=queries[:, :-1], where=lengths > 0)
        broad = import_module("faiss").SearchParametersHNSW(efSearch=max(self.breadth, count))
        distances, rows = self._graph.search(queries, count, params=broad)
        # Between two vectors of length 1, the squared distance is 2 minus twice the inner product.
        scores: npt.NDArray[np.float32] = (1 - distances / 2) * (lengths * self._radius)
        return scores, rows


def _on_a_sphere(items: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], np.float32]:
    """Return the items with one more dimension that makes them all of length 1, and the length they are divided by.

    Then the nearest items are those of highest inner product, and every item can be found: in a graph built by inner
    product itself, short items are no item's neighbours.
    """
    n, dim = items.shape
    squares = np.einsum("ij,ij->i", items, items)
    # If all items are zero, any length will do.
    radius = np.float32(np.sqrt(squares.max()) or 1.0)
    wide = np.empty((n, dim + 1), dtype=np.float32)
    np.divide(items, radius, out=wide[:, :-1])
    wide[:, -1] = np.sqrt(np.maximum(1 - squares / radius**2, 0))
    return wide, radius
