"""Exact search for one request in a small catalog: all scores at once, without blocks, bundles and buffers.

A scan (:mod:`fairsync.search.scan`) is built for catalogs that do not fit in cache. Where they do, calling numpy takes
most of its time. This search scores all items in one product, with the same bounds of rounding, and settles the few
that come near the best in float64, so that it finds the same items, bit for bit.
"""

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.rounding import Float32Items, prepare_query
from fairsync.search.scan import PANEL_PRODUCTS_OF_ONE, ItemBonus
from fairsync.search.scoring import settle_one

# Up to this many values of embeddings (8 MB in float32) a direct search is faster than a scan, by 1.5 to 5 times.
_MOST_VALUES = 1 << 21
# With more items, ties among many of them would take too long to settle.
_MOST_ITEMS = 1 << 15
# The k-th best score is estimated from the best scores of bundles. With this many times k of them, few items are above
# the estimate.
_BUNDLES_PER_K = 4
_LOWEST = float(np.finfo(np.float32).min)


def is_small(items: Float32Items) -> bool:
    """Return whether a direct search is faster than a scan."""
    return items.values.size <= _MOST_VALUES and len(items.values) <= _MOST_ITEMS


def search_one(
    catalog: Catalog,
    items: Float32Items,
    item_bonus: ItemBonus,
    user: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64] | None,
    reference: float,
    goal: int,
    k: int,
) -> Hits:
    """Find the best items for one user.

    Parameters
    ----------
    catalog, items, item_bonus
        The items, their float32 embeddings, and the cache of bonuses.
    user
        (interests, d) vectors, not all zero.
    prices, reference, goal
        Prices or None, and what `scoring.reference_price` says of them: ``goal`` items can be found, at least one.
    k
        Length of the list, which is padded beyond ``goal``.
    """
    n = len(catalog)
    columns, bonus, margin = prepare_query(items, user, prices, reference)
    scores = _product(items.values, columns[:, 0])
    for interest in range(1, columns.shape[1]):
        np.maximum(scores, _product(items.values, columns[:, interest]), out=scores)
    if bonus is not None:
        scores += item_bonus.of(bonus)[:n]
    cut = max(_kth_best(scores, goal) - margin, _LOWEST)
    # One step down, since float32 may round up; masked items score -inf and stay below.
    rows = (scores >= np.nextafter(np.float32(cut), np.float32(_LOWEST))).nonzero()[0]
    return settle_one(catalog, user, prices, k, rows)


def _product(items: npt.NDArray[np.float32], column: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return (n,) the product of all items with a vector, in panels that BLAS computes on the calling thread."""
    n, dim = items.shape
    panel = max(1, PANEL_PRODUCTS_OF_ONE // dim)
    whole = n // panel * panel
    scores = np.empty(n, dtype=np.float32)
    # All values are finite, but BLAS may compute with what an earlier product left in its buffers, and discard it.
    with np.errstate(invalid="ignore"):
        if whole:
            np.matmul(items[:whole].reshape(-1, panel, dim), column, out=scores[:whole].reshape(-1, panel))
        if whole < n:
            np.matmul(items[whole:], column, out=scores[whole:])
    return scores


def _kth_best(scores: npt.NDArray[np.float32], k: int) -> float:
    """Return a score that k distinct items reach, close to the k-th best."""
    bundle = len(scores) // (_BUNDLES_PER_K * k)
    if bundle > 1:  # maxima of disjoint bundles are scores of distinct items
        size = len(scores) // bundle
        scores = scores[: size * bundle].reshape(bundle, size).max(axis=0)
    place = len(scores) - k
    return float(np.partition(scores, place)[place])
