"""What fairness costs next to the least possible, on a sample of the requests that were answered.

No way of answering requests as they come can give up less relevance than the best plan made in hindsight, when all of
them are known (:mod:`fairsync.hindsight`). For each request of the sample it is known what was answered; so both are
found on the same requests, and for the same exposures of the groups that were promised any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.dual import Pool, descend
from fairsync.errors import FairSyncError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.search import Hits

    Floats = NDArray[np.float64]
    Search = Callable[[NDArray[np.floating[Any]], Floats | None, int], Hits]

# Lists hold so many times k, and no less: subsidies can move between searches.
_FETCH, _LEAST = 4, 40
# Searches of the whole sample, and what is worth another one: part of the cost.
_ROUNDS, _WORTH = 6, 0.005
# The solver keeps a square of this.
_MOST_GROUPS = 2_000
# Standard errors on either side that hold the true value nearly always.
_ERRORS = 2.0


@dataclass(frozen=True)
class Answered:
    """Requests and what was answered to them.

    Attributes
    ----------
    users : numpy.ndarray
        (n, interests, d)
    rows, relevance : numpy.ndarray
        (n, k) the candidates.
    """

    users: NDArray[np.floating[Any]]
    rows: NDArray[np.int64]
    relevance: Floats


@dataclass(frozen=True)
class Costs:
    """What promises have cost on a sample, as shares of its relevance without any.

    Attributes
    ----------
    share : float
        What was given up.
    least : float
        What had to be given up for the same exposures.
    ratio : tuple of float or None
        The first over the second, and where it lies on all requests, most probably; None where nothing was given up.
    groups : numpy.ndarray
        (G,) the parts of `share`: what was lost where items of each group took the place of better ones.
    natural : numpy.ndarray
        (G,) exposures per request, were nothing promised.
    prices : numpy.ndarray
        (G,) of the least possible; near them the next search for it may start.
    requests : int
        In the sample.
    """

    share: float
    least: float
    ratio: tuple[float, float, float] | None
    groups: Floats
    natural: Floats
    prices: Floats
    requests: int


def estimate_costs(catalog: Catalog, search: Search, answered: Answered, asked: Floats, prices: Floats) -> Costs:
    """Return what promises have cost on these requests, and what they had to cost.

    Parameters
    ----------
    catalog, search
        The items; `Index.search`, or something that does the same more gently.
    answered
        The sample.
    asked
        (G,) of the exposures of each group, the share that a promise asked for: 0 where it has none, 1 where it has had
        no more than was promised.
    prices
        (G,) under which they were answered, more or less: where to start.

    Examples
    --------
    Both requests prefer "big". The one that lost more was answered with "small".

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6], [0.0, 0.0]], groups=["big", "small", "small"])
    >>> answered = Answered(np.eye(2)[:, None], np.array([[1], [0]]), np.array([[0.1], [0.8]]))
    >>> costs = estimate_costs(catalog, ExactIndex(catalog).search, answered, np.array([0.0, 1.0]), np.zeros(2))
    >>> round(costs.share * 1.7, 6), round(costs.least * 1.7, 6), costs.groups.round(3).tolist()
    (0.8, 0.2, [0.0, 0.471])
    """
    n, k = answered.rows.shape
    best = search(answered.users, None, k)
    without = float(np.abs(best.relevance.sum()))
    # Where the search is approximate, an answer can be better than what it finds without prices.
    given_up = np.maximum(best.relevance.sum(axis=1) - answered.relevance.sum(axis=1), 0.0)
    needed, near = np.zeros(n), prices
    if given_up.any():
        needed, near = _needed(catalog, search, answered, asked, prices, best)
    total, least, scale = float(given_up.sum()), float(needed.sum()), without or 1.0
    return Costs(
        share=total / scale,
        least=min(least, total) / scale,
        ratio=_ratio(given_up, needed),
        groups=_by_group(catalog, answered, best) / scale,
        natural=np.bincount(catalog.group_of[best.rows].ravel(), minlength=catalog.n_groups) / n,
        prices=near,
        requests=n,
    )


def _ratio(given_up: Floats, needed: Floats) -> tuple[float, float, float] | None:
    """Return the ratio of two sums over the same requests, and how far off it may be."""
    if not needed.sum() > 1e-9 * given_up.sum():
        return None
    ratio = float(given_up.sum() / needed.sum())
    error = float(np.std(given_up - ratio * needed) / needed.mean() / np.sqrt(len(needed)))
    return max(ratio, 1.0), max(ratio - _ERRORS * error, 1.0), max(ratio + _ERRORS * error, 1.0)


def _by_group(catalog: Catalog, answered: Answered, best: Hits) -> Floats:
    """Return (G,) the relevance lost to items of each group.

    In each request, as many items came in as had to go, and every one of these is better than each of those. An item
    that came in has cost the mean of those that went, less its own; so the sum is what the request has lost.
    """
    place = np.arange(len(answered.rows))[:, None] * len(catalog)
    came = ~np.isin(answered.rows + place, best.rows + place)
    went = ~np.isin(best.rows + place, answered.rows + place)
    mean = (best.relevance * went).sum(axis=1) / np.maximum(went.sum(axis=1), 1)
    lost = np.where(came, np.maximum(mean[:, None] - answered.relevance, 0.0), 0.0)
    groups = catalog.group_of[answered.rows]
    return np.bincount(groups.ravel(), lost.ravel(), catalog.n_groups).astype(np.float64)


def _needed(
    catalog: Catalog, search: Search, answered: Answered, asked: Floats, prices: Floats, best: Hits
) -> tuple[Floats, Floats]:
    """Return (n,) what each request adds to the least possible cost, and (G,) the prices that lead to it.

    Under any subsidies at all, the best lists less the subsidies that the floors earn are worth more than any plan that
    meets the floors. So every step gives a cost that no plan can be below, and the highest of them counts.
    """
    n, k = answered.rows.shape
    width = min(max(_FETCH * k, _LEAST), len(catalog))
    promised = np.flatnonzero(asked > 0)
    if width == k or len(promised) == 0:
        return np.zeros(n), prices
    if len(promised) > _MOST_GROUPS:
        raise FairSyncError(f"{len(promised):,} groups are too many.")
    # Groups without a promise have no subsidy: to the solver they are all one.
    code = np.zeros(catalog.n_groups, dtype=np.intp)
    code[promised] = 1 + np.arange(len(promised))
    share = np.concatenate([[0.0], asked[promised]])
    groups = code[catalog.group_of[answered.rows]]
    floors: Floats = share * np.bincount(groups.ravel(), minlength=len(share)).astype(np.float64)
    plain, bold, lowest = best.relevance.sum(axis=1), 1.0, np.inf
    subsidies = np.concatenate([[0.0], np.clip(-prices[promised], 0.0, 1e30)])
    needed, under = np.zeros(n), np.zeros(catalog.n_groups)
    known: tuple[Pool, Floats] | None = None
    for _ in range(_ROUNDS):
        if known is not None:
            pool, subsidies = known
            subsidies = descend(pool, subsidies, reach=bold * pool.spread(subsidies), near=4.0 * len(floors))
        tried = np.where(asked > 0, -subsidies[code], 0.0)
        hits = search(answered.users, tried, width)
        pool = Pool(hits.relevance, code[catalog.group_of[hits.rows]], k, floors)
        here = pool.best(subsidies)
        gained, lowest = lowest - here.value, min(here.value, lowest)
        if gained > 0:
            known, under = (pool, subsidies), tried
            lists = np.where(here.inside, here.priced, 0.0).sum(axis=1)
            needed = plain - lists + (share * subsidies)[groups].sum(axis=1)
        else:  # it went where the lists knew too little
            bold /= 4
        if abs(gained) < _WORTH * (float(plain.sum()) - lowest):
            break
    # Below none: without subsidies, the floors are met for nothing.
    return (needed if needed.sum() > 0 else np.zeros(n)), under
