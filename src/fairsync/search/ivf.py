"""Approximate search that knows prices: lists that lie inside one group, probed by centre minus price."""

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.search.base import Hits, check_prices
from fairsync.search.exact import ExactIndex
from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.quantization import QuantizedItems
from fairsync.search.rounding import Float32Queries
from fairsync.search.scoring import reference_price, settle
from fairsync.search.tuning import DEPTHS, Tuning, stand_ins, tune

# Searched exactly in a fraction of a millisecond per request: nothing to gain.
EXACT_BELOW = 20_000
# So few eligible items are all scored, which is exact and quicker than choosing among lists.
_FEW = 1 << 11
# Users per pass: with more, the table of users by lists leaves the cache; and where all items of a few groups are
# scored, there are many more candidates for each.
_USERS_AT_ONCE, _LESS_IF_FEW = 256, 16
# Of a catalog that is less than so many times as long as the answer, nearly every list would be read.
_DEEP = 8

_Rows = npt.NDArray[np.int64]


class IvfIndex:
    """Search the lists that promise most under the prices of the call.

    No list mixes groups, so a list's price is its items' price: it enters which lists are read and how their items
    score, nothing stored depends on it, and a subsidised small group is really looked at. Compressed items only
    nominate: who is in, and in which order, is settled on float64 scores, as for `ExactIndex`.

    An answer is always as long as it can be, min(k, eligible items), so the promise of floors holds on this index as on
    an exact one. Small catalogs, few eligible items and very long lists are answered exactly.

    Parameters
    ----------
    catalog
        What to search.
    recall
        The share of the true best k to find on average, for k up to some hundreds. How many lists that takes is
        measured on vectors made from the catalog; `tune` measures it on past requests, which is better.
    storage
        Bits per dimension of the compressed items: ``"2-bit"``, ``"4-bit"``, ``"8-bit"`` or ``"16-bit"``.
    exact_below
        Catalogs with fewer items are searched exactly.
    seed
        Where chance starts.

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
        if not 0 < recall < 1:
            raise InvalidInputError(f"recall must lie between 0 and 1, got {recall}; for 1 use the index 'exact'.")
        self.catalog, self.recall = catalog, recall
        self._exact = ExactIndex(catalog)
        self._lists: InvertedLists | None = None
        self._last_eligible: tuple[tuple[bytes, int], tuple[int, float, npt.NDArray[np.intp], bool]] | None = None
        if len(catalog) < exact_below:
            return
        self._items = self._exact._items  # where these are a copy, one is enough
        requests = stand_ins(catalog, seed)
        lists = InvertedLists.of(self._items.values, catalog.group_of, requests, seed)
        self._codes = QuantizedItems(self._items.values, lists, storage, seed)
        self._by_group = np.argsort(catalog.group_of, kind="stable").astype(np.int32)
        self._lists = lists
        self.tune(requests)

    def tune(self, users: npt.ArrayLike) -> "IvfIndex":
        """Choose how much to read so that requests like these have the recall asked for, without prices.

        Parameters
        ----------
        users
            (n, d) or (n, interests, d); some hundred past requests are plenty.

        Returns
        -------
        IvfIndex
            This index.
        """
        vectors = check_users(users, self.catalog).astype(np.float64)
        vectors = vectors[vectors.any(axis=(1, 2))]
        if len(vectors) == 0:
            raise InvalidInputError("users are empty, or zero: give at least one past request.")
        if self._lists is not None:
            truth = self._exact.search(vectors, None, min(DEPTHS[-1], len(self.catalog))).rows
            queries = Float32Queries.of(self._items, vectors, None, 0.0)
            self.tuning: Tuning = tune(self._lists, self._codes, queries.columns.T, truth, self.recall)
        return self

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find k items of highest relevance minus price for each user; see `Index.search`."""
        prices = check_prices(prices, self.catalog.n_groups)
        goal, reference, open_, few = self._eligible(prices, k)
        if goal == 0:
            return Hits.empty(len(users), k)
        if self._lists is None or goal > min(DEPTHS[-1], len(self.catalog) // _DEEP):
            return self._exact.search(users, prices, k)
        vectors = np.asarray(users, dtype=np.float64)
        hits = Hits.empty(len(vectors), k)
        real: npt.NDArray[np.bool_] = np.asarray(vectors.any(axis=(1, 2)))
        step = _USERS_AT_ONCE // (_LESS_IF_FEW if few else 1)
        for start in range(0, len(vectors), step):
            who = start + np.flatnonzero(real[start : start + step])
            if len(who) == 0:
                continue
            if few:
                owners, rows = self._all_of(open_, len(who))
            else:
                queries = Float32Queries.of(self._items, vectors[who], prices, reference)
                owners, rows = self._nominate(self._lists, queries, len(who), goal)
            _put(hits, who, settle(self.catalog, vectors[who], prices, k, owners, rows))
        # For a user of zeros everything ties; and the lists that were read can hold too few items.
        rest = np.flatnonzero(~real | (hits.rows[:, goal - 1] < 0))
        if len(rest):
            _put(hits, rest, self._exact.search(vectors[rest], prices, k))
        return hits

    def _eligible(
        self, prices: npt.NDArray[np.float64] | None, k: int
    ) -> tuple[int, float, npt.NDArray[np.intp], bool]:
        """Return how many of k items there are, the reference price, the groups that are open, and whether few are.

        Many requests come between two price changes: the last answer is kept.
        """
        key = (b"" if prices is None else prices.tobytes(), k)
        last = self._last_eligible
        if last is None or last[0] != key:
            goal, reference = min(k, len(self.catalog)), 0.0
            open_ = np.arange(self.catalog.n_groups)
            if prices is not None:
                goal, reference = reference_price(self.catalog, prices, k)
                open_ = np.flatnonzero(prices < np.inf)
            few = int(self.catalog.group_sizes[open_].sum()) <= _FEW
            self._last_eligible = last = (key, (goal, reference, open_, few))
        return last[1]

    def _nominate(self, lists: InvertedLists, queries: Float32Queries, n: int, k: int) -> tuple[_Rows, _Rows]:
        """Return owners and rows of the items that come near the best k of n users."""
        vectors = queries.columns.T
        scores = vectors @ lists.centres.T
        if queries.bonus is not None:
            scores += queries.bonus[lists.group_of]
        chosen = self.tuning.choose(lists, vectors, scores, k)
        rows, groups = self._codes.search(vectors, chosen, scores, self.tuning.fetch(k))
        owners, kept = np.arange(len(rows)) % n, self._near(queries, rows, groups, n, k)
        owners, rows = np.broadcast_to(owners[:, None], rows.shape)[kept], rows[kept]
        if len(vectors) > n:  # several interests may have found the same item
            owners, rows = np.divmod(np.unique(owners * len(self.catalog) + rows), len(self.catalog))
        return owners, rows

    def _near(self, queries: Float32Queries, rows: _Rows, groups: _Rows, n: int, k: int) -> npt.NDArray[np.bool_]:
        """Return which of the items found may be among the best k: scored in float32, a quarter of them or so."""
        scores = np.matmul(self._items.values[rows], queries.columns.T[:, :, None])[:, :, 0]
        if queries.bonus is not None:
            scores += queries.bonus[groups]
        scores[rows < 0] = -np.inf
        place = rows.shape[1] - k
        # If one interest finds k items above a score, so does the user.
        kth = np.partition(scores, place, axis=1)[:, place].reshape(-1, n).max(axis=0)
        near: npt.NDArray[np.bool_] = scores >= np.tile(kth - queries.margin, len(rows) // n)[:, None]
        return near & (rows >= 0)

    def _all_of(self, groups: npt.NDArray[np.intp], n: int) -> tuple[_Rows, _Rows]:
        """Return owners and rows of every item of these groups, for n users."""
        ends = np.cumsum(self.catalog.group_sizes)
        rows = np.concatenate([self._by_group[ends[g] - self.catalog.group_sizes[g] : ends[g]] for g in groups])
        return np.repeat(np.arange(n), len(rows)), np.tile(rows.astype(np.int64), n)


def _put(hits: Hits, who: npt.NDArray[np.intp], found: Hits) -> None:
    hits.rows[who], hits.relevance[who] = found.rows, found.relevance
