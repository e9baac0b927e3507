"""Floors that give way, compared with every possible plan of small worlds."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog.atoms import Membership
from fairsync.errors import UndecidedPromisesError
from fairsync.plan import give_way
from fairsync.promises.plan_bounds import PlanBounds


@st.composite
def small_worlds(draw: st.DrawFn) -> tuple[PlanBounds, list[int]]:
    """Draw up to three promises over up to three atoms, with too few slots more often than not."""
    n, atoms = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    membership = Membership.of([tuple(draw(st.sets(st.integers(0, n - 1)))) for _ in range(atoms)], n)
    numbers = st.lists(st.integers(0, 4), min_size=n, max_size=n)
    most = np.array(draw(st.lists(st.integers(0, 4), min_size=atoms, max_size=atoms)))
    upper = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)))
    bounds = PlanBounds(membership, np.array(draw(numbers)), upper, most, draw(st.integers(0, 8)))
    return bounds, [1 + one % 2 for one in draw(numbers)]


def least_shortfalls(bounds: PlanBounds, priorities: list[int]) -> tuple[int, ...]:
    """Return the total shortfall of each priority in the best of all plans, tried one by one."""
    best = None
    for plan in product(*(range(most + 1) for most in bounds.most.tolist())):
        exposures = bounds.membership.exposures(np.array(plan))
        if sum(plan) > bounds.total or (exposures > bounds.upper).any():
            continue
        missed = np.maximum(bounds.lower - exposures, 0)
        totals = tuple(int(missed[np.array(priorities) == one].sum()) for one in (1, 2))
        best = totals if best is None else min(best, totals)
    assert best is not None
    return best


@effort(60, 0.02)
@given(small_worlds())
def test_no_plan_misses_less(world: tuple[PlanBounds, list[int]]) -> None:
    bounds, priorities = world
    found = give_way(bounds, np.array(priorities))
    assert PlanBounds(bounds.membership, found.lower, bounds.upper, bounds.most, bounds.total).hold(found.plan)
    assert (found.lower == bounds.lower - found.shortfall).all()
    assert (found.shortfall >= 0).all()
    totals = tuple(int(found.shortfall[np.array(priorities) == one].sum()) for one in (1, 2))
    assert totals == least_shortfalls(bounds, priorities)


def test_halves_of_exposures_are_no_plan() -> None:
    """Three promises share three atoms in pairs: half an exposure of each would do, and two whole ones miss nothing."""
    pairs = Membership.of([(0, 1), (1, 2), (0, 2)], 3)
    ones, most = np.ones(3, dtype=np.int64), np.full(3, 9)
    found = give_way(PlanBounds(pairs, ones, ones, most, 9), np.array([1, 2, 3]))
    assert found.lower.tolist() == [1, 1, 0]


def test_time_limit() -> None:
    bounds = PlanBounds(Membership.of([(0,)], 1), np.array([5]), np.array([9]), np.array([9]), 4)
    with pytest.raises(UndecidedPromisesError, match="in time"):
        give_way(bounds, np.ones(1, dtype=np.int64), seconds=0.0)
