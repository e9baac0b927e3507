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

from fairsync.search.group_rows import GroupRows
from fairsync.search.inverted_lists import MIXED, InvertedLists
from fairsync.search.rounding import same_values
from fairsync.search.scan import BUNDLE_OF_ONE

Floats: TypeAlias = npt.NDArray[np.float32]

# The share of the items that is scored one by one because of their bonus and length, beside the longest: with more,
# fewer are fetched from lists. It is measured on this many items.
_APART_SHARE, _MEASURED = 0.01, 1 << 14
# What is known of a list's bonuses is known from this many of its items, or from fewer where that is enough. It saves a
# look at every item when prices change.
_SAMPLE, _FEWER = 32, 8
# The share of all chances, and the largest share of those in lists, that is given up, because the bonus of an item is
# far above that of its list.
_GIVEN_UP, _MOST_GIVEN_UP = 0.004, 0.02
_FEW_TIMES = 48
# Exponents are bounded: beyond this an item has practically all chances, or none.
_MOST_EXPONENT, _LEAST = 40.0, np.float32(1e-30)


@dataclass(frozen=True)
class ListBonuses:
    """What a search of inverted lists needs to know about prices.

    Attributes
    ----------
    bonus : numpy.ndarray
        (L,) the bonus of each list: that of its group, or that of its mean chance, over open items not in ``rows``.
    rest : numpy.ndarray
        (G,) the bonus of each group, -inf where its items are in ``rows``.
    rows, items, row_bonus : numpy.ndarray
        The rows of the items to score one by one, the longest among them, a copy of their embeddings, and their bonuses
        with zeros to fill the last bundle of a scan.
    open_share : float
        The share of the items that is not masked.
    depth : float
        How many times k items codes have to find, because items differ from their list.
    """

    bonus: Floats
    rest: Floats
    rows: npt.NDArray[np.int64]
    items: Floats
    row_bonus: Floats
    open_share: float = 1.0
    depth: float = 1.0


class ListPrices:
    """Finds what lists need to know about prices, and keeps it for the requests under the same prices.

    Parameters
    ----------
    lists, items
        The inverted lists, and the items in them.
    group_rows
        The rows of each group.
    seed
        The seed of the random numbers.

    Attributes
    ----------
    is_mixed : bool
        Whether lists mix groups. Either all do, or none does.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32), np.arange(900) // 2)
    >>> lists = InvertedLists.of(catalog.embeddings, catalog.group_of)
    >>> prices = ListPrices(lists, catalog.embeddings, GroupRows(catalog))
    >>> priced = prices.of(np.arange(450, dtype=np.float32), tail=1.0, per_length=0.0)
    >>> {898, 899} <= set(priced.rows.tolist()), priced.bonus.shape == lists.sizes.shape
    (True, True)
    """

    def __init__(self, lists: InvertedLists, items: Floats, group_rows: GroupRows, seed: int = 0) -> None:
        self._lists, self._items, self._group_rows = lists, items, group_rows
        self.is_mixed = bool(lists.group_of[0] == MIXED)
        self.longest = items[lists.longest]
        # Replaced as a whole, so that searches that run at the same time never see half of a change. Two, because users
        # of very different length have other units.
        self._kept: tuple[tuple[Floats, float, ListBonuses], ...] = ()
        if not self.is_mixed:
            return
        rng = np.random.default_rng(seed)
        listed, sizes = np.flatnonzero(lists.list_of >= 0), lists.sizes[:, None]
        by_list = listed[np.argsort(lists.list_of[listed], kind="stable")]
        drawn = np.cumsum(sizes)[:, None] - sizes + (rng.random((len(sizes), _SAMPLE)) * sizes).astype(np.int64)
        self._sampled = lists.groups[by_list[drawn]].astype(np.intp)
        # The length of the longest item of each group that is in a list. Groups are small.
        self._lengths = np.zeros(group_rows.n_groups, dtype=np.float32)
        np.maximum.at(self._lengths, lists.groups[listed], np.sqrt(np.einsum("ij,ij->i", items, items))[listed])
        self._sampled_lengths = self._lengths[self._sampled]
        self._measured = lists.groups[rng.choice(listed, min(len(listed), _MEASURED), replace=False)].astype(np.intp)

    def of(self, bonus: Floats, tail: float, per_length: float) -> ListBonuses:
        """Return what lists need to know about prices.

        Parameters
        ----------
        bonus
            (G,) the bonus of each group, -inf where it is masked.
        tail
            How much lower a score is that e times as many items reach.
        per_length
            The score of a good item divided by its length.
        """
        kept = self._kept
        for groups, known, found in kept:
            if known == tail and same_values(groups, bonus):
                return found
        found = self._find(bonus, tail, np.float32(per_length))
        self._kept = ((bonus, tail, found), *kept[:1])
        return found

    def _find(self, bonus: Floats, tail: float, per_length: np.float32) -> ListBonuses:
        if not self.is_mixed:
            none = np.empty(0, dtype=np.int64)
            return ListBonuses(bonus[self._lists.group_of], bonus, none, self._items[:0], bonus[:0])
        highest = self._lengths * per_length
        highest += bonus
        some = highest.take(self._measured)
        place = len(some) - max(1, round(_APART_SHARE * len(some)))
        limit = np.partition(some, place)[place]
        groups = np.flatnonzero(highest > limit)
        rest = bonus.copy()
        rest[groups] = -np.inf
        rows, sizes = self._group_rows.in_order(groups)
        high, listed = np.repeat(bonus[groups], sizes), self._lists.list_of[rows] >= 0
        rows, high = rows[listed], high[listed]
        # Largest bonus first: a scan excludes items in bundles, by their best bonus.
        order, longest = _nearly_descending(high), self._lists.longest
        rows = np.concatenate([longest, rows[order]])
        row_bonus = np.zeros(len(rows) + BUNDLE_OF_ONE, dtype=np.float32)
        row_bonus[: len(longest)] = bonus[self._lists.groups[longest]]
        row_bonus[len(longest) : len(rows)] = high[order]
        items = np.empty((len(rows), self._items.shape[1]), dtype=np.float32)
        items[: len(longest)] = self.longest
        np.take(self._items, rows[len(longest) :], axis=0, out=items[len(longest) :], mode="clip")
        sampled = bonus.take(self._sampled, mode="clip")
        inside = sampled + self._sampled_lengths * per_length <= limit
        by_list, depth = _chances(sampled, inside, np.float32(1 / tail))
        share = float(np.count_nonzero(sampled > -np.inf) / sampled.size)
        return ListBonuses(by_list, rest, rows, items, row_bonus, share, depth)


