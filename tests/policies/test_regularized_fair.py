"""Algorithm 2 of the paper: each group pays for its distance from the worst-off one."""

import numpy as np
import pytest

import plain_rule
from fairsync.errors import InvalidInputError
from fairsync.policies import Feedback, RegularizedFair, Terms
from fairsync.retriever import FairRetriever
from worlds import make_world


def test_two_batches_by_hand() -> None:
    """λ = 0.1. Exposures (4, 2, 0): gaps 4, 2, 0. Then (5, 3, 4), where group 1 is the worst off: gaps 2, 0, 1."""
    terms = Terms(np.array([2, 2, 2]), np.array([2, 2, 2]), k=2, horizon=10, batch_size=3)
    policy = RegularizedFair(0.1)
    start = policy.start(terms)
    assert policy.prices(start).tolist() == [0, 0, 0]
    first = policy.step(start, terms, Feedback(3, np.array([4, 2, 0]), np.array([4, 2, 0]), 7))
    assert policy.prices(first) == pytest.approx([0.4, 0.2, 0.0])
    second = policy.step(first, terms, Feedback(3, np.array([1, 1, 4]), np.array([5, 3, 4]), 4))
    assert policy.prices(second) == pytest.approx([0.2, 0.0, 0.1])


def test_floors_do_not_enter_unless_there_are_none() -> None:
    exposures = np.array([4, 2, 0])
    seen = Feedback(3, exposures, exposures, 7)
    for floors, expected in (([9, 1, 0], [0.4, 0.2, 0.0]), ([0, 0, 0], [0.0, 0.0, 0.0])):
        terms = Terms(np.array(floors), np.array([2, 2, 2]), k=2, horizon=10, batch_size=3)
        policy = RegularizedFair(0.1)
        assert policy.prices(policy.step(policy.start(terms), terms, seen)) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_plain_rule(seed: int) -> None:
    world = make_world(seed, groups=6, horizon=30)
    users = np.concatenate([world.users, world.users[:13]])  # into the next horizon

    def rule(exposures: list[int], served: int) -> list[float]:
        return [0.05 * (e - min(exposures)) for e in exposures]

    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=30, policy=RegularizedFair(0.05), batch_size=4
    )
    assert retriever.retrieve(users).ids.tolist() == plain_rule.retrieve(world, users, 4, rule)


def test_groups_come_closer_as_the_coefficient_grows() -> None:
    world = make_world(1, groups=12, items=240, horizon=400, k=5, tightness=0.7, dim=8)
    esp, gaps, relevance = [], [], []
    for policy in ("none", RegularizedFair(0.01), RegularizedFair(0.1)):
        retriever = FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, policy=policy, batch_size=8
        )
        retriever.retrieve(world.users)
        report = retriever.report()
        esp.append(report.esp)
        gaps.append(max(report.exposures.values()) - min(report.exposures.values()))
        relevance.append(report.relevance)
    assert esp[0] < esp[1] < esp[2] == 1
    assert gaps[0] > gaps[1] > gaps[2]
    assert relevance[0] > relevance[1] > relevance[2]


def test_the_coefficient_is_in_units_of_the_scores() -> None:
    lists = []
    for scale in (1.0, 2.0**10):
        world = make_world(3, groups=6, horizon=60, scale=scale)
        policy = RegularizedFair(0.02 * scale)
        lists.append(
            FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=60, policy=policy, batch_size=4)
            .retrieve(world.users)
            .ids
        )
    assert (lists[0] == lists[1]).all()


@pytest.mark.parametrize("coefficient", [0, -1, float("nan"), float("inf")])
def test_a_coefficient_must_be_positive(coefficient: float) -> None:
    with pytest.raises(InvalidInputError, match="coefficient"):
        RegularizedFair(coefficient)
