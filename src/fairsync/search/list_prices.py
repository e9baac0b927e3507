"""The prices of inverted lists. In a list that mixes groups, every item may have another price.

Near the top, the number of items above a score grows by a factor e for every `tail` that the score is lower. Then an
item whose bonus (minus the price) is b has exp(b / tail) chances to be among the best where one without a bonus has
one, and three things follow:

- A list is as promising as its *mean chance*: its bonus is tail · log(mean of exp(b / tail)) over its items, which lies
  between the mean and the largest bonus.
- Codes rank the items of all lists with the bonus of their list. An item whose own bonus is d larger is found among the
  best k · exp(d / tail) of these, divided by the mean chance of all items. This is how many are fetched.
- Few items have a bonus far above that of their list. These are taken out and scored one by one, so that far fewer are
  fetched for their sake.
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

# The share of the items that is scored one by one, because their bonus is far above that of their list: with more,
# fewer are fetched from lists. And the share that is in any case, because it is the highest: a group can be at home in
# a list with a higher bonus than those of its other items.
_APART_SHARE, _HIGHEST_SHARE = 0.015, 0.005
# What is known of a list's bonuses is known from this many of its items, or from fewer where that is enough. It saves a
# look at every item when prices change.
_SAMPLE, _FEWER = 64, 8
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
        The rows of the items to score one by one, a copy of their embeddings, and their
        bonuses with zeros to fill the last bundle of a scan.
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
    >>> priced = prices.of(np.arange(450, dtype=np.float32), tail=1.0)
    >>> priced.rows[:4].tolist(), priced.bonus.shape == lists.sizes.shape
    ([898, 899, 896, 897], True)
    """

    def __init__(self, lists: InvertedLists, items: Floats, group_rows: GroupRows, seed: int = 0) -> None:
        self._lists, self._items, self._group_rows = lists, items, group_rows
        self.is_mixed = bool(lists.group_of[0] == MIXED)
        # Replaced as a whole, so that searches that run at the same time never see half of a change. Two, because users
        # of very different length have other units.
        self._kept: tuple[tuple[Floats, float, ListBonuses], ...] = ()
        if not self.is_mixed:
            return
        rng = np.random.default_rng(seed)
        by_list, sizes = np.argsort(lists.list_of, kind="stable"), lists.sizes[:, None]
        drawn = np.cumsum(sizes)[:, None] - sizes + (rng.random((len(sizes), _SAMPLE)) * sizes).astype(np.int64)
        self._sampled = lists.groups[by_list[drawn]].astype(np.intp)
        # The list of the first item of each group. Groups are small, and their other items are mostly in lists with
        # similar bonuses.
        self._home = np.zeros(group_rows.n_groups, dtype=np.intp)
        self._home[lists.groups[::-1]] = lists.list_of[::-1]

    def of(self, bonus: Floats, tail: float) -> ListBonuses:
        """Return what lists need to know about prices.

        Parameters
        ----------
        bonus
            (G,) the bonus of each group, -inf where it is masked.
        tail
            How much lower a score is that e times as many items reach.
        """
        kept = self._kept
        for groups, known, found in kept:
            if known == tail and same_values(groups, bonus):
                return found
        found = self._find(bonus, tail)
        self._kept = ((bonus, tail, found), *kept[:1])
        return found

    def _find(self, bonus: Floats, tail: float) -> ListBonuses:
        if not self.is_mixed:
            none = np.empty(0, dtype=np.int64)
            return ListBonuses(bonus[self._lists.group_of], bonus, none, self._items[:0], bonus[:0])
        sampled = bonus.take(self._sampled, mode="clip")
        limit = _limits(sampled)
        groups = np.flatnonzero(bonus > limit.take(self._home))
        rest = bonus.copy()
        rest[groups] = -np.inf
        rows, sizes = self._group_rows.in_order(groups)
        high = np.repeat(bonus[groups], sizes)
        # Largest bonus first: a scan excludes items in bundles, by their best bonus.
        order = _nearly_descending(high)
        rows, row_bonus = rows[order], np.zeros(len(rows) + BUNDLE_OF_ONE, dtype=np.float32)
        row_bonus[: len(rows)] = high[order]
        by_list, depth = _chances(sampled, sampled <= limit[:, None], np.float32(1 / tail))
        share = float(np.count_nonzero(sampled > -np.inf) / sampled.size)
        return ListBonuses(by_list, rest, rows, self._items.take(rows, axis=0), row_bonus, share, depth)


def _limits(sampled: Floats) -> Floats:
    """Return (L,) the bonus above which an item is apart from its list, given the bonuses of some items of each."""
    is_open = sampled > -np.inf
    counts = np.count_nonzero(is_open, axis=1)
    all_open = counts.min() == sampled.shape[1]  # a condition takes time
    sums = sampled.sum(axis=1) if all_open else sampled.sum(axis=1, where=is_open)
    # Where no item of the sample is open, the list is not read: any open item is apart.
    means = np.full(len(sampled), -np.inf, dtype=np.float32)
    np.divide(sums, counts, out=means, where=counts > 0)
    some = slice(None, None, _SAMPLE // _FEWER)
    few = sampled[:, some]
    leads = np.subtract(few, means[:, None], out=np.full_like(few, -np.inf), where=is_open[:, some])
    highest: Floats = np.minimum(means + _upper(leads, _APART_SHARE), _upper(few, _HIGHEST_SHARE))
    return highest


def _upper(values: Floats, share: float) -> np.float32:
    """Return the value that this share of them exceeds."""
    flat = values.ravel()
    place = len(flat) - max(1, round(share * len(flat)))
    found: np.float32 = np.partition(flat, place)[place]
    return found


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
