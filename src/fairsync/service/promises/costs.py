"""The cost of promises compared with the least possible cost, on a sample of the requests that were answered.

No policy that decides requests as they come can give up less relevance than the best plan in hindsight, when all of
them are known (:mod:`fairsync.hindsight`). The sample holds the answers too, so that both costs are measured on the
same requests, and for the same exposures of the groups with a promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import FairSyncError
from fairsync.hindsight.dual_bound import dual_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.hindsight.priced_lists import Floats, Search
    from fairsync.search import Hits
    from fairsync.search.eligibility import Eligibility

# With more promised groups than this the solver, which holds a square matrix of them, takes too long.
MOST_GROUPS = 2_000
# Standard errors on either side of an estimate: a confidence interval of about 95 %.
_ERRORS = 2.0


@dataclass(frozen=True)
class Answered:
    """Requests with their answers.

    Attributes
    ----------
    users : numpy.ndarray
        (n, interests, d) user vectors.
    rows, relevance : numpy.ndarray
        (n, k) the candidates: rows of the catalog, and their relevance.
    eligible : Eligibility or None
        The items that each request may get; None for all items.
    """

    users: NDArray[np.floating[Any]]
    rows: NDArray[np.int64]
    relevance: Floats
    eligible: Eligibility | None = None


@dataclass(frozen=True)
class Costs:
    """The cost of promises on a sample, as shares of its relevance without promises.

    Attributes
    ----------
    share : float
        Relevance that was given up.
    least : float
        Relevance that any plan had to give up for the same exposures.
    ratio : tuple of float or None
        `share` over `least`, and its confidence interval for all requests; None if nothing had to be given up.
    groups : numpy.ndarray
        (G,) the parts of `share`: relevance lost where items of each group replaced better ones.
    natural : numpy.ndarray
        (G,) exposures per request without promises.
    prices : numpy.ndarray
        (G,) prices that prove `least`; a good start for the next estimate.
    requests : int
        Size of the sample.
    """

    share: float
    least: float | None
    ratio: tuple[float, float, float] | None
    groups: Floats
    natural: Floats
    prices: Floats
    requests: int


def estimate_costs(catalog: Catalog, search: Search, answered: Answered, asked: Floats | None, prices: Floats) -> Costs:
    """Return the cost of promises on these requests, and the least possible cost.

    Parameters
    ----------
    catalog, search
        The items; `Index.search`, or a function that yields the processors between searches.
    answered
        The sample.
    asked
        (G,) the share of each group's exposures that its promises asked for: 0 without a promise, 1 if it got no more
        than was promised. None if promises are about other selections than groups: then the least possible cost is not
        estimated.
    prices
        (G,) where the search for the least cost starts; the prices in force are near it.

    Examples
    --------
    Both requests prefer "big". The one that lost more relevance was answered with "small".

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6], [0.0, 0.0]], groups=["big", "small", "small"])
    >>> answered = Answered(np.eye(2)[:, None], np.array([[1], [0]]), np.array([[0.1], [0.8]]))
    >>> costs = estimate_costs(catalog, ExactIndex(catalog).search, answered, np.array([0.0, 1.0]), np.zeros(2))
    >>> round(costs.share * 1.7, 6), round(costs.least * 1.7, 6), costs.groups.round(3).tolist()
    (0.8, 0.2, [0.0, 0.471])
    """
    n, k = answered.rows.shape
    rules = () if answered.eligible is None else (answered.eligible,)
    best = search(answered.users, None, k, *rules)
    if (best.rows < 0).any():  # items have been sold out since, for example
        raise FairSyncError("fewer items are eligible now than when the requests were answered.")
    without = float(np.abs(best.relevance.sum()))
    # Where the search is approximate, an answer can be better than what it finds without prices.
    given_up = np.maximum(best.relevance.sum(axis=1) - answered.relevance.sum(axis=1), 0.0)
    needed, near = np.zeros(n), prices
    if asked is not None and given_up.any():
        needed, near = _needed(catalog, search, answered, asked, prices, best)
    total, least, scale = float(given_up.sum()), float(needed.sum()), without or 1.0
    return Costs(
        share=total / scale,
        least=None if asked is None else min(least, total) / scale,
        ratio=_ratio(given_up, needed),
        groups=_by_group(catalog, answered, best) / scale,
        natural=np.bincount(catalog.group_of[best.rows].ravel(), minlength=catalog.n_groups) / n,
        prices=near,
        requests=n,
    )


def _ratio(given_up: Floats, needed: Floats) -> tuple[float, float, float] | None:
    """Return the ratio of two sums over the same requests, and the ends of its confidence interval."""
    if not needed.sum() > 1e-9 * given_up.sum():
        return None
    ratio = float(given_up.sum() / needed.sum())
    error = float(np.std(given_up - ratio * needed) / needed.mean() / np.sqrt(len(needed)))
    return max(ratio, 1.0), max(ratio - _ERRORS * error, 1.0), max(ratio + _ERRORS * error, 1.0)


def _by_group(catalog: Catalog, answered: Answered, best: Hits) -> Floats:
    """Return (G,) the relevance lost to items of each group.

    In each request as many items came in as went out, and every item that went out is better than every one that came
    in. An item that came in has cost the mean relevance of those that went out, less its own; so the costs of a request
    add up to what it has lost.
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
    """Return (n,) what each request adds to the least possible cost, and (G,) the prices that prove it."""
    if np.count_nonzero(asked) > MOST_GROUPS:
        raise FairSyncError(f"{np.count_nonzero(asked):,} groups are too many.")
    groups = catalog.group_of[answered.rows]
    floors = asked * np.bincount(groups.ravel(), minlength=catalog.n_groups)
    plain, k = best.relevance.sum(axis=1), answered.rows.shape[1]
    bound = dual_bound(
        catalog, search, answered.users, k, floors, prices, float(plain.sum()), eligible=answered.eligible
    )
    needed = plain - bound.lists - (asked * bound.prices)[groups].sum(axis=1)
    # Never below zero: without subsidies, no relevance is given up.
    return (needed if needed.sum() > 0 else np.zeros(len(plain))), bound.prices
