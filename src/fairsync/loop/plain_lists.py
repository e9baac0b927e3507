"""What plain retrieval would have found, without prices and promises, as far as the lists under prices tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies import Terms
    from fairsync.search import Hits


def plain_relevance(
    k: int, n_items: int, prices: NDArray[np.float64], hits: Hits, groups: NDArray[np.int32]
) -> NDArray[np.float64] | None:
    """Return (n, k) upper bounds of the relevance that the candidates would have had without prices; None if unknown.

    The best k items may lie outside the list. An item outside has at most the list's last score plus the highest
    price, so that this value takes the place of lower ones. The bound is tight where the prices suit the data.
    """
    width = hits.rows.shape[1]
    highest = float(prices.max())
    if width == k < n_items or highest == np.inf:  # the list says nothing about masked items
        return None
    best = np.partition(hits.relevance, width - k, axis=1)[:, width - k :]
    if width < n_items:
        # -inf where the list has an empty place at its end: then there is no item outside.
        last = hits.relevance[:, -1] - prices[groups[:, -1]]
        np.maximum(best, (last + highest)[:, None], out=best)
    return best


def plain_sums(
    best: NDArray[np.float64], hits: Hits, whole: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float64], float]:
    """Return (n,) the relevance of each request without prices, and the sum, from the full lists and the short ones."""
    plain: NDArray[np.float64] = best.sum(axis=1)
    if whole is None:
        return plain, float(best.sum())
    short = hits.relevance[~whole]
    short = np.where(np.isfinite(short), short, 0.0)
    of_all = np.empty(len(whole))
    of_all[whole], of_all[~whole] = plain, short.sum(axis=1)
    return of_all, float(best.sum()) + float(short.sum())


def last_relevance(terms: Terms, best: NDArray[np.float64] | None) -> tuple[float, int] | None:
    """Return the mean relevance of the last candidate of full lists, and their number, if some promise has a limit."""
    if terms.max_prices is None or best is None or not best.size:
        return None
    return float(best.min(axis=1).mean()), len(best)
