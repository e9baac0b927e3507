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
    from fairsync.loop.limited_lists import LimitedLists


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
    for_limits : numpy.ndarray or None
        (P,) the part of it that was given up for limits per list, which no floor could bring down; None for nothing.

    Examples
    --------
    >>> costs = PromiseCosts.zero(2).plus(PromiseCosts(np.array([0.0, 0.5]), np.array([0.0, 0.2])))
    >>> costs.subsidies.tolist(), costs.given_up.tolist()
    ([0.0, 0.5], [0.0, 0.2])
    """

    subsidies: NDArray[np.float64]
    given_up: NDArray[np.float64]
    for_limits: NDArray[np.float64] | None = None

    @classmethod
    def zero(cls, n_groups: int) -> PromiseCosts:
        """Return the costs before the first request."""
        return cls(np.zeros(n_groups), np.zeros(n_groups))

    def plus(self, other: PromiseCosts) -> PromiseCosts:
        """Return the sum of these costs and those of further requests."""
        one, more = self.for_limits, other.for_limits
        for_limits = one if more is None else more if one is None else one + more
        return PromiseCosts(self.subsidies + other.subsidies, self.given_up + other.given_up, for_limits)

    def grown(self, n_groups: int) -> PromiseCosts:
        """Return the same costs with zeros for groups that were added later."""
        for_limits = None if self.for_limits is None else grow(self.for_limits, n_groups)
        return PromiseCosts(grow(self.subsidies, n_groups), grow(self.given_up, n_groups), for_limits)

    @property
    def of_floors(self) -> NDArray[np.float64]:
        """(P,) the relevance given up for the exposures of each group, less what limits per list have cost."""
        return self.given_up if self.for_limits is None else self.given_up - self.for_limits


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
    limited: LimitedLists | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return (P,) the relevance given up for each promise, where promises overlap, and the part for limits per list.

    What the limits per list alone would have cost is shared equally by the promises that are at their limit in this
    list. The rest is the cost of the candidates that are not in the best list that the limits allow: what came in by
    subsidies is charged to the promises that paid them, in proportion. What came in without any took the place of items
    whose promises are near their caps: these share it in proportion to their prices. Where there are none, the guard
    forced the exposures, and the promises of the item share the cost equally.

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
    limited
        What the limits per list alone would have made of the lists; None if there are no such limits.

    Examples
    --------
    Of 0.3 given up for an item of two promises, the one that paid twice the subsidy bears two thirds.

    >>> from fairsync.catalog.atoms import Membership
    >>> both, prices = Membership.of([(), (0, 1)], 2), np.array([-0.2, -0.1])
    >>> best, relevance, atoms = np.array([[0.9, 0.8]]), np.array([[0.9, 0.5]]), np.array([[0, 1]])
    >>> given_up_by_promise(best, relevance, atoms, prices, both)[0].round(3).tolist()
    [0.2, 0.1]
    """
    for_limits = None
    if limited is None:
        came, cost = _given_up(best, relevance)
    else:
        came, cost, for_limits = _beside_limits(limited, best, relevance)
    at, promises = membership.expand(atoms.ravel()[came])
    paid = np.maximum(-prices, 0.0)[promises]
    total = np.bincount(at, paid, len(came))
    charges = np.where(np.isfinite(prices), np.maximum(prices, 0.0), 0.0)
    no_charges = not charges.any()
    members = np.bincount(at, minlength=len(came))
    equal = (total == 0) & no_charges
    weight = np.where(equal[at], 1.0 / np.maximum(members, 1)[at], paid / np.where(total > 0, total, 1.0)[at])
    split = np.bincount(promises, weight * cost[at], len(prices)).astype(np.float64)
    if not no_charges:
        split += charges / charges.sum() * float(cost[total == 0].sum())
    return split if for_limits is None else split + for_limits, for_limits


def _beside_limits(
    limited: LimitedLists, best: NDArray[np.float64], relevance: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return the exposures that limits do not explain, the relevance given up for each, and (P,) that for limits."""
    whole = np.maximum(best.sum(axis=1) - relevance.sum(axis=1), 0.0)
    sharing = limited.binding.sum(axis=1)
    of_list = np.where(sharing > 0, np.clip(best.sum(axis=1) - limited.best, 0.0, whole), 0.0)
    for_limits: NDArray[np.float64] = (of_list / np.maximum(sharing, 1)) @ limited.binding
    came = limited.came.ravel().nonzero()[0]
    request, own, n = came // relevance.shape[1], relevance.ravel()[came], len(relevance)
    rest = whole - of_list
    went = (rest + np.bincount(request, own, n)) / np.maximum(np.bincount(request, minlength=n), 1)
    lost = np.maximum(went[request] - own, 0.0)
    total = np.bincount(request, lost, n)
    return came, lost * np.where(total > 0, rest / np.where(total > 0, total, 1.0), 0.0)[request], for_limits
