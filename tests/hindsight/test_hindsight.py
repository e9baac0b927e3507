"""The plan in hindsight against a solver that knows nothing of prices, and its own certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.hindsight import Effort, Hindsight, hindsight
from fairsync.hindsight.hindsight import solve
from fairsync.hindsight.priced_lists import ListSizes
from fairsync.inputs import check_users
from fairsync.promises.floors import resolve_floors
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Case:
    """A small problem that is surely feasible."""

    items: NDArray[np.floating[Any]]
    users: NDArray[np.floating[Any]]
    groups: NDArray[np.int64]
    k: int
    floors: NDArray[np.int64]

    @property
    def scores(self) -> NDArray[np.float64]:
        users = self.users.reshape(len(self.users), -1, self.users.shape[-1]).astype(np.float64)
        best: NDArray[np.float64] = (users @ self.items.T.astype(np.float64)).max(axis=1)
        return best

    def solve(self, **more: Any) -> Hindsight:
        return hindsight(Catalog(self.items, self.groups), self.users, k=self.k, floors=self.by_label, **more)

    def solve_with(self, effort: Effort) -> Hindsight:
        catalog = Catalog(self.items, self.groups)
        floors, users = resolve_floors(self.by_label, catalog), check_users(self.users, catalog)
        return solve(catalog, ExactIndex(catalog).search, users, self.k, floors, effort=effort)

    @property
    def by_label(self) -> dict[str | int, int]:
        return dict(enumerate(self.floors.tolist()))

    def optimum(self, whole: bool) -> float:
        """Ask HiGHS, as a linear program or as one in whole numbers."""
        model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        model.silent()
        kind = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
        taken = [[model.addVariable(0, 1, type=kind) for _ in self.items] for _ in self.users]
        for row in taken:
            model.addConstr(model.qsum(row) == self.k)
        for group, floor in enumerate(self.floors):
            members = np.flatnonzero(self.groups == group)
            model.addConstr(model.qsum(row[i] for row in taken for i in members) >= int(floor))
        pairs = zip(taken, self.scores.tolist(), strict=True)
        model.maximize(model.qsum(s * x for row, scores in pairs for x, s in zip(row, scores, strict=True)))
        return float(model.getInfo().objective_function_value)

    def check(self, best: Hindsight) -> None:
        """Check everything that needs no solver."""
        tolerance = 1e-9 * max(1.0, float(np.abs(self.scores).sum()))
        assert best.rows.shape == (len(self.users), self.k)
        assert all(len(set(row)) == self.k for row in best.rows.tolist())
        picked = np.take_along_axis(self.scores, best.rows, axis=1)
        assert (np.diff(picked, axis=1) <= tolerance).all()
        assert best.feasible_relevance == pytest.approx(float(picked.sum()), abs=tolerance)
        counts = np.bincount(self.groups[best.rows].ravel(), minlength=self.floors.size)
        assert list(best.exposures.values()) == counts.tolist()
        assert (counts >= self.floors).all()
        # The upper bound is the dual's value under the published prices: anyone can check it.
        subsidies = -np.array(list(best.prices.values()))
        assert (subsidies >= 0).all()
        priced = np.sort(self.scores + subsidies[self.groups], axis=1)[:, -self.k :]
        assert best.relevance == pytest.approx(priced.sum() - self.floors @ subsidies, abs=tolerance)
        plain = np.sort(self.scores, axis=1)[:, -self.k :].sum()
        assert best.unconstrained_relevance == pytest.approx(plain, abs=tolerance)
        assert best.relevance >= best.feasible_relevance - tolerance
        assert best.cost >= 0


def make(
    seed: int,
    requests: int,
    items: int,
    groups: int,
    k: int,
    *,
    interests: int = 0,
    ties: bool = False,
    tight: float = 0.8,
) -> Case:
    """Take floors from a plan made at random, so that they are feasible; ``tight=1`` fills every place."""
    rng = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> NDArray[np.float64]:
        return rng.integers(-1, 2, shape).astype(np.float64) if ties else rng.normal(size=shape)

    codes = np.concatenate([np.arange(groups), rng.integers(groups, size=items - groups)])
    plan = np.concatenate([rng.choice(items, k, replace=False) for _ in range(requests)])
    floors = np.floor(tight * np.bincount(codes[plan], minlength=groups)).astype(np.int64)
    embeddings = draw((items, 3)) * (1 + codes[:, None])  # so that some groups are hard to choose
    users = draw((requests, interests, 3) if interests else (requests, 3)).astype(np.float32)
    nowhere = ~users.reshape(requests, -1).any(axis=1)
    users[nowhere] = np.eye(3, dtype=np.float32)[0]  # zero vectors have a test of their own
    return Case(embeddings.astype(np.float32), users, codes, k, floors)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    items = draw(st.integers(1, 12))
    return make(
        draw(st.integers(0, 2**32 - 1)),
        requests=draw(st.integers(1, 8)),
        items=items,
        groups=draw(st.integers(1, min(items, 5))),
        k=draw(st.integers(1, items)),
        interests=draw(st.sampled_from([0, 0, 1, 3])),
        ties=draw(st.booleans()),
        tight=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
    )


SHORT_LISTS = Effort(ListSizes(fetch=2, least=2))
"""The whole catalog does not fit in a list: more has to be fetched as it is needed."""
AS_LARGE = Effort(ListSizes(fetch=2, least=2, chunk=7), free=30, sample=50)
"""Small problems take the path of large ones: short lists, a sample, descent, small programs."""


@settings(max_examples=150, deadline=None)
@given(case=cases(), short_lists=st.booleans())
def test_it_is_the_optimum_of_the_program_and_the_program_is_integral(case: Case, short_lists: bool) -> None:
    best = case.solve_with(SHORT_LISTS) if short_lists else case.solve()
    case.check(best)
    tolerance = 1e-6 * max(1.0, abs(best.relevance))
    assert best.relevance == pytest.approx(case.optimum(whole=False), abs=tolerance)
    assert best.feasible_relevance == pytest.approx(case.optimum(whole=True), abs=tolerance)


@settings(max_examples=40, deadline=None)
@given(case=cases(), group=st.integers(0, 4))
def test_a_group_shown_as_often_as_can_be(case: Case, group: int) -> None:
    group %= case.floors.size
    case.floors[:] = 0
    case.floors[group] = len(case.users) * min(case.k, int((case.groups == group).sum()))
    best = case.solve()
    case.check(best)
    assert best.relevance == pytest.approx(case.optimum(whole=False), abs=1e-6 * max(1.0, abs(best.relevance)))
    assert best.relevance - best.feasible_relevance < 1e-6 * max(1.0, abs(best.relevance))


@pytest.mark.parametrize("tight", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("interests", [0, 2])
def test_the_path_of_large_problems(tight: float, ties: bool, interests: int) -> None:
    case = make(1, requests=120, items=60, groups=6, k=4, interests=interests, ties=ties, tight=tight)
    best = case.solve_with(AS_LARGE)
    case.check(best)
    assert best.relevance == pytest.approx(case.optimum(whole=False), rel=1e-6)
    assert best.relevance - best.feasible_relevance < 1e-6 * max(1.0, abs(best.relevance))


def test_only_what_is_scarce_has_a_price() -> None:
    case = make(3, requests=40, items=30, groups=4, k=3, tight=0.7)
    best = case.solve()
    above = [price for group, price in best.prices.items() if best.exposures[group] > case.floors[int(group)]]
    assert above == [0.0] * len(above)
    assert best.cost > 0


def test_without_floors_nothing_is_given_up() -> None:
    case = make(4, requests=20, items=30, groups=4, k=3, tight=0)
    best = case.solve()
    case.check(best)
    assert best.cost == best.gap == 0
    assert set(best.prices.values()) == {0.0}


def test_if_it_cannot_finish_it_says_so_and_still_meets_the_floors() -> None:
    for seed in range(20):
        case = make(seed, requests=9, items=11, groups=4, k=3, tight=1.0)
        best = case.solve_with(Effort(steps=0))
        case.check(best)
        optimum = case.optimum(whole=True)
        assert best.feasible_relevance - 1e-6 <= optimum <= best.relevance + 1e-6


@pytest.mark.parametrize("k", [0, 9])
def test_a_k_that_makes_no_sense_is_refused(k: int) -> None:
    case = make(5, requests=4, items=8, groups=2, k=2)
    case.k = k
    with pytest.raises(InvalidInputError, match=r"k (must be|is 9)"):
        case.solve()


def test_users_of_another_dimension_are_refused() -> None:
    case = make(5, requests=4, items=8, groups=2, k=2)
    case.users = case.users[:, :2]
    with pytest.raises(InvalidInputError, match="users have 2 dimensions"):
        case.solve()


@pytest.mark.parametrize("index", ["exact", "one-hot"])
def test_any_exact_index_gives_the_same(index: str) -> None:
    case = make(9, requests=30, items=50, groups=4, k=3, tight=0.9)
    best = case.solve(index=index)
    case.check(best)
    assert best.relevance == pytest.approx(case.solve().relevance, rel=1e-6)


def test_floors_that_cannot_be_met_are_refused() -> None:
    case = make(5, requests=4, items=8, groups=2, k=2)
    case.floors[0] = 4 * 2 + 1
    with pytest.raises(InfeasibleFloorsError):
        case.solve()


def test_it_reads_well_and_shows_progress() -> None:
    best = make(6, requests=40, items=30, groups=4, k=3).solve(progress=True)
    assert repr(best).startswith("Hindsight(relevance=")
    assert "40 requests" in repr(best)


@pytest.mark.parametrize("exponent", [-1000, -500, -100, -50, 30, 100, 120])
@pytest.mark.parametrize("tight", [0.5, 1.0])
def test_scores_of_any_size_have_the_same_plan(exponent: int, tight: float) -> None:
    for seed in range(5):
        drawn = make(seed, requests=7, items=45, groups=4, k=3, tight=tight)
        users, items = drawn.users.astype(np.float64), drawn.items.astype(np.float64)
        case = Case(items, users, drawn.groups, drawn.k, drawn.floors)
        scaled = Case(items, np.ldexp(users, exponent), drawn.groups, drawn.k, drawn.floors)
        best, same = case.solve(), scaled.solve()
        assert same.relevance >= same.feasible_relevance
        assert np.ldexp(same.relevance, -exponent) == pytest.approx(best.relevance)
        assert np.ldexp(same.feasible_relevance, -exponent) == pytest.approx(best.feasible_relevance)
        assert same.gap == pytest.approx(0, abs=1e-9)


def best_with_rules(case: Case, mask: NDArray[np.bool_]) -> float | None:
    """Ask HiGHS for the best plan of eligible items in whole numbers; None if there is none."""
    model: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    taken = [[model.addVariable(0, int(may), type=highspy.HighsVarType.kInteger) for may in row] for row in mask]
    for row, may in zip(taken, mask, strict=True):
        model.addConstr(model.qsum(row) == min(case.k, int(may.sum())))
    for group, floor in enumerate(case.floors):
        members = np.flatnonzero(case.groups == group)
        model.addConstr(model.qsum(row[i] for row in taken for i in members) >= int(floor))
    pairs = zip(taken, case.scores.tolist(), strict=True)
    model.maximize(model.qsum(s * x for row, scores in pairs for x, s in zip(row, scores, strict=True)))
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return float(model.getInfo().objective_function_value)


@settings(max_examples=120, deadline=None)
@given(case=cases(), share=st.sampled_from([0.1, 0.5, 0.9]), seed=st.integers(0, 99), effort=st.integers(0, 2))
def test_with_rules_it_is_the_optimum_over_the_eligible_items(case: Case, share: float, seed: int, effort: int) -> None:
    """Also where lists are short, and where hardly anything is eligible."""
    rng, catalog = np.random.default_rng(seed), Catalog(case.items, case.groups)
    mask = rng.random((len(case.users), len(case.items))) >= share
    case.floors = np.minimum(
        case.floors, [int((mask & (case.groups == g)).sum() // 2) for g in range(len(case.floors))]
    )
    exclude = [np.flatnonzero(~row).tolist() for row in mask]
    optimum = best_with_rules(case, mask)
    if optimum is None:
        with pytest.raises((InfeasibleFloorsError, InvalidInputError)):
            case.solve(exclude=exclude)
        return
    eligible, _ = make_eligibility(exclude, None, catalog, len(mask))
    if effort == 0 or eligible is None:
        best = case.solve(exclude=exclude)
    else:
        users, floors = check_users(case.users, catalog), resolve_floors(case.by_label, catalog)
        how = [SHORT_LISTS, AS_LARGE][effort - 1]
        search = ExactIndex(catalog).search
        best = solve(catalog, search, users, case.k, floors, effort=how, eligible=eligible)
    tolerance = 1e-6 * max(1.0, float(np.abs(case.scores).sum()))
    assert best.feasible_relevance == pytest.approx(optimum, abs=tolerance)
    assert best.relevance == pytest.approx(optimum, abs=tolerance)
    for row, may in zip(best.rows, mask, strict=True):
        there = row[row >= 0].tolist()
        assert len(set(there)) == len(there) == min(case.k, int(may.sum()))
        assert may[there].all()
    counts = np.bincount(case.groups[best.rows[best.rows >= 0]], minlength=len(case.floors))
    assert list(best.exposures.values()) == counts.tolist()
    assert (counts >= case.floors).all()
    plain = sum(float(np.sort(scores[may])[-case.k :].sum()) for scores, may in zip(case.scores, mask, strict=True))
    assert best.unconstrained_relevance == pytest.approx(plain, abs=tolerance)


def test_conditions_and_floors_beyond_what_is_eligible() -> None:
    catalog = Catalog(
        [[0.9, 0.8], [0.1, 0.6], [0.2, 0.3]], {"size": ["big", "small", "small"], "new": [True, True, False]}
    )
    users = [[1.0, 0.0], [0.0, 1.0]]
    best = hindsight(catalog, users, k=1, floors={"small": 1}, where=[{"new": True}, {"size": "big"}])
    assert best.rows.tolist() == [[1], [0]]
    with pytest.raises(InfeasibleFloorsError, match="eligible items of it 1 times at most"):
        hindsight(catalog, users, k=1, floors={"small": 2}, where=[{"new": True}, {"size": "big"}])
    with pytest.raises(InfeasibleFloorsError, match="1 slots for eligible items"):
        hindsight(catalog, users, k=1, floors={"small": 1, "big": 1}, exclude=[[0, 1, 2], []])


def test_zero_vectors_are_cold_requests_as_in_the_retriever() -> None:
    case, cold = make(3, 12, 10, 3, 2, tight=0.5), np.array([0, 5, 6, 11])
    given = case.users.copy()
    given[cold] = 0.0
    catalog = Catalog(case.items, case.groups)
    given64, items64 = given.astype(np.float64), case.items.astype(np.float64)
    filled = given64.copy()
    for at in cold.tolist():  # the mean of the others before it, and of the items before the first of them
        before = np.delete(np.arange(at), cold[cold < at])
        filled[at] = (given64[before] if len(before) else items64).mean(axis=0)
    best = hindsight(catalog, given, k=2, floors=case.by_label)
    Case(case.items, filled.astype(np.float32), case.groups, 2, case.floors).check(best)
    plain = FairRetriever(catalog, k=2, policy="none").retrieve(given)
    assert best.unconstrained_relevance == pytest.approx(float(plain.relevance.sum()))
    vector = [0.5, -1.0, 2.0]
    given[cold] = vector
    same = hindsight(catalog, given, k=2, floors=case.by_label)
    given[cold] = 0.0
    assert hindsight(catalog, given, k=2, floors=case.by_label, cold=vector).relevance == same.relevance
    with pytest.raises(InvalidInputError, match="fixed list"):
        hindsight(catalog, given, k=2, floors=case.by_label, cold=[0, 1])


def test_k_and_floors_may_be_given_by_position() -> None:
    catalog, users = Catalog(np.eye(4), ["a", "a", "b", "b"]), np.ones((6, 4))
    assert hindsight(catalog, users, 2, 3).exposures == hindsight(catalog, users, k=2, floors=3).exposures
