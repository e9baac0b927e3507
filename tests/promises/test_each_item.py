"""One promise for each item that meets conditions: made when items come, ended when they go."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.cli.promise_options import read_promises

K, HORIZON, FLOOR = 4, 200, 20


def make_catalog(n: int = 60, ids: list[Any] | None = None, **more: list[Any]) -> fs.Catalog:
    rng = np.random.default_rng(1)
    attributes = {"kind": ["ab"[row % 2] for row in range(n)], "new": [row % 6 == 0 for row in range(n)], **more}
    return fs.Catalog(rng.normal(size=(n, 8)), attributes, ids=ids)


def users(n: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 8))


def make_retriever(catalog: fs.Catalog, **options: Any) -> fs.FairRetriever:
    promises = [
        *fs.each(catalog, "id", at_least=FLOOR, where={"new": True}),
        fs.Promise({"kind": "b"}, at_least=0.55),
    ]
    return fs.FairRetriever(catalog, k=K, horizon=HORIZON, promises=promises, **options)


@pytest.mark.parametrize("ids", [None, [f"item {row}" for row in range(60)]])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_every_new_item_gets_its_exposures(ids: list[Any] | None, batch_size: int) -> None:
    catalog = make_catalog(ids=ids)
    retriever = make_retriever(catalog, batch_size=batch_size)
    shown = Counter(retriever.retrieve(users(HORIZON)).ids.ravel().tolist())
    new = catalog.ids[np.arange(60) % 6 == 0].tolist()
    assert all(shown[item] >= FLOOR for item in new)
    report = retriever.report()
    assert len(report.promised) == len(new) + 1
    assert report.esp == 1.0
    assert {report.exposures[f"id={item}, new=True"] for item in new} == {shown[item] for item in new}
    # A promise that is kept has no price any more.
    assert all(report.prices[f"id={item}, new=True"] == 0 for item in new)


def test_items_that_come_later_get_their_promise() -> None:
    retriever = make_retriever(make_catalog())
    first = retriever.retrieve(users(50)).ids
    more = {"kind": ["a", "b", "a"], "new": [True, False, True]}
    retriever.upsert(0.01 * users(3, seed=5), more, [100, 101, 102])
    shown = Counter(np.concatenate([first, retriever.retrieve(users(150, seed=3)).ids]).ravel().tolist())
    report = retriever.report()
    assert shown[100] >= FLOOR
    assert shown[102] >= FLOOR
    assert "id=101, new=True" not in report.floors
    assert report.esp == 1.0
    with tempfile.TemporaryDirectory() as folder:
        retriever.save(Path(folder) / "saved")
        loaded = fs.FairRetriever.load(Path(folder) / "saved")
    assert loaded.promises == retriever.promises
    some = users(30, seed=4)
    assert (loaded.retrieve(some).ids == retriever.retrieve(some).ids).all()


@pytest.mark.parametrize("tight", [False, True])
def test_an_item_that_comes_too_late_is_not_refused_and_takes_nothing_from_the_others(tight: bool) -> None:
    catalog = make_catalog()
    promises = [*fs.each(catalog, "id", at_least=FLOOR, where={"new": True}), fs.Promise({"kind": "b"}, at_least=0.55)]
    retriever = fs.FairRetriever(catalog, k=K, horizon=HORIZON, promises=promises if tight else promises[:-1])
    retriever.retrieve(users(190))
    retriever.upsert(users(1, seed=5), {"kind": ["a"], "new": [True]}, [100])
    row = next(one for one in retriever.report().promises if one.name == "id=100, new=True")
    assert row.gave_way is not None
    assert row.gave_way.exposures == (FLOOR if tight else FLOOR - 10)
    assert bool(row.gave_way.to) == tight
    retriever.retrieve(users(10, seed=3))
    report = retriever.report()
    assert report.exposures["id=100, new=True"] >= FLOOR - row.gave_way.exposures
    assert report.n_kept == len(report.promised) - 1


@pytest.mark.parametrize("change", ["remove", "no longer new"])
def test_a_promise_ends_with_its_item(change: str) -> None:
    retriever = make_retriever(make_catalog())
    retriever.retrieve(users(20))
    if change == "remove":
        retriever.remove([0])
    else:
        retriever.upsert(None, {"new": [False]}, [0])
    report = retriever.report()
    assert report.floors["id=0, new=True"] == 0
    assert report.status["id=0, new=True"] == "no promise"
    retriever.retrieve(users(HORIZON - 20, seed=3))
    assert retriever.report().esp == 1.0
    if change != "remove":  # and comes back with it
        retriever.upsert(None, {"new": [True]}, [0])
        assert retriever.report().floors["id=0, new=True"] == FLOOR


def test_promises_name_items_by_their_ids() -> None:
    catalog = make_catalog()
    promise = fs.Promise({"id": [3, 4], "kind": "a"}, at_least=30)
    retriever = fs.FairRetriever(catalog, k=K, horizon=100, promises=[promise])
    shown = Counter(retriever.retrieve(users(100)).ids.ravel().tolist())
    assert retriever.report().exposures["id=3 or 4, kind=a"] == shown[4] >= 30
    for unknown in ("x", 99, ["x", 3], [3, 99]):
        with pytest.raises(fs.InvalidInputError, match="no item has the id"):
            fs.FairRetriever(catalog, k=K, promises=[fs.Promise({"id": unknown}, at_least=1)])


@pytest.mark.parametrize("ids", [None, [f"item {row}" for row in range(60)]])
@pytest.mark.parametrize("wrong", [3.5, [], None, True, {"at_most": 5}, [[3]], [3, None], 2**70, [2**63, 3]])
def test_conditions_on_ids_that_are_none_are_refused(ids: list[str] | None, wrong: object) -> None:
    catalog = make_catalog(ids=ids)
    with pytest.raises(fs.InvalidInputError, match=r"on 'id' must be an id or a list of ids|'id' has no numbers"):
        fs.FairRetriever(catalog, k=K, promises=[fs.Promise({"id": wrong}, at_least=1)])


def test_an_attribute_called_id_is_refused() -> None:
    with pytest.raises(fs.InvalidInputError, match=r"no attribute can be called 'id'.*: give it as ids="):
        make_catalog(id=["x" if row < 30 else "y" for row in range(60)])


def test_a_promise_to_all_items_but_some() -> None:
    promise = fs.Promise({"id": {"not": list(range(50))}, "kind": "a"}, at_least=80)
    retriever = fs.FairRetriever(make_catalog(), k=K, horizon=100, promises=[promise])
    shown = retriever.retrieve(users(100)).ids
    assert retriever.report().exposures[promise.name] == int(((shown >= 50) & (shown % 2 == 0)).sum()) >= 80


def test_on_the_command_line() -> None:
    catalog = make_catalog(12)
    made = read_promises(catalog, None, ["id new=true at_least=5 priority=2"], None)
    assert made == fs.each(catalog, "id", at_least=5, where={"new": True}, priority=2)


@pytest.mark.parametrize("saved", [False, True])
def test_a_rule_that_no_item_meets_yet_makes_promises_to_later_items(saved: bool) -> None:
    catalog = make_catalog(new=[False] * 60)
    rule = fs.each(catalog, "id", at_least=FLOOR, where={"new": True})
    assert [one.name for one in rule] == ["each id, new=True"]
    retriever = fs.FairRetriever(catalog, k=K, horizon=HORIZON, promises=[fs.Promise({"kind": "b"}, at_least=9), *rule])
    first = retriever.retrieve(users(50)).ids
    assert retriever.report().promised == ["kind=b"]
    if saved:
        with tempfile.TemporaryDirectory() as folder:
            retriever.save(Path(folder) / "saved")
            retriever = fs.FairRetriever.load(Path(folder) / "saved")
    retriever.upsert(0.01 * users(2, seed=5), {"kind": ["a", "b"], "new": [True, True]}, [100, 101])
    shown = Counter(np.concatenate([first, retriever.retrieve(users(150, seed=3)).ids]).ravel().tolist())
    report = retriever.report()
    assert report.promised == ["kind=b", "id=100, new=True", "id=101, new=True"]
    assert report.esp == 1.0
    assert min(shown[100], shown[101]) >= FLOOR
    assert fs.hindsight(retriever.catalog, users(20), k=K, promises=rule).floors["each id, new=True"] == 0


def test_a_rule_for_later_labels_has_no_cap_of_its_own() -> None:
    catalog = make_catalog(new=[False] * 60)
    rule = fs.each(catalog, "kind", at_most=0.1, at_most_per_list=1, where={"new": True})
    retriever = fs.FairRetriever(catalog, k=K, horizon=HORIZON, promises=rule)
    retriever.upsert(None, {"new": [True] * 20}, list(range(20)))
    lists = retriever.retrieve(users(HORIZON)).ids
    odd = (lists < 20) & (lists % 2 == 1)
    assert retriever.report().caps == {"kind=a, new=True": 80, "kind=b, new=True": 80}
    assert odd.sum() <= 80
    assert odd.sum(axis=1).max() == 1


def test_a_rule_that_is_written_out_makes_a_promise_for_each_item_there_is() -> None:
    catalog = make_catalog()
    rule = fs.Promise({"new": True}, at_least=FLOOR, each="id")
    retriever = fs.FairRetriever(catalog, k=K, horizon=HORIZON, promises=[rule])
    assert retriever.promises == (rule, *fs.each(catalog, "id", at_least=FLOOR, where={"new": True}))


def test_a_rule_with_a_label_that_no_item_has_is_refused() -> None:
    with pytest.raises(fs.InvalidInputError, match=r"no item has .bb. as its .kind.\. There are 2 labels"):
        fs.each(make_catalog(), "id", at_least=5, where={"kind": "bb"})
    with pytest.raises(fs.InvalidInputError, match=r"no item has .toyz..* Did you mean .toys."):
        fs.each(make_catalog(shelf=["toys"] * 60), "kind", at_least=5, where={"shelf": "toyz"})
