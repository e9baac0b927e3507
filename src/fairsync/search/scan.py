"""The full scan of exact search: score blocks of items in float32 and keep those that may be among the best k."""

from collections import deque

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.item_bonus import PADDING, HighBonuses, ItemBonus
from fairsync.search.products import is_streamed, multiply, panel_of
from fairsync.search.restriction import Restriction
from fairsync.search.rounding import Float32Items, Float32Queries
from fairsync.search.scoring import settle

_Rows = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float32]

# A block of scores is 2 MB: large enough to hide the cost of calling numpy, small enough to stay in cache.
BLOCK_SCORES = 1 << 19
# A large k needs larger blocks, up to 64 MB.
_MOST_SCORES = 1 << 24
# Scores are first examined in bundles, by their maximum. For a single vector numpy's calls, not its arithmetic, take
# the time, and longer bundles need fewer calls.
_BUNDLE, BUNDLE_OF_ONE = 8, 32
# A block should hold this many times k items, or hardly any of them would be below its own k-th best.
BLOCK_PER_K = 128
# Rows that are not next to each other are copied in pieces of this many values, which stay in cache.
PIECE_VALUES = 1 << 17
# The bonuses of this many groups stay in cache during a pass over the items.
FEW_GROUPS = 1 << 12
_LOWEST = np.finfo(np.float32).min
# The sum of two float32 values is off by less than this if it is below 8, as that of a score and a bonus is.
_ROUNDING = np.float32(2.0**-20)
# In catalogs of more blocks than this the items with high bonuses are looked at first. For the others no bonuses are
# looked up as long as no more than one in this many bundles comes near the cut.
MANY_BLOCKS, _MOST_NEAR = 8, 1 / 32

# A pool of buffers for scores: fresh pages from the kernel cost as much as computing the scores. `pop` and `append` are
# atomic, so searches that run at the same time never share a buffer.
_spare: deque[_Floats] = deque(maxlen=16)
_LEAST_MEMORY = 2 * BLOCK_SCORES


