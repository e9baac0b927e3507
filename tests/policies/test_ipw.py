"""Inverse propensity weighting: a subsidy by what was due over what was given, while the floor is not reached."""

import math

import numpy as np
import pytest

import plain_rule
from fairsync.errors import InvalidInputError
from fairsync.policies import IPW, Feedback, Terms
from fairsync.retriever import FairRetriever
from worlds import make_world


def test_two_batches_by_hand() -> None:
    """λ = 0.5, T = 10, floors 5, 2 and 4.

    After 2 requests 1, 0.4 and 0.8 were due, 4, 0 and 0 given: weights 1/4, 0.4/1 and 0.8/1,
    whose log2(1 + w) are 0.321928, 0.485427 and 0.847997.
    After 5 requests 2.5, 1 and 2 were due, 7, 2 and 1 given: the first two have reached their floor,
    the third has weight 2/1 and log2(3) = 1.584963.
    """
    terms = Terms(np.array([5, 2, 4]), np.array([2, 2, 2]), k=2, horizon=10, batch_size=3)
    policy = IPW(0.5)
    start = policy.start(terms)
    assert policy.prices(start).tolist() == [0, 0, 0]
    first = policy.step(start, terms, Feedback(2, np.array([4, 0, 0]), np.array([4, 0, 0]), 8))
    assert policy.prices(first) == pytest.approx([-0.160964, -0.2427135, -0.4239985], abs=1e-6)
    second = policy.step(first, terms, Feedback(3, np.array([3, 2, 1]), np.array([7, 2, 1]), 5))
    assert policy.prices(second) == pytest.approx([0.0, 0.0, -0.7924815], abs=1e-6)


def test_with_equal_floors_it_is_the_inverse_share_of_exposures() -> None:
    """Below the floors, the weights are in the proportions of 1 / (e_g / Σ e), as the paper's words have it."""
    terms = Terms(np.full(4, 30), np.full(4, 5), k=5, horizon=100, batch_size=1)
    exposures = np.array([20, 3, 16, 11])
    share = exposures / exposures.sum()
    weights = 2 ** -IPW(1.0).decide(terms, exposures, served=10) - 1
    assert weights * share == pytest.approx(np.full(4, weights[0] * share[0]))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_plain_rule(seed: int) -> None:
    world = make_world(seed, groups=6, horizon=30, tightness=0.8)
    floors = [world.floors[group] for group in range(6)]
    users = np.concatenate([world.users, world.users[:13]])  # into the next horizon

    def rule(exposures: list[int], served: int) -> list[float]:
        prices = []
        for floor, given in zip(floors, exposures, strict=True):
            due = floor * (served / 30)
            prices.append(-0.7 * math.log2(1 + due / max(given, 1)) if given < floor else 0.0)
        return prices

    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=30, policy=IPW(0.7), batch_size=4)
    assert retriever.retrieve(users).ids.tolist() == plain_rule.retrieve(world, users, 4, rule)


def test_more_floors_are_reached_as_the_coefficient_grows() -> None:
    world = make_world(1, groups=12, items=240, horizon=400, k=5, tightness=0.7, dim=8)
    esp, relevance = [], []
    for policy in ("none", IPW(1.0), IPW(5.0)):
        retriever = FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=policy, batch_size=8
        )
        retriever.retrieve(world.users)
        esp.append(retriever.report().esp)
        relevance.append(retriever.report().relevance)
    assert esp[0] < esp[1] < esp[2] == 1
    assert relevance[0] > relevance[1] > relevance[2]


def test_the_coefficient_is_in_units_of_the_scores() -> None:
    lists = []
    for scale in (1.0, 2.0**10):
        world = make_world(3, groups=6, horizon=60, scale=scale)
        policy = IPW(0.5 * scale)
        lists.append(
            FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, policy=policy, batch_size=4)
            .retrieve(world.users)
            .ids
        )
    assert (lists[0] == lists[1]).all()


@pytest.mark.parametrize("coefficient", [0, -1, float("nan"), float("inf")])
def test_a_coefficient_must_be_positive(coefficient: float) -> None:
    with pytest.raises(InvalidInputError, match="coefficient"):
        IPW(coefficient)
