"""The cost of promises compared with the least possible cost, on a sample of the requests that were answered.

No policy that decides requests as they come can give up less relevance than the best plan in hindsight, when all of
them are known (:mod:`fairsync.hindsight`). The sample holds the answers too, so that both costs are measured on the
same requests, and for the same exposures of the selections with a promise.

A promise that was never subsidised has no price that says what its exposures cost. But the requests of the sample say
what they would have lost: beside the best list without promises, the best items of the selection that are not in it
take the places of its worst items of other selections. What is lost grows with every place, so that the cheapest places
of all requests, as many as are missing, are the least that these exposures would have cost if nothing else had been
promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import FairSyncError
from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.dual_bound import promised_bound
from fairsync.hindsight.limited_lists import ListLimits
from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.atoms import Membership
    from fairsync.hindsight.priced_lists import Floats, Search
    from fairsync.search import Hits
    from fairsync.search.eligibility import Eligibility

MOST_BOUNDS = 2_000
"""Bounds of promises that the least cost is estimated for, at most: the solver holds a square matrix of them."""
SCORES_AT_ONCE = 2_500_000
"""Scores computed by one search, about ten milliseconds' work."""
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


def stack_users(users: Sequence[NDArray[np.floating[Any]]]) -> NDArray[np.floating[Any]]:
    """Return (n, interests, d) user vectors, of users who have several interests each."""
    # An item's relevance is its best over the interests: repeating one changes nothing.
    interests = max(map(len, users))
    return np.stack([np.pad(user, ((0, interests - len(user)), (0, 0)), mode="edge") for user in users])


