"""The default policy with promises that overlap, and with caps."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from fairsync.catalog.atoms import Membership
from fairsync.errors import InvalidInputError
from fairsync.policies import POLICIES, Guaranteed, NoPolicy, Sample, Terms
from fairsync.policies.base import NO_CAP, Feedback
from fairsync.policies.subsidy_solver import exposure_variances, solve_subsidies

# Three categories (promises 0 to 2) by two providers (3 and 4), and new items (5): 12 atoms.
ATOMS = [(c, 3 + p, *((5,) if new else ())) for c in range(3) for p in range(2) for new in (False, True)]
CROSSED = Membership.of(ATOMS, 6)


def make_sample(seed: int, requests: int, items: int = 80) -> Sample:
    """Complete lists, in which high codes are liked less."""
    rng = np.random.default_rng(seed)
    atoms = rng.integers(len(ATOMS), size=(requests, items))
    dislike = np.array([0.4 * c + 0.5 * (p - 3) + 0.6 * len(new) for c, p, *new in ATOMS])
    return Sample(atoms.astype(np.intp), (rng.normal(size=(requests, items)) - dislike[atoms]).astype(np.float32))


def exposures(sample: Sample, subsidies: np.typing.NDArray[np.float64], k: int) -> np.typing.NDArray[np.float64]:
    """Average exposures of each promise per request, straight from the definition."""
    score = sample.relevance + CROSSED.atom_prices(subsidies)[sample.groups]
    top = np.take_along_axis(sample.groups, np.argsort(-score, axis=1)[:, :k], axis=1)
    return CROSSED.exposures(np.bincount(top.ravel(), minlength=len(ATOMS))) / len(sample)


def test_promises_that_share_items_all_get_their_targets() -> None:
    sample, k = make_sample(0, 2000), 6
    plain = exposures(sample, np.zeros(6), k)
    target = np.where(np.isin(np.arange(6), (2, 4, 5)), 1.8 * plain, 0.0)
    solution = solve_subsidies(sample, target, np.zeros(6), k, newest=2000, iterations=25, membership=CROSSED)
    assert (solution.subsidies >= 0).all()
    assert exposures(sample, solution.subsidies, k)[[2, 4, 5]] == pytest.approx(target[[2, 4, 5]], rel=0.05)


def test_caps_charge_and_floors_subsidise() -> None:
    sample, k = make_sample(1, 2000), 6
    plain = exposures(sample, np.zeros(6), k)
    target = np.array([0, 0, 0, 0, 0, 1.8 * plain[5]])
    limit = np.array([0.6 * plain[0], np.inf, np.inf, 0.8 * plain[3], np.inf, np.inf])
    solution = solve_subsidies(
        sample, target, np.zeros(6), k, newest=2000, iterations=25, limit=limit, membership=CROSSED
    )
    found = exposures(sample, solution.subsidies, k)
    assert (solution.subsidies[[0, 3]] < 0).all()
    assert solution.subsidies[5] > 0
    assert (solution.subsidies[[1, 2, 4]] == 0).all()
    assert found[[0, 3]] == pytest.approx(limit[[0, 3]], rel=0.05)
    assert found[5] == pytest.approx(target[5], rel=0.05)


def test_a_promise_within_both_bounds_has_no_price() -> None:
    sample, k = make_sample(2, 1000), 6
    plain = exposures(sample, np.zeros(6), k)
    solution = solve_subsidies(
        sample, 0.8 * plain, np.zeros(6), k, newest=1000, iterations=25, limit=1.2 * plain, membership=CROSSED
    )
    assert (solution.subsidies == 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_they_cost_what_the_linear_program_says(seed: int) -> None:
    """The dual of the sample at these subsidies is close to its least value, which is that of the linear program."""
    sample, k, rng = make_sample(seed, 500, items=16), 4, np.random.default_rng(seed)
    n, width = sample.groups.shape
    plain = exposures(sample, np.zeros(6), k)
    promised = np.isin(np.arange(6), (1, 2, 4, 5)) & (rng.random(6) < 0.7)
    target = np.where(promised, rng.uniform(1.0, 1.6, size=6) * plain, 0.0)
    limit = np.where(~promised & (rng.random(6) < 0.5), 0.9 * plain, np.inf)
    of = CROSSED.matrix.toarray()[:, sample.groups.ravel()]
    bounds = np.isfinite(limit)
    lp = linprog(
        -sample.relevance.ravel().astype(float),
        A_ub=np.concatenate([-of, of[bounds]]), b_ub=n * np.concatenate([-target, limit[bounds]]),
        A_eq=np.kron(np.eye(n), np.ones(width)), b_eq=np.full(n, k), bounds=(0, 1),
    )  # fmt: skip
    solution = solve_subsidies(sample, target, np.zeros(6), k, newest=n, iterations=60, limit=limit, membership=CROSSED)

    def dual(subsidies: np.typing.NDArray[np.float64]) -> float:
        score = np.sort(sample.relevance + CROSSED.atom_prices(subsidies)[sample.groups], axis=1)[:, -k:].sum()
        owed = np.where(subsidies > 0, target, np.where(np.isfinite(limit), limit, 0.0)) @ subsidies
        return float(score - n * owed)

    assert lp.fun is not None
    cost = dual(np.zeros(6)) + lp.fun
    assert cost > 0
    assert -1e-6 <= dual(solution.subsidies) + lp.fun <= 0.1 * cost


def test_variances_are_those_of_the_lists() -> None:
    sample, k = make_sample(3, 300), 6
    top = np.take_along_axis(sample.groups, np.argsort(-sample.relevance, axis=1)[:, :k], axis=1)
    per_request = np.array([CROSSED.exposures(np.bincount(row, minlength=len(ATOMS))) for row in top])
    assert exposure_variances(sample, np.zeros(6), k, CROSSED) == pytest.approx(per_request.var(axis=0))


def crossed_terms(**changes: object) -> Terms:
    terms = Terms(
        np.array([0, 0, 200, 0, 0, 240]), np.full(12, 6), k=6, horizon=100, batch_size=20, membership=CROSSED,
        caps=np.array([150, NO_CAP, NO_CAP, NO_CAP, 400, NO_CAP]),
    )  # fmt: skip
    return replace(terms, **changes)  # type: ignore[arg-type]


def test_a_cap_that_is_used_up_is_charged_and_one_with_room_is_not() -> None:
    terms, policy = crossed_terms(), Guaranteed()
    counts = CROSSED.exposures(np.full(12, 10))
    state = policy.step(policy.start(terms), terms, Feedback(20, counts, counts, 80, make_sample(5, 20)))
    prices = policy.prices(state)
    assert prices[0] > 0
    assert prices[4] == 0
    assert prices[2] < 0
    assert prices[5] < 0


def test_an_atom_serves_several_promises_so_targets_may_exceed_the_list() -> None:
    floors = np.array([200, 200, 200, 0, 550, 550])
    terms, policy = crossed_terms(floors=floors, caps=None), Guaranteed()
    target = policy._target(policy.start(terms), terms, Feedback(0, floors * 0, floors * 0, 100))
    assert target == pytest.approx(floors / 100)
    floors = np.array([200, 200, 300, 0, 0, 0])
    terms = crossed_terms(floors=floors, caps=None)
    target = policy._target(policy.start(terms), terms, Feedback(0, floors * 0, floors * 0, 100))
    assert target.sum() == pytest.approx(0.999 * 6)


def test_what_eligible_items_can_show_limits_the_target() -> None:
    terms, policy = crossed_terms(caps=None), Guaranteed()
    slots = np.full(12, 0.05)
    zero = np.zeros(6, dtype=np.int64)
    target = policy._target(policy.start(terms), terms, Feedback(0, zero, zero, 100, slots=slots))
    assert target == pytest.approx(np.array([0, 0, 0.2, 0, 0, 0.3]))


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"none", "guaranteed"}))
@pytest.mark.parametrize(
    "terms",
    [
        crossed_terms(caps=None),
        crossed_terms(membership=None, capacities=np.full(6, 6)),
        crossed_terms(membership=None, capacities=np.full(6, 6), caps=None, list_limits=np.full(6, 2)),
    ],
    ids=["overlap", "caps", "list limits"],
)
def test_the_papers_policies_refuse_other_promises(name: str, terms: Terms) -> None:
    with pytest.raises(InvalidInputError, match="use 'guaranteed'"):
        POLICIES[name]().start(terms)


def test_plain_retrieval_takes_all_promises() -> None:
    policy = NoPolicy()
    assert policy.prices(policy.start(crossed_terms())).tolist() == [0.0] * 6


def test_the_last_batches_get_a_reserve() -> None:
    terms, policy = crossed_terms(caps=None, horizon=600), Guaranteed()
    counts, zero = CROSSED.exposures(np.full(12, 10)), np.zeros(6, dtype=np.int64)
    first = policy.step(policy.start(terms), terms, Feedback(20, counts, zero, 580, make_sample(5, 20)))
    early, late = (policy.step(first, terms, Feedback(20, counts, zero, left, None)) for left in (257, 256))
    assert early.target[5] == pytest.approx(240 / 257)
    assert late.target[5] > 240 / 256
