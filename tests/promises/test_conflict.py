"""Conflicts: impossible together, possible without any one of them, and the values that are said to be possible are."""

from dataclasses import replace

import numpy as np
import pytest

from effort import HOURS
from fairsync.catalog.atoms import Membership
from fairsync.errors import InfeasibleFloorsError, UndecidedPromisesError
from fairsync.policies.base import NO_CAP, Terms
from fairsync.promises.certainty import certain_floors
from fairsync.promises.certificate import find_certificate
from fairsync.promises.feasibility import check_together, explain_conflict
from fairsync.promises.plan_bounds import PlanBounds
from promises.lists_checker import lists_exist, random_terms

CASES = max(50, int(HOURS * 3600 / 0.1 / 4))


def with_promises(terms: Terms, kept: list[int]) -> Terms:
    """Return terms in which only some promises have bounds."""
    some = np.isin(np.arange(len(terms.floors)), kept)
    return replace(
        terms,
        floors=np.where(some, terms.floors, 0),
        caps=None if terms.caps is None else np.where(some, terms.caps, NO_CAP),
        list_limits=None if terms.list_limits is None else np.where(some, terms.list_limits, terms.k),
    )


def can_hold(terms: Terms) -> bool:
    return lists_exist(terms, terms.floors, terms.caps, terms.horizon)


def changed(terms: Terms, which: str, promise: int, value: int) -> Terms:
    array = getattr(terms, which).copy()
    array[promise] = value
    return replace(terms, **{which: array})


@pytest.mark.parametrize("caps", [False, True])
@pytest.mark.parametrize("limits", [False, True])
def test_conflicts_are_irreducible_and_values_are_the_edge(caps: bool, limits: bool) -> None:
    found = 0
    for seed in range(CASES):
        terms, _ = random_terms(np.random.default_rng([seed, caps, limits, 7]), caps=caps, limits=limits)
        if can_hold(terms):
            continue
        found += 1
        names = [f"promise {p}" for p in range(len(terms.floors))]
        error = explain_conflict(terms, names)
        conflict = [names.index(name) for name in error.conflict]
        some = with_promises(terms, conflict)
        assert not can_hold(some), seed
        for promise in conflict:
            assert can_hold(with_promises(some, [p for p in conflict if p != promise])), seed
            name = names[promise]
            # With all others if they can hold together, else with the others in conflict.
            if name in error.largest:
                whole = terms if can_hold(changed(terms, "floors", promise, 0)) else some
                assert can_hold(changed(whole, "floors", promise, error.largest[name])), seed
                assert not can_hold(changed(whole, "floors", promise, error.largest[name] + 1)), seed
                assert error.largest[name] < terms.floors[promise]
            if name in error.smallest and not limits:
                whole = terms if can_hold(changed(terms, "caps", promise, NO_CAP)) else some
                assert can_hold(changed(whole, "caps", promise, error.smallest[name])), seed
                assert not can_hold(changed(whole, "caps", promise, error.smallest[name] - 1)), seed
    assert found > CASES / 10


def test_floors_that_are_not_certain_cannot_be_added() -> None:
    dropped = 0
    for seed in range(CASES):
        terms, left = random_terms(np.random.default_rng([seed, 11]), caps=seed % 2 == 0, limits=False)
        bounds = PlanBounds.of(terms, terms.floors, terms.caps, left)
        certain, plan = certain_floors(bounds, 60.0)
        due = np.where(certain, terms.floors, 0)
        assert replace(bounds, lower=due).hold(plan), seed
        for promise in np.flatnonzero(~certain).tolist():
            more = due.copy()
            more[promise] = terms.floors[promise]
            assert not lists_exist(terms, more, terms.caps, left), seed
            dropped += 1
    assert dropped > CASES / 10


def test_floors_that_come_first_stay_certain() -> None:
    dropped = 0
    for seed in range(CASES):
        terms, left = random_terms(np.random.default_rng([seed, 11]), caps=seed % 2 == 0, limits=False)
        bounds = PlanBounds.of(terms, terms.floors, terms.caps, left)
        for promise in np.flatnonzero(~certain_floors(bounds, 60.0)[0]).tolist():
            alone = np.arange(len(terms.floors)) == promise
            if find_certificate(terms, np.where(alone, terms.floors, 0), terms.caps, left) is None:
                continue
            certain, plan = certain_floors(bounds, 60.0, first=alone)
            assert certain[promise], seed
            assert replace(bounds, lower=np.where(certain, terms.floors, 0)).hold(plan), seed
            dropped += 1
    assert dropped


def test_a_time_limit_that_passes_is_an_error_of_its_own() -> None:
    """An odd cycle of promises: only an integer program can say that it is impossible."""
    cycle = Membership.of([(0, 1), (1, 2), (0, 2)], 3)
    terms = Terms(np.ones(3, dtype=np.int64), np.full(3, 2), 2, 9, 1, caps=np.ones(3, dtype=np.int64), membership=cycle)
    with pytest.raises(UndecidedPromisesError, match="nothing was changed"):
        find_certificate(terms, terms.floors, terms.caps, 9, seconds=0.0)
    assert find_certificate(terms, terms.floors, terms.caps, 9) is None
    with pytest.raises(InfeasibleFloorsError) as caught:
        check_together(terms, ["a", "b", "c"])
    assert caught.value.conflict == ("a", "b", "c")
