"""Bounds by a few rounds of descent and search, against the exact plan in hindsight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.hindsight.dual_bound import DualBound, dual_bound
from fairsync.search import ExactIndex
from hindsight.test_hindsight import Case, make

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bound_of(case: Case, prices: NDArray[np.float64], rounds: int) -> DualBound:
    catalog, floors = Catalog(case.items, case.groups), case.floors.astype(np.float64)
    search, users = ExactIndex(catalog).search, case.users[:, None].astype(np.float64)
    without = float(search(users, None, case.k).relevance.sum())
    return dual_bound(catalog, search, users, case.k, floors, prices, without, rounds)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rounds=st.integers(0, 4), tight=st.sampled_from([0.0, 0.5, 1.0]))
def test_no_plan_exceeds_the_bound_from_whatever_prices_it_started(seed: int, rounds: int, tight: float) -> None:
    case = make(seed, requests=6, items=50, groups=4, k=3, tight=tight)
    prices = np.random.default_rng(seed).normal(size=4)
    bound, best = bound_of(case, prices, rounds), case.solve()
    tolerance = 1e-9 * max(1.0, float(np.abs(case.scores).sum()))
    assert bound.relevance >= best.relevance - tolerance
    assert (bound.prices <= 0).all()
    assert (bound.prices[case.floors == 0] == 0).all(), "a group without a floor has no subsidy"
    # The prices prove the bound: it can be computed from them alone.
    priced = np.sort(case.scores - bound.prices[case.groups], axis=1)[:, -case.k :].sum(axis=1)
    assert bound.lists == pytest.approx(priced, abs=tolerance)
    assert bound.relevance == pytest.approx(priced.sum() + case.floors @ bound.prices, abs=tolerance)


def test_a_few_rounds_come_near_the_best_plan() -> None:
    case = make(2, requests=400, items=300, groups=6, k=5, tight=0.9)
    best = case.solve()
    assert best.cost > 0
    costs = [best.unconstrained_relevance - bound_of(case, np.zeros(6), rounds).relevance for rounds in (0, 2, 8)]
    assert costs[0] == pytest.approx(0, abs=1e-6), "without prices, nothing is given up"
    assert costs[0] <= costs[1] <= costs[2] <= best.cost * (1 + 1e-9)
    assert costs[2] == pytest.approx(best.cost, rel=0.01)


def test_lists_of_the_whole_catalog_leave_nothing_to_decide() -> None:
    case = make(4, requests=5, items=3, groups=2, k=3, tight=0.5)
    assert bound_of(case, np.zeros(2), 3).relevance == pytest.approx(case.scores.sum())


@pytest.mark.parametrize("exponent", [-500, -100, 100])
@pytest.mark.parametrize("start", [0.0, 1.0, 1e12])
def test_scores_of_any_size_are_bounded_from_whatever_prices_it_started(exponent: int, start: float) -> None:
    drawn = make(3, requests=6, items=50, groups=4, k=3, tight=0.9)
    users, items = drawn.users.astype(np.float64), drawn.items.astype(np.float64)
    scaled = Case(items, np.ldexp(users, exponent), drawn.groups, drawn.k, drawn.floors)
    best = drawn.solve()
    for prices in (np.full(4, -start), np.ldexp(np.full(4, -start), exponent)):
        bound = bound_of(scaled, prices, 4)
        assert np.ldexp(bound.relevance, -exponent) >= best.relevance - 1e-6
