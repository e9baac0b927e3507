"""The prices of inverted lists. In a list that mixes groups, every item may have another price.

Its items with the largest bonus (minus the price) are taken out and scored one by one, whatever list they are in. The
others score about as the mean of their list. Suppose that a share s of the n items is taken out: the k-th best of these
alone is about as relevant as one in s·n/k. An item that was left has a lower bonus, so it must be more relevant to be
among the best k: it is one of the k/s most relevant items, however large or uneven the prices are. So the lists are
read as if there were no prices, only somewhat deeper.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.search.group_rows import GroupRows
from fairsync.search.inverted_lists import MIXED, InvertedLists
from fairsync.search.rounding import same_values
from fairsync.search.scan import BUNDLE_OF_ONE

Floats: TypeAlias = npt.NDArray[np.float32]

# The share of the items that is scored one by one. With more, the lists are read less deep.
_BEST_SHARE = 0.02
# The mean of a list is estimated from this many of its items. It saves a look at every item when prices change.
_SAMPLE = 32
_SAMPLE_FOR_BEST = 1 << 14
_FEW_BEYOND = 0.04


@dataclass(frozen=True)
class ListBonuses:
    """What a search of inverted lists needs to know about prices.

    Attributes
    ----------
    bonus : numpy.ndarray
        (L,) the bonus of each list: that of its group, or the mean of its open items that are not in ``rows``.
    above : float
        Items with a bonus above this are in ``rows``.
    rows, items, row_bonus : numpy.ndarray
        The rows of the items to score one by one, a copy of their embeddings, and their bonuses with zeros to fill
        the last bundle of a scan.
    open_share : float
        The share of the items that is not masked.
    spread : float
        Few of the other items have a bonus that is further above that of their list.
    """

    bonus: Floats
    above: float
    rows: npt.NDArray[np.int64]
    items: Floats
    row_bonus: Floats
    open_share: float = 1.0
    spread: float = 0.0


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

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32), np.arange(900) // 2)
    >>> lists = InvertedLists.of(catalog.embeddings, catalog.group_of)
    >>> priced = ListPrices(lists, catalog.embeddings, GroupRows(catalog)).of(np.arange(450, dtype=np.float32))
    >>> priced.rows[:4].tolist(), priced.bonus.shape == lists.sizes.shape
    ([898, 899, 896, 897], True)
    """

    def __init__(self, lists: InvertedLists, items: Floats, group_rows: GroupRows, seed: int = 0) -> None:
        self._lists, self._items, self._group_rows = lists, items, group_rows
        self.is_mixed = bool(lists.group_of[0] == MIXED)  # either all lists mix groups, or none does
        # Replaced as a whole, so that searches that run at the same time never see half of a change. Two, because users
        # of very different length have other units.
        self._kept: tuple[tuple[Floats, ListBonuses], ...] = ()
        if not self.is_mixed:
            return
        rng = np.random.default_rng(seed)
        by_list, sizes = np.argsort(lists.list_of, kind="stable"), lists.sizes[:, None]
        drawn = np.cumsum(sizes)[:, None] - sizes + (rng.random((len(sizes), _SAMPLE)) * sizes).astype(np.int64)
        self._sampled = lists.groups[by_list[drawn]].astype(np.intp)
        self._some = rng.choice(lists.groups, min(_SAMPLE_FOR_BEST, len(lists.groups)), replace=False).astype(np.intp)

    def of(self, bonus: Floats) -> ListBonuses:
        """Return what lists need to know about prices, given the bonus of each group, -inf where it is masked."""
        kept = self._kept
        for groups, found in kept:
            if same_values(groups, bonus):
                return found
        found = self._find(bonus)
        self._kept = ((bonus, found), *kept[:1])
        return found

    def _find(self, bonus: Floats) -> ListBonuses:
        if not self.is_mixed:
            none = np.empty(0, dtype=np.int64)
            return ListBonuses(bonus[self._lists.group_of], np.inf, none, self._items[:0], bonus[:0])
        some = bonus.take(self._some)
        place = len(some) - max(1, round(_BEST_SHARE * len(some)))
        above = np.partition(some, place)[place]
        groups = np.flatnonzero(bonus > above)
        # Largest bonus first: a scan excludes items in bundles, by their best bonus.
        high = bonus[groups]
        order = _nearly_descending(high)
        rows, sizes = self._group_rows.in_order(groups[order])
        row_bonus = np.zeros(len(rows) + BUNDLE_OF_ONE, dtype=np.float32)
        row_bonus[: len(rows)] = np.repeat(high[order], sizes)
        sampled = bonus.take(self._sampled)
        there = (sampled > -np.inf) & (sampled <= above)
        counts = np.count_nonzero(there, axis=1)
        means = np.where(there, sampled, np.float32(0.0)).sum(axis=1) / np.maximum(counts, 1)
        by_list = np.where(counts > 0, means, np.float32(-np.inf)).astype(np.float32)
        share = float(np.count_nonzero(some > -np.inf) / len(some))
        step = max(1, sampled.size // _SAMPLE_FOR_BEST)
        beyond = (sampled[::step] - by_list[::step, None])[there[::step]]
        place = len(beyond) - 1 - int(_FEW_BEYOND * len(beyond))
        spread = float(np.partition(beyond, place)[place]) if len(beyond) else 0.0
        items = self._items.take(rows, axis=0)
        return ListBonuses(by_list, float(above), rows, items, row_bonus, share, spread)


def _nearly_descending(values: Floats) -> npt.NDArray[np.intp]:
    """Return an order from the largest value to the smallest, but for small differences.

    Whole numbers of 16 bits are sorted in a fraction of the time.
    """
    top, low = float(values.max(initial=-np.inf)), float(values.min(initial=np.inf))
    levels = (top - values) * np.float32(65_535 / max(top - low, 1e-30))
    return np.argsort(np.minimum(levels, 65_535).astype(np.uint16), kind="stable")
