"""Hindsight of promises that overlap, against an integer program over all items and requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from effort import effort
from fairsync.catalog import Catalog
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError
from fairsync.hindsight import Effort, Hindsight, dual, hindsight
from fairsync.hindsight.hindsight import solve_promises
from fairsync.hindsight.priced_lists import ListSizes
from fairsync.inputs import check_users
from fairsync.promises import Promise
from fairsync.promises.resolve import resolve_promises
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Case:
    """A small problem that a random plan solves."""

    catalog: Catalog
    users: NDArray[np.float64]
    k: int
    promises: list[Promise]
    may: NDArray[np.bool_]  #: (T, n) eligible items

    @property
    def scores(self) -> NDArray[np.float64]:
        return self.users @ self.catalog.embeddings.astype(np.float64).T

    @property
    def exclude(self) -> list[list[int]] | None:
        return None if self.may.all() else [np.flatnonzero(~row).tolist() for row in self.may]

    def members(self, promise: Promise) -> NDArray[np.float64]:
        chosen, mask = self.catalog.select(promise.where), np.zeros(len(self.catalog))
        mask[slice(None) if chosen is None else chosen.rows] = 1
        return mask

    @property
    def lengths(self) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = np.minimum(self.may.sum(axis=1), self.k)
        return lengths

    @property
    def unlimited(self) -> NDArray[np.bool_]:
        """(T,) the requests of which too few eligible items keep the limits per list to fill their lists."""
        limits = [
            (self.members(one), one.at_most_per_list) for one in self.promises if one.at_most_per_list is not None
        ]
        found = []
        for may, length in zip(self.may, self.lengths.tolist(), strict=True):
            taken = np.zeros(len(may))  # limits form a tree, so that any order finds the longest list
            for item in np.flatnonzero(may).tolist():
                taken[item] = all(members @ taken < most for members, most in limits if members[item])
            found.append(taken.sum() < length)
        return np.array(found)

    def optimum(self, whole: bool) -> float | None:
        """Ask HiGHS; None if there is no plan."""
        requests, items = self.may.shape
        slots = requests * self.k
        rows: list[Any] = [sparse.kron(sparse.eye_array(requests), np.ones((1, items)))]
        low, high = [self.lengths], [self.lengths]
        for promise in self.promises:
            members, cap = self.members(promise), promise.cap(slots)
            rows.append(sparse.csr_array(np.tile(members, requests)[None]))
            low.append(np.array([promise.floor(slots)]))
            high.append(np.array([slots if cap is None else cap]))
            if promise.at_most_per_list is not None:
                rows.append(sparse.kron(sparse.eye_array(requests), members[None]))
                low.append(np.zeros(requests, dtype=np.int64))
                high.append(np.where(self.unlimited, self.k, promise.at_most_per_list))
        solved = milp(
            -self.scores.ravel(),
            integrality=np.full(self.may.size, int(whole)),
            bounds=Bounds(0, self.may.ravel().astype(np.float64)),
            constraints=LinearConstraint(sparse.vstack(rows), np.concatenate(low), np.concatenate(high)),
        )
        return None if solved.x is None else -float(solved.fun)

    def solve(self, **more: Any) -> Hindsight:
        return hindsight(self.catalog, self.users, k=self.k, promises=self.promises, exclude=self.exclude, **more)

    def check(self, best: Hindsight) -> None:
        """Check everything that needs no solver: the plan keeps the promises, and the prices prove the bound."""
        tolerance, slots = self.tolerance, len(self.users) * self.k
        relevance = 0.0
        for row, may, scores, length in zip(best.rows, self.may, self.scores, self.lengths, strict=True):
            there = row[row >= 0]
            assert len(set(there.tolist())) == len(there) == length
            assert may[there].all()
            assert (np.diff(scores[there]) <= tolerance).all()
            relevance += float(scores[there].sum())
        assert best.feasible_relevance == pytest.approx(relevance, abs=tolerance)
        shown = np.bincount(best.rows[best.rows >= 0], minlength=len(self.catalog))
        priced, rest = self.scores.copy(), 0.0
        limited = False
        for promise in self.promises:
            members, price = self.members(promise), best.prices[promise.name]
            count, floor, cap = int(members @ shown), promise.floor(slots), promise.cap(slots)
            assert best.exposures[promise.name] == count >= floor == best.floors[promise.name]
            assert cap is None or count <= cap == best.caps[promise.name]
            if promise.at_most_per_list is not None:
                limited = True
                held = np.where(best.rows >= 0, members[best.rows], 0).sum(axis=1)
                assert (held <= promise.at_most_per_list)[~self.unlimited].all()
            priced -= price * members
            rest += price * (floor if price < 0 else slots if cap is None else cap)
            assert price <= 0 or cap is not None
        plain = np.sort(np.where(self.may, self.scores, -np.inf), axis=1)[:, ::-1][:, : self.k]
        assert best.unconstrained_relevance == pytest.approx(plain[plain > -np.inf].sum(), abs=tolerance)
        if not limited:
            kept = np.sort(np.where(self.may, priced, -np.inf), axis=1)[:, ::-1][:, : self.k]
            assert best.relevance == pytest.approx(kept[kept > -np.inf].sum() + rest, abs=tolerance)

    @property
    def tolerance(self) -> float:
        return 1e-7 * max(1.0, float(np.abs(self.scores).sum()))


def make(
    seed: int, requests: int, items: int, k: int, *, tight: float, caps: bool, limits: bool, exclude: float, ties: bool
) -> Case:
    """Take the promises from a plan made at random."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> NDArray[np.float64]:
        return rng.integers(-1, 2, shape).astype(np.float64) if ties else rng.normal(size=shape)

    outside = k if caps or limits else 0  # items of which nothing is promised
    labels = {name: [f"{name}{code}" for code in rng.integers(size, size=items)] for name, size in (("a", 3), ("b", 4))}
    tags = [[f"t{code}" for code in np.flatnonzero(rng.random(3) < 0.4)] for _ in range(items)]
    catalog = Catalog(
        np.concatenate([draw(items, 3), 0.3 * draw(outside, 3)]),
        {
            "a": labels["a"] + ["none"] * outside,
            "b": labels["b"] + ["none"] * outside,
            "tags": tags + [[]] * outside,
            "new": [bool(x) for x in rng.random(items) < 0.3] + [False] * outside,
        },
    )
    n = len(catalog)
    may = rng.random((requests, n)) >= exclude
    plan = np.zeros((requests, n))
    for row, allowed in zip(plan, may, strict=True):
        row[rng.choice(np.flatnonzero(allowed), min(k, int(allowed.sum())), replace=False)] = 1
    wheres: list[dict[str, Any]] = [{"a": f"a{i}"} for i in range(3)] + [{"b": f"b{i}"} for i in range(4)]
    wheres += [{"tags": f"t{i}"} for i in range(3)] + [{"new": True}, {"a": "a0", "new": True}]
    wheres += [{"b": ["b1", "b2"]}] if {"b1", "b2"} <= set(labels["b"]) else []
    case, promises = Case(catalog, draw(requests, 3), k, [], may), []
    slots = requests * k
    for where in wheres:
        members = case.members(Promise(where, at_least=0))
        if not members.any() or rng.random() < 0.3:
            continue
        count, most = int((plan @ members).sum()), int((plan @ members).max())
        low: float = int(tight * count)
        if rng.random() < 0.2 and 0 < low < slots:
            low = (low - 0.5) / slots  # a share of all slots, of which the next whole number counts
        high = max(count, int(count / max(tight, 0.3))) if caps and rng.random() < 0.5 else None
        limit = most if limits and "b" in where and where["b"] != ["b1", "b2"] else None
        promises.append(Promise(where, at_least=low, at_most=high, at_most_per_list=limit))
    case.promises = promises or [Promise({}, at_least=0)]
    return case


