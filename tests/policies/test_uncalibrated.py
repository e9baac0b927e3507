"""Only groups below their floor are open, and all of them once there are none below."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plain_rule
from fairsync.policies import Feedback, Terms, Uncalibrated
from fairsync.retriever import FairRetriever
from worlds import make_world


def test_three_batches_by_hand() -> None:
    """Floors 3, 2, 0 and lists of two. Group 2 has no floor, so it is masked from the start."""
    terms = Terms(np.array([3, 2, 0]), np.array([2, 2, 2]), k=2, horizon=10, batch_size=2)
    policy = Uncalibrated()
    start = policy.start(terms)
    assert policy.prices(start).tolist() == [0, 0, math.inf]
    first = policy.step(start, terms, Feedback(2, np.array([4, 0, 0]), np.array([4, 0, 0]), 8))
    assert policy.prices(first).tolist() == [math.inf, 0, math.inf]
    second = policy.step(first, terms, Feedback(2, np.array([0, 4, 0]), np.array([4, 4, 0]), 6))
    assert policy.prices(second).tolist() == [0, 0, 0]
    new_horizon = policy.step(second, terms, Feedback(2, np.array([2, 2, 0]), np.zeros(3, dtype=np.int64), 10))
    assert policy.prices(new_horizon).tolist() == [0, 0, math.inf]


@given(st.data())
def test_every_item_below_its_floor_comes_first(data: st.DataObject) -> None:
    """With any sizes and standing there are k open items, and none above its floor displaces one below."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    numbers = st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes))
    k = data.draw(st.integers(1, sum(sizes)))
    exposures, floors = np.array(data.draw(numbers)), np.array(data.draw(numbers))
    terms = Terms(floors, np.minimum(sizes, k), k, horizon=10, batch_size=1)
    prices = Uncalibrated().decide(terms, exposures, served=1)
    assert sum(size for size, price in zip(sizes, prices, strict=True) if price < math.inf) >= k
    below = exposures < floors
    if below.any() and not below.all():
        assert prices[below].max() + 1e8 < prices[~below].min()


def test_small_groups_get_their_floor_beside_others() -> None:
    """Two groups of one disliked item each cannot fill a list of four; the rest of it is the best there is."""
    world = make_world(5, groups=2, items=20, horizon=30, k=4)
    labels = np.where(np.arange(20) < 2, np.arange(20), 2)
    embeddings = np.abs(world.catalog.embeddings) * np.where(labels < 2, -1, 1)[:, None]
    catalog = type(world.catalog)(embeddings, labels)
    users = np.abs(world.users)
    plain = FairRetriever(catalog, k=4, floors={0: 10, 1: 10}, horizon=30, policy="none").retrieve(users)
    retriever = FairRetriever(catalog, k=4, floors={0: 10, 1: 10}, horizon=30, policy=Uncalibrated(), batch_size=1)
    found = retriever.retrieve(users)
    assert retriever.report().exposures == {0: 10, 1: 10, 2: 100}
    assert not (plain.groups < 2).any()
    assert (found.ids[:10, :2] == plain.ids[:10, :2]).all()
    assert (found.ids[10:] == plain.ids[10:]).all()


@pytest.mark.parametrize("items", [10, 30])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_plain_rule(seed: int, items: int) -> None:
    """With ten items in six groups, those below their floor often cannot fill a list."""
    world = make_world(seed, groups=6, items=items, horizon=30)
    floors = [world.floors[group] for group in range(6)]
    sizes = np.bincount(world.catalog.group_of).tolist()
    users = np.concatenate([world.users, world.users[:13]])  # into the next horizon

    def rule(exposures: list[int], served: int) -> list[float]:
        below = [given < floor for given, floor in zip(exposures, floors, strict=True)]
        if sum(size for size, low in zip(sizes, below, strict=True) if low) >= world.k:
            return [0.0 if low else math.inf for low in below]
        return [-1e6 if low else 0.0 for low in below]

    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=30, policy=Uncalibrated(), batch_size=4
    )
    assert retriever.retrieve(users).ids.tolist() == plain_rule.retrieve(world, users, 4, rule)


def test_floors_are_served_first_and_then_forgotten() -> None:
    lists = []
    for scale in (1.0, 2.0**10):
        world = make_world(1, groups=12, items=240, horizon=400, k=5, tightness=0.5, dim=8, scale=scale)
        plain = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy="none")
        retriever = FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=Uncalibrated(), batch_size=8
        )
        bare = plain.retrieve(world.users).ids
        lists.append(retriever.retrieve(world.users).ids)
        assert plain.report().esp < retriever.report().esp == 1
        assert (lists[-1][-80:] == bare[-80:]).all()
        assert (lists[-1][:320] != bare[:320]).any()
    assert (lists[0] == lists[1]).all()
