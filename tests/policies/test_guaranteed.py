"""The default policy: its subsidies solve the dual of what it has seen."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairsync.catalog import Catalog
from fairsync.data import synthetic
from fairsync.hindsight import hindsight
from fairsync.policies import Guaranteed, Sample, Terms
from fairsync.policies.base import Feedback
from fairsync.policies.subsidy_solver import exposure_variances, solve_subsidies
from fairsync.retriever import FairRetriever
from worlds import make_world


def make_sample(seed: int, requests: int, items: int = 60, n_groups: int = 5, *, bias: float = 0.5) -> Sample:
    """Complete lists: group g is less liked the higher g is."""
    rng = np.random.default_rng(seed)
    groups = np.sort(rng.integers(n_groups, size=(requests, items)), axis=1)
    relevance = rng.normal(size=(requests, items)) - bias * groups
    return Sample(groups.astype(np.intp), relevance.astype(np.float32))


def exposures(sample: Sample, subsidies: np.typing.NDArray[np.float64], k: int) -> np.typing.NDArray[np.float64]:
    """Average exposures of each group per request, straight from the definition."""
    score = sample.relevance + subsidies[sample.groups]
    top = np.argsort(-score, axis=1)[:, :k]
    counts = np.bincount(np.take_along_axis(sample.groups, top, axis=1).ravel(), minlength=len(subsidies))
    return counts / len(sample)


def test_subsidies_bring_the_wanted_exposures() -> None:
    sample, k = make_sample(0, 2000), 6
    plain = exposures(sample, np.zeros(5), k)
    target = np.array([0.0, 0.0, 0.0, 2 * plain[3], 3 * plain[4]])
    solution = solve_subsidies(sample, target, np.zeros(5), k, newest=2000, iterations=25)
    assert (solution.subsidies[:3] == 0).all()
    assert exposures(sample, solution.subsidies, k)[3:] == pytest.approx(target[3:], rel=0.05)


def test_they_are_those_of_the_linear_program() -> None:
    """Strong duality: the multipliers of the floors in the transport LP over the same sample."""
    sample, k, n_groups = make_sample(1, 120, items=20, n_groups=3), 3, 3
    n, width = sample.groups.shape
    plain = exposures(sample, np.zeros(3), k)
    target = np.array([0.0, 0.0, plain[2] + 0.3])
    solution = solve_subsidies(sample, target, np.zeros(3), k, newest=n, iterations=40)
    rows = np.kron(np.eye(n), np.ones(width))
    floors = np.stack([-(sample.groups.ravel() == g).astype(float) for g in range(n_groups)])
    cost = -sample.relevance.ravel().astype(float)
    lp = linprog(cost, A_ub=floors, b_ub=-target * n, A_eq=rows, b_eq=np.full(n, k), bounds=(0, 1))
    # The doubt of a small sample pulls the subsidy a little towards zero, never past the optimum.
    assert 0.6 * -lp.ineqlin.marginals[2] < solution.subsidies[2] <= 1.1 * -lp.ineqlin.marginals[2]


def test_units_do_not_matter() -> None:
    sample, k, target = make_sample(2, 500), 6, np.array([0, 0, 0, 0.5, 0.5])
    one = solve_subsidies(sample, target, np.zeros(5), k, newest=500, iterations=10)
    for scale in (2.0**-10, 2.0**10):
        scaled = Sample(sample.groups, sample.relevance * np.float32(scale))
        other = solve_subsidies(scaled, target, np.zeros(5), k, newest=500, iterations=10)
        assert other.subsidies == pytest.approx(one.subsidies * scale, rel=1e-9)


def test_variances_are_those_of_the_lists() -> None:
    sample, k = make_sample(3, 300), 6
    top = np.argsort(-sample.relevance, axis=1)[:, :k]
    groups = np.take_along_axis(sample.groups, top, axis=1)
    per_request = np.stack([(groups == g).sum(axis=1) for g in range(5)], axis=1)
    assert exposure_variances(sample, np.zeros(5), k) == pytest.approx(per_request.var(axis=0))


def test_one_request_is_not_trusted_far() -> None:
    """A group that a single request does not show is no reason for a subsidy as high as its lists reach."""
    sample, k, target = make_sample(4, 1), 6, np.array([0, 0, 0, 0, 0.5])
    reach = float(np.ptp(sample.relevance))
    solution = solve_subsidies(sample, target, np.zeros(5), k, newest=1, iterations=25)
    assert solution.subsidies[4] < 0.1 * reach


def test_the_sample_keeps_the_latest_requests() -> None:
    both = Sample.join([make_sample(0, 5), make_sample(1, 5)], keep=7)
    assert len(both) == 7
    assert (both.relevance[2:] == make_sample(1, 5).relevance).all()


def test_a_group_that_has_reached_its_floor_gets_no_subsidy() -> None:
    terms = Terms(np.array([0, 0, 0, 0, 50]), np.full(5, 6), k=6, horizon=100, batch_size=20)
    policy = Guaranteed()
    counts = np.array([60, 30, 20, 10, 0])
    state = policy.step(policy.start(terms), terms, Feedback(20, counts, counts, 80, make_sample(5, 20)))
    assert policy.prices(state)[4] < 0
    counts = np.array([40, 20, 10, 0, 50])
    state = policy.step(state, terms, Feedback(20, counts, np.array([100, 50, 30, 10, 50]), 60, make_sample(6, 20)))
    assert policy.prices(state)[4] == 0


def test_the_last_batch_gets_a_reserve() -> None:
    """Nothing can be corrected after the last batch, so it aims higher than what is missing."""
    terms = Terms(np.array([0, 0, 0, 0, 50]), np.full(5, 6), k=6, horizon=100, batch_size=20)
    policy = Guaranteed()
    counts = np.array([60, 30, 20, 8, 2])
    first = policy.step(policy.start(terms), terms, Feedback(20, counts, counts, 80, make_sample(5, 20)))
    halfway = policy.step(first, terms, Feedback(20, counts, np.array([0, 0, 0, 0, 40]), 21, None))
    last = policy.step(first, terms, Feedback(20, counts, np.array([0, 0, 0, 0, 40]), 20, None))
    assert halfway.target[4] == pytest.approx(10 / 21)
    assert last.target[4] > 10 / 20


def test_what_was_learnt_serves_the_next_horizon() -> None:
    """The second horizon, with as many like requests, costs less than the first, which started from nothing."""
    world = make_world(21, groups=20, items=800, horizon=600, k=10, tightness=0.5, dim=16)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=64)
    costs: list[float] = []
    for _ in range(2):
        retriever.retrieve(world.users)
        costs.append(retriever.report().cost or 0.0)
    assert costs[1] < costs[0]


@pytest.mark.parametrize("batch_size", [1, 16, 512])
def test_the_cost_is_near_the_least_possible(batch_size: int) -> None:
    made = synthetic(3_000, 40, 1_500, dim=16, seed=5)
    catalog = Catalog(made.embeddings, made.groups)
    retriever = FairRetriever(catalog, k=10, floors=60, horizon=1_500, batch_size=batch_size).calibrate(made.past_users)
    retriever.retrieve(made.users)
    ratio = retriever.report(hindsight(catalog, made.users, k=10, floors=60)).cost_ratio
    assert ratio is not None
    assert 1 - 1e-9 <= ratio < 1.25


def test_lists_that_come_back_late_cannot_raise_subsidies_again() -> None:
    """What lists have shown is a limit, however often the same is seen before the first effect comes back."""
    sample, k, zero = make_sample(8, 200), 6, np.zeros(5)
    target = np.array([0.0, 0.0, 0.0, 0.0, 5.0])
    first = solve_subsidies(sample, target, zero, k, newest=200, iterations=25)
    late = solve_subsidies(sample, target, first.subsidies, k, newest=200, iterations=25, listed=zero)
    prompt = solve_subsidies(sample, target, first.subsidies, k, newest=200, iterations=25)
    assert (late.ceiling <= first.ceiling).all()
    assert (prompt.ceiling > first.ceiling).any()


def test_late_lists_are_recognised_by_their_prices() -> None:
    policy, counts = Guaranteed(), np.array([60, 30, 20, 10, 0])
    terms = Terms(np.array([0, 0, 0, 0, 50]), np.full(5, 6), k=6, horizon=100, batch_size=20)
    state = policy.step(policy.start(terms), terms, Feedback(20, counts, counts, 80, make_sample(5, 20)))
    again, exposures = make_sample(6, 20), np.array([120, 60, 40, 20, 0])
    now, then = (
        policy.step(state, terms, Feedback(20, counts, exposures, 60, replace(again, prices=prices)))
        for prices in (policy.prices(state), np.zeros(5))
    )
    assert now.solution is not None
    assert then.solution is not None
    assert then.solution.ceiling[4] < now.solution.ceiling[4]


def test_a_warm_up_changes_the_first_prices_sooner() -> None:
    world = make_world(21, groups=20, items=800, horizon=600, k=10, tightness=0.5, dim=16)
    versions: dict[bool, list[int]] = {}
    costs: dict[bool, float] = {}
    for warm_up in (False, True):
        retriever = FairRetriever(
            world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=128,
            policy=Guaranteed(warm_up=warm_up),
        )  # fmt: skip
        changes = versions[warm_up] = []
        before = retriever.report().prices
        for served, user in enumerate(world.users):
            retriever.retrieve(user[None, :])
            after = retriever.report().prices
            if after != before:
                changes.append(served)
            before = after
        costs[warm_up] = retriever.report().cost or 0.0
        assert retriever.report().esp == 1
    # The first request after each change sees the new prices.
    assert [served for served in (16, 48, 112, 240) if served in versions[True]] == [16, 48, 112, 240]
    assert min(versions[False]) == 128
    assert costs[True] < costs[False]


def test_a_place_without_an_item_changes_nothing() -> None:
    """Where fewer items are eligible than a list has places, those at its end have no entry."""
    whole, k, target = make_sample(5, 400, items=30), 6, np.array([0, 0, 0, 0.5, 0.5])
    order = np.argsort(-whole.relevance, axis=1)
    whole = Sample(np.take_along_axis(whole.groups, order, axis=1), np.take_along_axis(whole.relevance, order, axis=1))
    padded = Sample(
        np.pad(whole.groups, ((0, 0), (0, 9))),
        np.pad(whole.relevance, ((0, 0), (0, 9)), constant_values=-np.inf),
    )
    made = [solve_subsidies(one, target, np.zeros(5), k, newest=400, iterations=25) for one in (whole, padded)]
    assert made[0].subsidies.tolist() == made[1].subsidies.tolist()
    assert made[0].ceiling.tolist() == made[1].ceiling.tolist()
    variances = [exposure_variances(one, made[0].subsidies, k) for one in (whole, padded)]
    assert variances[0].tolist() == variances[1].tolist()


def test_short_lists_under_conditions_leave_prices_within_the_range_of_relevance() -> None:
    rng = np.random.default_rng(0)
    groups, few = [f"g{i % 6}" for i in range(300)], [i % 15 < 2 for i in range(300)]
    catalog = Catalog(rng.normal(size=(300, 8)), {"group": groups, "few": few})
    retriever = FairRetriever(catalog, k=10, floors={"g3": 400, "g5": 300}, horizon=200)
    for i in range(200):
        retriever.retrieve(rng.normal(size=(1, 8)) + 1, where={"few": True} if i % 2 else None)
        assert min(retriever.report().prices.values()) > -20.0
    assert retriever.report().esp == 1.0
