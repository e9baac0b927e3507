"""Accuracy of candidate lists: recall, NDCG and hit rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.metrics.lists import as_lists, as_targets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.metrics.lists import Lists, Targets

# Number of comparisons at a time, which bounds memory.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of each request that has targets.

    The values of two policies on the same requests can be compared by a paired test.

    Attributes
    ----------
    requests : numpy.ndarray
        (m,) int64 indices of the requests that have targets. Requests without targets are left out.
    recall, ndcg, ndcg_of_hits, hit_rate : numpy.ndarray
        (m,) float64 values of the metric of that name for each request.
    """

    requests: NDArray[np.int64]
    recall: NDArray[np.float64]
    ndcg: NDArray[np.float64]
    ndcg_of_hits: NDArray[np.float64]
    hit_rate: NDArray[np.float64]

    def means(self) -> dict[str, float]:
        """Return {name of a metric: mean over the requests}."""
        names = ("recall", "ndcg", "ndcg_of_hits", "hit_rate")
        return {name: float(getattr(self, name).mean()) for name in names}


def accuracy_of_each(lists: Lists, targets: Targets, k: int | None = None) -> Accuracy:
    """Return all metrics of this module for each request.

    Parameters
    ----------
    lists
        (n, k) Items, best first. An item that is in a list twice counts once, at its first position.
    targets
        Relevant items of each request. Repeated items count once.
    k
        Use the first k items of each list. Defaults to all.

    Examples
    --------
    >>> each = accuracy_of_each([[3, 1], [5, 4], [1, 2]], [[1, 9], [], [2, 1]])
    >>> each.requests.tolist(), each.recall.tolist(), each.hit_rate.tolist()
    ([0, 2], [0.5, 1.0], [1.0, 1.0])
    """
    shown = as_lists(lists, k)
    rows, items = as_targets(targets, like=shown)
    n, width = shown.shape
    places = _places(shown, rows, items)
    found = places < width
    wanted = np.bincount(rows, minlength=n)
    hits = np.bincount(rows[found], minlength=n)
    gains = np.bincount(rows[found], weights=1 / np.log2(places[found] + 2), minlength=n)
    best = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, width + 2)))])  # of 0, 1, ... hits

    requests = np.flatnonzero(wanted)
    wanted, hits, gains = wanted[requests], hits[requests], gains[requests]
    return Accuracy(
        requests,
        recall=hits / wanted,
        # Rounding errors must not make a list better than the ideal one.
        ndcg=np.minimum(gains / best[np.minimum(wanted, width)], 1),
        ndcg_of_hits=np.minimum(gains / best[np.maximum(hits, 1)], 1),
        hit_rate=(hits > 0).astype(np.float64),
    )


def recall(lists: Lists, targets: Targets, k: int | None = None) -> float:
    r"""Return recall: the fraction of its targets that a list holds, mean over requests.

    .. math:: \frac{1}{T} \sum_t \frac{|L_K(u_t) \cap \hat I_{u_t}|}{|\hat I_{u_t}|}

    as in the paper [1]_, where :math:`\hat I` are the distinct targets of the T requests that have any.

    References
    ----------
    .. [1] "FairSync: Ensuring Amortized Group Exposure in Distributed Recommendation Retrieval", WWW 2024.

    Examples
    --------
    >>> recall([["a", "b"], ["c", "d"]], [{"b", "x"}, {"c"}])
    0.75
    """
    return float(accuracy_of_each(lists, targets, k).recall.mean())


def ndcg(lists: Lists, targets: Targets, k: int | None = None) -> float:
    r"""Return the normalised discounted cumulative gain (NDCG), which weighs hits at the top of a list more.

    .. math:: \frac{1}{T} \sum_t \frac{\sum_{p=1}^{K} [L_p(u_t) \in \hat I_{u_t}] / \log_2(p + 1)}
                                      {\sum_{p=1}^{\min(K, |\hat I_{u_t}|)} 1 / \log_2(p + 1)}

    This is the standard definition [1]_ [2]_: the ideal list has a target at each of its first positions.

    References
    ----------
    .. [1] Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    .. [2] ``ndcg_cut`` of trec_eval, which gives the same numbers.

    Examples
    --------
    >>> round(ndcg([[1, 8, 2]], [[1, 2, 3]]), 4)
    0.7039
    """
    return float(accuracy_of_each(lists, targets, k).ndcg.mean())


def ndcg_of_hits(lists: Lists, targets: Targets, k: int | None = None) -> float:
    r"""Return NDCG relative to the ideal order of the hits only, as the paper's program computes it.

    .. math:: \frac{1}{T} \sum_t \frac{\sum_{p=1}^{K} [L_p(u_t) \in \hat I_{u_t}] / \log_2(p + 1)}
                                      {\sum_{p=1}^{H_t} 1 / \log_2(p + 1)},
              \quad H_t = |L_K(u_t) \cap \hat I_{u_t}|

    and 0 without hits. The program of the paper's authors [1]_ computes this and calls it NDCG, so their tables
    contain it. It is never below :func:`ndcg`, and a list with one of many targets at its top has 1. Use it only to
    compare with those tables.

    References
    ----------
    .. [1] "FairSync: Ensuring Amortized Group Exposure in Distributed Recommendation Retrieval", WWW 2024.

    Examples
    --------
    >>> round(ndcg_of_hits([[1, 8, 2]], [[1, 2, 3]]), 4)
    0.9197
    """
    return float(accuracy_of_each(lists, targets, k).ndcg_of_hits.mean())


def hit_rate(lists: Lists, targets: Targets, k: int | None = None) -> float:
    r"""Return the hit rate: the fraction of requests whose list holds at least one target.

    .. math:: \frac{1}{T} \sum_t \left[\, |L_K(u_t) \cap \hat I_{u_t}| > 0 \,\right]

    as in the paper [1]_, over the T requests that have targets.

    References
    ----------
    .. [1] "FairSync: Ensuring Amortized Group Exposure in Distributed Recommendation Retrieval", WWW 2024.

    Examples
    --------
    >>> hit_rate([[1, 2], [3, 4]], [[2, 1, 9], [5]])
    0.5
    """
    return float(accuracy_of_each(lists, targets, k).hit_rate.mean())


def _places(lists: NDArray[Any], rows: NDArray[np.int64], items: NDArray[Any]) -> NDArray[np.int64]:
    """Return the first position of each target in the list of its request, or the lists' width if it is not there.

    Each list is compared with each of its targets. They are few, and this is several times faster than searching.
    """
    width = lists.shape[1]
    places = np.empty(len(rows), dtype=np.int64)
    step = max(1, _BLOCK // width)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        same = lists[rows[block]] == items[block, None]
        places[block] = np.where(same.any(axis=1), same.argmax(axis=1), width)
    return places
