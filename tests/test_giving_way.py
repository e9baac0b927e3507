"""Where not all promises can be kept, the lowest priorities give way, by as little as an integer program can find."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

import fairsync as fs
from effort import effort
from fairsync.policies.base import NO_CAP, Terms
from test_outage import Patchy

Counts = npt.NDArray[np.int64]


def least_missed(terms: Terms, missing: Counts, room: Counts | None, left: int) -> list[int]:
    """Return the exposures that each priority must miss, by one integer program after another."""
    assert terms.membership is not None
    matrix, n = terms.membership.matrix.toarray(), terms.n_atoms
    p = len(missing)
    upper = np.full(p, np.inf)
    if room is not None:
        upper = np.where(room >= NO_CAP // 2, np.inf, room)
    if terms.list_limits is not None:
        upper = np.minimum(upper, left * terms.list_limits)
    rows = [
        LinearConstraint(np.hstack([matrix, np.eye(p)]), missing, np.inf),
        LinearConstraint(np.hstack([matrix, np.zeros((p, p))]), -np.inf, upper),
        LinearConstraint(np.concatenate([np.ones(n), np.zeros(p)])[None], -np.inf, left * terms.k),
    ]
    totals = []
    for number in np.unique(terms.order).tolist():
        cost = np.concatenate([np.zeros(n), terms.order == number])
        found = milp(
            cost,
            integrality=np.ones(n + p, dtype=np.int64),
            bounds=Bounds(0, np.concatenate([left * terms.capacities, missing])),
            constraints=rows,
            options={"mip_rel_gap": 0},
        )
        assert found.fun is not None
        totals.append(round(found.fun))
        rows.append(LinearConstraint(cost[None], -np.inf, totals[-1] + 0.5))
    return totals


def missed(terms: Terms, exposures: Counts) -> list[int]:
    short = np.maximum(terms.floors - exposures, 0)
    return [int(short[terms.order == number].sum()) for number in np.unique(terms.order).tolist()]


class World:
    """Items with random tags, one promise per tag, mostly more than can be kept."""

    def __init__(self, seed: int, *, caps: bool = False) -> None:
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(12, 30)), int(rng.integers(2, 7))
        members = rng.random((p, n)) < rng.uniform(0.1, 0.6, size=(p, 1))
        if caps:
            members[:, : n // 2] = False  # enough items outside the caps to fill a list
        members[np.arange(p), n - 1 - rng.integers(n // 2, size=p)] = True
        tags = [[str(tag) for tag in np.flatnonzero(members[:, item])] for item in range(n)]
        self.catalog = fs.Catalog(rng.normal(size=(n, 6)), {"kind": ["item"] * n, "tags": tags})
        self.k, self.horizon = int(rng.integers(1, min(6, n // 2))), int(rng.integers(4, 30))
        slots = self.k * self.horizon
        self.promises = [
            fs.Promise(
                {"tags": str(tag)},
                at_least=int(rng.integers(1, slots)),
                at_most=slots if caps and rng.random() < 0.3 else None,
                priority=int(rng.integers(1, 4)),
            )
            for tag in range(p)
        ]
        if caps:
            self.promises.append(
                fs.Promise({"tags": ["0", str(p - 1)]}, at_most=int(slots * rng.uniform(0.1, 0.9)), name="cap")
            )
        self.users = rng.normal(size=(self.horizon, 6))
        self.rng = rng

    def retriever(self, **options: Any) -> fs.FairRetriever:
        options = {"batch_size": int(self.rng.choice([1, 3, 16])), "if_infeasible": "give way", **options}
        return fs.FairRetriever(self.catalog, k=self.k, horizon=self.horizon, promises=self.promises, **options)


def exposures_of(retriever: fs.FairRetriever) -> Counts:
    return np.array(list(retriever.report().exposures.values()))


@given(seed=st.integers(0, 10**6), caps=st.booleans())
@effort(25, 0.3)
def test_each_priority_misses_the_least_that_is_possible(seed: int, caps: bool) -> None:
    world = World(seed, caps=caps)
    retriever = world.retriever()
    retriever.retrieve(world.users)
    terms, exposures = retriever.terms, exposures_of(retriever)
    assert missed(terms, exposures) == least_missed(terms, terms.floors, terms.caps, terms.horizon)
    assert terms.caps is None or (exposures <= terms.caps).all()
    gave_way = retriever.report().gave_way
    short = {name for name, row in zip(gave_way, gave_way.values(), strict=True) if row.exposures}
    assert {row.name for row in retriever.report().promises if not row.kept} <= short


@given(seed=st.integers(0, 10**6))
@effort(8, 0.6)
def test_a_change_of_items_gives_way_from_there_on(seed: int) -> None:
    world = World(seed)
    retriever = world.retriever()
    before = world.horizon // 2
    retriever.retrieve(world.users[:before])
    gone = world.rng.choice(len(world.catalog), size=len(world.catalog) - 2 * world.k, replace=False)
    retriever.remove(world.catalog.ids[gone].tolist())
    terms, exposures = retriever.terms, exposures_of(retriever)
    least = least_missed(terms, np.maximum(terms.floors - exposures, 0), None, world.horizon - before)
    with tempfile.TemporaryDirectory() as folder:
        retriever.save(Path(folder) / "saved")
        loaded = fs.FairRetriever.load(Path(folder) / "saved")
    for one in (retriever, loaded):
        one.retrieve(world.users[before:])
        assert missed(terms, exposures_of(one)) == least
    assert loaded.report() == retriever.report()


@given(seed=st.integers(0, 10**6))
@effort(15, 0.3)
def test_after_an_outage_the_first_priorities_come_first(seed: int) -> None:
    """Items are away from some request to the end: from there on, what is left is shared by priority."""
    world = World(seed)
    made: list[Patchy] = []

    def index(catalog: fs.Catalog) -> Patchy:
        made.append(Patchy(catalog, shards=3))
        return made[-1]

    retriever = world.retriever(index=index, batch_size=1)
    patchy, before = made[-1], world.horizon // 3
    retriever.retrieve(world.users[:before])
    patchy.down = {1, 2}
    assume(len(patchy.alive) >= world.k)
    terms = retriever.terms
    reached = np.bincount(patchy.catalog.group_of[patchy.alive], minlength=terms.n_atoms)
    first = retriever.retrieve(world.users[before : before + 1])  # the plan does not know of the outage yet
    assert first.degraded
    there = replace(terms, capacities=np.minimum(terms.capacities, reached))
    left = world.horizon - before - 1
    least = least_missed(there, np.maximum(terms.floors - exposures_of(retriever), 0), None, left)
    retriever.retrieve(world.users[before + 1 :])
    assert missed(terms, exposures_of(retriever)) == least


def test_when_items_are_back_floors_come_back() -> None:
    rng = np.random.default_rng(3)
    catalog = fs.Catalog(rng.normal(size=(40, 8)), {"kind": ["rare" if row % 4 == 0 else "other" for row in range(40)]})
    made: list[Patchy] = []

    def index(catalog: fs.Catalog) -> Patchy:
        made.append(Patchy(catalog))
        return made[-1]

    promises = [fs.Promise({"kind": "rare"}, at_least=120), fs.Promise({"kind": "other"}, at_least=800, priority=2)]
    retriever = fs.FairRetriever(catalog, k=5, horizon=200, promises=promises, index=index)
    retriever.retrieve(rng.normal(size=(40, 8)))
    made[-1].down = {0}
    retriever.retrieve(rng.normal(size=(60, 8)))
    assert retriever.report().gave_way["kind=rare"].exposures > 0
    made[-1].down = set()
    retriever.retrieve(rng.normal(size=(100, 8)))
    assert retriever.report().exposures["kind=rare"] >= 120
    assert not retriever.report().gave_way


def test_promises_that_cannot_all_hold_are_refused_unless_some_may_give_way() -> None:
    catalog = fs.Catalog(np.eye(4), {"kind": ["a", "a", "b", "b"]})
    promises = [fs.Promise({"kind": "a"}, at_least=8), fs.Promise({"kind": "b"}, at_least=8, priority=2)]
    with pytest.raises(fs.InfeasibleFloorsError, match="if_infeasible='give way'"):
        fs.FairRetriever(catalog, k=1, horizon=10, promises=promises)
    retriever = fs.FairRetriever(catalog, k=1, horizon=10, promises=promises, if_infeasible="give way")
    retriever.retrieve(np.eye(4)[[3] * 10])
    report = retriever.report()
    assert [row.exposures for row in report.promises] == [8, 2]
    assert report.gave_way["kind=b"].to == ("kind=a",)
    assert "kind=b gave way to kind=a: 6 exposures were given up." in str(report)
    assert report.to_dict()["rows"][1]["gave_way"] == {
        "reason": "capacity", "exposures": 6, "to": ["kind=a"], "since": None, "would_cost": None,
    }  # fmt: skip


def test_if_infeasible_is_checked() -> None:
    catalog = fs.Catalog(np.eye(4), ["a", "a", "b", "b"])
    with pytest.raises(fs.InvalidInputError, match="'refuse' or 'give way'"):
        fs.FairRetriever(catalog, k=1, if_infeasible="whatever")
    with pytest.raises(fs.InvalidInputError, match="no priorities"):
        fs.FairRetriever(catalog, k=1, floors=1, if_infeasible="give way")


@given(seed=st.integers(0, 10**6), caps=st.booleans())
@effort(12, 0.3)
def test_what_promises_may_cost_takes_nothing_from_those_without_a_limit(seed: int, caps: bool) -> None:
    """Some promises have highest prices, which are mostly too low. The others are as certain as without."""
    world = World(seed, caps=caps)
    prices = world.rng.choice([0.001, 0.1, 1.0, np.nan], size=len(world.promises))
    world.promises = [
        promise if np.isnan(price) or promise.at_least is None else replace(promise, max_price=float(price))
        for promise, price in zip(world.promises, prices, strict=True)
    ]
    retriever = world.retriever()
    certificate = retriever._state.certificate
    assert certificate is not None
    given_up = certificate.concession
    lowered = retriever.terms.floors - (0 if given_up is None else given_up.shortfall)
    for _ in range(2):  # in the first batch no limit is known
        retriever.retrieve(world.users)
        exposures = exposures_of(retriever)
        unlimited = np.array([promise.max_price is None for promise in retriever.promises or ()])
        assert (exposures >= lowered)[unlimited].all()
        assert retriever.terms.caps is None or (exposures <= retriever.terms.caps).all()


KINDS = {"kind": ["a", "a", "b", "b"]}


@pytest.mark.parametrize("word", ["refuse", "give way"])
@pytest.mark.parametrize(
    ("promises", "names"),
    [
        ([fs.Promise({"kind": kind}, at_most=0.4) for kind in "ab"], ("kind=a", "kind=b")),
        ([fs.Promise({}, at_most=3), fs.Promise({"kind": "a"}, at_least=2)], ("all items",)),
    ],
)
def test_giving_way_is_not_recommended_where_caps_leave_slots_empty(
    word: str, promises: list[fs.Promise], names: tuple[str, ...]
) -> None:
    catalog = fs.Catalog(np.eye(4), KINDS)
    with pytest.raises(fs.InfeasibleFloorsError, match="too few items to fill all 10 slots") as caught:
        fs.FairRetriever(catalog, k=1, horizon=10, promises=promises, if_infeasible=word)
    assert caught.value.conflict == names
    assert set(caught.value.smallest) == set(names)
    assert "give way" not in str(caught.value)
    assert "every slot" not in str(caught.value)


def test_giving_way_is_recommended_for_floors_of_one_priority() -> None:
    catalog, promises = fs.Catalog(np.eye(4), KINDS), [fs.Promise({"kind": kind}, at_least=8) for kind in "ab"]
    with pytest.raises(fs.InfeasibleFloorsError, match=r"give way: FairRetriever\(if_infeasible='give way'\)\."):
        fs.FairRetriever(catalog, k=1, horizon=10, promises=promises)
    fs.FairRetriever(catalog, k=1, horizon=10, promises=promises, if_infeasible="give way")
