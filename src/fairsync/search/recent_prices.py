"""Recent prices, recognised by one comparison: what was computed for prices is kept by the identity of an array."""

import numpy as np
import numpy.typing as npt

from fairsync.search.base import check_prices
from fairsync.search.rounding import same_values

_Prices = npt.NDArray[np.float64]

# The prices of the requests at hand, and those under which the guard searches again.
_KEPT = 3


class RecentPrices:
    """The prices of recent searches, checked and copied. Equal prices are one array, which nobody writes to.

    A caller may overwrite the array that it has given, so prices are compared by value. An array that is not writeable
    is recognised without a comparison, and not copied.

    Parameters
    ----------
    n_groups
        Number of groups.

    Examples
    --------
    >>> recent = RecentPrices(2)
    >>> prices = np.array([0.5, -0.5])
    >>> first = recent.of(prices)
    >>> recent.of(prices.copy()) is first, recent.of(first) is first, recent.of(np.zeros(2))
    (True, True, None)
    """

    def __init__(self, n_groups: int) -> None:
        self._n_groups = n_groups
        # Replaced as a whole, so that searches that run at the same time never see half of a change.
        self._kept: tuple[tuple[_Prices, _Prices], ...] = ()

    def of(self, prices: _Prices | None) -> _Prices | None:
        """Return the prices as an array that stays the same while they do; None if all are zero.

        Raises an error for prices without a meaning; see `check_prices`.
        """
        if prices is None:
            return None
        given, kept = np.asarray(prices, dtype=np.float64), self._kept
        for source, values in kept:
            if given is values or (given is source and not given.flags.writeable) or same_values(given, values):
                return values
        values = given
        if given.flags.writeable or given.base is not None:
            values = given.copy()
            values.flags.writeable = False
        if check_prices(values, self._n_groups) is None:
            return None
        self._kept = ((given, values), *kept[: _KEPT - 1])
        return values
