"""Exact search: every item is scored in float32, and float64 decides among the few that come near the best."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits, check_prices
from fairsync.search.direct import is_small, search_one
from fairsync.search.rounding import Float32Items
from fairsync.search.scan import ItemBonus, Scan, Tile, columns_at_once
from fairsync.search.scoring import reference_price, settle_indifferent

# A thread is worth starting for about this many multiplications (a millisecond).
THREAD_PRODUCTS = 1 << 23
# A single vector is read past the items as fast as memory allows, which more threads hardly change.
_THREAD_BYTES = 1 << 27


class ExactIndex:
    """Search by scoring every item, prices applied as a bias.

    The answer is that of the plainest float64 search (see `scoring`), to the last row and tie, for any number
    of threads and any batch. float32 embeddings are used in place; others get one float32 copy.

    Parameters
    ----------
    catalog
        The items to search.
    threads
        The most threads that one call may use. Defaults to the number of processors.

    Attributes
    ----------
    items : Float32Items
        The embeddings in float32, as they are scored.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], dtype=np.float32), ["a", "b", "b"])
    >>> index = ExactIndex(catalog)
    >>> user = np.array([[[1.0, 0.0]]])
    >>> index.search(user, None, k=2).rows
    array([[0, 1]])
    >>> index.search(user, np.array([0.5, 0.0]), k=2)
    Hits(rows=array([[1, 0]]), relevance=array([[0.80000001, 1. ]]))
    """

    applies_prices = "bias"

    def __init__(self, catalog: Catalog, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InvalidInputError(f"threads must be at least 1, got {threads}; leave it out to use every processor.")
        self.catalog = catalog
        self.threads = threads or _processors()
        self.items = Float32Items.of(catalog.embeddings)
        self._is_small = is_small(self.items)
        # Of the last prices, because many requests come between two price changes.
        self._last_goal: tuple[tuple[tuple[int, ...], bytes, int], bool, int, float] | None = None
        # numpy's own index type makes the lookup of bonuses almost twice as fast. Its 8 bytes matter only if vectors
        # are short.
        wide = catalog.dim * catalog.embeddings.itemsize >= 128
        self._item_bonus = ItemBonus(catalog.group_of.astype(np.intp) if wide else catalog.group_of)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        vectors = np.asarray(users, dtype=np.float64)
        prices, goal, reference = self._goal(prices, k)
        if self._is_small and len(vectors) == 1 and goal and vectors.any():
            return search_one(self.catalog, self.items, self._item_bonus, vectors[0], prices, reference, goal, k)
        hits = Hits.empty(len(vectors), k)
        real = vectors.any(axis=(1, 2))
        if not real.all():
            same = settle_indifferent(self.catalog, prices, k)
            hits.rows[~real], hits.relevance[~real] = same.rows, same.relevance
        kept = np.flatnonzero(real)
        if goal == 0 or len(kept) == 0:
            return hits
        interests = vectors.shape[1]
        width = max(1, columns_at_once(self.catalog.dim, goal) // interests)
        tiles = [
            Tile(self.catalog, self.items, self._item_bonus, vectors[who], prices, reference, goal, who)
            for who in (kept[at : at + width] for at in range(0, len(kept), width))
        ]
        columns = len(kept) * interests
        workers = min(self.threads, self.items.values.size * columns // THREAD_PRODUCTS)
        if columns == 1:
            workers = min(workers, self.items.values.nbytes // _THREAD_BYTES)
        if workers <= 1:
            for tile in tiles:
                tile.answer((Scan(tile).run(0, len(self.catalog)),), hits)
            return hits
        # Threads divide the items, not the users: a small batch needs all its users for a fast product.
        edges = [len(self.catalog) * i // workers for i in range(workers + 1)]

        def scan(part: int) -> list[Scan]:
            return [Scan(tile).run(edges[part], edges[part + 1]) for tile in tiles]

        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(scan, range(workers)))
            # Leaving the block waits for all threads; `list` raises the error of a thread in the caller.
            list(pool.map(lambda tile, *parts: tile.answer(parts, hits), tiles, *found))
        return hits

    def _goal(
        self, prices: npt.NDArray[np.float64] | None, k: int
    ) -> tuple[npt.NDArray[np.float64] | None, int, float]:
        """Return the prices, or None if all are zero; and what `reference_price` says of them."""
        if prices is None:
            return None, min(k, len(self.catalog)), 0.0
        prices = np.asarray(prices, dtype=np.float64)
        key = (prices.shape, prices.tobytes(), k)
        kept = self._last_goal  # read once: another thread may replace it
        if kept is None or kept[0] != key:
            checked = check_prices(prices, self.catalog.n_groups)
            goal, reference = min(k, len(self.catalog)), 0.0
            if checked is not None:
                goal, reference = reference_price(self.catalog, checked, k)
            kept = self._last_goal = (key, checked is not None, goal, reference)
        return prices if kept[1] else None, kept[2], kept[3]

    def rebuild(self, catalog: Catalog) -> "ExactIndex":
        """Return an index of the same kind over another catalog; see `rebuild_index`."""
        return ExactIndex(catalog, self.threads)


def _processors() -> int:
    """Return the number of processors that this process may use; in a container it can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