@st.composite
def cases(draw: st.DrawFn, exclude: bool = True) -> Case:
    items = draw(st.integers(3, 14))
    return make(
        draw(st.integers(0, 2**32 - 1)),
        requests=draw(st.integers(1, 8)),
        items=items,
        k=draw(st.integers(1, min(items - 1, 5))),
        tight=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        caps=draw(st.booleans()),
        limits=draw(st.booleans()),
        exclude=draw(st.sampled_from([0.0, 0.0, 0.2, 0.7])) if exclude else 0.0,
        ties=draw(st.booleans()),
    )


EFFORTS = (
    Effort(),
    Effort(ListSizes(fetch=2, least=2)),  # more has to be fetched as it is needed
    Effort(ListSizes(fetch=2, least=2, chunk=7), free=30, sample=50),  # the path of large problems
)


def solve(case: Case, effort: Effort) -> Hindsight:
    eligible, _ = make_eligibility(case.exclude, None, case.catalog, len(case.users))
    users = check_users(case.users, case.catalog)
    return solve_promises(case.catalog, "exact", users, case.k, case.promises, effort=effort, eligible=eligible)


@effort(40, seconds_each=0.1)
@given(case=cases(exclude=False))
def test_if_it_cannot_finish_it_still_keeps_every_promise(case: Case) -> None:
    best = solve(case, Effort(steps=0, whole=()))
    case.check(best)
    whole = case.optimum(whole=True)
    assert whole is not None
    assert best.feasible_relevance - case.tolerance <= whole <= best.relevance + 10 * case.tolerance


