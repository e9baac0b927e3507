"""What fairness costs next to the least possible: against the exact answer on all requests of a small world."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.atoms import Membership
from fairsync.hindsight import Hindsight, hindsight
from fairsync.promises import Promise
from fairsync.promises.resolve import find_atoms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from fairsync.service.promises import costs as module
from fairsync.service.promises.costs import Answered, Asked, Costs, estimate_costs

GROUPS, REQUESTS, K, DIM = 12, 2000, 8, 12


class World(NamedTuple):
    """Requests that were answered as they came, and the best plan for them in hindsight."""

    catalog: Catalog
    users: npt.NDArray[np.float64]
    rows: npt.NDArray[np.int64]
    relevance: npt.NDArray[np.float64]
    asked: npt.NDArray[np.float64]
    without: float
    best: Hindsight

    @property
    def ratio(self) -> float:
        return float((self.without - self.relevance.sum()) / self.best.cost)

    def estimate(self, which: npt.NDArray[np.intp]) -> Costs:
        sample = Answered(self.users[which, None], self.rows[which], self.relevance[which])
        search = ExactIndex(self.catalog, threads=1).search
        return estimate_costs(search, sample, of_groups(self.catalog, self.asked), np.zeros(GROUPS))


def of_groups(catalog: Catalog, floors: npt.NDArray[np.float64]) -> Asked:
    """Return what floors of groups asked for, as shares of their exposures."""
    groups = Membership.of([(code,) for code in range(catalog.n_groups)], catalog.n_groups)
    return Asked(catalog.group_of, groups, floors, np.full(catalog.n_groups, np.inf))


@pytest.fixture(scope="module")
def world() -> World:
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(GROUPS, DIM))
    codes = np.repeat(np.arange(GROUPS), 40)
    vectors = centres[codes] + 1.3 * rng.normal(size=(len(codes), DIM))
    catalog = Catalog(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), codes)
    users = rng.normal(size=(REQUESTS, DIM)) + 0.5 * centres[rng.integers(0, 4, size=REQUESTS)]
    floors = dict.fromkeys(range(GROUPS), REQUESTS * K // 20)
    retriever = FairRetriever(catalog, k=K, floors=floors, horizon=REQUESTS)
    found = retriever.retrieve(users)
    rows = catalog.rows_of(found.ids)
    exposures = np.bincount(catalog.group_of[rows].ravel(), minlength=GROUPS)
    without = float(
        FairRetriever(catalog, k=K, floors=0, horizon=REQUESTS, policy="none").retrieve(users).relevance.sum()
    )
    # What was asked of the best plan: the floors, which all were reached.
    assert (exposures >= list(floors.values())).all()
    asked = np.array(list(floors.values())) / exposures
    best = hindsight(catalog, users, k=K, floors=floors)
    return World(catalog, users, rows, found.relevance, asked, without, best)


def test_on_all_requests_it_is_the_plan_made_in_hindsight(world: World) -> None:
    costs = world.estimate(np.arange(REQUESTS))
    assert world.ratio > 1.02, "otherwise there is nothing to tell apart"
    assert costs.share == pytest.approx((world.without - world.relevance.sum()) / world.without)
    assert costs.least is not None
    assert costs.least == pytest.approx(world.best.cost / world.without, rel=0.005)
    assert costs.least <= world.best.cost / world.without * (1 + 1e-9), "it is a bound: no plan can cost less"
    assert costs.ratio is not None
    assert costs.ratio[0] == pytest.approx(world.ratio, rel=0.005)


def test_a_sample_says_the_same_within_its_error(world: World) -> None:
    estimates = [world.estimate(np.random.default_rng(seed).choice(REQUESTS, 400, replace=False)) for seed in range(8)]
    ratios = [one.ratio for one in estimates if one.ratio is not None]
    assert len(ratios) == 8
    inside = sum(low <= world.ratio <= high for _, low, high in ratios)
    assert inside >= 6
    assert np.mean([ratio for ratio, _, _ in ratios]) == pytest.approx(world.ratio, abs=0.05)
    assert np.mean([one.least for one in estimates]) == pytest.approx(world.best.cost / world.without, rel=0.1)


def test_costs_of_groups_are_what_each_request_lost_to_them(world: World) -> None:
    which = np.arange(50)
    costs = world.estimate(which)
    scores = world.users[which] @ world.catalog.embeddings.T
    lost, most = np.zeros(GROUPS), 0.0
    for score, rows in zip(scores, world.rows[which], strict=True):
        best = set(np.argsort(-score)[:K].tolist())
        most += score[list(best)].sum()
        came, went = set(rows.tolist()) - best, best - set(rows.tolist())
        for row in came:
            lost[world.catalog.group_of[row]] += np.mean(score[list(went)]) - score[row]
    assert costs.groups == pytest.approx(lost / most)
    assert costs.groups.sum() == pytest.approx(costs.share)
    assert (costs.natural * len(which)).sum() == pytest.approx(len(which) * K)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_nothing_costs_less_than_the_least_whatever_was_answered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, groups, k = int(rng.integers(1, 20)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    catalog = Catalog(rng.normal(size=(12, 3)), rng.integers(0, groups, size=12))
    users = rng.normal(size=(n, 1, 3))
    rows = np.argsort(rng.random((n, 12)), axis=1)[:, :k]
    relevance = np.take_along_axis(users[:, 0] @ catalog.embeddings.T, rows, axis=1)
    asked, prices = rng.random(catalog.n_groups) * rng.integers(0, 2), -rng.random(catalog.n_groups)
    sample = Answered(users, rows, relevance)
    costs = estimate_costs(ExactIndex(catalog).search, sample, of_groups(catalog, asked), prices)
    assert costs.least is not None
    assert 0 <= costs.least <= costs.share + 1e-12
    assert (costs.groups >= 0).all()
    assert costs.groups.sum() == pytest.approx(costs.share)
    if costs.ratio is not None:
        assert 1 <= costs.ratio[1] <= costs.ratio[0] <= costs.ratio[2]


def test_what_was_not_promised_need_not_be_paid_for(world: World) -> None:
    nothing = world._replace(asked=np.zeros(GROUPS)).estimate(np.arange(100))
    assert nothing.share > 0
    assert (nothing.least, nothing.ratio) == (0.0, None)


def overlapping_world(seed: int) -> tuple[Catalog, npt.NDArray[np.float64], list[Promise], Answered, Asked]:
    """Return requests that were answered under a floor, a cap and a limit per list, which overlap."""
    rng = np.random.default_rng(seed)
    n, requests = 300, 400
    vectors = rng.normal(size=(n, DIM))
    catalog = Catalog(
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        {"category": rng.integers(0, 6, size=n), "maker": rng.integers(0, 5, size=n), "new": rng.random(n) < 0.2},
    )
    users = rng.normal(size=(requests, DIM))
    promises = [
        Promise({"new": True}, at_least=0.35),
        Promise({"maker": 1}, at_least=0.3),
        Promise({"category": 2}, at_most=0.1),
        Promise({"category": 3}, at_most_per_list=1),
    ]
    retriever = FairRetriever(catalog, k=K, promises=promises, horizon=requests)
    found = retriever.retrieve(users)
    rows, slots = catalog.rows_of(found.ids), requests * K
    atoms = find_atoms(catalog, promises)
    had = atoms.membership.sums(
        np.bincount(atoms.atom_of[rows].ravel(), minlength=atoms.membership.n_atoms).astype(np.float64)
    )
    floors = np.array([one.floor(slots) for one in promises]) / had
    caps = np.array([np.inf if (cap := one.cap(slots)) is None else cap for one in promises]) / had
    limits = np.array([one.at_most_per_list or K for one in promises])
    asked = Asked(atoms.atom_of, atoms.membership, np.minimum(floors, 1), np.maximum(caps, 1), limits)
    return catalog, users, promises, Answered(users[:, None], rows, found.relevance), asked


@pytest.mark.parametrize("seed", range(3))
def test_promises_over_anything_cost_at_least_what_the_best_plan_gives_up(seed: int) -> None:
    catalog, users, promises, answered, asked = overlapping_world(seed)
    best = hindsight(catalog, users, k=K, promises=promises)
    search = ExactIndex(find_atoms(catalog, promises).catalog(catalog), threads=1).search
    costs = estimate_costs(search, answered, asked, np.zeros(len(promises)))
    least = costs.least * best.unconstrained_relevance
    given_up = best.unconstrained_relevance - best.feasible_relevance
    assert 0.95 * best.cost <= least <= given_up * (1 + 1e-6)
    assert costs.least <= costs.share
    assert costs.prices[0] < 0
    assert costs.prices[2] >= 0, "a cap charges"


def test_a_bound_that_is_left_out_leaves_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, _, promises, answered, asked = overlapping_world(0)
    search = ExactIndex(find_atoms(catalog, promises).catalog(catalog), threads=1).search
    every = estimate_costs(search, answered, asked, np.array([-0.2, -0.1, 0.0, 0.0]))
    monkeypatch.setattr(module, "MOST_BOUNDS", 1)
    one = estimate_costs(search, answered, asked, np.array([-0.2, -0.1, 0.0, 0.0]))
    assert 0 < one.least < every.least
