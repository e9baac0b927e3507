"""Raise a plan where promises miss exposures, and lower it where none does: greedy, on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Floats
    from fairsync.promises.plan_bounds import PlanBounds

_FREE = 2**62
# Each round settles at least one atom, mostly thousands. What is left after this many is left to the linear program.
_ROUNDS = 400


class _Ranking:
    """The promises of some atoms, and the atoms of each promise in an order of preference.

    Arrays by atom have one entry for each of the chosen atoms here.
    """

    def __init__(self, bounds: PlanBounds, wanted: NDArray[np.bool_], rank: Floats, chosen: NDArray[np.int64]) -> None:
        self.chosen = chosen[np.argsort(rank[chosen], kind="stable")]
        atoms, promises = bounds.membership.expand(self.chosen)
        use = wanted[promises]
        atoms, promises = atoms[use], promises[use]
        # numpy sorts 16 bits in linear time.
        order = np.argsort(promises.astype(np.uint16) if len(wanted) <= 2**16 else promises, kind="stable")
        self._atoms, self._promises, self._n_promises = atoms[order], promises[order], len(wanted)
        first = np.ones(len(order), dtype=bool)
        first[1:] = self._promises[1:] != self._promises[:-1]
        self._start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))

    def sums(self, values: Floats) -> Floats:
        """Return the sum of values by promise over the promises of each atom."""
        return np.bincount(self._atoms, values[self._promises], len(self.chosen)).astype(np.float64, copy=False)

    def exposures(self, amounts: Counts) -> Counts:
        """Return (P,) the sum of amounts by atom over the atoms of each promise."""
        return np.bincount(self._promises, amounts[self._atoms], self._n_promises).astype(np.int64)

    def least(self, values: Counts) -> Counts:
        """Return the least of values by promise over the promises of each atom."""
        least = np.full(len(self.chosen), _FREE, dtype=np.int64)
        np.minimum.at(least, self._atoms, values[self._promises])
        return least

    def within(self, amounts: Counts, limits: Counts) -> Counts:
        """Return amounts by atom, lowered so that no promise has more than its limit. Preferred atoms come first."""
        given = amounts[self._atoms]
        before = np.cumsum(given) - given
        allowed = np.maximum(limits[self._promises] - (before - before[self._start]), 0)
        accepted = amounts.copy()
        np.minimum.at(accepted, self._atoms, allowed)
        return accepted


def lower_surplus(bounds: PlanBounds, plan: Counts, rank: Floats | None = None) -> Counts:
    """Return a plan that is lowered where no promise needs the exposures.

    Parameters
    ----------
    bounds, plan
        The bounds, and the plan.
    rank
        (A,) atoms of a low rank are lowered first; by default those whose exposures are the largest part of their most.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> both = Membership.of([(), (0,), (1,), (0, 1)], 2)
    >>> bounds = PlanBounds(both, np.array([5, 5]), np.array([99, 99]), np.full(4, 9), 99)
    >>> lower_surplus(bounds, np.array([4, 5, 5, 3])).tolist()
    [0, 2, 2, 3]
    """
    plan = plan.copy()
    floors = bounds.lower > 0
    surplus = np.where(floors, bounds.membership.exposures(plan) - bounds.lower, _FREE)
    atoms = np.flatnonzero(plan > 0)
    at, promises = bounds.membership.expand(atoms)
    needed = np.zeros(len(atoms), dtype=bool)
    needed[at[surplus[promises] <= 0]] = True
    atoms = atoms[~needed]  # mostly few, and no others will join them
    if rank is None:
        rank = -plan / np.maximum(bounds.most, 1)
    ranking = _Ranking(bounds, floors, rank, atoms)
    for _ in range(_ROUNDS):
        lowered = ranking.within(np.minimum(plan[ranking.chosen], ranking.least(surplus)), surplus)
        if not lowered.any():
            break
        plan[ranking.chosen] -= lowered
        surplus = np.where(floors, surplus - ranking.exposures(lowered), _FREE)
    return plan


def raise_deficits(bounds: PlanBounds, plan: Counts, rank: Floats | None = None) -> Counts:
    """Return a plan that is raised where promises miss exposures, within the upper bounds of promises and atoms.

    An atom that helps more promises comes first. Promises may still miss exposures, and the total may be too large.

    Parameters
    ----------
    bounds, plan
        The bounds, and a plan that satisfies the upper ones.
    rank
        (A,) of atoms that help equally many promises, those of a low rank are raised first; by default those whose
        exposures are the smallest part of their most.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> both = Membership.of([(), (0,), (1,), (0, 1)], 2)
    >>> bounds = PlanBounds(both, np.array([5, 5]), np.array([99, 99]), np.array([9, 9, 9, 3]), 99)
    >>> raise_deficits(bounds, np.zeros(4, dtype=np.int64)).tolist()
    [0, 2, 2, 3]
    """
    plan = plan.copy()
    if rank is None:
        rank = plan / np.maximum(bounds.most, 1)
    bounded = bounds.lower > 0
    bounded[bounds.capped] = True
    exposures = bounds.membership.exposures(plan)
    helpful = np.zeros(len(plan), dtype=bool)
    for turn in range(_ROUNDS):
        deficit = np.maximum(bounds.lower - exposures, 0)
        if not deficit.any():
            break
        if turn % 8 == 0:  # ever fewer promises miss something
            helpful = bounds.membership.in_any(deficit > 0)
            ranking = _Ranking(bounds, bounded, rank, np.flatnonzero(helpful & (plan < bounds.most)))
        limits = np.where(deficit > 0, deficit, np.maximum(bounds.upper - exposures, 0))
        gain = ranking.sums((deficit > 0).astype(np.float64))
        amounts = np.minimum(bounds.most[ranking.chosen] - plan[ranking.chosen], ranking.least(limits))
        gain[amounts <= 0] = 0
        best = gain.max(initial=0)
        if best == 0:
            break
        raised = ranking.within(np.where(gain == best, amounts, 0), limits)
        plan[ranking.chosen] += raised
        exposures += ranking.exposures(raised)
    return plan


def lower_excess(bounds: PlanBounds, plan: Counts) -> Counts:
    """Return a plan that is lowered, atom by atom in proportion, until no upper bound is exceeded.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> bounds = PlanBounds(Membership.of([(0,), (0,)], 1), np.array([0]), np.array([6]), np.full(2, 9), 99)
    >>> lower_excess(bounds, np.array([4, 12])).tolist()
    [1, 4]
    """
    plan = np.minimum(plan, bounds.most)
    exposures = bounds.membership.exposures(plan)
    over = exposures > bounds.upper
    if over.any():
        factor = np.where(over, bounds.upper / np.maximum(exposures, 1), 1.0)
        chosen = np.flatnonzero(plan > 0)
        at, promises = bounds.membership.expand(chosen)
        least = np.ones(len(chosen))
        np.minimum.at(least, at, factor[promises])
        plan[chosen] = np.floor(plan[chosen] * least * (1 + 1e-12)).astype(np.int64)
    return plan
