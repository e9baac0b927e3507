"""Exact search: every item is scored in float32, and float64 decides among the few that come near the best."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.direct import is_direct, search_one
from fairsync.search.eligibility import Eligibility
from fairsync.search.group_rows import GroupRows
from fairsync.search.item_bonus import ItemBonus
from fairsync.search.price_range import price_range
from fairsync.search.recent_prices import RecentPrices
from fairsync.search.restriction import Restriction
from fairsync.search.rounding import Float32Items, any_reference_serves
from fairsync.search.scan import Scan, Tile, columns_at_once
from fairsync.search.scoring import reference_price, settle_indifferent

# A thread is worth starting for about this many multiplications (a millisecond).
THREAD_PRODUCTS = 1 << 23
# A single vector is read past the items as fast as memory allows, which more threads hardly change.
_THREAD_BYTES = 1 << 27
# Up to this share of the items, those that meet a condition, or that prices leave open, are copied and scored alone. A
# copy for a few users of a larger batch is worth it for a smaller share: scoring everything costs little for one user
# more.
_FEW, _FEW_OF_ONE = 0.1, 0.05
_ENOUGH_USERS = 8
# With at most this many values of embeddings (8 MB) all are scored about as fast as the open rows are found.
_SMALL = 1 << 21
# To find the reference price among more groups than this takes longer than to see that any price serves.
MANY_GROUPS = 1 << 14

_Rows = npt.NDArray[np.int64]
_Prices = npt.NDArray[np.float64] | None


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
    item_bonus : ItemBonus
        The bonus of each item under recent prices.
    group_rows : GroupRows
        The rows of each group.
    recent_prices : RecentPrices
        The prices of recent searches.

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
        self._is_small = self.items.values.size <= _SMALL
        # Of the last prices, because many requests come between two price changes.
        self._last_goal: tuple[npt.NDArray[np.float64], int, int, float, _Rows | None] | None = None
        self.recent_prices = RecentPrices(catalog.n_groups)
        self.group_rows = GroupRows(catalog)
        # numpy's own index type makes the lookup of bonuses almost twice as fast. Its 8 bytes matter only if vectors
        # are short.
        wide = catalog.dim * catalog.embeddings.itemsize >= 128
        group_of = catalog.group_of.astype(np.intp) if wide else catalog.group_of
        self.item_bonus = ItemBonus(self.items.values, group_of, self.group_rows)

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        vectors = np.asarray(users, dtype=np.float64)
        prices, goal, reference, rows = self._goal(prices, k, vectors)
        if len(vectors) == 1 and goal and is_direct(len(self.catalog), *vectors.shape[:0:-1]) and vectors.any():
            return self._search_one(vectors, prices, k, goal, reference, rows, eligible)
        hits = Hits.empty(len(vectors), k)
        real = vectors.any(axis=(1, 2))
        kept = np.flatnonzero(real)
        if eligible is None:
            if len(kept) < len(vectors):
                same = settle_indifferent(self.catalog, prices, k)
                hits.rows[~real], hits.relevance[~real] = same.rows, same.relevance
            tiles = self._tiles(vectors, prices, goal, reference, kept, rows)
        else:
            for i in np.flatnonzero(~real).tolist():
                same = settle_indifferent(self.catalog, prices, k, eligible.mask(i))
                hits.rows[i], hits.relevance[i] = same.rows, same.relevance
            if goal == 0:  # every group is masked
                tiles = []
            elif rows is None:
                tiles = self._eligible_tiles(vectors, prices, k, kept, eligible)
            else:
                tiles = self._restricted(vectors, prices, k, kept, eligible, (rows, eligible.within(rows)))
        if tiles:
            self._run(tiles, hits)
        return hits

    def _search_one(
        self,
        vectors: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        goal: int,
        reference: float,
        rows: _Rows | None,
        eligible: Eligibility | None,
    ) -> Hits:
        """Find the items of one nonzero user without a scan. The rows are those that prices leave open, if few."""
        if eligible is not None:
            if prices is not None and not any_reference_serves(self.items, vectors, prices)[0]:
                sizes = eligible.group_sizes(0, self.catalog)
                goal, reference = _reference(sizes, prices, k)
            chosen = eligible.selection(0)
            if rows is None and chosen is not None and chosen.share <= _FEW:
                rows = chosen.rows
                if len(rows) and len(eligible.excluded):
                    rows = np.delete(rows, _excluded_among(rows, eligible).excluded)
            elif rows is not None:
                rows = rows[eligible.allows(np.zeros(len(rows), dtype=np.int64), rows)]
            if goal == 0 or (rows is not None and not len(rows)):
                return Hits.empty(1, k)
        shared = (self.catalog, self.items, self.item_bonus)
        return search_one(*shared, vectors[0], prices, reference, goal, k, rows, eligible)

    def _run(self, tiles: list[Tile], hits: Hits) -> None:
        """Scan the items of each tile, with several threads if that is worth it, and write to the hits."""
        widths = [tile.columns.shape[1] for tile in tiles]
        products = sum(tile.size * tile.catalog.dim * width for tile, width in zip(tiles, widths, strict=True))
        workers = min(self.threads, products // THREAD_PRODUCTS)
        if sum(widths) == 1:
            workers = min(workers, tiles[0].items.nbytes // _THREAD_BYTES)
        if workers <= 1:
            for tile in tiles:
                tile.answer((Scan(tile).run(0, tile.size),), hits)
            return

        # Threads divide the items, not the users: a small batch needs all its users for a fast product.
        def scan(part: int) -> list[Scan]:
            return [Scan(tile).run(tile.size * part // workers, tile.size * (part + 1) // workers) for tile in tiles]

        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(scan, range(workers)))
            # Leaving the block waits for all threads; `list` raises the error of a thread in the caller.
            list(pool.map(lambda tile, *parts: tile.answer(parts, hits), tiles, *found))

    def _tiles(
        self,
        vectors: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        goal: int,
        reference: float,
        kept: _Rows,
        rows: _Rows | None,
    ) -> list[Tile]:
        """Return tiles of the users in these positions, for whom all items, or these rows, are eligible."""
        if goal == 0:
            return []
        return [
            Tile(self.catalog, self.items, self.item_bonus, vectors[who], prices, reference, goal, who, rows=rows)
            for who in self._split(kept, vectors.shape[1], goal)
        ]

    def _eligible_tiles(
        self,
        vectors: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        kept: _Rows,
        eligible: Eligibility,
    ) -> list[Tile]:
        """Return tiles of the users in these positions: of one condition that few items meet, or of any conditions.

        Of the few items, only these are scored. In the other tiles all items are, and those that are not eligible are
        left out.
        """
        tiles: list[Tile] = []
        if not eligible.selections:
            return self._restricted(vectors, prices, k, kept, eligible)
        used = eligible.selection_of[kept]
        users = np.bincount(used + 1)[used + 1]
        few = eligible.shares[kept] <= np.where((users >= _ENOUGH_USERS) | (users == len(kept)), _FEW, _FEW_OF_ONE)
        for at in np.unique(used[few]).tolist():
            chosen, mine = eligible.selections[at], kept[used == at]
            if len(chosen):
                sizes = chosen.group_sizes(self.catalog)
                inside = _excluded_among(chosen.rows, eligible)
                tiles += self._restricted(vectors, prices, k, mine, eligible, (chosen.rows, inside), sizes)
        return tiles + self._restricted(vectors, prices, k, kept[~few], eligible)

    def _restricted(
        self,
        vectors: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        kept: _Rows,
        eligible: Eligibility,
        part: tuple[_Rows, Eligibility] | None = None,
        sizes: npt.NDArray[np.int64] | None = None,
    ) -> list[Tile]:
        """Return tiles of the users in these positions.

        Parameters
        ----------
        vectors, prices, k, kept, eligible
            As for `search`, and the positions of the users.
        part
            The rows to score, and what is eligible among them. By default all rows are scored.
        sizes
            (G,) the number of items of each group that may be eligible. Defaults to all of them.
        """
        if len(kept) == 0:
            return []
        goal, reference = self._goal(prices, k)[1:3] if sizes is None else _reference(sizes, prices, k)
        if goal == 0:
            return []
        rows, inside = (None, eligible) if part is None else part
        # What a price is counted from decides which prices are cut off, and depends on what is eligible. Where all
        # prices are within reach of each other, any of them will do (see `rounding`); else each user gets their own.
        references = np.full(len(kept), reference)
        if prices is not None:  # each reference has tiles of its own; as a rule there is one
            for i in np.flatnonzero(~any_reference_serves(self.items, vectors[kept], prices)):
                own = eligible.group_sizes(int(kept[i]), self.catalog)
                references[i] = _reference(own, prices, k)[1]
        tiles = []
        for one in sorted(set(references.tolist())):
            for who in self._split(kept[references == one], vectors.shape[1], goal):
                mine = inside.take(who)
                limits = Restriction(mine) if len(mine.excluded) or mine.selections else None
                shared = (self.catalog, self.items, self.item_bonus)
                tiles.append(Tile(*shared, vectors[who], prices, one, goal, who, limits, rows))
        return tiles

    def _split(self, kept: _Rows, interests: int, goal: int) -> list[_Rows]:
        width = max(1, columns_at_once(self.catalog.dim, goal) // interests)
        return [kept[at : at + width] for at in range(0, len(kept), width)]

    def _goal(
        self, prices: npt.NDArray[np.float64] | None, k: int, vectors: npt.NDArray[np.float64] | None = None
    ) -> tuple[_Prices, int, float, _Rows | None]:
        """Return the prices, or None if all are zero; what `reference_price` says of them; and the open rows if few.

        Where any price serves as reference for the users with these vectors, it is the lowest.
        """
        prices = self.recent_prices.of(prices)
        if prices is None:
            return None, min(k, len(self.catalog)), 0.0, None
        if vectors is not None and len(prices) > MANY_GROUPS and price_range(prices)[1] < np.inf:
            real = vectors[vectors.any(axis=(1, 2))]
            if any_reference_serves(self.items, real, prices).all():
                return prices, min(k, len(self.catalog)), price_range(prices)[0], None
        kept = self._last_goal  # read once: another thread may replace it
        if kept is None or kept[0] is not prices or kept[1] != k:
            goal, reference = reference_price(self.catalog.group_sizes, prices, k)
            rows = None if self._is_small else self.group_rows.open(prices, _FEW_OF_ONE * len(self.catalog))
            kept = self._last_goal = (prices, k, goal, reference, rows)
        return prices, *kept[2:]

    def rebuild(self, catalog: Catalog) -> "ExactIndex":
        """Return an index of the same kind over another catalog; see `rebuild_index`."""
        return ExactIndex(catalog, self.threads)


def _reference(sizes: npt.NDArray[np.int64], prices: _Prices, k: int) -> tuple[int, float]:
    """Return what `reference_price` says of these groups; without prices, all cost nothing."""
    return (min(k, int(sizes.sum())), 0.0) if prices is None else reference_price(sizes, prices, k)


def _excluded_among(rows: _Rows, eligible: Eligibility) -> Eligibility:
    """Return what all users exclude among ascending rows, whose condition they meet, in places among these."""
    place = np.searchsorted(rows, eligible.excluded)
    kept = rows[np.minimum(place, len(rows) - 1)] == eligible.excluded
    offsets = np.concatenate([[0], np.cumsum(kept)])[eligible.offsets]
    return Eligibility(len(rows), (), np.full(len(eligible), -1), place[kept], offsets)


def _processors() -> int:
    """Return the number of processors that this process may use; in a container it can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
