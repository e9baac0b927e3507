"""Which promises are certain although requests exclude items, and which are only expected.

If requests exclude up to e items, every request can surely show min(k, n - e) of the n items that serve the plan of an
atom (:mod:`fairsync.promises.home_atoms`), and nothing if there are e of them or fewer. So promises that could hold
without exclusions may have no certificate with them. Such promises are not refused. A largest set that has a
certificate with these capacities is *certain*; the other floors are *expected*: prices work for them, the guard does
not guarantee them. Caps and limits per list are always certain, because they are kept by leaving items out.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.promises.certificate import plan_within
from fairsync.promises.linear_program import least_missed, seconds_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.policies.base import Counts
    from fairsync.promises.plan_bounds import PlanBounds

# Of the floors that were dropped, this many are tried again one by one.
_TRIES = 50


def most_certain(
    options: Sequence[PlanBounds], seconds: float, first: NDArray[np.bool_] | None = None
) -> tuple[int, NDArray[np.bool_], Counts]:
    """Return the place of the bounds under which most floors are certain, these floors, and a certificate for them.

    Later bounds are preferred only if they make all those floors certain that are so under earlier ones, and others.
    They are left out if it takes too long.

    Parameters
    ----------
    options
        The bounds, which differ in what atoms can surely have.
    seconds, first
        As in `certain_floors`.
    """
    deadline = time.monotonic() + seconds
    place, (certain, plan) = 0, certain_floors(options[0], seconds, first)
    for other, bounds in enumerate(options[1:], 1):
        if certain.all():
            break
        try:
            found, its_plan = certain_floors(bounds, seconds_until(deadline), first)
        except UndecidedPromisesError:
            break
        if (found >= certain).all() and (found > certain).any():
            place, certain, plan = other, found, its_plan
    return place, certain, plan


def certain_floors(
    bounds: PlanBounds, seconds: float, first: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.bool_], Counts]:
    """Return which floors are certain, and a certificate for these.

    Floors that are impossible by themselves are dropped first. If the others are impossible together, a linear program
    that minimises the missed parts of floors says which to drop next. Then dropped floors are tried again, smallest
    first. The result is a set to which none of the floors that were tried can be added.

    Parameters
    ----------
    bounds
        The bounds, with the exposures that atoms can surely have.
    seconds
        The time limit.
    first
        (P,) the floors that come before the others, because they were certain so far; None for none.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> both = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> bounds = PlanBounds(both, np.array([5, 3]), np.array([9, 9]), np.array([4, 3, 0]), 9)
    >>> certain, plan = certain_floors(bounds, 9.0)
    >>> certain.tolist(), plan.tolist()
    ([False, True], [0, 3, 0])
    """
    deadline = time.monotonic() + seconds
    certain = bounds.lower <= bounds.reach
    plan = _plan(bounds, certain, deadline)
    if plan is None:
        # A floor that is missed by half counts as much as another that is missed by half.
        worth = 1 / np.maximum(bounds.lower, 1)
        if first is not None and (first & certain).any() and not (first >= certain).all():
            kept, _ = certain_floors(_with_floors(bounds, first), seconds_until(deadline))
            worth[first & kept] = np.inf
        missed, _ = least_missed(_with_floors(bounds, certain), worth, deadline)
        certain &= missed < 1e-6
        plan = _plan(bounds, certain, deadline)
        while plan is None:  # rounding
            floors = np.where(certain & np.isfinite(worth), bounds.lower, 0)
            certain[int(floors.argmax())] = False
            plan = _plan(bounds, certain, deadline)
        again = np.flatnonzero(~certain & (bounds.lower <= bounds.reach))
        for promise in again[np.argsort(bounds.lower[again], kind="stable")][:_TRIES].tolist():
            certain[promise] = True
            more = _plan(bounds, certain, deadline, plan)
            certain[promise] = more is not None
            plan = plan if more is None else more
    return certain | (bounds.lower == 0), plan


def _plan(bounds: PlanBounds, certain: NDArray[np.bool_], deadline: float, near: Counts | None = None) -> Counts | None:
    return plan_within(_with_floors(bounds, certain), seconds_until(deadline), near)


def _with_floors(bounds: PlanBounds, some: NDArray[np.bool_]) -> PlanBounds:
    return replace(bounds, lower=np.where(some, bounds.lower, 0))
