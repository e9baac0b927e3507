"""The lowest and the highest price, found once for prices that cannot change."""

import numpy as np
import numpy.typing as npt

_Prices = npt.NDArray[np.float64]

# Prices of recent calls. The tuple is replaced as a whole, so that searches that run at the same time never see half of
# a change.
_recent: tuple[tuple[_Prices, tuple[float, float]], ...] = ()
_MOST_RECENT = 4


def price_range(prices: _Prices) -> tuple[float, float]:
    """Return the lowest and the highest price: NaN if one of them is NaN, zeros if there are none.

    There can be as many prices as items, and several steps of a search ask for their range. For an array that is not
    writeable it is found once.

    Examples
    --------
    >>> price_range(np.array([0.5, np.inf, -1.0]))
    (-1.0, inf)
    """
    global _recent
    recent = _recent  # read once: another thread may replace it
    for known, found in recent:
        if known is prices:
            return found
    found = (float(prices.min()), float(prices.max())) if len(prices) else (0.0, 0.0)
    if not prices.flags.writeable and prices.base is None:
        _recent = ((prices, found), *recent[: _MOST_RECENT - 1])
    return found
