r"""What each promise has cost in a horizon: the subsidies in force, and the relevance given up.

In a request, as many items came in as went out against plain retrieval, and every item that went out is at least as
relevant as every one that came in. The **cost** of an exposure that came in is the mean relevance of the items that
went out of its list, minus its own relevance; an exposure that plain retrieval would have made too costs nothing. So
the costs of all groups add up to the relevance given up.

The items that went out are known from the list that was searched under prices. Where better ones might lie outside it,
their relevance is replaced by an upper bound, so that costs are upper bounds too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Membership


@dataclass(frozen=True)
class PromiseCosts:
    """Subsidies and costs of each group, summed over the requests of a horizon so far.

    Attributes
    ----------
    subsidies : numpy.ndarray
        (P,) the subsidy in force, summed over the exposures of the group. Under the guard a subsidy ends with its
        floor: exposures beyond it have none. A charge for a cap counts as a negative subsidy.
    given_up : numpy.ndarray
        (P,) the relevance given up for the exposures of the group, an upper bound; nan if it was not measured.

    Examples
    --------
    >>> costs = PromiseCosts.zero(2).plus(PromiseCosts(np.array([0.0, 0.5]), np.array([0.0, 0.2])))
    >>> costs.subsidies.tolist(), costs.given_up.tolist()
    ([0.0, 0.5], [0.0, 0.2])
    """

    subsidies: NDArray[np.float64]
    given_up: NDArray[np.float64]

    @classmethod
    def zero(cls, n_groups: int) -> PromiseCosts:
        """Return the costs before the first request."""
        return cls(np.zeros(n_groups), np.zeros(n_groups))

    def plus(self, other: PromiseCosts) -> PromiseCosts:
        """Return the sum of these costs and those of further requests."""
        return PromiseCosts(self.subsidies + other.subsidies, self.given_up + other.given_up)

    def grown(self, n_groups: int) -> PromiseCosts:
        """Return the same costs with zeros for groups that were added later."""
        return PromiseCosts(grow(self.subsidies, n_groups), grow(self.given_up, n_groups))


def given_up_by_group(
    best: NDArray[np.float64], relevance: NDArray[np.float64], groups: NDArray[np.integer], n_groups: int
) -> NDArray[np.float64]:
    """Return (G,) the relevance given up for the exposures of each group.

    Parameters
    ----------
    best
        (n, k) relevance of the candidates of plain retrieval, or upper bounds of it, in any order.
    relevance, groups
        (n, k) relevance and group of the candidates that were chosen.
    n_groups
        Number of groups.

    Examples
    --------
    Plain retrieval would have found 0.9 and 0.8. An item of group 1 took the place of the second.

    >>> given_up_by_group(np.array([[0.9, 0.8]]), np.array([[0.9, 0.5]]), np.array([[0, 1]]), 2).round(3).tolist()
    [0.0, 0.3]
    """
    came, lost = _given_up(best, relevance)
    return np.bincount(groups.ravel()[came], lost, n_groups).astype(np.float64, copy=False)


def _given_up(
    best: NDArray[np.float64], relevance: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the places of the exposures that came in, and the relevance given up for each."""
    came = (relevance < best.min(axis=1, keepdims=True)).ravel().nonzero()[0]
    if len(came) == 0:
        return came, np.empty(0)
    n, k = relevance.shape
    request, own = came // k, relevance.ravel()[came]
    went = best.sum(axis=1) - relevance.sum(axis=1) + np.bincount(request, own, n)
    lost = (went / np.maximum(np.bincount(request, minlength=n), 1))[request] - own
    # Rounding can make a loss slightly negative.
    return came, np.maximum(lost, 0.0)


def given_up_by_promise(
    best: NDArray[np.float64],
    relevance: NDArray[np.float64],
    atoms: NDArray[np.integer],
    prices: NDArray[np.float64],
    membership: Membership,
    list_limits: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Return (P,) the relevance given up for each promise, where promises overlap.

    What came in by subsidies is charged to the promises that paid them, in proportion. What came in without any took
    the place of items whose promises are at their limit in this list: these share it equally. If there are none, it
    took the place of items whose promises are near their caps: these share it in proportion to their prices. Where
    there is neither, the guard forced the exposures, and the promises of the item share the cost equally.

    Parameters
    ----------
    best
        (n, k) relevance of the candidates of plain retrieval, or upper bounds of it, in any order.
    relevance, atoms
        (n, k) relevance and atom of the candidates that were chosen.
    prices
        (P,) prices of the promises.
    membership
        The promises of each atom.
    list_limits
        (P,) the most items of each promise in a list, k for no limit; None if there are no such limits.

    Examples
    --------
    Of 0.3 given up for an item of two promises, the one that paid twice the subsidy bears two thirds.

    >>> from fairsync.catalog.atoms import Membership
    >>> both, prices = Membership.of([(), (0, 1)], 2), np.array([-0.2, -0.1])
    >>> best, relevance, atoms = np.array([[0.9, 0.8]]), np.array([[0.9, 0.5]]), np.array([[0, 1]])
    >>> given_up_by_promise(best, relevance, atoms, prices, both).round(3).tolist()
    [0.2, 0.1]
    """
    came, cost = _given_up(best, relevance)
    at, promises = membership.expand(atoms.ravel()[came])
    paid = np.maximum(-prices, 0.0)[promises]
    total = np.bincount(at, paid, len(came))
    by_limit = np.zeros(len(prices))
    if list_limits is not None and len(came):
        by_limit, cost = _of_limits(came, np.where(total == 0, cost, 0.0), atoms, membership, list_limits, cost)
    charges = np.where(np.isfinite(prices), np.maximum(prices, 0.0), 0.0)
    no_charges = not charges.any()
    members = np.bincount(at, minlength=len(came))
    equal = (total == 0) & no_charges
    weight = np.where(equal[at], 1.0 / np.maximum(members, 1)[at], paid / np.where(total > 0, total, 1.0)[at])
    split = np.bincount(promises, weight * cost[at], len(prices)).astype(np.float64)
    if no_charges:
        return split + by_limit
    rest: NDArray[np.float64] = charges / charges.sum() * float(cost[total == 0].sum())
    return split + rest + by_limit


def _of_limits(
    came: NDArray[np.intp],
    unpaid: NDArray[np.float64],
    atoms: NDArray[np.integer],
    membership: Membership,
    list_limits: NDArray[np.int64],
    cost: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (P,) what limits per list have cost, and the costs of exposures without it.

    In each list the promises that are at their limit share what nobody paid for.
    """
    n, k = atoms.shape
    limited = np.flatnonzero(list_limits < k)
    at, promises = membership.expand(atoms.ravel())
    full = np.empty((n, len(limited)), dtype=bool)
    for place, promise in enumerate(limited.tolist()):
        full[:, place] = np.bincount(at[promises == promise] // k, minlength=n) >= list_limits[promise]
    sharing = full.sum(axis=1)
    by_list = np.bincount(came // k, unpaid, n) / np.maximum(sharing, 1)
    found = np.zeros(len(list_limits))
    found[limited] = by_list @ full
    return found, np.where((sharing[came // k] > 0) & (unpaid > 0), 0.0, cost)