def columns_at_once(dim: int, k: int) -> int:
    """Return the number of user vectors to score in one pass over the catalog.

    With more, the panels get too flat; with fewer, there are more passes than necessary.

    Examples
    --------
    >>> columns_at_once(64, 50), columns_at_once(1024, 50), columns_at_once(64, 1_000_000)
    (128, 16, 1)
    """
    return max(1, min(512, max(16, (1 << 13) // dim), _MOST_SCORES // (BLOCK_PER_K * k)))


class Tile:
    """The users that are scored in one pass, with the data that all threads share.

    Where few items are eligible, only those are scored: ``rows`` are their rows, and a scan counts in places among
    them. ``copied`` are their embeddings if they lie next to each other already, and ``copied_bonus`` their bonuses,
    with zeros to fill the last bundle. ``queries`` are the users and prices, if they have been prepared already.
    """

    def __init__(
        self,
        catalog: Catalog,
        items: Float32Items,
        item_bonus: ItemBonus,
        users: npt.NDArray[np.float64],
        prices: npt.NDArray[np.float64] | None,
        reference: float,
        k: int,
        who: _Rows,
        restriction: Restriction | None = None,
        rows: _Rows | None = None,
        copied: _Floats | None = None,
        copied_bonus: _Floats | None = None,
        queries: Float32Queries | None = None,
    ) -> None:
        self.catalog, self.group_of = catalog, item_bonus.group_of
        self.items = items.values if copied is None else copied
        self.restriction, self.rows, self.scattered = restriction, rows, rows is not None and copied is None
        self.size = len(catalog) if rows is None else len(rows)
        self.users, self.prices, self.k, self.who = users, prices, k, who
        queries = queries or Float32Queries.of(items, users, prices, reference)
        self.columns, self.bonus, self.margin = queries.columns, queries.bonus, queries.margin
        width = self.columns.shape[1]
        self.item_bonus = copied_bonus
        # Where items with high bonuses are looked at first: these, the cut that they allow, and what reaches it.
        self.high: HighBonuses | None = None
        self.cut: _Floats = np.full(len(users), _LOWEST, dtype=np.float32)
        self.found: list[tuple[_Rows, _Rows, _Floats]] = []
        self.bundle = _BUNDLE if width > 1 else BUNDLE_OF_ONE
        self.panel = max(self.bundle, panel_of(catalog.dim, width) // self.bundle * self.bundle)
        # For a single vector the items themselves fill the cache anyway: fewer, longer blocks save calls.
        scores = BLOCK_SCORES if width > 1 else 2 * BLOCK_SCORES
        block = min(max(scores // width, BLOCK_PER_K * k), self.size)
        self.block = -(-block // self.panel) * self.panel
        self.is_streamed = not self.scattered and is_streamed(self.items, width)
        # Items that are not next to each other are copied in pieces that stay in cache, of whole panels.
        self.gathered = min(self.block, max(1, PIECE_VALUES // (self.panel * catalog.dim)) * self.panel)
        if self.bonus is None or rows is not None or (width > 1 and len(self.bonus) <= FEW_GROUPS):
            return
        if width > 1 and restriction is None and self.size > MANY_BLOCKS * self.block:
            self.high = item_bonus.high(self.bonus)
            if len(self.high.rows):
                self._look_at_high(self.high, items, item_bonus, reference, queries)
        else:
            self.item_bonus = item_bonus.of(self.bonus)

    def _look_at_high(
        self, high: HighBonuses, items: Float32Items, item_bonus: ItemBonus, reference: float, queries: Float32Queries
    ) -> None:
        """Score the items with high bonuses before all others, which have lower bonuses and face a higher cut then."""
        shared = (self.catalog, items, item_bonus, self.users, self.prices, reference, self.k, self.who)
        bonus = np.append(high.bonus, np.zeros(PADDING, dtype=np.float32))
        scan = Scan(Tile(*shared, None, high.rows, high.items, bonus, queries)).run(0, len(high.rows))
        scan.sift()
        owners, rows, scores = scan.joined()
        self.cut, self.found = scan.cut, [(owners, high.rows.take(rows), scores)]

    def settle(self, owners: _Rows, rows: _Rows) -> Hits:
        """Order candidates by the float64 scores that decide. The hits are in rows of the catalog."""
        return settle(self.catalog, self.users, self.prices, self.k, owners, self.catalog_rows(rows))

    def catalog_rows(self, rows: _Rows) -> _Rows:
        """Return the rows of the catalog for the rows of a scan."""
        return rows if self.rows is None else self.rows[rows]

    def answer(self, parts: "tuple[Scan, ...]", hits: Hits) -> None:
        """Merge the scans of all parts, and write the result to the hits of these users."""
        whole = parts[0]
        for part in parts[1:]:
            whole.found += part.found
            whole.near += part.near
            whole.count += part.count
        if whole.count > 2 * self.k * len(self.users):
            whole.sift()
        owners, rows, _ = whole.joined()
        best = self.settle(owners, rows)
        hits.rows[self.who, : self.k] = best.rows
        hits.relevance[self.who, : self.k] = best.relevance


class Scan:
    """One pass over a part of the catalog for the users of a tile.

    ``cut`` is, per user, the float32 score below which no item can be among the best k. It starts with the
    k-th best of the first block and rises with what is found.
    """

    def __init__(self, tile: Tile) -> None:
        self.tile, self.cut = tile, tile.cut
        self.found: list[tuple[_Rows, _Rows, _Floats]] = []
        self.near: list[tuple[_Rows, _Rows, _Floats]] = []
        self.count = 0
        # The first items found that are known to meet the conditions of their users.
        self._eligible = 0
        # Up to this row the bonus is added to every single score, because bundles do not decide enough: see `_look`.
        self._in_full_to = 0
        # From this row on, bonuses are looked up for few items only, if that has not been in vain: see `_look_near`.
        self._near_from = 0
        self._low = 0

    def run(self, low: int, high: int) -> "Scan":
        """Go through rows ``low`` to ``high``."""
        tile, self._low = self.tile, low
        if low == 0:  # only one of the parts
            self.found, self.count = list(tile.found), sum(len(owners) for owners, _, _ in tile.found)
        width = tile.columns.shape[1]
        size = tile.block * (width + 1) + tile.block // tile.bundle * width
        if tile.scattered:
            size += tile.gathered * tile.catalog.dim
        try:
            memory = _spare.pop()
        except IndexError:
            memory = np.empty(0, dtype=np.float32)
        if len(memory) < size:
            memory = np.empty(max(size, _LEAST_MEMORY), dtype=np.float32)
        limit, sift_at = max(4 * tile.k * len(tile.users), 1 << 10), low
        for start in range(low, high, tile.block):
            stop = min(start + tile.block, high)
            if not self._look(start, stop, memory):
                # The cut rises as more items are seen: after twice as many, bundles get another try.
                self._in_full_to = stop + (stop - low)
            # After twice as many items, the best found are so much better that a higher cut saves more than it takes.
            if self.count > limit:
                self._look_up()
            if self.count > limit or (stop >= sift_at and stop < high):
                self.sift()
                sift_at = stop + (stop - low)
            if self.count > limit:
                self.decide()
        if len(memory) <= 4 * _LEAST_MEMORY:
            _spare.append(memory)
        return self

    def joined(self) -> tuple[_Rows, _Rows, _Floats]:
        """Return owners, rows and float32 scores of all eligible items found."""
        self._look_up()
        if not self.found:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        parts = (np.concatenate(column) for column in zip(*self.found, strict=True))
        owners, rows, scores = parts
        limits, kept = self.tile.restriction, self._eligible
        if limits is not None and limits.own is not None and kept < len(owners):
            at = np.flatnonzero(limits.own.allows(owners[kept:], rows[kept:]))
            at = np.concatenate([np.arange(kept), at + kept])
            owners, rows, scores = owners.take(at), rows.take(at), scores.take(at)
        return owners, rows, scores

    def _look_up(self) -> None:
        """Add their bonuses to items that were noted without, and keep those that reach the cut.

        Items with high bonuses have been found before.
        """
        tile = self.tile
        if not self.near or tile.high is None or tile.bonus is None:
            return
        owners, rows, scores = (np.concatenate(column) for column in zip(*self.near, strict=True))
        bonus = tile.bonus.take(tile.group_of.take(rows), mode="clip")
        scores += bonus
        kept = np.flatnonzero((scores >= self.cut.take(owners)) & (bonus <= tile.high.others))
        self.found.append((owners.take(kept), rows.take(kept), scores.take(kept)))
        self.count -= len(rows) - len(kept)
        self.near = []

    def sift(self) -> None:
        """Raise the cut to what the items found so far allow, and drop those below it."""
        owners, rows, scores = self.joined()
        order = np.argsort(owners.astype(np.int16), kind="stable")
        owners, rows, scores = owners.take(order), rows.take(order), scores.take(order)
        counts = np.bincount(owners, minlength=len(self.cut))
        most, k = int(counts.max(initial=0)), self.tile.k
        if most >= k:
            table = np.full((len(self.cut), most), -np.inf, dtype=np.float32)
            table[np.arange(most) < counts[:, None]] = scores
            table.partition(most - k, axis=1)
            self._raise(table[:, most - k])
        self._keep(owners, rows, scores, scores >= self.cut.take(owners))

    def decide(self) -> None:
        """Keep the best k by float64 scores. Only ties and near ties can leave more than the limit after sifting."""
        owners, rows, scores = self.joined()
        n, best = len(self.tile.catalog), self.tile.settle(owners, rows).rows
        chosen = (np.arange(len(best))[:, None] * n + best)[best >= 0]
        self._keep(owners, rows, scores, np.isin(owners * n + self.tile.catalog_rows(rows), chosen))

    def _keep(self, owners: _Rows, rows: _Rows, scores: _Floats, kept: npt.NDArray[np.bool_]) -> None:
        at = np.flatnonzero(kept)
        self.found = [(owners.take(at), rows.take(at), scores.take(at))]
        self.count = self._eligible = len(at)

    def _raise(self, kth: _Floats) -> None:
        """Raise the cut, given a float32 score that k distinct items reach."""
        cut = np.maximum(kth - self.tile.margin, _LOWEST).astype(np.float32)
        # One step down, since the conversion may have rounded up; but not to -inf, which is the score of masked items.
        self.cut = np.maximum(self.cut, np.nextafter(cut, np.float32(_LOWEST)))

    def _look(self, start: int, stop: int, memory: _Floats) -> bool:
        """Score a block and keep the items that reach the cut; return whether bundles saved work."""
        tile, users, width = self.tile, len(self.cut), self.tile.columns.shape[1]
        bundles = tile.bundle
        size = -(-(stop - start) // bundles)
        length = size * bundles
        scores = memory[: length * width].reshape(length, width)
        self._multiply(start, stop, scores, memory)
        limits = tile.restriction
        if limits is not None:
            limits.exclude(start, stop, scores)
        rest = memory[length * width :]
        best, rest = rest[: size * width].reshape(size, width), rest[size * width :]
        # The most bundles that are worth opening. If k is large for the block, that is a quarter of them.
        crowd = min(4 * tile.k, size // 4) * users
        bounded, worth = start >= self._in_full_to and bool(self.cut.min() > _LOWEST), True
        if bounded and tile.high is not None and start >= self._near_from:
            if self._look_near(tile.high, start, scores, best):
                return True
            self._near_from = stop + (stop - self._low)
        bonus = None
        if tile.item_bonus is not None:
            bonus = tile.item_bonus[start : start + length]
        elif tile.bonus is not None:
            bonus = rest[:length]
            bonus[stop - start :] = 0.0
            at = slice(start, stop) if tile.rows is None else tile.rows[start:stop]
            np.take(tile.bonus, tile.group_of[at], mode="clip", out=bonus[: stop - start])
            if tile.high is not None:  # its items have been found already
                first, end = np.searchsorted(tile.high.rows, (start, stop)).tolist()
                bonus[tile.high.rows[first:end] - start] = -np.inf
        shared = None if limits is None else limits.shared
        if limits is not None and shared is not None and bonus is not None:
            bonus, shared = limits.lower(start, stop, bonus, rest[:length]), None
        open_ = None
        if bonus is not None and bounded:
            # A bundle scores at most its best relevance plus its best bonus. This bound takes an eighth of the
            # additions.
            bound = self._bundles(scores, best)
            # Repeated first: numpy takes about as long for a short row as for one of some hundred values.
            bound.reshape(-1)[:] += np.repeat(bonus.reshape(bundles, size).max(axis=0), users)
            open_ = bound >= self.cut
            worth = bool(np.count_nonzero(open_) <= crowd)
        if open_ is None or not worth:
            if bonus is not None:
                scores.reshape(-1)[:] += bonus if width == 1 else np.repeat(bonus, width)
                bonus = None
            top = self._bundles(scores, best)
            open_ = top >= self.cut
            if np.count_nonzero(open_) > crowd:
                # The first block, or items in an unfavourable order: the block's own k-th best is a better cut.
                if limits is not None:
                    limits.mask(start, stop, scores)
                    top = self._bundles(scores, best)
                self._raise(self._kth(top, scores[: stop - start]))
                open_ = top >= self.cut
        bundle, owner, values = self._opened(open_, scores)
        if bonus is not None:
            values += bonus.reshape(bundles, size).take(bundle, axis=1)
        flat = np.flatnonzero(values >= self.cut.take(owner))
        slab = flat // max(1, len(bundle))
        at = flat - slab * len(bundle)
        if bonus is not None and len(bundle) - len(at) > length * users // 64:
            # Opening this many bundles in vain costs more than adding the bonus to every score.
            worth = False
        owners, rows, values = owner.take(at), start + slab * size + bundle.take(at), values.take(flat)
        if shared is not None:
            meets = np.flatnonzero(shared.has(rows))
            owners, rows, values = owners.take(meets), rows.take(meets), values.take(meets)
        if len(rows):
            self.found.append((owners, rows, values))
            self.count += len(rows)
        return worth

    def _look_near(self, high: HighBonuses, start: int, scores: _Floats, best: _Floats) -> bool:
        """Note the items of a block that come near the cut without a bonus; return False if they are many.

        Items with high bonuses have been found before, and the others have no more than ``high.others``. So bonuses are
        looked up for few items only, and all at once when they are needed.
        """
        near = self.cut - high.others - _ROUNDING
        open_ = self._bundles(scores, best) >= near
        if np.count_nonzero(open_) > _MOST_NEAR * open_.size:
            return False
        bundle, owner, values = self._opened(open_, scores)
        flat = np.flatnonzero(values >= near.take(owner))
        slab = flat // max(1, len(bundle))
        at = flat - slab * len(bundle)
        if len(at):
            self.near.append((owner.take(at), start + slab * len(best) + bundle.take(at), values.take(flat)))
            self.count += len(at)
        return True

    def _opened(self, open_: npt.NDArray[np.bool_], scores: _Floats) -> tuple[_Rows, _Rows, _Floats]:
        """Return bundle and owner of each open bundle, and (bundle length, open bundles) the scores in it."""
        users, width, bundles = len(self.cut), scores.shape[1], self.tile.bundle
        # `flatnonzero` is many times faster than `nonzero` of a table, and `//` nearly twice as fast as `divmod`.
        flat = np.flatnonzero(open_)
        bundle = flat // users
        owner = flat - bundle * users
        slabs = scores.reshape(bundles, -1)
        first = bundle * width + owner
        values = slabs.take(first, axis=1)
        for interest in range(1, width // users):
            np.maximum(values, slabs.take(first + interest * users, axis=1), out=values)
        return bundle, owner, values

    def _multiply(self, start: int, stop: int, scores: _Floats, memory: _Floats) -> None:
        tile = self.tile
        if tile.rows is None or not tile.scattered:
            self._product(tile.items[start:stop], scores[: stop - start])
        else:
            for first in range(start, stop, tile.gathered):
                rows = tile.rows[first : min(first + tile.gathered, stop)]
                items = memory[-tile.gathered * tile.catalog.dim :].reshape(-1, tile.catalog.dim)[: len(rows)]
                # In this mode, `take` copies whole rows right into place.
                np.take(tile.items, rows, axis=0, out=items, mode="clip")
                self._product(items, scores[first - start : first - start + len(rows)])
        scores[stop - start :] = -np.inf

    def _product(self, items: _Floats, scores: _Floats) -> None:
        multiply(items, self.tile.columns, scores, streamed=self.tile.is_streamed, panel=self.tile.panel)

    def _bundles(self, scores: _Floats, best: _Floats) -> _Floats:
        """Return the best score of each bundle for each user, over all interests.

        Bundle c is rows c, c + size, c + 2·size and so on: then the maximum runs over whole contiguous slabs.
        """
        size, width, users = len(scores) // self.tile.bundle, scores.shape[1], len(self.cut)
        np.maximum.reduce(scores.reshape(self.tile.bundle, size, width), axis=0, out=best)
        return best if width == users else best.reshape(size, -1, users).max(axis=1)

    def _kth(self, best: _Floats, scores: _Floats) -> _Floats:
        """Return a score that k distinct items of the block reach, for each user."""
        users, k = len(self.cut), self.tile.k
        if len(best) < k:
            best = scores.reshape(len(scores), -1, users).max(axis=1)
        if len(best) < k:
            return np.full(users, _LOWEST, dtype=np.float32)
        # Maxima over more items are valid too; 4 times k of them are nearly as good, and found much faster.
        fold = len(best) // (4 * k)
        if fold > 1:
            best = best[: len(best) // fold * fold].reshape(fold, -1, users).max(axis=0)
        place = len(best) - k
        kth: _Floats = np.partition(best, place, axis=0)[place]
        return kth