def _chances(sampled: Floats, inside: npt.NDArray[np.bool_], scale: np.float32) -> tuple[Floats, float]:
    """Return the bonus of each list, and the depth, given the bonuses of some items, and which are not apart."""
    counts = np.count_nonzero(inside if sampled.min() > -np.inf else inside & (sampled > -np.inf), axis=1)
    highest = sampled.max(where=inside, initial=-np.inf)
    if highest == -np.inf:  # nothing is open but the items that are scored one by one
        return np.full(len(sampled), -np.inf, dtype=np.float32), 1.0
    chance = np.subtract(sampled, highest)
    chance *= scale
    np.exp(np.clip(chance, -_MOST_EXPONENT, _MOST_EXPONENT, out=chance), out=chance)
    mean = np.einsum("ij,ij->i", chance, inside) / np.maximum(counts, 1)
    by_list = np.where(counts > 0, highest + np.log(np.maximum(mean, _LEAST)) / scale, np.float32(-np.inf))
    # Relative to the list: of equal lists, each has 1.
    some = slice(None, None, _SAMPLE // _FEWER)
    chance, inside = chance[:, some] / np.maximum(mean, _LEAST)[:, None], inside[:, some]
    there = chance[inside]
    given_up = min(_GIVEN_UP * float(chance.sum()), _MOST_GIVEN_UP * float(there.sum()))
    # Those given up have more than the mean chance, so that they are a smaller share of the items.
    count = min(len(there), 1 + math.ceil(_MOST_GIVEN_UP * len(there)))
    largest = -np.sort(np.partition(-there, count - 1)[:count])
    last = largest[min(int(np.searchsorted(np.cumsum(largest), given_up)), count - 1)]
    # Those few with nearly all chances are not the best of every user, who may be interested in something else.
    usual = np.minimum(chance, _FEW_TIMES * last).mean()
    return by_list.astype(np.float32), max(1.0, float(last / usual))


def _nearly_descending(values: Floats) -> npt.NDArray[np.intp]:
    """Return an order from the largest value to the smallest, but for small differences.

    Whole numbers of 16 bits are sorted in a fraction of the time.
    """
    top, low = float(values.max(initial=-np.inf)), float(values.min(initial=np.inf))
    levels = (top - values) * np.float32(65_535 / max(top - low, 1e-30))
    return np.argsort(np.minimum(levels, 65_535).astype(np.uint16), kind="stable")
