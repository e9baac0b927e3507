"""Approximate search under prices (IVF): an inverted list is probed by its centre's score minus its price."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.approximate import EXACT_BELOW, ApproximateIndex
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.list_prices import ListPrices
from fairsync.search.price_range import price_range
from fairsync.search.quantization import QuantizedItems
from fairsync.search.rounding import Float32Queries, any_reference_serves
from fairsync.search.scan import Scan, Tile
from fairsync.search.scoring import reference_price, settle
from fairsync.search.tuning import DEPTHS, Tuning, synthetic_requests, tune_probing

# Up to this many eligible items are all scored, which is exact and faster than choosing among lists.
_FEW = 1 << 11
# Users per pass: with more, the table of users by lists leaves the cache. Where all items of a few groups are scored,
# each user has many more candidates, and a pass takes fewer users.
_USERS_AT_ONCE, _LESS_IF_FEW = 256, 16
# If the catalog is less than this many times as long as the answer, nearly every list would be read.
_DEEP = 8
# The largest number of items to fetch where lists mix groups.
_MOST_FETCHED = 1 << 13
# Eligible items come in clusters: a few more than their share.
_RESERVE = 1.25

_Rows = npt.NDArray[np.int64]
_Prices = npt.NDArray[np.float64] | None
_Eligible = tuple[int, float, npt.NDArray[np.intp], bool, bool]


class IvfIndex(ApproximateIndex):
    """Search the inverted lists that promise most under the prices of the call.

    The items of a list have one group, so that the price of a list is the price of its items. It decides which lists
    are probed and how their items score; nothing stored depends on it, and the lists of a subsidised small group are
    really probed. If there are very many groups of a few items, as overlapping promises make them, these share lists,
    and the items with the largest subsidies are scored one by one (see `list_prices`). Quantized items only nominate
    candidates: the answer and its order are settled on float64 scores, as for `ExactIndex`.

    An answer is always as long as it can be, min(k, eligible items), so the promise of floors holds on this index as on
    an exact one. Small catalogs, few eligible items and very long answers are searched exactly.

    Parameters
    ----------
    catalog
        The items to search.
    recall
        The share of the true best k items to find on average, for k up to some hundreds. The number of lists that this
        takes is measured on vectors made from the catalog; `tune` measures it on past requests, which is better.
    storage
        Bits per dimension of the quantized items: ``"2-bit"``, ``"4-bit"``, ``"8-bit"`` or ``"16-bit"``.
    exact_below
        Catalogs with fewer items are searched exactly.
    seed
        The seed of the random numbers.

    Attributes
    ----------
    lists : InvertedLists or None
        The inverted lists; None if the catalog is searched exactly.
    tuning : Tuning
        How many lists are probed and how many candidates are settled.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> catalog = Catalog(rng.normal(size=(3000, 8)).astype(np.float32), rng.integers(3, size=3000))
    >>> index = IvfIndex(catalog, exact_below=0)
    >>> found = index.search(rng.normal(size=(100, 1, 8)), np.array([0.0, 0.5, np.inf]), k=10)
    >>> found.rows.shape, sorted(set(catalog.group_of[found.rows].ravel().tolist()))
    ((100, 10), [0, 1])
    """

    applies_prices = "bias"

    def __init__(
        self,
        catalog: Catalog,
        recall: float = 0.99,
        storage: str = "4-bit",
        exact_below: int = EXACT_BELOW,
        seed: int = 0,
    ) -> None:
        super().__init__(catalog, recall, exact_below)
        self.storage, self.seed = storage, seed
        self.lists: InvertedLists | None = None
        self._last_eligible: tuple[_Prices, tuple[int, bool], _Eligible] | None = None
        if not self.is_approximate:
            return
        self._items = self.exact.items
        requests = synthetic_requests(catalog, seed)
        lists = InvertedLists.of(self._items.values, catalog.group_of, requests, seed, catalog.rarity)
        self._codes = QuantizedItems(self._items.values, lists, storage, seed)
        self._list_prices = ListPrices(lists, self._items.values, catalog.n_groups, seed)
        self.lists = lists
        # Requests need not be like the means of items.
        self.tune(np.vstack([requests, synthetic_requests(catalog, seed + 1, signed=True)]))

    def search(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find k items of highest relevance minus price for each user; see `Index.search`."""
        prices = self.exact.recent_prices.of(prices)
        if eligible is not None:
            return self._search_eligible(users, prices, k, eligible)
        vectors = np.asarray(users, dtype=np.float64)
        real: npt.NDArray[np.bool_] = np.asarray(vectors.any(axis=(1, 2)))
        any_serves = self.lists is not None and bool(any_reference_serves(self._items, vectors[real], prices).all())
        goal, reference, open_, few, sparse = self._eligible(prices, k, any_serves)
        if goal == 0:
            return Hits.empty(len(users), k)
        if self.lists is None or goal > min(DEPTHS[-1], len(self.catalog) // _DEEP) or (sparse and not few):
            return self.exact.search(users, prices, k)
        hits = Hits.empty(len(vectors), k)
        step = _USERS_AT_ONCE // (_LESS_IF_FEW if few else 1)
        for start in range(0, len(vectors), step):
            who = start + np.flatnonzero(real[start : start + step])
            if len(who) == 0:
                continue
            if few:
                owners, rows = self._all_of(open_, len(who))
            else:
                owners, rows = self._nominate(self.lists, vectors[who], prices, reference, goal)
            _put(hits, who, settle(self.catalog, vectors[who], prices, k, owners, rows))
        # For a user of zeros everything ties, and the lists that were read can hold too few items.
        rest = np.flatnonzero(~real | (hits.rows[:, goal - 1] < 0))
        if len(rest):
            _put(hits, rest, self.exact.search(vectors[rest], prices, k))
        return hits

    def rebuild(self, catalog: Catalog) -> "IvfIndex":
        """Return an index of the same kind over another catalog, not tuned to past requests; see `rebuild_index`."""
        return IvfIndex(catalog, self.recall, self.storage, self.exact_below, self.seed)

    def _search_eligible(
        self,
        users: npt.NDArray[np.floating],
        prices: npt.NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility,
    ) -> Hits:
        """Search as deep as it takes to find k eligible items; search exactly where that would be too deep.

        If the k best eligible items found are all among the best m items found, for an m at which the index has its
        recall, then it has that recall for the eligible ones, too.
        """
        goal, reference, open_, few, sparse = self._eligible(prices, k)
        if goal == 0:
            return Hits.empty(len(users), k)
        most = 0 if sparse and not few else min(DEPTHS[-1], len(self.catalog) // _DEEP)
        vectors = np.asarray(users, dtype=np.float64)
        hits = Hits.empty(len(vectors), k)
        depths = np.ceil(_RESERVE * goal / np.maximum(eligible.shares, 1e-9)) + np.minimum(eligible.lengths, goal)
        # A depth of the tuning: users with the same one are searched together.
        depths = np.array([*DEPTHS, np.inf])[np.searchsorted(DEPTHS, depths)]
        waiting: npt.NDArray[np.bool_] = np.asarray(vectors.any(axis=(1, 2)))
        if self.lists is not None and not few:
            waiting[waiting] = any_reference_serves(self._items, vectors[waiting], prices)
        rest = np.flatnonzero(~waiting)
        step = _USERS_AT_ONCE // (_LESS_IF_FEW if few else 1)
        for depth, deeper in zip(DEPTHS, (*DEPTHS[1:], np.inf), strict=True):
            if self.lists is None or depth > most:
                break
            who = np.flatnonzero(waiting & (depths == depth))
            for mine in (who[at : at + step] for at in range(0, len(who), step)):
                if few:
                    owners, rows = self._all_of(open_, len(mine))
                else:
                    owners, rows = self._nominate(self.lists, vectors[mine], prices, reference, depth)
                allowed = eligible.take(mine).allows(owners, rows)
                found = settle(self.catalog, vectors[mine], prices, k, owners[allowed], rows[allowed])
                enough = (found.rows[:, k - 1] >= 0) | few
                done = mine[enough]
                hits.rows[done], hits.relevance[done] = found.rows[enough], found.relevance[enough]
                waiting[done], depths[mine[~enough]] = False, deeper
        rest = np.concatenate([rest, np.flatnonzero(waiting)])
        if len(rest):
            _put(hits, rest, self.exact.search(vectors[rest], prices, k, eligible.take(rest)))
        return hits

    def _tune(self, vectors: npt.NDArray[np.float64]) -> None:
        assert self.lists is not None
        truth = self.exact.search(vectors, None, min(DEPTHS[-1], len(self.catalog)))
        queries = Float32Queries.of(self._items, vectors, None, 0.0)
        best = np.ldexp(truth.relevance, -queries.exponent)
        self.tuning: Tuning = tune_probing(self.lists, self._codes, queries.columns.T, truth.rows, best, self.recall)
        self._tail = math.ldexp(self.tuning.tail, queries.exponent)  # users of another length have another unit
        items = self._items.values[truth.rows]
        lengths = np.sqrt(np.einsum("ijk,ijk->ij", items, items))
        self._per_length = float(np.median(truth.relevance / np.maximum(lengths, np.finfo(np.float32).tiny)))

    def _eligible(self, prices: npt.NDArray[np.float64] | None, k: int, any_serves: bool = False) -> _Eligible:
        """Return min(k, eligible items), the reference price, the open groups if any is masked, and two conditions.

        If any price serves as reference (``any_serves``) and no group is masked, it is the lowest price.

        They are whether eligible items are few, and whether lists that mix groups hold so few open items (``sparse``)
        that the mean chance of these is not known well. Many requests come between two price changes: the last result
        is cached.
        """
        last = self._last_eligible
        if last is None or last[0] is not prices or last[1] != (k, any_serves):
            goal, reference = min(k, len(self.catalog)), 0.0
            open_, few, sparse = np.arange(0), len(self.catalog) <= _FEW, False
            if prices is not None and any_serves and price_range(prices)[1] < np.inf:
                reference = price_range(prices)[0]
            elif prices is not None:
                goal, reference = reference_price(self.catalog.group_sizes, prices, k)
            if few or (prices is not None and price_range(prices)[1] == np.inf):
                open_ = np.arange(self.catalog.n_groups) if prices is None else np.flatnonzero(prices < np.inf)
                items = int(self.catalog.group_sizes[open_].sum())
                few = items <= _FEW
                sparse = self.lists is not None and self._list_prices.is_mixed and items * _DEEP < len(self.catalog)
            self._last_eligible = last = (prices, (k, any_serves), (goal, reference, open_, few, sparse))
        return last[2]

    def _nominate(
        self,
        lists: InvertedLists,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        reference: float,
        k: int,
    ) -> tuple[_Rows, _Rows]:
        """Return the items that come near the best k of each user, as pairs of owner and row.

        Where lists mix groups, more items are fetched by their codes and the bonus of their list. Those that are best
        with their own bonus are kept.
        """
        queries, group_bonus = Float32Queries.without_bonus(self._items, users, prices, reference)
        n, kept = len(users), self.tuning.fetch(k)
        vectors, fetch = queries.columns.T, kept
        scores = vectors @ lists.centres.T
        priced = None
        if group_bonus is not None:
            tail, per_length = (math.ldexp(value, -queries.exponent) for value in (self._tail, self._per_length))
            priced = self._list_prices.of(group_bonus, tail, per_length)
            scores += priced.bonus
            if self._list_prices.is_mixed:
                wanted = math.ceil(max(kept, k * priced.depth) / priced.open_share)
                fetch = max(kept, min(wanted, _MOST_FETCHED))
        best, floor = None, None
        if priced is None:
            apart, copied, copied_bonus = lists.longest, self._list_prices.longest, None
        else:
            apart, copied, copied_bonus = priced.rows, priced.items, priced.row_bonus
        if len(apart):
            shared = (self.catalog, self._items, self.exact.item_bonus, users, prices, reference, k, np.arange(n))
            tile = Tile(*shared, None, apart, copied, copied_bonus, replace(queries, bonus=copied_bonus))
            best = Scan(tile).run(0, tile.size)
            best.sift()
            floor = np.tile(best.cut, len(vectors) // n)[:, None]
        chosen = self.tuning.choose(lists, vectors, scores, k, floor)
        rows, groups, found = self._codes.search(vectors, chosen, scores, fetch)
        bonus = None
        if priced is not None and group_bonus is not None:
            bonus = group_bonus.take(groups)
            if fetch > kept:
                with np.errstate(invalid="ignore"):  # where nothing was found
                    found += bonus - priced.bonus.take(lists.list_of.take(rows, mode="clip"))
                found[rows < 0] = -np.inf
                own = np.argpartition(found, fetch - kept, axis=1)[:, fetch - kept :]
                rows, bonus = np.take_along_axis(rows, own, 1), np.take_along_axis(bonus, own, 1)
        values = np.matmul(self._items.values.take(rows, axis=0, mode="clip"), vectors[:, :, None])[:, :, 0]
        if bonus is not None:
            values += bonus
        values[rows < 0] = -np.inf
        place = rows.shape[1] - k
        # If one interest finds k items above a score, so does the user.
        kth = np.partition(values, place, axis=1)[:, place].reshape(-1, n).max(axis=0)
        cut = kth - queries.margin
        if best is not None:
            cut = np.maximum(cut, best.cut)
        # About a quarter of the items may be among the best k by their float32 scores.
        near = (values >= np.tile(cut, len(rows) // n)[:, None]) & (values > -np.inf)
        owners, rows = np.broadcast_to((np.arange(len(rows)) % n)[:, None], rows.shape)[near], rows[near]
        if best is not None:
            more, places, found_scores = best.joined()
            near = found_scores >= cut[more]
            owners = np.concatenate([owners, more[near]])
            rows = np.concatenate([rows, apart[places[near]]])
        if best is not None or len(vectors) > n:  # an item may be in a list and apart, or be found by several interests
            pairs = np.sort(owners * len(self.catalog) + rows)  # many times faster than `unique`
            owners, rows = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], len(self.catalog))
        return owners, rows

    def _all_of(self, groups: npt.NDArray[np.intp], n: int) -> tuple[_Rows, _Rows]:
        """Return every item of these groups for each of n users, as pairs of owner and row."""
        rows = self.exact.group_rows.of(groups)
        return np.repeat(np.arange(n), len(rows)), np.tile(rows, n)


def _put(hits: Hits, who: npt.NDArray[np.intp], found: Hits) -> None:
    hits.rows[who], hits.relevance[who] = found.rows, found.relevance