@dataclass(frozen=True)
class Asked:
    """What promises asked for in the present period.

    Attributes
    ----------
    atom_of : numpy.ndarray
        (n,) the atom of each item.
    membership : Membership
        The columns of each atom; of groups, each is an atom.
    floors : numpy.ndarray
        (P,) the share of the exposures of each column that floors asked for: 0 without one, 1 if it got no more.
    caps : numpy.ndarray
        (P,) what caps allow, as a multiple of the exposures of each column, at least 1; inf without one.
    list_limits : numpy.ndarray or None
        (P,) the most items in one list; None if there is no limit.
    """

    atom_of: NDArray[np.integer[Any]]
    membership: Membership
    floors: Floats
    caps: Floats
    list_limits: NDArray[np.int64] | None = None


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
        (P,) the parts of `share`: relevance lost where items of each column replaced better ones. An item may count in
        several.
    natural : numpy.ndarray
        (P,) exposures per request without promises.
    prices : numpy.ndarray
        (P,) prices that prove `least`; a good start for the next estimate.
    requests : int
        Size of the sample.
    """

    share: float
    least: float
    ratio: tuple[float, float, float] | None
    groups: Floats
    natural: Floats
    prices: Floats
    requests: int


def estimate_costs(search: Search, answered: Answered, asked: Asked, prices: Floats) -> Costs:
    """Return the cost of promises on these requests, and the least possible cost.

    Parameters
    ----------
    search
        `Index.search` of the items with prices by atom, or a function that yields the processors between searches.
    answered
        The sample.
    asked
        What the promises asked for.
    prices
        (P,), by column, where the search for the least cost starts; the prices in force are near it.

    Examples
    --------
    Both requests prefer "big". The one that lost more relevance was answered with "small", which was promised.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.search import ExactIndex
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6], [0.0, 0.0]], groups=["big", "small", "small"])
    >>> answered = Answered(np.eye(2)[:, None], np.array([[1], [0]]), np.array([[0.1], [0.8]]))
    >>> groups, no_caps = Membership.of([(0,), (1,)], 2), np.full(2, np.inf)
    >>> asked = Asked(catalog.group_of, groups, np.array([0.0, 1.0]), no_caps)
    >>> costs = estimate_costs(ExactIndex(catalog).search, answered, asked, np.zeros(2))
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
    if given_up.any():
        needed, near = _needed(search, answered, asked, prices, best)
    membership, atom_of = asked.membership, asked.atom_of
    natural = np.bincount(atom_of[best.rows].ravel(), minlength=membership.n_atoms).astype(np.float64)
    total, least, scale = float(given_up.sum()), float(needed.sum()), without or 1.0
    return Costs(
        share=total / scale,
        least=min(least, total) / scale,
        ratio=_ratio(given_up, needed),
        groups=membership.sums(_by_atom(asked, answered, best)) / scale,
        natural=membership.sums(natural) / n,
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


def _by_atom(asked: Asked, answered: Answered, best: Hits) -> Floats:
    """Return (A,) the relevance lost to items of each atom.

    In each request as many items came in as went out, and every item that went out is better than every one that came
    in. An item that came in has cost the mean relevance of those that went out, less its own; so the costs of a request
    add up to what it has lost.
    """
    place = np.arange(len(answered.rows))[:, None] * len(asked.atom_of)
    came = ~np.isin(answered.rows + place, best.rows + place)
    went = ~np.isin(best.rows + place, answered.rows + place)
    mean = (best.relevance * went).sum(axis=1) / np.maximum(went.sum(axis=1), 1)
    lost = np.where(came, np.maximum(mean[:, None] - answered.relevance, 0.0), 0.0)
    atoms = asked.atom_of[answered.rows].ravel()
    return np.bincount(atoms, lost.ravel(), asked.membership.n_atoms).astype(np.float64)


def _needed(search: Search, answered: Answered, asked: Asked, prices: Floats, best: Hits) -> tuple[Floats, Floats]:
    """Return (n,) what each request adds to the least possible cost, and (P,) the prices that prove it."""
    membership, k = asked.membership, answered.rows.shape[1]
    atoms, n = asked.atom_of[answered.rows], asked.membership.n_promises
    had = membership.sums(np.bincount(atoms.ravel(), minlength=membership.n_atoms).astype(np.float64))
    # A cap of which the sample has no exposure cannot be scaled to it.
    caps = np.where((had > 0) & np.isfinite(asked.caps), np.where(had > 0, asked.caps, 0.0) * had, float(NO_CAP))
    rows, least = BoundRows.of(membership, asked.floors * had, caps, answered.rows.size)
    used = np.flatnonzero(largest_bounds(least * prices[rows.promise_of]))
    rows, least = rows.take(used), least[used]
    plain = best.relevance.sum(axis=1)
    bound = promised_bound(
        asked.atom_of, search, answered.users, k, rows, least,
        np.clip(-prices[rows.promise_of] * rows.signs, 0.0, 1e30), float(plain.sum()), answered.eligible,
        ListLimits.of(membership, asked.list_limits, k),
    )  # fmt: skip
    each = -bound.prices * least / np.maximum(had[rows.promise_of], 1.0) * rows.signs
    needed = plain - bound.lists + rows.subsidies(each)[atoms].sum(axis=1)
    near = rows.prices(-bound.prices, n)
    # Never below zero: without subsidies, no relevance is given up.
    return (needed if needed.sum() > 0 else np.zeros(len(plain))), near


def largest_bounds(values: Floats) -> NDArray[np.bool_]:
    """Return which of the bounds are used, by what was paid for them: without the others, the cost is a bound still."""
    used = np.ones(len(values), dtype=bool)
    if len(values) > MOST_BOUNDS:
        used[np.argsort(-np.abs(values), kind="stable")[MOST_BOUNDS:]] = False
    return used


def exposure_cost(
    catalog: Catalog,
    answered: Answered,
    selected: NDArray[np.int64],
    per_request: float,
    checkpoint: Callable[[], object] = lambda: None,
) -> float | None:
    """Return the mean relevance that an exposure would have cost; None if no answer had a place for one.

    Parameters
    ----------
    catalog
        The items.
    answered
        The requests of the sample, with their best lists without promises.
    selected
        Rows of the items of the selection, in ascending order.
    per_request
        Exposures that are missing, as a number per request.
    checkpoint
        Called every now and then; raises to end the work.

    Examples
    --------
    Item 2 could have replaced item 1 in either answer. It is cheaper in the second.

    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog([[0.9, 0.8], [0.5, 0.6], [0.1, 0.5]], groups=["a", "b", "c"])
    >>> answered = Answered(np.eye(2)[:, None], np.array([[0, 1], [0, 1]]), np.array([[0.9, 0.5], [0.8, 0.6]]))
    >>> [round(exposure_cost(catalog, answered, np.array([2]), missing), 6) for missing in (0.5, 1.0)]
    [0.1, 0.25]
    """
    n, most = len(answered.rows), min(answered.rows.shape[1], len(selected))
    if not most:
        return None
    vectors, step = catalog.embeddings[selected], max(SCORES_AT_ONCE // len(selected), 1)
    parts = []
    for start in range(0, n, step):
        checkpoint()
        parts.append(_place_costs(answered, np.arange(start, min(start + step, n)), selected, vectors, most))
    every = np.concatenate(parts).ravel()
    every = np.sort(every[np.isfinite(every)])[: max(math.ceil(per_request * n), 1)]
    return float(every.mean()) if len(every) else None


def _place_costs(
    answered: Answered, here: NDArray[np.intp], selected: NDArray[np.int64], vectors: NDArray[Any], most: int
) -> Floats:
    """Return (m, most) what the first place, the second and so on would cost in each answer; inf if there is none."""
    rows, relevance = answered.rows[here], answered.relevance[here]
    scores = np.einsum("nid,sd->nis", answered.users[here], vectors, optimize=True).max(axis=1).astype(np.float64)
    place = np.minimum(np.searchsorted(selected, rows), len(selected) - 1)
    inside = selected[place] == rows
    scores[np.nonzero(inside)[0], place[inside]] = -np.inf
    if answered.eligible is not None:
        owners = np.repeat(here, len(selected))
        allowed = answered.eligible.allows(owners, np.tile(selected, len(here)))
        scores[~allowed.reshape(scores.shape)] = -np.inf
    gained = -np.partition(-scores, most - 1, axis=1)[:, :most]
    gained = -np.sort(-gained, axis=1)
    lost = np.sort(np.where(inside, np.inf, relevance), axis=1)[:, :most]
    return np.where(np.isfinite(lost) & np.isfinite(gained), np.maximum(lost - gained, 0.0), np.inf)
