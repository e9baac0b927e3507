"""The prices of inverted lists. In a list that mixes groups, every item may have another price.

Near the top, the number of items above a score grows by a factor e for every `tail` that the score is lower. Then an
item whose bonus (minus the price) is b has exp(b / tail) chances to be among the best where one without a bonus has
one, and three things follow:

- A list is as promising as its *mean chance*: its bonus is tail · log(mean of exp(b / tail)) over its items, which lies
  between the mean and the largest bonus.
- Codes rank the items of all lists with the bonus of their list. An item whose own bonus is d larger is found among the
  best k · exp(d / tail) of these, divided by the mean chance of all items. This is how many are fetched.
- Few items have most of the chances: those with large bonuses, and long ones, whose relevance can be high. These are
  taken out and scored one by one, so that fewer lists are read and far fewer items fetched for their sake.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.search.inverted_lists import MIXED, InvertedLists
from fairsync.search.rounding import GroupBonus, same_values
from fairsync.search.scan import BUNDLE_OF_ONE

Floats: TypeAlias = npt.NDArray[np.float32]
_Rows: TypeAlias = npt.NDArray[np.signedinteger]

# The share of the items that is scored one by one because of their bonus and length, beside the longest. With half of
# it, new prices take less time, but recall under steep prices is far lower. Where all items are about as long, as in a
# catalog of unit vectors, the bonus alone tells less, and more items are scored.
_APART_SHARE, _APART_SHARE_BY_BONUS = 0.01, 0.02
# It is measured on this many items.
_MEASURED = 1 << 13
# A policy moves its prices in small steps. As long as no bonus has changed by more than this many tails, the bonuses of
# lists stay as they are, and as long as the changes add up to no more than that, the items that are scored one by one.
_SAME_LISTS, _SAME_CHOICE = 0.05, 0.5
# What is known of a list's bonuses is known from this many of its items, or from fewer where that is enough. It saves a
# look at every item when prices change.
_SAMPLE, _FEWER = 16, 4
# The share of the chances in lists that is given up, because the bonus of an item is far above that of its list.
_GIVEN_UP = 0.02
# Bonuses of groups are looked at in blocks that stay in cache.
_BLOCK_GROUPS = 1 << 15
_FEW_TIMES, _LEAST = 48, np.float32(1e-30)
# The number of items to fetch for each of the k that is not taken out (at least this share of the k) is the root of
# what follows from the chances times this, but never more than this.
_LEAST_LEFT, _DEEPER, _DEEPEST = 0.5, 7.0, 20.0


@dataclass(frozen=True)
class ListBonuses:
    """What a search of inverted lists needs to know about prices.

    Attributes
    ----------
    bonus : numpy.ndarray
        (L,) the bonus of each list: that of its group, or that of its mean chance, over open items not in ``rows``.
    rows, items, row_bonus : numpy.ndarray
        The rows of the items to score one by one, the longest first, a copy of their embeddings, and their bonuses with
        zeros to fill the last bundle of a scan.
    open_share : float
        The share of the items that is not masked.
    depth : float
        How many times k items codes have to find, because items differ from their list.
    """

    bonus: Floats
    rows: npt.NDArray[np.int64]
    items: Floats
    row_bonus: Floats
    open_share: float = 1.0
    depth: float = 1.0


@dataclass(frozen=True)
class _Apart:
    """The items that were chosen to be scored one by one.

    Attributes
    ----------
    rows, groups, items : numpy.ndarray
        Their rows, the longest first, their groups, and a copy of their embeddings.
    left : float
        The share of the chances that the others have.
    sampled : numpy.ndarray
        (samples, L) which of the items that are known of each list are among them.
    """

    rows: npt.NDArray[np.int64]
    groups: npt.NDArray[np.intp]
    items: Floats
    left: float
    sampled: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Found:
    """What was found for prices, and serves for similar ones.

    Attributes
    ----------
    bonus, tail, per_length
        The prices; see `ListPrices.of`.
    apart : _Apart
        The items that are scored one by one.
    drift : float
        How much a bonus may have changed since these were chosen.
    by_list, open_share, depth
        As in `ListBonuses`.
    """

    bonus: GroupBonus
    tail: float
    per_length: float
    apart: _Apart
    drift: float
    by_list: Floats
    open_share: float
    depth: float


class ListPrices:
    """Finds what lists need to know about prices, and keeps it for the requests under the same prices.

    Parameters
    ----------
    lists, items
        The inverted lists, and the items in them.
    n_groups
        The number of groups.
    seed
        The seed of the random numbers.

    Attributes
    ----------
    is_mixed : bool
        Whether lists mix groups. Either all do, or none does.
    longest : numpy.ndarray
        A copy of the embeddings of the longest items, which are in no list.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32), np.arange(900) // 2)
    >>> lists = InvertedLists.of(catalog.embeddings, catalog.group_of)
    >>> prices = ListPrices(lists, catalog.embeddings, catalog.n_groups)
    >>> subsidies = GroupBonus.of(-np.arange(450.0), reference=0.0, unit=10)
    >>> priced = prices.of(subsidies, tail=0.001, per_length=0.0)
    >>> {898, 899} <= set(priced.rows.tolist()), priced.bonus.shape == lists.sizes.shape
    (True, True)
    """

    def __init__(self, lists: InvertedLists, items: Floats, n_groups: int, seed: int = 0) -> None:
        self._lists, self._items = lists, items
        self.is_mixed = bool(lists.group_of[0] == MIXED)
        self.longest = items[lists.longest]
        # Replaced as a whole, so that searches that run at the same time never see half of a change. Two, because users
        # of very different length have other units.
        self._kept: tuple[tuple[GroupBonus, float, ListBonuses], ...] = ()
        self._found: tuple[_Found, ...] = ()
        if not self.is_mixed:
            return
        rng = np.random.default_rng(seed)
        listed, sizes = np.flatnonzero(lists.list_of >= 0), lists.sizes
        by_list = listed[np.argsort(lists.list_of[listed], kind="stable")]
        drawn = by_list[np.cumsum(sizes) - sizes + (rng.random((_SAMPLE, len(sizes))) * sizes).astype(np.int64)]
        measured = rng.choice(listed, min(len(listed), _MEASURED), replace=False)
        lengths = np.sqrt(np.einsum("ij,ij->i", items, items))
        self._samples = tuple((lists.groups[rows].astype(np.intp), lengths[rows]) for rows in (measured, drawn))
        # Rows and lengths of listed items, by group, the longest of each first; where each group begins, and the length
        # of its longest item. 32 bits are half the memory to read.
        kind: type[np.signedinteger] = np.int32 if len(items) < np.iinfo(np.int32).max else np.int64
        by_group = listed[np.lexsort((-lengths[listed], lists.groups[listed]))]
        self._by_group: _Rows = by_group.astype(kind)
        self._lengths = lengths[by_group]
        self._starts: _Rows = np.searchsorted(lists.groups[by_group], np.arange(n_groups + 1)).astype(kind)
        self._group_lengths = np.full(n_groups, -np.inf, dtype=np.float32)
        np.maximum.at(self._group_lengths, lists.groups[listed], lengths[listed])

    def of(self, bonus: GroupBonus, tail: float, per_length: float) -> ListBonuses:
        """Return what lists need to know about prices.

        Parameters
        ----------
        bonus
            The bonus of each group, -inf where it is masked.
        tail
            How much lower a score is that e times as many items reach.
        per_length
            The score of a good item divided by its length.
        """
        kept = self._kept
        for known, of_tail, found in kept:
            same = (of_tail, known.reference, known.unit) == (tail, bonus.reference, bonus.unit)
            if same and same_values(known.prices, bonus.prices):
                return found
        found = self._find(bonus, tail, per_length)
        self._kept = ((bonus, tail, found), *kept[:1])
        return found

    def _find(self, bonus: GroupBonus, tail: float, per_length: float) -> ListBonuses:
        if not self.is_mixed:
            none = np.empty(0, dtype=np.int64)
            return ListBonuses(bonus.take(self._lists.group_of), none, self._items[:0], np.empty(0, dtype=np.float32))
        found = self._similar(bonus, tail, per_length)
        apart = found.apart
        row_bonus = np.zeros(len(apart.rows) + BUNDLE_OF_ONE, dtype=np.float32)
        row_bonus[: len(apart.rows)] = bonus.take(apart.groups)
        return ListBonuses(found.by_list, apart.rows, apart.items, row_bonus, found.open_share, found.depth)

    def _similar(self, bonus: GroupBonus, tail: float, per_length: float) -> _Found:
        """Return what was found for similar prices, or else for these."""
        others, last = [], None
        for one in self._found:
            if (one.tail, one.per_length) == (tail, per_length):
                last = one
            else:
                others.append(one)
        change = math.inf if last is None else bonus.change(last.bonus, _SAME_CHOICE * tail)
        if last is not None and change <= _SAME_LISTS * tail:
            return last
        if last is not None and last.drift + change <= _SAME_CHOICE * tail:
            apart, drift = last.apart, last.drift + change
            sampled = bonus.take(self._samples[1][0])
        else:
            (apart, sampled), drift = self._choose(bonus, tail, per_length), 0.0
        open_share = float(np.count_nonzero(sampled > -np.inf) / sampled.size)
        sampled[apart.sampled] = -np.inf
        by_list, depth = _chances(sampled, np.float32(1 / tail))
        depth = max(apart.left, _LEAST_LEFT) * min(_DEEPER * math.sqrt(depth), _DEEPEST)
        found = _Found(bonus, tail, per_length, apart, drift, by_list, open_share, depth)
        self._found = (found, *others[:1])
        return found

    def _choose(self, bonus: GroupBonus, tail: float, per_length: float) -> tuple[_Apart, Floats]:
        """Choose the items that are scored one by one: the longest, and those with much bonus and length.

        The second result is (samples, L) the bonuses of the items that are known of each list.
        """
        each = np.float32(per_length)
        groups, lengths = self._samples[0]
        share = _APART_SHARE if len(self.longest) else _APART_SHARE_BY_BONUS
        limit, left = _limit(bonus.take(groups) + lengths * each, share, np.float32(1 / tail))
        longest, above = self._lists.longest, self._above(limit, bonus, each)
        rows = np.concatenate([longest, above])
        items = np.empty((len(rows), self._items.shape[1]), dtype=np.float32)
        items[: len(longest)] = self.longest
        np.take(self._items, above, axis=0, out=items[len(longest) :], mode="clip")
        groups, lengths = self._samples[1]
        sampled = bonus.take(groups)
        apart = _Apart(
            rows, self._lists.groups.take(rows).astype(np.intp), items, left, sampled + lengths * each > limit
        )
        return apart, sampled

    def _above(self, limit: np.float32, bonus: GroupBonus, per_length: np.float32) -> npt.NDArray[np.int64]:
        """Return the rows of listed items whose bonus and length together are above the limit, ascending."""
        # By length minus price, which takes fewer steps than bonuses: these are the same but for rounding and a cut-off
        # far above the limit.
        scale, lowest = math.ldexp(1.0, -bonus.unit), np.float32(float(limit) - bonus.raised)
        count = min(_BLOCK_GROUPS, len(self._group_lengths))
        price, highest = np.empty(count, dtype=np.float32), np.empty(count, dtype=np.float32)
        found, prices = [], []
        for start in range(0, len(self._group_lengths), _BLOCK_GROUPS):
            lengths = self._group_lengths[start : start + _BLOCK_GROUPS]
            own, most = price[: len(lengths)], highest[: len(lengths)]
            with np.errstate(over="ignore", invalid="ignore"):  # prices can be extreme
                np.multiply(bonus.prices[start : start + len(lengths)], scale, out=own, casting="same_kind")
                np.multiply(lengths, per_length, out=most)
                most -= own
            at = np.flatnonzero(most > lowest)
            found.append(at + start)
            prices.append(own.take(at))
        groups, price = np.concatenate(found), np.concatenate(prices)
        first, ends = self._starts.take(groups, mode="clip"), self._starts.take(groups + 1, mode="clip")
        # The longest item of each group is above the limit. Few groups have a second one that is.
        more = self._lengths.take(first + 1, mode="clip") * per_length - price > lowest
        more &= ends - first > 1
        sizes = (ends - first)[more] - 1
        places = np.arange(int(sizes.sum())) + np.repeat(first[more] + 1 - (np.cumsum(sizes) - sizes), sizes)
        value = self._lengths.take(places, mode="clip")
        value *= per_length
        value -= np.repeat(price[more], sizes)
        above = np.concatenate([first, places[value > lowest]])
        # In the order of the catalog: copying their embeddings takes a sixth less time.
        return np.sort(self._by_group.take(above, mode="clip")).astype(np.int64)


def _limit(values: Floats, share: float, scale: np.float32) -> tuple[np.float32, float]:
    """Return the value that a share of the items exceeds, and the share of chances below, given some items."""
    falling = -np.sort(-values)
    chance = np.exp((falling - falling[0]) * scale) if falling[0] > -np.inf else np.ones_like(falling)
    place = math.ceil(share * (len(values) - 1))
    return falling[place], float(chance[place:].sum() / chance.sum())


def _chances(sampled: Floats, scale: np.float32) -> tuple[Floats, float]:
    """Return the bonus of each list, and the depth, given (samples, L) bonuses, -inf where masked or taken out."""
    highest = sampled.max()
    if highest == -np.inf:  # nothing is open but the items that are scored one by one
        return np.full(sampled.shape[1], -np.inf, dtype=np.float32), 1.0
    counts = np.count_nonzero(sampled > -np.inf, axis=0)
    chance = sampled - highest
    chance *= scale
    np.exp(chance, out=chance)
    mean = np.maximum(chance.sum(axis=0) / np.maximum(counts, 1), _LEAST).astype(np.float32)
    by_list = np.where(counts > 0, highest + np.log(mean) / scale, np.float32(-np.inf))
    # Relative to the list: of equal lists, each has 1.
    some = (chance[:_FEWER] / mean).ravel()
    # Those given up have more than the mean chance, so that they are a smaller share of the items.
    count = min(len(some), 1 + math.ceil(_GIVEN_UP * len(some)))
    largest = -np.sort(np.partition(-some, count - 1)[:count])
    last = largest[min(int(np.searchsorted(np.cumsum(largest), _GIVEN_UP * some.sum())), count - 1)]
    # Those few with nearly all chances are not the best of every user, who may be interested in something else.
    usual = np.minimum(some, _FEW_TIMES * last).mean()
    return by_list, max(1.0, float(last / usual))