@effort(150, seconds_each=0.1)
@given(case=cases(), how=st.sampled_from(EFFORTS))
def test_the_bound_is_that_of_the_linear_program_and_the_plan_is_below_the_integer_program(
    case: Case, how: Effort
) -> None:
    best = solve(case, how)
    case.check(best)
    relaxed, whole = case.optimum(whole=False), case.optimum(whole=True)
    assert relaxed is not None
    assert whole is not None
    tolerance = 10 * case.tolerance
    assert best.relevance == pytest.approx(relaxed, abs=tolerance)
    assert best.feasible_relevance <= whole + tolerance
    assert best.relevance >= whole - tolerance


def make_scarce(seed: int) -> Case:
    """Few items, so that the eligible ones of some requests do not fill a list within the limits, which are nested."""
    rng = np.random.default_rng(seed)
    n, k, requests = int(rng.integers(4, 16)), int(rng.integers(1, 5)), int(rng.integers(1, 7))
    labels = [f"b{code}" for code in rng.integers(rng.integers(1, 5), size=n)]
    attributes: dict[str, Any] = {
        "b": labels,
        "a": [f"a{code}" for code in rng.integers(3, size=n)],
        "new": rng.random(n) < 0.4,
    }
    may = rng.random((requests, n)) >= rng.choice([0.2, 0.4, 0.6, 0.8])
    case = Case(Catalog(rng.normal(size=(n, 3)), attributes), rng.normal(size=(requests, 3)), k, [], may)
    plan = np.zeros((requests, n))
    for row, allowed, length in zip(plan, may, case.lengths.tolist(), strict=True):
        row[rng.choice(np.flatnonzero(allowed), length, replace=False)] = 1
    wheres: list[dict[str, Any]] = [{"b": label} for label in sorted(set(labels))]
    nested = [{**where, "new": True} for where in wheres]
    for where in [*wheres, *nested, {"a": attributes["a"][0]}, {"new": bool(attributes["new"][0])}]:
        members = case.members(Promise(where, at_least=0))
        if not members.any() or rng.random() < 0.4:
            continue
        bounds: dict[str, Any] = {"at_most_per_list": int(rng.integers(1, 4))} if "b" in where else {}
        count = int((plan @ members).sum())
        if rng.random() < 0.5:
            bounds["at_least"] = int(rng.choice([0.5, 0.9, 1.0]) * count)
        if rng.random() < 0.2:
            bounds["at_most"] = count
        if bounds:
            case.promises.append(Promise(where, **bounds))
    case.promises = case.promises or [Promise({}, at_least=0)]
    return case


@effort(150, seconds_each=0.1)
@given(seed=st.integers(0, 2**32 - 1), how=st.sampled_from(EFFORTS))
def test_lists_are_as_long_as_those_of_a_retriever_where_few_items_are_eligible(seed: int, how: Effort) -> None:
    case = make_scarce(seed)
    try:
        resolve_promises(case.catalog, case.promises, case.k, horizon=len(case.users), batch_size=1)
    except FairSyncError:  # impossible also if no request excluded anything
        return
    whole, relaxed = case.optimum(whole=True), case.optimum(whole=False)
    if whole is None or relaxed is None:
        with pytest.raises((InfeasibleFloorsError, InvalidInputError)):
            solve(case, how)
        return
    best = solve(case, how)
    case.check(best)
    assert best.relevance == pytest.approx(relaxed, abs=10 * case.tolerance)
    assert best.feasible_relevance <= whole + 10 * case.tolerance


@pytest.mark.parametrize("how", EFFORTS)
@pytest.mark.parametrize("seed", [479, 561, 923])
def test_the_bound_is_tight_where_the_first_items_tie(seed: int, how: Effort) -> None:
    """Steps that grow while items tie must not stay long when others are found."""
    case = make(seed, requests=1, items=13, k=1, tight=1.0, caps=True, limits=False, exclude=0.0, ties=True)
    best = solve(case, how)
    case.check(best)
    assert best.relevance == pytest.approx(case.optimum(whole=False), abs=case.tolerance)


@pytest.mark.parametrize("how", EFFORTS)
@pytest.mark.parametrize(("caps", "limits", "exclude"), [(False, False, 0.0), (True, False, 0.2), (True, True, 0.0)])
def test_the_gap_is_small_where_there_are_many_requests(how: Effort, caps: bool, limits: bool, exclude: float) -> None:
    case = make(34, requests=120, items=60, k=4, tight=0.97, caps=caps, limits=limits, exclude=exclude, ties=False)
    best = solve(case, how)
    case.check(best)
    assert best.cost > 0
    assert best.relevance == pytest.approx(case.optimum(whole=False), rel=1e-7)
    assert best.gap < 1e-3
    if caps:
        assert "charged" in repr(best)


