"""Front ends and coordinators under promises that are certain beside exclusions only because small atoms have homes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
from coordination.test_targets_by_selection import SlowSettlements, by_the_clock, counts_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Every cell of rows and columns has two items, of which a request may exclude both.
K, T, E, CELLS = 4, 120, 3, 36


def make_catalog(order: Any = None) -> fs.Catalog:
    n = 2 * CELLS + 20
    cell = np.minimum(np.arange(n) // 2, CELLS)
    order = np.arange(n) if order is None else order
    attributes = {
        "row": [f"r{one // 6}" if one < CELLS else "none" for one in cell[order].tolist()],
        "column": [f"c{one % 6}" if one < CELLS else "none" for one in cell[order].tolist()],
        "chain": [bool(one) for one in (np.arange(n) % 4 == 0)[order]],
    }
    vectors = np.random.default_rng(7).normal(size=(n, 6))
    return fs.Catalog(vectors[order], attributes, order.tolist())


def make_promises() -> list[fs.Promise]:
    rows = [fs.Promise({"row": f"r{row}"}, at_least=50) for row in range(6)]
    columns = [fs.Promise({"column": f"c{column}"}, at_least=4) for column in range(6)]
    return [*rows, *columns, fs.Promise({"chain": True}, at_most=60)]


def hostile(catalog: fs.Catalog, rng: np.random.Generator, n: int) -> tuple[Any, list[list[int]]]:
    """Return requests that dislike promised items, and exclude some of one row."""
    users = rng.normal(size=(n, 6))
    rows = np.asarray(catalog.attributes["row"].values())
    mine = [np.flatnonzero(rows == f"r{rng.integers(6)}") for _ in range(n)]
    return users, [catalog.ids[rng.permutation(some)[:E]].tolist() for some in mine]


def settings(**changes: Any) -> dict[str, Any]:
    return {"k": K, "horizon": T, "promises": make_promises(), "batch_size": 8, "max_exclude": E, **changes}


def assert_kept(catalog: fs.Catalog, shown: list[np.ndarray]) -> None:
    ids = np.concatenate(shown)
    for promise in make_promises():
        count = counts_of(catalog, ids, promise.where)
        assert count >= (promise.at_least or 0), promise.name
        assert promise.at_most is None or count <= promise.at_most


def test_the_promises_need_homes() -> None:
    retriever = fs.FairRetriever(make_catalog(), **settings())
    assert retriever.terms.home is not None
    assert retriever.terms.certain is None


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_front_end_answers_as_a_retriever_does(shuffled: bool) -> None:
    catalog, rng = make_catalog(), np.random.default_rng(1)
    other = make_catalog(rng.permutation(len(catalog))) if shuffled else catalog
    users, exclude = hostile(catalog, rng, T)
    retriever = fs.FairRetriever(catalog, **settings())
    front_end = fs.FrontEnd(other, fs.Coordinator(catalog, **settings()))
    expected, found = retriever.retrieve(users, exclude), front_end.retrieve(users, exclude=exclude)
    assert (np.sort(found.ids, axis=1) == np.sort(expected.ids, axis=1)).all()
    assert_kept(catalog, [found.ids])
    assert retriever.report().limited_requests == 0


@pytest.mark.parametrize("seed", range(4))
def test_front_ends_whose_settlements_are_late_keep_all(seed: int) -> None:
    catalog, rng, shown = make_catalog(), np.random.default_rng(seed), []
    coordinator = fs.Coordinator(catalog, **settings())
    slow = SlowSettlements(coordinator, rng)
    front_ends = [fs.FrontEnd(catalog, slow) for _ in range(2)]
    served = 0
    while served < T:
        n = min(int(rng.integers(1, 9)), T - served)
        users, exclude = hostile(catalog, rng, n)
        shown.append(front_ends[int(rng.integers(2))].retrieve(users, exclude=exclude).ids)
        served += n
    slow.settle_all()
    assert_kept(catalog, shown)
    assert coordinator.report().esp == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_replicas_that_share_a_ledger_keep_all(start: Callable[..., fs.Coordinator], seed: int) -> None:
    catalog, rng, shown = make_catalog(), np.random.default_rng(seed), []
    coordinators = [start(catalog, **settings()) for _ in range(2)]
    front_ends = [fs.FrontEnd(catalog, one) for one in coordinators]
    served = 0
    while served < T:
        n = min(int(rng.integers(1, 9)), T - served)
        users, exclude = hostile(catalog, rng, n)
        shown.append(front_ends[int(rng.integers(2))].retrieve(users, exclude=exclude).ids)
        served += n
    assert_kept(catalog, shown)


@pytest.mark.parametrize("seed", range(4))
def test_targets_by_selection_are_certain(seed: int) -> None:
    catalog, rng, shown = make_catalog(), np.random.default_rng(seed), []
    coordinator = by_the_clock(catalog, k=K, max_exclude=E)
    front_end = fs.FrontEnd(catalog, coordinator)
    promises = [fs.Promise(one.where, one.at_least) for one in make_promises()[:-1]]
    coordinator.set_targets(promises=promises, requests=T, restart_at=1000.0)
    assert coordinator.terms.certain is None
    served = 0
    while served < T:
        n = min(int(rng.integers(1, 9)), T - served)
        users, exclude = hostile(catalog, rng, n)
        shown.append(front_end.retrieve(users, exclude=exclude).ids)
        served += n
    for promise in promises:
        assert counts_of(catalog, np.concatenate(shown), promise.where) >= int(promise.at_least or 0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_keep_homes_that_what_is_left_of_a_horizon_needs(
    start: Callable[..., fs.Coordinator], replicas: int
) -> None:
    # The horizon with its first 300 requests could have 120 exposures of the only item of "x" that is always eligible.
    labels = ["x"] * 4 + ["y"] * 3 + ["z"] * 3 + ["none"] * 20
    catalog = fs.Catalog(np.eye(30), {"kind": labels, "new": [True] * 10 + [False] * 20})
    coordinators = [
        start(catalog, k=4, horizon=1, auto_restart=False, batch_size=8, max_exclude=3) for _ in range(replicas)
    ]
    front_ends = [fs.FrontEnd(catalog, one) for one in coordinators]
    kinds = fs.each(catalog, "kind", at_least=0)
    coordinators[0].set_targets(promises=[fs.Promise({"new": True}, at_least=0), *kinds], requests=1000, restart_at=1e3)
    users = np.repeat([1.0, 0.0], [4, 26]) - 5 * np.repeat([1.0, 0.0], [10, 20])[None]
    for at in range(60):
        front_ends[at % replicas].retrieve(np.repeat(users, 5, axis=0))
    coordinators[0].set_targets(promises=[fs.Promise({"new": True}, at_least=120), *kinds], requests=40)
    shown = [front_ends[at % replicas].retrieve(users, exclude=[[0, 1, 2]]).ids for at in range(40)]
    assert all(one.terms.certain is None for one in coordinators)
    assert counts_of(catalog, np.concatenate(shown), {"new": True}) >= 120


def test_promises_go_on_after_saving_and_after_changes(tmp_path: Any) -> None:
    catalog, rng = make_catalog(), np.random.default_rng(3)
    users, exclude = hostile(catalog, rng, T)
    retriever = fs.FairRetriever(catalog, **settings())
    first = retriever.retrieve(users[:50], exclude[:50])
    retriever.save(tmp_path)
    again = fs.FairRetriever.load(tmp_path)
    assert again.terms.home is not None
    second = retriever.retrieve(users[50:], exclude[50:])
    assert (again.retrieve(users[50:], exclude[50:]).ids == second.ids).all()
    assert_kept(catalog, [first.ids, second.ids])
    changed = fs.FairRetriever.load(tmp_path)
    changed.upsert(
        np.ones((3, 6)),
        {"row": ["r0", "r1", "none"], "column": ["c5", "c5", "c0"], "chain": [False] * 3},
        [900, 901, 902],
    )
    assert changed.terms.certain is None
    third = changed.retrieve(users[50:], exclude[50:])
    assert_kept(changed.catalog, [first.ids, third.ids])


@pytest.mark.parametrize("index", ["exact", "ivf", "hnsw"])
def test_homes_come_with_a_change_of_promises(index: str) -> None:
    catalog, rng = make_catalog(), np.random.default_rng(5)
    users, exclude = hostile(catalog, rng, T)
    first = [fs.Promise({"chain": True}, at_most=60)]
    retriever = fs.FairRetriever(catalog, **settings(promises=first, index=index))
    coordinator = fs.Coordinator(catalog, **settings(promises=first))
    front_end = fs.FrontEnd(catalog, coordinator, index=index)
    assert retriever.terms.home is None
    shown, lists = (
        [retriever.retrieve(users[:10], exclude[:10]).ids],
        front_end.retrieve(users[:10], exclude=exclude[:10]),
    )
    retriever.promise(promises=[*first, *make_promises()[:-1]])
    coordinator.promise(promises=[*first, *make_promises()[:-1]])
    assert retriever.terms.home is not None
    assert retriever.terms.certain is None
    shown.append(retriever.retrieve(users[10:], exclude[10:]).ids)
    assert_kept(catalog, shown)
    assert_kept(catalog, [lists.ids, front_end.retrieve(users[10:], exclude=exclude[10:]).ids])


@pytest.mark.parametrize(("seed", "seconds"), [(0, 9.0), (1, 9.0), (2, 9.0), (3, 9.0), (0, 1e-9)])
def test_what_is_certain_stays_so_when_targets_are_set_again(
    seed: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is left of the floors would choose other homes, and what was only expected lags behind.
    monkeypatch.setattr("fairsync.coordination.target_terms._SECONDS", seconds)
    rng, shown = np.random.default_rng(seed), [np.empty((0, 3), dtype=np.int64)]
    cell = np.arange(32) // 2
    labels = {
        "row": [f"r{one // 4}" for one in cell] + ["none"] * 9,
        "column": [f"c{one % 4}" for one in cell] + ["none"] * 9,
    }
    catalog = fs.Catalog(np.eye(41), labels)
    coordinator = by_the_clock(catalog, k=3, max_exclude=3)
    front_end = fs.FrontEnd(catalog, coordinator)
    wheres = [*({"row": f"r{one}"} for one in range(4)), *({"column": f"c{one}"} for one in range(4))]
    floors = rng.integers(5, 26, size=8).tolist()
    certain: list[bool] = []
    for served in range(30):
        counts = [counts_of(catalog, np.concatenate(shown), where) for where in wheres]
        targets = [
            fs.Promise(where, at_least=max(floor - count, 0))
            for where, floor, count in zip(wheres, floors, counts, strict=True)
        ]
        coordinator.set_targets(promises=targets, requests=30 - served, restart_at=None if served else 1000.0)
        if not served:
            terms, places = coordinator.terms, [coordinator.labels.index(coordinator.column_of(one)) for one in wheres]
            sure = np.ones(len(terms.floors), dtype=bool) if terms.certain is None else terms.certain
            certain = [bool(sure[at]) and terms.floors[at] == floor for at, floor in zip(places, floors, strict=True)]
        most = wheres[int(np.argmax(np.array(floors) - counts))]
        selected = catalog.select(most)
        assert selected is not None
        users = rng.normal(size=41) - 5 * (np.arange(41) < 32)
        shown.append(front_end.retrieve(users[None], exclude=[rng.permutation(selected.rows)[:3].tolist()]).ids)
    counts = [counts_of(catalog, np.concatenate(shown), where) for where in wheres]
    assert sum(certain) > 2
    assert all(count >= floor for count, floor, sure in zip(counts, floors, certain, strict=True) if sure)
