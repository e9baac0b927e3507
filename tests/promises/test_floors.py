"""Floors: resolved by label, refused if they cannot be met, at the start or later."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairsync.catalog import Catalog, Groups
from fairsync.errors import InfeasibleFloorsError, InvalidInputError, UnknownGroupError
from fairsync.ledger import Totals
from fairsync.policies import Terms
from fairsync.promises.floors import can_be_met, changed_terms, check_reachable, make_terms, resolve_floors
from fairsync.retriever import FairRetriever
from worlds import World, make_world


@pytest.fixture
def world() -> World:
    return make_world(16, groups=3, items=20, horizon=30, k=4)


def test_unknown_groups_are_named(world: World) -> None:
    with pytest.raises(UnknownGroupError) as caught:
        FairRetriever(world.catalog, floors={0: 1, 9: 1, "0": 1})  # type: ignore[arg-type]
    assert caught.value.labels == (9, "0")


def test_floors_that_cannot_be_met_are_refused(world: World) -> None:
    sizes = world.catalog.group_sizes
    largest = 30 * min(4, int(sizes[1]))
    with pytest.raises(InfeasibleFloorsError, match="group 1") as one:
        FairRetriever(world.catalog, k=4, floors={1: largest + 1}, horizon=30)
    assert (one.value.group, one.value.floor, one.value.largest_feasible) == (1, largest + 1, largest)
    FairRetriever(world.catalog, k=4, floors={1: largest}, horizon=30)
    with pytest.raises(InfeasibleFloorsError, match="add up to 123") as total:
        FairRetriever(world.catalog, k=4, floors=41, horizon=30)
    assert (total.value.group, total.value.largest_feasible) == (None, 120)
    FairRetriever(world.catalog, k=4, floors=40, horizon=30)


def test_numpy_labels_are_converted() -> None:
    catalog = Catalog(np.eye(3), np.array(["x", "y", "x"]))
    assert resolve_floors({np.str_("y"): 1}, catalog).tolist() == [0, 1]  # type: ignore[arg-type]


@given(
    missing=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    left=st.integers(0, 4),
    k=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_floors_can_be_met_if_and_only_if_a_plan_exists(missing: list[int], left: int, k: int, seed: int) -> None:
    """Against a linear program: x[t, g] exposures of g in request t, at most c_g each and k in all."""
    capacities = np.minimum(np.random.default_rng(seed).integers(1, 6, size=len(missing)), k)
    n = len(missing)
    possible = not any(missing)
    if left:
        per_request = np.kron(np.eye(left), np.ones(n))
        per_group = -np.kron(np.ones(left), np.eye(n))
        plan = linprog(
            np.zeros(left * n),
            A_ub=np.vstack([per_request, per_group]),
            b_ub=np.concatenate([np.full(left, k), -np.array(missing)]),
            bounds=[(0, c) for c in np.tile(capacities, left)],
        )
        possible = plan.status == 0
    terms = Terms(np.zeros_like(capacities), capacities, k, horizon=100, batch_size=1)
    assert can_be_met(np.array(missing), left, terms) == possible


def test_a_changed_promise_keeps_the_rest() -> None:
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"])
    terms = make_terms(catalog, 2, {"a": 5}, 10, 4, auto_restart=False)
    grown = Catalog(np.eye(5), ["a", "a", "b", "b", "c"])
    changed = changed_terms(terms, catalog.labels, grown, None, None)
    assert (changed.floors.tolist(), changed.capacities.tolist()) == ([5, 0, 0], [2, 2, 1])
    assert (changed.k, changed.horizon, changed.batch_size, changed.auto_restart) == (2, 10, 4, False)
    assert changed_terms(terms, catalog.labels, catalog, {"b": 7}, 20).floors.tolist() == [0, 7]


def test_a_horizon_under_way_must_be_able_to_meet_its_floors() -> None:
    terms = make_terms(Catalog(np.eye(2), ["a", "b"]), 1, {"a": 5}, 10, 4)
    check_reachable(terms, Totals(np.array([0, 5]), requests=5), keeps_floors=True)
    late = Totals(np.array([0, 6]), requests=6)
    with pytest.raises(InvalidInputError, match="cannot be met by request 10"):
        check_reachable(terms, late, keeps_floors=True)
    check_reachable(terms, late, keeps_floors=False)
    over = Totals(np.array([0, 10]), requests=10)
    check_reachable(terms, over, keeps_floors=True)
    with pytest.raises(InvalidInputError, match="cannot be met"):
        check_reachable(terms, over, keeps_floors=True, is_over=False)
    with pytest.raises(InvalidInputError, match="another catalog"):
        check_reachable(terms, Totals.zero(3), keeps_floors=True)


@pytest.mark.parametrize("floors", [2**53 - 1, dict.fromkeys(range(1100), 2**53 - 1)])
def test_floors_whose_sum_cannot_be_counted_are_refused(floors: Any) -> None:
    groups = Groups(list(range(1100)), np.ones(1100, dtype=np.int64))
    with pytest.raises(InvalidInputError, match=r"add up to 9.91e.18: more exposures than can be counted"):
        resolve_floors(floors, groups)
