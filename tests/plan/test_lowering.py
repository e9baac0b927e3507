"""Targets that are lowered: always to what can be reached, and by as little as possible if there is time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from effort import effort
from fairsync.catalog.atoms import Membership
from fairsync.plan.lowering import lower_floors
from fairsync.policies.base import Counts
from fairsync.promises.plan_bounds import PlanBounds


def least_by_priority(bounds: PlanBounds, floors: list[Counts]) -> list[int]:
    """Return the least shortfall of the new floors of each priority, by an integer program for each."""
    matrix, (n, m) = bounds.membership.matrix.toarray(), bounds.membership.matrix.shape
    wide = np.hstack([matrix, np.zeros((n, n * len(floors)))])
    rows = [
        LinearConstraint(wide, -np.inf, bounds.upper),
        LinearConstraint(np.hstack([np.ones((1, m)), np.zeros((1, n * len(floors)))]), -np.inf, bounds.total),
    ]
    for i, floor in enumerate(floors):
        slack = np.zeros((n, n * len(floors)))
        slack[:, i * n : (i + 1) * n] = np.eye(n)
        rows.append(LinearConstraint(np.hstack([matrix, slack]), floor, np.inf))
    most = Bounds(np.zeros(m + n * len(floors)), np.concatenate([bounds.most, np.full(n * len(floors), 1e6)]))
    least = []
    for i in range(len(floors)):
        cost = np.zeros(m + n * len(floors))
        cost[m + i * n : m + (i + 1) * n] = 1
        found = milp(cost, constraints=rows, integrality=np.ones(len(cost)), bounds=most)
        least.append(round(found.fun))
        rows.append(LinearConstraint(cost[None], -np.inf, least[-1] + 0.01))
    return least


@pytest.mark.parametrize("seconds", [5.0, 0.0])
@effort(40, 0.03)
@given(seed=st.integers(0, 10**6))
def test_floors_are_lowered_by_as_little_as_possible_higher_priorities_last(seconds: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, atoms, total = int(rng.integers(1, 6)), int(rng.integers(1, 8)), int(rng.integers(1, 40))
    members = Membership.of([tuple(np.flatnonzero(rng.random(n) < 0.4).tolist()) for _ in range(atoms)], n)
    upper = np.where(rng.random(n) < 0.5, rng.integers(0, 30, n), total)
    most = np.minimum(rng.integers(0, 20, atoms), total)
    bounds = PlanBounds(members, np.zeros(n, dtype=np.int64), upper, most, total)
    floors, priorities = rng.integers(0, 30, n), rng.integers(0, 3, n)
    tiers = [np.where(priorities <= number, floors, 0) for number in range(3)]
    tiers[-1] = tiers[-1] + rng.integers(0, 9, n) * (rng.random(n) < 0.3)  # some have a second, larger floor
    lowered, plan = lower_floors(bounds, tiers, seconds=seconds)
    exposures = members.exposures(plan)
    assert bounds.hold(plan)
    assert (lowered <= exposures).all()
    assert (lowered <= tiers[-1]).all()
    if seconds:
        possible = [np.zeros_like(floors), *(np.minimum(tier, bounds.reach) for tier in tiers)]
        new = [np.where(possible[i + 1] > possible[i], possible[i + 1], 0) for i in range(3)]
        got = [int(np.maximum(tier - exposures, 0).sum()) for tier in new]
        assert got == least_by_priority(bounds, new)
