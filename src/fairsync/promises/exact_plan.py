"""A plan by a linear program, or by an integer program where rounding does not fit, or the proof that there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership, distinct_lists
from fairsync.promises.linear_program import TOLERANCE, least_total, rows_of, seconds_until, undecided
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.promises.repair import lower_surplus, raise_deficits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Floats

_INFEASIBLE = 2


@dataclass(frozen=True, eq=False)
class MergedBounds:
    """Bounds over merged atoms: those that differ in no promise with a bound are one.

    Attributes
    ----------
    bounds : PlanBounds
        The bounds over the promises that have some, and over the merged atoms.
    promises : numpy.ndarray
        The codes of these promises.
    merged : numpy.ndarray
        (A,) the merged atom of each atom; -1 if no floor needs it.

    Examples
    --------
    >>> bounds = PlanBounds(
    ...     Membership.of([(), (0,), (1,), (0, 1)], 2), np.array([5, 0]), np.array([9, 9]), np.array([3, 4, 6, 7]), 9
    ... )
    >>> merged = MergedBounds.of(bounds)
    >>> merged.bounds.most.tolist(), merged.merged.tolist(), merged.split(np.array([8]), bounds).tolist()
    ([9], [-1, 0, -1, 0], [0, 3, 0, 5])
    """

    bounds: PlanBounds
    promises: Counts
    merged: Counts

    @classmethod
    def of(cls, bounds: PlanBounds, chosen: NDArray[np.bool_] | None = None) -> MergedBounds:
        """Return the merged bounds. ``chosen`` says which atoms may have exposures; by default all that floors need."""
        membership, n_atoms = bounds.membership, bounds.membership.n_atoms
        bounded = bounds.lower > 0
        useful = membership.in_any(bounded)
        useful &= bounds.most > 0
        if chosen is not None:
            useful &= chosen
        bounded[bounds.capped] = True
        promises = np.flatnonzero(bounded)
        place = np.full(len(bounded), -1)
        place[promises] = np.arange(len(promises))
        atoms = np.flatnonzero(useful)
        at, codes = membership.expand(atoms)
        kept = bounded[codes]
        at, codes = at[kept], place[codes[kept]]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(atoms)))])
        first, number = distinct_lists(codes, offsets)
        merged = np.full(n_atoms, -1)
        merged[atoms] = number
        most = np.bincount(number, bounds.most[atoms], len(first)).astype(np.int64)
        at, distinct = Membership(len(promises), codes, offsets).expand(first)
        ends = np.cumsum(np.bincount(at, minlength=len(first)))
        reduced = Membership(len(promises), distinct, np.concatenate([[0], ends]))
        return cls(
            PlanBounds(
                reduced, bounds.lower[promises], bounds.upper[promises], np.minimum(most, bounds.total), bounds.total
            ),
            promises,
            merged,
        )

    def split(self, plan: Counts, bounds: PlanBounds) -> Counts:
        """Return a plan over the atoms, given one over the merged ones: each has its part in proportion to its most."""
        atoms = np.flatnonzero(self.merged >= 0)
        number, most = self.merged[atoms], bounds.most[atoms]
        whole = np.bincount(number, most, len(plan))
        part = np.minimum(np.floor(most * (plan / np.maximum(whole, 1))[number]).astype(np.int64), most)
        rest = plan - np.bincount(number, part, len(plan)).astype(np.int64)
        order = np.lexsort((part / np.maximum(most, 1), number))
        spare = (most - part)[order]
        before = np.cumsum(spare) - spare
        start = np.searchsorted(number[order], number[order])
        more = np.clip(rest[number[order]] - (before - before[start]), 0, spare)
        part[order] += more
        result = np.zeros(len(bounds.most), dtype=np.int64)
        result[atoms] = part
        return result


def exact_plan(bounds: PlanBounds, deadline: float) -> Counts | None:
    """Return a plan within the bounds, or None if there is none.

    Parameters
    ----------
    bounds
        The bounds.
    deadline
        When to give up, as `time.monotonic` counts.

    Raises
    ------
    UndecidedPromisesError
        Neither a plan nor a proof that there is none was found in time.

    Examples
    --------
    Three promises share three atoms in pairs. Half an exposure of each atom would do, but there are no halves.

    >>> import time
    >>> pairs = Membership.of([(0, 1), (1, 2), (0, 2)], 3)
    >>> bounds = PlanBounds(pairs, np.ones(3, dtype=int), np.full(3, 1), np.full(3, 9), 9)
    >>> exact_plan(bounds, time.monotonic() + 9) is None
    True
    """
    merged = MergedBounds.of(bounds)
    small = merged.bounds
    fractions = linear_plan(small, deadline)
    if fractions is None:
        return None
    plan = rounded_plan(small, fractions)
    if plan is None:
        plan = _integral(small, deadline)
    return None if plan is None else merged.split(plan, bounds)


def linear_plan(bounds: PlanBounds, deadline: float) -> Floats | None:
    """Return the plan with the least total, in fractions of exposures; None if there is none within the bounds."""
    if (bounds.reach < bounds.lower).any():
        return None
    if not bounds.lower.any():
        return np.zeros(len(bounds.most))
    found = least_total(bounds, deadline)
    return None if found is None or found[0].cost > bounds.total + TOLERANCE else found[0].values


def rounded_plan(bounds: PlanBounds, fractions: Floats) -> Counts | None:
    """Return a plan near one in fractions of exposures, rounded down or up and repaired; None if that does not fit."""
    for start in (np.floor(fractions + 1e-6), np.ceil(fractions - 1e-6)):
        plan = lower_surplus(bounds, raise_deficits(bounds, np.minimum(start.astype(np.int64), bounds.most)))
        if bounds.hold(plan):
            return plan
    return None


def _integral(bounds: PlanBounds, deadline: float) -> Counts | None:
    """Return a plan by an integer program; None if there is none."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows, limits = rows_of(bounds)
    found = milp(
        np.zeros(len(bounds.most)),
        integrality=np.ones(len(bounds.most), dtype=np.int64),
        bounds=Bounds(0, bounds.most.astype(np.float64)),
        constraints=LinearConstraint(rows, -np.inf, limits),
        options={"time_limit": seconds_until(deadline)},
    )
    if found.status == _INFEASIBLE:
        return None
    plan = None if found.x is None else np.rint(found.x).astype(np.int64)
    if plan is None or not bounds.hold(plan):
        raise undecided()
    return plan
