"""Giving way: which floors are lowered, and to what, if not all promises can hold."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.plan.priorities import SECONDS, least_shortfall
from fairsync.plan.program import Demands, Program
from fairsync.promises.certificate import plan_within
from fairsync.promises.exact_plan import MergedBounds, rounded_plan
from fairsync.promises.linear_program import TOLERANCE, seconds_until

if TYPE_CHECKING:
    from fairsync.policies.base import Counts
    from fairsync.promises.plan_bounds import PlanBounds


@dataclass(frozen=True, eq=False)
class GivenWay:
    """Floors that can hold together.

    Attributes
    ----------
    lower : numpy.ndarray
        (P,) the floors, lowered where they must give way.
    plan : numpy.ndarray
        (A,) a plan that keeps them and all upper bounds.
    shortfall : numpy.ndarray
        (P,) by how much each floor was lowered.
    """

    lower: Counts
    plan: Counts
    shortfall: Counts


def give_way(bounds: PlanBounds, priorities: Counts, seconds: float = SECONDS) -> GivenWay:
    """Return floors that can hold together, lowered as little as possible, higher priorities last.

    The total by which floors of the first priority are lowered is as small as possible, that of the second as small as
    possible beside it, and so on. Upper bounds are kept. Nothing is lowered if nothing needs to be.

    Parameters
    ----------
    bounds
        What the promises ask for, in whole numbers.
    priorities
        (P,) the priority of each promise, 1 first.
    seconds
        The time limit.

    Raises
    ------
    UndecidedPromisesError
        The time limit has passed.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> bounds = PlanBounds(
    ...     Membership.of([(0,), (1,), (0, 1)], 2), np.array([5, 5]), np.array([9, 9]), np.array([9, 9, 2]), 7
    ... )
    >>> for priorities in ([1, 2], [2, 1]):
    ...     found = give_way(bounds, np.array(priorities))
    ...     print(found.lower, found.plan)
    [5 4] [3 2 2]
    [4 5] [2 3 2]
    """
    deadline = time.monotonic() + seconds
    plan = plan_within(bounds, seconds)
    if plan is not None:
        return GivenWay(bounds.lower, plan, np.zeros_like(bounds.lower))
    merged = MergedBounds.of(bounds)
    small, order = merged.bounds, priorities[merged.promises]
    demands = Demands.of(np.arange(len(order)), 0, 0, small.lower, small.upper, order)
    # One request whose list has every slot.
    program = Program(small.membership, small.most, small.total, np.ones(1, dtype=np.int64), demands)
    found = _whole_plan(program, small, deadline)
    lower = np.zeros_like(bounds.lower)
    lower[merged.promises] = np.minimum(small.membership.exposures(found), small.lower)
    return GivenWay(lower, merged.split(found, bounds), bounds.lower - lower)


def _whole_plan(program: Program, bounds: PlanBounds, deadline: float) -> Counts:
    """Return the plan with the least shortfall in whole numbers, or one near it if the time does not suffice."""
    solution = least_shortfall(program, seconds_until(deadline))
    whole = np.rint(solution.shortfall)
    if np.allclose(solution.shortfall, whole, atol=TOLERANCE):
        plan = rounded_plan(replace(bounds, lower=bounds.lower - whole.astype(np.int64)), solution.exposures[:, 0])
        if plan is not None:
            return plan
    with suppress(UndecidedPromisesError):  # rounded down, the solution in fractions keeps every upper bound
        solution = least_shortfall(program, seconds_until(deadline), is_whole=True)
    return np.floor(solution.exposures[:, 0] + TOLERANCE).astype(np.int64)
