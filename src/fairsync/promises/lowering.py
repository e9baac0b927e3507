"""Floors that cannot all be reached, lowered to what can: higher priorities first."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.promises.certificate import plan_within
from fairsync.promises.linear_program import rows_of, solve
from fairsync.promises.repair import lower_excess, lower_surplus, raise_deficits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.policies.base import Counts, Floats
    from fairsync.promises.plan_bounds import PlanBounds


def lower_floors(
    bounds: PlanBounds, tiers: Sequence[Counts], near: Counts | None = None, seconds: float = 1.0
) -> tuple[Counts, Counts]:
    """Return floors that can be reached together, and a plan that reaches them.

    Each priority in turn gets as much as is possible beside what those before it got; within a priority the total
    shortfall is the least, up to the rounding of a linear program, or what a quick rule finds if time runs out.

    Parameters
    ----------
    bounds
        The bounds of the plan; its ``lower`` is not used.
    tiers
        For each priority, first to last, (P,) the floors of this priority and those before it.
    near
        (A,) a plan to start from.
    seconds
        The time limit of everything that may take long.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> both = Membership.of([(0,), (1,)], 2)
    >>> bounds = PlanBounds(both, np.zeros(2, dtype=np.int64), np.array([99, 99]), np.array([9, 9]), 10)
    >>> floors, plan = lower_floors(bounds, [np.array([0, 8]), np.array([7, 8])])
    >>> floors.tolist(), plan.tolist()
    ([2, 8], [2, 8])
    """
    wanted = [np.minimum(tier, bounds.reach) for tier in tiers] or [np.zeros_like(bounds.lower)]
    deadline = time.monotonic() + seconds
    plan = _plan(bounds, wanted[-1], near, deadline)
    if plan is not None:
        return wanted[-1], plan
    reached = np.zeros_like(bounds.lower)
    plan = np.zeros_like(bounds.most)
    for tier in wanted:
        floors = np.maximum(tier, reached)
        found = _plan(bounds, floors, near, deadline)
        if found is None:
            floors, found = _least_shortfall(bounds, floors, reached, plan, deadline)
        reached, plan = floors, found
    return reached, plan


def _plan(bounds: PlanBounds, floors: Counts, near: Counts | None, deadline: float) -> Counts | None:
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    try:
        return plan_within(replace(bounds, lower=floors), left / 2, near)
    except UndecidedPromisesError:
        return None


def _least_shortfall(
    bounds: PlanBounds, floors: Counts, reached: Counts, plan: Counts, deadline: float
) -> tuple[Counts, Counts]:
    """Return floors between those reached and those wanted, and a plan for them."""
    wanted = replace(bounds, lower=floors)
    try:
        solution = _solved(wanted, reached, deadline)
    except UndecidedPromisesError:
        solution = None
    if solution is not None:
        exposures, start = solution
        possible = np.clip(np.floor(exposures + 1e-6).astype(np.int64), reached, floors)
        found = _plan(bounds, possible, start, deadline)
        if found is not None:
            return possible, found
        candidate = _raised(replace(bounds, lower=possible), start)
        if bounds.hold(candidate) and (bounds.membership.exposures(candidate) >= reached).all():
            return np.minimum(bounds.membership.exposures(candidate), floors), candidate
    candidate = _raised(wanted, plan)
    if not (bounds.hold(candidate) and (bounds.membership.exposures(candidate) >= reached).all()):
        candidate = plan
    return np.minimum(bounds.membership.exposures(candidate), floors), candidate


def _solved(bounds: PlanBounds, reached: Counts, deadline: float) -> tuple[Floats, Counts] | None:
    """Return (P,) the exposures of each promise with the least total shortfall, and the plan rounded down."""
    from scipy import sparse

    floors = np.flatnonzero(bounds.lower > 0)
    n, m = len(bounds.most), len(floors)
    rows, limits = rows_of(bounds)
    slack = sparse.csr_array((-np.ones(m), (np.arange(m), np.arange(m))), shape=(len(limits), m))
    found = solve(
        np.concatenate([np.full(n, 1e-7), np.ones(m)]),
        sparse.hstack([rows, slack], format="csr"),
        limits,
        np.concatenate([bounds.most, (bounds.lower - reached)[floors]]).astype(np.float64),
        deadline,
    )
    if found is None:
        return None
    exposures = bounds.lower.astype(np.float64)
    exposures[floors] -= found.values[n:]
    return exposures, np.floor(found.values[:n] + 1e-6).astype(np.int64)


def _raised(bounds: PlanBounds, plan: Counts) -> Counts:
    """Return a plan that reaches as much of the floors as a quick rule finds, within all upper bounds."""
    raised = lower_surplus(bounds, raise_deficits(bounds, lower_excess(bounds, plan)))
    raised = np.maximum(raised, np.minimum(plan, raised))
    more = np.maximum(raised - plan, 0)
    room = bounds.total - int(np.minimum(raised, plan).sum())
    if int(more.sum()) > room:
        more = np.diff(np.minimum(np.cumsum(more), max(room, 0)), prepend=0)
    result: Counts = np.minimum(raised, plan) + more
    return result
