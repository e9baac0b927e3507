"""The range of prices, found once for prices that cannot change."""

import numpy as np
import numpy.typing as npt

from fairsync.catalog.price_sources import source_of

_Prices = npt.NDArray[np.float64]

# Prices of recent calls. The tuple is replaced as a whole, so that searches that run at the same time never see half of
# a change.
_recent: tuple[tuple[_Prices, tuple[float, float]], ...] = ()
_MOST_RECENT = 4
_BLOCK = 1 << 15


def price_range(prices: _Prices) -> tuple[float, float]:
    """Return the lowest and the highest price: NaN if one of them is NaN, zeros if there are none.

    There can be as many prices as items, and several steps of a search ask for their range. For an array that is not
    writeable it is found once. Prices of atoms are not looked at: the range is the one that follows from the prices of
    promises, and can be wider.

    Examples
    --------
    >>> price_range(np.array([0.5, np.inf, -1.0]))
    (-1.0, inf)
    """
    global _recent
    source = source_of(prices)
    if source is not None:
        return source.bounds
    recent = _recent  # read once: another thread may replace it
    for known, found in recent:
        if known is prices:
            return found
    # In blocks that stay in cache, so that memory is read once.
    blocks = [prices[start : start + _BLOCK] for start in range(0, len(prices), _BLOCK)]
    found = (0.0, 0.0)
    if blocks:
        found = float(np.min([block.min() for block in blocks])), float(np.max([block.max() for block in blocks]))
    if not prices.flags.writeable and prices.base is None:
        _recent = ((prices, found), *recent[: _MOST_RECENT - 1])
    return found
