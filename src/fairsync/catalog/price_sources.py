"""The prices of promises that prices of atoms are the sums of.

There can be a hundred times as many atoms as promises. Bounds of their prices, and of how much these have changed,
follow from the prices of promises without a look at every atom.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Membership


@dataclass(frozen=True, eq=False)
class PriceSource:
    """Prices of promises, from which prices of atoms were made.

    Attributes
    ----------
    membership : Membership
        The promises of each atom.
    prices : numpy.ndarray
        (P + 1,) the price of each promise, and a zero for atoms that have none.
    """

    membership: Membership
    prices: NDArray[np.float64]

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """A lower and an upper bound of the prices of atoms; both are 0 if all prices of promises are."""
        # Rounding is monotonic, and each atom's prices are added in the same order: it cannot break the bounds.
        low = high = 0.0
        for codes in self.membership.codes_by_place:
            some = self.prices.take(codes)
            low, high = low + float(some.min()), high + float(some.max())
        return low, high

    def change(self, before: PriceSource) -> float | None:
        """Return an upper bound of the change of an atom's price; None if the atoms were others.

        It is NaN or infinite if a promise is masked.
        """
        if before.membership is not self.membership:
            return None
        with np.errstate(invalid="ignore"):
            changes = np.abs(self.prices - before.prices)
        return float(sum(changes.take(codes).max() for codes in self.membership.codes_by_place))


# By the identity of the array that holds the prices of atoms, as long as that exists.
_sources: dict[int, tuple[weakref.ref[NDArray[np.float64]], PriceSource]] = {}


def note_source(prices: NDArray[np.float64], source: PriceSource) -> None:
    """Note what prices of atoms, an array that is not writeable, were made from."""
    key = id(prices)
    _sources[key] = weakref.ref(prices, lambda _: _sources.pop(key, None)), source


def source_of(prices: NDArray[np.float64]) -> PriceSource | None:
    """Return what prices of atoms were made from; None if that is unknown.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> membership = Membership.of([(0,), (1,), (0, 2)], 3)
    >>> prices = membership.atom_prices(np.array([-0.5, 0.25, -1.0]))
    >>> source = source_of(prices)
    >>> source.bounds, source_of(prices.copy())
    ((-1.5, 0.25), None)
    """
    noted = _sources.get(id(prices))
    return noted[1] if noted is not None and noted[0]() is prices and not prices.flags.writeable else None