def test_of_small_problems_it_is_the_best_plan() -> None:
    for seed in range(20):
        case = make(seed, requests=5, items=9, k=3, tight=1.0, caps=True, limits=True, exclude=0.0, ties=False)
        best = solve(case, Effort())
        assert best.feasible_relevance == pytest.approx(case.optimum(whole=True), abs=case.tolerance)


def test_conditions_and_promises_beyond_what_is_eligible() -> None:
    catalog = Catalog(
        [[0.9, 0.8], [0.1, 0.6], [0.2, 0.3]], {"size": ["big", "small", "small"], "new": [True, True, False]}
    )
    users = [[1.0, 0.0], [0.0, 1.0]]

    def solve(at_least: int, new: int = 1, **rules: Any) -> Hindsight:
        small = [Promise({"size": "small"}, at_least=at_least), Promise({"new": True}, at_least=new)]
        return hindsight(catalog, users, k=1, promises=small, **rules)

    assert solve(1, where=[{"new": True}, {"size": "big"}]).rows.tolist() == [[1], [0]]
    with pytest.raises(InfeasibleFloorsError, match="eligible items of it 1 times at most"):
        solve(2, where=[{"new": True}, {"size": "big"}])
    with pytest.raises(InfeasibleFloorsError, match="no plan of eligible items keeps these promises: size=small, new"):
        solve(1, new=2, exclude=[[1], [1]])  # what is small is not new


def test_promises_or_floors() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "b"])
    promise = Promise({"group": "b"}, at_least=1)
    with pytest.raises(InvalidInputError, match="give either floors or promises"):
        hindsight(catalog, np.eye(3), k=1)
    with pytest.raises(InvalidInputError, match="give either floors or promises"):
        hindsight(catalog, np.eye(3), k=1, floors=1, promises=[promise])
    with pytest.raises(InfeasibleFloorsError) as caught:
        hindsight(catalog, np.eye(3), k=1, promises=[replace(promise, at_least=4)])
    assert "give way" not in str(caught.value), "nothing does so in hindsight"
    by_floor, by_promise = (
        hindsight(catalog, np.eye(3), k=1, floors={"b": 3}),
        hindsight(catalog, np.eye(3), k=1, promises=[replace(promise, at_least=3)]),
    )
    assert by_promise.relevance == pytest.approx(by_floor.relevance)
    assert by_promise.rows.tolist() == by_floor.rows.tolist()


def test_the_report_of_a_retriever_compares_with_it() -> None:
    case = make(5, requests=60, items=40, k=3, tight=0.8, caps=True, limits=False, exclude=0.0, ties=False)
    retriever = FairRetriever(case.catalog, k=3, horizon=60, promises=case.promises, batch_size=8)
    retriever.retrieve(case.users)
    report = retriever.report(case.solve())
    assert report.cost_ratio is not None
    assert report.cost_ratio >= 1


def test_scores_of_any_size_have_the_same_plan() -> None:
    case = make(8, requests=20, items=50, k=3, tight=0.95, caps=True, limits=True, exclude=0.0, ties=False)
    best = case.solve()
    for exponent in (-500, 100):
        scaled = hindsight(case.catalog, np.ldexp(case.users, exponent), k=3, promises=case.promises)
        assert np.ldexp(scaled.relevance, -exponent) == pytest.approx(best.relevance)
        assert np.ldexp(scaled.feasible_relevance, -exponent) == pytest.approx(best.feasible_relevance, rel=1e-3)


def test_thousands_of_promises_are_solved_without_a_dense_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(9, requests=150, items=60, k=4, tight=0.9, caps=True, limits=False, exclude=0.0, ties=False)
    dense = solve(case, EFFORTS[2])
    monkeypatch.setattr(dual, "_DENSE", 0)
    assert solve(case, EFFORTS[2]).relevance == pytest.approx(dense.relevance, rel=1e-9)


@effort(60, seconds_each=0.1)
@given(case=cases(), more=st.integers(1, 3), which=st.integers(0, 12))
def test_promises_that_eligible_items_cannot_keep_are_refused(case: Case, more: int, which: int) -> None:
    which %= len(case.promises)
    promise, slots = case.promises[which], len(case.users) * case.k
    most = int(np.minimum(case.may @ case.members(promise), case.k).sum())
    case.promises[which] = replace(promise, at_least=min(promise.floor(slots) + more, most), at_most=None)
    whole = case.optimum(whole=True)
    if whole is not None:
        assert solve(case, Effort()).feasible_relevance == pytest.approx(whole, abs=10 * case.tolerance)
        return
    with pytest.raises((InfeasibleFloorsError, InvalidInputError)):
        solve(case, Effort())
