"""The bonus of each item, minus the price of its group: of all items, or of the few with the highest."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairsync.search.group_rows import GroupRows
from fairsync.search.rounding import same_values

_Floats = npt.NDArray[np.float32]

PADDING = 32
"""The number of zeros behind the bonuses of items: the length of the longest bundle of a scan."""

# The share of the items that have high bonuses, measured on some items.
_HIGH_SHARE, _MEASURED = 0.005, 1 << 14


@dataclass(frozen=True)
class HighBonuses:
    """The items with the highest bonuses, and what the others have at most.

    Attributes
    ----------
    others : float
        The bonus that no other item exceeds.
    rows, items, bonus : numpy.ndarray
        The rows of the items with higher bonuses, in ascending order, a copy of their embeddings, and their bonuses.
    """

    others: np.float32
    rows: npt.NDArray[np.int64]
    items: _Floats
    bonus: _Floats


class ItemBonus:
    """The bonuses of items under prices, kept for the requests under the same prices.

    If there are few groups, a batch looks up bonuses during its pass over the items. For a single request that lookup
    would be a twentieth of the work, and if there are many groups, a fifth of the work of a batch: a table of their
    bonuses does not stay in cache beside the items. Then either the bonuses of all items are looked up before the pass,
    or only the highest are, and during the pass those of the items that come near the best without a bonus.

    Parameters
    ----------
    items
        (n, d) the embeddings.
    group_of
        (n,) the group of each item.
    group_rows
        The rows of each group.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(300), np.arange(300))
    >>> items = ItemBonus(catalog.embeddings, catalog.group_of, GroupRows(catalog))
    >>> bonus = np.zeros(300, dtype=np.float32)
    >>> bonus[7] = 0.5
    >>> items.of(bonus)[6:9].tolist(), items.high(bonus).rows.tolist(), float(items.high(bonus).others)
    ([0.0, 0.5, 0.0], [7], 0.0)
    """

    def __init__(self, items: _Floats, group_of: npt.NDArray[np.signedinteger], group_rows: GroupRows) -> None:
        self.group_of, self._items, self._group_rows = group_of, items, group_rows
        self._sample = group_of[:: -(-len(group_of) // _MEASURED)].copy()
        # Two entries each: for users of very different length the same prices come in two units. A tuple is replaced as
        # a whole, so that searches that run at the same time never see half of a change.
        self._spread: tuple[tuple[_Floats, _Floats], ...] = ()
        self._high: tuple[tuple[_Floats, HighBonuses], ...] = ()

    def of(self, bonus: _Floats) -> _Floats:
        """Return the bonus of each item, given that of each group, with zeros to fill the last bundle of a scan."""
        for groups, spread in self._spread:
            if same_values(groups, bonus):
                return spread
        spread = np.zeros(len(self.group_of) + PADDING, dtype=np.float32)
        np.take(bonus, self.group_of, mode="clip", out=spread[: len(self.group_of)])
        self._spread = ((bonus, spread), *self._spread[:1])
        return spread

    def high(self, bonus: _Floats) -> HighBonuses:
        """Return the highest bonuses of items, given the bonus of each group."""
        for groups, found in self._high:
            if same_values(groups, bonus):
                return found
        sample = bonus.take(self._sample, mode="clip")
        place = int((1 - _HIGH_SHARE) * (len(sample) - 1))
        others = np.partition(sample, place)[place]
        rows = self._group_rows.of(np.flatnonzero(bonus > others))
        items = self._items.take(rows, axis=0, mode="clip")
        found = HighBonuses(others, rows, items, bonus.take(self.group_of.take(rows), mode="clip"))
        self._high = ((bonus, found), *self._high[:1])
        return found
