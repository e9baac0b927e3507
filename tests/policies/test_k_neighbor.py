"""Only the K groups of lowest exposure are open."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plain_rule
from fairsync.policies import Feedback, KNeighbor, Terms
from fairsync.retriever import FairRetriever
from worlds import make_world


def test_two_batches_by_hand() -> None:
    """K = 2. Of (3, 1, 0, 0) the last two are lowest; of (3, 1, 2, 2) group 1, and both that come next are equal."""
    terms = Terms(np.full(4, 2), np.full(4, 2), k=2, horizon=10, batch_size=2)
    policy = KNeighbor()
    start = policy.start(terms)
    assert policy.prices(start).tolist() == [0, 0, 0, 0]  # nothing tells them apart
    first = policy.step(start, terms, Feedback(2, np.array([3, 1, 0, 0]), np.array([3, 1, 0, 0]), 8))
    assert policy.prices(first).tolist() == [math.inf, math.inf, 0, 0]
    second = policy.step(first, terms, Feedback(2, np.array([0, 0, 2, 2]), np.array([3, 1, 2, 2]), 6))
    assert policy.prices(second).tolist() == [math.inf, 0, 0, 0]


@given(st.data())
def test_open_groups_can_always_fill_a_list(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    k = data.draw(st.integers(1, sum(sizes)))
    exposures = data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    terms = Terms(np.ones(len(sizes), dtype=np.int64), np.minimum(sizes, k), k, horizon=10, batch_size=1)
    prices = KNeighbor().decide(terms, np.array(exposures), served=1)
    assert sum(size for size, price in zip(sizes, prices, strict=True) if price == 0) >= k


def test_without_floors_nothing_is_masked() -> None:
    terms = Terms(np.zeros(4, dtype=np.int64), np.full(4, 2), k=2, horizon=10, batch_size=2)
    exposures = np.array([3, 1, 0, 0])
    policy = KNeighbor()
    state = policy.step(policy.start(terms), terms, Feedback(2, exposures, exposures, 8))
    assert policy.prices(state).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_plain_rule(seed: int) -> None:
    world = make_world(seed, groups=7, horizon=30, k=3)
    users = np.concatenate([world.users, world.users[:13]])  # into the next horizon

    def rule(exposures: list[int], served: int) -> list[float]:
        third = sorted(exposures)[2]
        return [0.0 if e <= third else math.inf for e in exposures]

    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=30, policy=KNeighbor(), batch_size=4
    )
    assert retriever.retrieve(users).ids.tolist() == plain_rule.retrieve(world, users, 4, rule)


def test_exposure_becomes_nearly_equal_whatever_the_scale() -> None:
    lists = []
    for scale in (1.0, 2.0**10):
        world = make_world(2, groups=12, items=240, horizon=400, k=5, tightness=0.7, dim=8, scale=scale)
        plain = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy="none")
        retriever = FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=KNeighbor(), batch_size=1
        )
        plain.retrieve(world.users)
        lists.append(retriever.retrieve(world.users).ids)
        before, after = plain.report(), retriever.report()
        assert before.esp < after.esp == 1
        assert np.ptp(list(after.exposures.values())) < 0.1 * np.ptp(list(before.exposures.values()))
    assert (lists[0] == lists[1]).all()


def test_a_floor_below_an_equal_share_can_be_missed() -> None:
    """The least liked group is always open, and still others of low exposure come before it."""
    world = make_world(1, groups=12, items=240, horizon=400, k=5, tightness=0.7, dim=8)
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=KNeighbor(), batch_size=1
    )
    retriever.retrieve(world.users)
    assert max(world.floors.values()) < world.horizon * world.k / 12
    assert retriever.report().esp < 1
