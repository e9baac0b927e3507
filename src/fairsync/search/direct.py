"""Exact search for one request: all scores at once, without blocks, bundles and buffers.

A scan (:mod:`fairsync.search.scan`) is built for batches, whose scores do not fit in cache together. Those of one
request do, and calling numpy takes much of the time of a scan. This search scores all items in one product, with the
same bounds of rounding, and settles the few that come near the best in float64, so that it finds the same items, bit
for bit.
"""

import math

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.item_bonus import ItemBonus
from fairsync.search.products import is_streamed, multiply
from fairsync.search.restriction import lower_barred
from fairsync.search.rounding import Float32Items, prepare_query
from fairsync.search.scan import PIECE_VALUES
from fairsync.search.scoring import settle_one

# Up to this many scores stay in cache, and ties among all of them can be settled.
_MOST_ITEMS = 1 << 20
# Up to this many values (256 MB in float32) one vector is read past the items on one thread; more of them are shared
# among threads.
_MOST_VALUES = 1 << 26
# Several interests are several products here, and a single one, with matrices, in a scan: that is faster for more
# multiplications than this.
_MOST_PRODUCTS = 1 << 22
# The k-th best score is estimated from the best scores of bundles. With this many times k of them, few items are above
# the estimate.
_BUNDLES_PER_K = 4
# An estimate of how many items meet a condition is exceeded by this many standard deviations.
_DEVIATIONS = 4
_LOWEST = float(np.finfo(np.float32).min)


def is_direct(n: int, dim: int, interests: int) -> bool:
    """Return whether a direct search of n items takes no longer than a scan, and as little as 40 %.

    Examples
    --------
    >>> is_direct(300_000, 64, 1), is_direct(300_000, 64, 4), is_direct(3_000, 64, 4)
    (True, False, True)
    """
    return n <= _MOST_ITEMS and n * dim * interests <= (_MOST_VALUES if interests == 1 else _MOST_PRODUCTS)


def search_one(
    catalog: Catalog,
    items: Float32Items,
    item_bonus: ItemBonus,
    user: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64] | None,
    reference: float,
    goal: int,
    k: int,
    rows: npt.NDArray[np.int64] | None = None,
    eligible: Eligibility | None = None,
) -> Hits:
    """Find the best items for one user.

    Parameters
    ----------
    catalog, items, item_bonus
        The items, their float32 embeddings, and the cache of bonuses.
    user
        (interests, d) vectors, not all zero.
    prices, reference, goal
        Prices or None, and what `scoring.reference_price` says of them: at most ``goal`` items can be found, and at
        least one.
    k
        Length of the list, which is padded beyond ``goal``.
    rows
        The only rows to score, in ascending order. Defaults to all.
    eligible
        The items that the user may get. By default, or if rows are given, all that are scored.
    """
    columns, bonus, margin = prepare_query(items, user, prices, reference)
    scores = _scores(items.values, columns[:, :1], rows)
    for interest in range(1, columns.shape[1]):
        np.maximum(scores, _scores(items.values, columns[:, interest : interest + 1], rows), out=scores)
    if bonus is not None:
        scores += item_bonus.of(bonus)[: len(scores)] if rows is None else bonus.take(catalog.group_of.take(rows))
    found, best = None, min(goal, len(scores))
    if eligible is not None and rows is None:
        scores[eligible.excluded] = -np.inf
        if (chosen := eligible.selection(0)) is not None:
            # About this many of the best items hold enough that meet the condition. The others need no look.
            more = min(len(scores), math.ceil((goal + _DEVIATIONS * math.sqrt(goal)) / chosen.share))
            found, kth = _reaching(scores, more, margin)
            found = found[chosen.has(found)]
            if np.count_nonzero(scores[found] >= kth) < best:
                found = None
                lower_barred(chosen.mask, scores)
    if found is None:
        found, _ = _reaching(scores, best, margin)
    return settle_one(catalog, user, prices, k, found if rows is None else rows[found])


def _reaching(scores: npt.NDArray[np.float32], k: int, margin: float) -> tuple[npt.NDArray[np.int64], float]:
    """Return all items that may be among the best k, and a score that k of them reach."""
    kth = _kth_best(scores, k)
    # One step down, since float32 may round up; masked items score -inf and stay below.
    cut = np.nextafter(np.float32(max(kth - margin, _LOWEST)), np.float32(_LOWEST))
    return (scores >= cut).nonzero()[0], kth


def _scores(
    items: npt.NDArray[np.float32], column: npt.NDArray[np.float32], rows: npt.NDArray[np.int64] | None
) -> npt.NDArray[np.float32]:
    """Return the product of all items, or of some rows, with a vector, (d, 1)."""
    if rows is None:
        scores = np.empty(len(items), dtype=np.float32)
        multiply(items, column, scores[:, None], streamed=is_streamed(items, 1))
        return scores
    scores = np.empty(len(rows), dtype=np.float32)
    # Copied in pieces that stay in cache.
    step = max(1, PIECE_VALUES // items.shape[1])
    piece = np.empty((min(step, len(rows)), items.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        items.take(some, axis=0, out=piece[: len(some)], mode="clip")
        multiply(piece[: len(some)], column, scores[start : start + step, None])
    return scores


def _kth_best(scores: npt.NDArray[np.float32], k: int) -> float:
    """Return a score that k distinct items reach, close to the k-th best."""
    bundle = len(scores) // (_BUNDLES_PER_K * k)
    if bundle > 1:  # maxima of disjoint bundles are scores of distinct items
        size = len(scores) // bundle
        scores = scores[: size * bundle].reshape(bundle, size).max(axis=0)
    place = len(scores) - k
    return float(np.partition(scores, place)[place])
