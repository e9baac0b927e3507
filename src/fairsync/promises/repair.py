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
    """The atoms of each promise in an order of preference."""

    def __init__(self, bounds: PlanBounds, wanted: NDArray[np.bool_], rank: Floats) -> None:
        membership = bounds.membership
        atoms = np.repeat(np.arange(membership.n_atoms), np.diff(membership.offsets))
        use = wanted[membership.promises]
        atoms, promises = atoms[use], membership.promises[use]
        order = np.lexsort((rank[atoms], promises))
        self.atoms, self.promises = atoms[order], promises[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = self.promises[1:] != self.promises[:-1]
        self._start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))

    def least(self, values: Counts, n_atoms: int) -> Counts:
        """Return (A,) the least of values by promise over the promises of each atom."""
        least = np.full(n_atoms, _FREE, dtype=np.int64)
        np.minimum.at(least, self.atoms, values[self.promises])
        return least

    def within(self, amounts: Counts, limits: Counts) -> Counts:
        """Return amounts by atom, lowered so that no promise has more than its limit. Preferred atoms come first."""
        given = amounts[self.atoms]
        before = np.cumsum(given) - given
        allowed = np.maximum(limits[self.promises] - (before - before[self._start]), 0)
        accepted = amounts.copy()
        np.minimum.at(accepted, self.atoms, allowed)
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
    if rank is None:
        rank = -plan / np.maximum(bounds.most, 1)
    ranking = _Ranking(bounds, bounds.lower > 0, rank)
    for _ in range(_ROUNDS):
        surplus = np.maximum(bounds.membership.exposures(plan) - bounds.lower, 0)
        lowered = ranking.within(np.minimum(plan, ranking.least(surplus, len(plan))), surplus)
        if not lowered.any():
            break
        plan -= lowered
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
    ranking = _Ranking(bounds, bounded, rank)
    for _ in range(_ROUNDS):
        exposures = bounds.membership.exposures(plan)
        deficit = np.maximum(bounds.lower - exposures, 0)
        limits = np.where(deficit > 0, deficit, np.maximum(bounds.upper - exposures, 0))
        gain = bounds.membership.atom_prices((deficit > 0).astype(np.float64))
        amounts = np.minimum(bounds.most - plan, ranking.least(limits, len(plan)))
        gain[amounts <= 0] = 0
        best = gain.max(initial=0)
        if best == 0:
            break
        plan += ranking.within(np.where(gain == best, amounts, 0), limits)
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
        logs = np.log(np.maximum(factor, 1e-300))
        ranking = _Ranking(bounds, over, np.zeros(len(plan)))
        least = np.zeros(len(plan))
        np.minimum.at(least, ranking.atoms, logs[ranking.promises])
        plan = np.floor(plan * np.exp(least) * (1 + 1e-12)).astype(np.int64)
    return plan
