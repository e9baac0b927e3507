"""Targets that cannot all be reached, lowered to what can be: always, and in little time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.errors import UndecidedPromisesError
from fairsync.plan.give_way import give_way
from fairsync.promises.certificate import plan_within
from fairsync.promises.repair import lower_surplus, raise_deficits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.policies.base import Counts
    from fairsync.promises.plan_bounds import PlanBounds


def lower_floors(
    bounds: PlanBounds, tiers: Sequence[Counts], near: Counts | None = None, seconds: float = 1.0
) -> tuple[Counts, Counts]:
    """Return floors that can be reached together, and a plan that reaches them.

    Floors give way as in :func:`fairsync.plan.give_way`. If that takes too long, a quick rule lowers them, priority by
    priority: what it returns can be reached, but more might be possible.

    Parameters
    ----------
    bounds
        The bounds of the plan; its ``lower`` is not used.
    tiers
        For each priority, first to last, (P,) the floors of this priority and those before it: a promise may have
        several floors, larger ones of lower priorities.
    near
        (A,) a plan to start from.
    seconds
        The time limit of what may take long.

    Examples
    --------
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> both = Membership.of([(0,), (1,)], 2)
    >>> bounds = PlanBounds(both, np.zeros(2, dtype=np.int64), np.array([99, 99]), np.array([9, 9]), 10)
    >>> floors, plan = lower_floors(bounds, [np.array([0, 8]), np.array([7, 8])])
    >>> floors.tolist(), plan.tolist()
    ([2, 8], [2, 8])
    """
    bounds = replace(bounds, lower=np.zeros_like(bounds.lower))
    deadline, wanted = time.monotonic() + seconds, [np.minimum(tier, bounds.reach) for tier in tiers]
    all_floors = replace(bounds, lower=wanted[-1])
    try:
        plan = plan_within(all_floors, seconds / 4, near)
        if plan is not None:
            return all_floors.lower, plan
        plan = give_way(*_one_floor_each(bounds, wanted), deadline - time.monotonic()).plan
    except UndecidedPromisesError:
        plan = _quickly_lowered(bounds, wanted)
    return np.minimum(all_floors.lower, bounds.membership.exposures(plan)), plan


def _one_floor_each(bounds: PlanBounds, tiers: Sequence[Counts]) -> tuple[PlanBounds, Counts]:
    """Return bounds in which a promise with several floors stands several times, and the priority of each."""
    members, n = bounds.membership, len(bounds.lower)
    lower, priorities = tiers[0].copy(), np.ones(n, dtype=np.int64)
    priorities[lower == 0] = len(tiers)
    more: list[tuple[int, int, int]] = []  # promise, floor, priority
    for number, tier in enumerate(tiers[1:], 2):
        first = (lower == 0) & (tier > 0)
        lower[first], priorities[first] = tier[first], number
        again = np.flatnonzero((tier > tiers[number - 2]) & ~first)
        more += [(code, int(tier[code]), number) for code in again.tolist()]
    if more:
        copies, floors, order = (np.array(column, dtype=np.int64) for column in zip(*more, strict=True))
        matrix = members.matrix.tocsc()
        twice = [matrix.tocsr(), matrix.tocsr()[copies]]
        members = _membership(twice)
        lower, priorities = np.concatenate([lower, floors]), np.concatenate([priorities, order])
        bounds = replace(bounds, membership=members, upper=np.concatenate([bounds.upper, bounds.upper[copies]]))
    return replace(bounds, lower=lower), priorities


def _membership(rows: Sequence[object]) -> Membership:
    from scipy import sparse

    matrix = sparse.csc_array(sparse.vstack(rows))  # by atom, promises in ascending order
    matrix.sort_indices()
    return Membership(matrix.shape[0], matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64))


def _quickly_lowered(bounds: PlanBounds, tiers: Sequence[Counts]) -> Counts:
    """Return a plan that reaches as much of the floors as a quick rule finds, within all upper bounds."""
    plan = np.zeros_like(bounds.most)
    for tier in tiers:
        wanted = replace(bounds, lower=tier)
        raised = np.maximum(lower_surplus(wanted, raise_deficits(wanted, plan)), plan)
        more = raised - plan
        room = bounds.total - int(plan.sum())
        if int(more.sum()) > room:
            more = np.diff(np.minimum(np.cumsum(more), room), prepend=0)
        if bounds.hold(plan + more):
            plan = plan + more
    return plan
