"""Promises and items that change within a horizon, and retrievers that are saved after such changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.policies import make_policy

if TYPE_CHECKING:
    from pathlib import Path

ALIKE = np.ones((20, 3))


def two_kinds(n_liked: int = 2, n_others: int = 6) -> fs.Catalog:
    """Return a catalog of which all users like the items "a" best."""
    embeddings = np.concatenate([np.ones((n_liked, 3)), -np.ones((n_others, 3))])
    return fs.Catalog(
        embeddings, {"kind": ["a"] * n_liked + ["b"] * n_others, "new": [i % 2 == 0 for i in range(n_liked + n_others)]}
    )


def test_a_cap_holds_when_so_few_items_are_left_that_it_could_not_be_exceeded_alone() -> None:
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=10, promises=[fs.Promise({"kind": "a"}, at_most=15)])
    retriever.retrieve(ALIKE[:7])
    retriever.remove([0])
    retriever.retrieve(ALIKE[:3])
    assert retriever.report().exposures == {"kind=a": 15}


def test_another_horizon_can_make_every_slot_a_promise() -> None:
    catalog = two_kinds(5, 3)
    retriever = fs.FairRetriever(catalog, k=4, horizon=10, promises=[fs.Promise({"kind": "a"}, at_most=40)])
    retriever.promise(horizon=20)
    retriever.retrieve(ALIKE)
    assert retriever.report().exposures == {"kind=a": 40, "every slot": 80}


def test_a_cap_that_is_exceeded_already_is_refused() -> None:
    promises = [fs.Promise({"kind": "a"}, at_most=0.5)]
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=20, promises=promises)
    retriever.retrieve(ALIKE[:10])
    with pytest.raises(fs.InvalidInputError, match="at most 12 exposures has had 20"):
        retriever.promise(horizon=12)
    assert retriever.terms.horizon == 20


def test_a_charge_ends_with_its_cap() -> None:
    promises = [fs.Promise({"new": True}, at_least=3), fs.Promise({"kind": "a"}, at_most=9)]
    policy, terms = make_policy("guaranteed"), fs.FairRetriever(two_kinds(), k=2, horizon=20, promises=promises).terms
    state: Any = replace(policy.start(terms), subsidies=np.array([-1.0, -2.0]))
    assert policy.resume(state, terms).subsidies.tolist() == [0.0, -2.0]
    assert policy.resume(state, replace(terms, caps=None)).subsidies.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("later", [["a", "b", "new"], ["a"], ["a", "new"]])
def test_a_retriever_is_loaded_as_it_was_saved_after_promises_changed(later: list[str], tmp_path: Path) -> None:
    promises = {
        "a": fs.Promise({"kind": "a"}, at_most=15),
        "b": fs.Promise({"kind": "b"}, at_most=25),
        "new": fs.Promise({"new": True}, at_least=3),
    }
    retriever = fs.FairRetriever(
        two_kinds(6, 10), k=2, horizon=15, promises=[promises["a"], promises["b"]], batch_size=2, max_exclude=1
    )
    retriever.retrieve(ALIKE[:5])
    retriever.promise(promises=[promises[one] for one in later])
    retriever.upsert(None, {"kind": ["c"], "new": [True]}, [7])
    retriever.save(tmp_path / "saved")
    loaded = fs.FairRetriever.load(tmp_path / "saved")
    assert loaded.promises == retriever.promises
    assert loaded.terms.max_exclude == 1
    assert loaded.retrieve(ALIKE).ids.tolist() == retriever.retrieve(ALIKE).ids.tolist()
    assert loaded.report() == retriever.report()


def test_a_promise_without_items_is_loaded(tmp_path: Path) -> None:
    catalog = two_kinds()
    retriever = fs.FairRetriever(catalog, k=2, horizon=10, promises=[fs.Promise({"kind": "a"}, at_most=15)])
    retriever.remove([0, 1])
    retriever.save(tmp_path / "saved")
    assert fs.FairRetriever.load(tmp_path / "saved").promises == retriever.promises


def test_a_ledger_is_continued_with_the_promises_of_a_retriever(tmp_path: Path) -> None:
    both = [fs.Promise({"kind": "a"}, at_most=15), fs.Promise({"kind": "b"}, at_most=25)]
    terms: dict[str, Any] = {"k": 2, "horizon": 10, "ledger": str(tmp_path / "ledger.db")}
    with fs.FairRetriever(two_kinds(), promises=both, **terms) as retriever:
        retriever.retrieve(ALIKE[:5])
        retriever.promise(promises=[*both, fs.Promise({"new": True}, at_least=3)])
        promises, exposures = retriever.promises, retriever.report().exposures
    with fs.FairRetriever(two_kinds(), promises=promises, **terms) as retriever:
        assert retriever.report().exposures == exposures


@pytest.mark.parametrize(
    "where",
    [{"new": np.True_}, {"kind": {"b", "a"}}, {"kind": np.array(["a"])}, {"kind": ("a", "b")}, {"kind": np.str_("a")}],
)
def test_conditions_of_numpy_can_be_saved(where: Any, tmp_path: Path) -> None:
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=10, promises=[fs.Promise(where, at_least=1)])
    retriever.save(tmp_path / "saved")
    assert fs.FairRetriever.load(tmp_path / "saved").promises == retriever.promises


def test_lists_of_labels_that_are_all_empty_are_loaded(tmp_path: Path) -> None:
    catalog = fs.Catalog(np.eye(3), {"kind": ["a", "a", "b"], "tags": [[], [], []]})
    retriever = fs.FairRetriever(catalog, k=1, horizon=5, promises=[fs.Promise({"kind": "a"}, at_least=1)])
    retriever.save(tmp_path / "saved")
    assert fs.each(fs.FairRetriever.load(tmp_path / "saved").catalog, "tags", at_least=1)[0].is_rule


def test_a_cap_within_a_horizon_can_make_every_slot_a_promise(tmp_path: Path) -> None:
    cap, other = fs.Promise({"kind": "a"}, at_most=15), fs.Promise({"kind": "b"}, at_most=15)
    terms: dict[str, Any] = {"k": 2, "horizon": 10, "ledger": str(tmp_path / "ledger.db")}
    with fs.FairRetriever(two_kinds(), promises=[cap], **terms) as retriever:
        retriever.retrieve(ALIKE[:5])
        retriever.promise(promises=[cap, other])
        retriever.retrieve(ALIKE[:2])
        promises = retriever.promises
    with fs.FairRetriever(two_kinds(), promises=promises, **terms) as retriever:
        retriever.retrieve(ALIKE[:3])
        report = retriever.report()
    assert report.esp == 1.0
    assert report.exposures["every slot"] == 20
    assert report.exposures["kind=a"] <= 15


def test_a_report_after_conditions_shows_promises_without_a_floor() -> None:
    promises = [fs.Promise({"kind": "a"}, at_most=15), fs.Promise({"new": True}, at_least=5)]
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=10, promises=promises, batch_size=2)
    retriever.retrieve(ALIKE[:6], where={"new": False})
    assert "1 of 2 promises" in str(retriever.report())


def test_bounds_of_numpy_are_plain_numbers(tmp_path: Path) -> None:
    promise = fs.Promise({"kind": "a"}, at_least=np.float32(0.1), at_most_per_list=np.int64(1))  # type: ignore[arg-type]
    assert promise.floor(20) == 2
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=10, promises=[promise])
    retriever.save(tmp_path / "saved")
    assert fs.FairRetriever.load(tmp_path / "saved").promises == retriever.promises
    with pytest.raises(fs.InvalidInputError, match="must be a str"):
        fs.Promise({}, at_least=1, name=5)  # type: ignore[arg-type]


def test_a_promise_that_comes_too_late_is_refused_with_what_could_hold() -> None:
    catalog = fs.Catalog(np.eye(4), {"kind": ["a", "a", "b", "b"]})
    retriever = fs.FairRetriever(catalog, k=1, horizon=20, promises=[fs.Promise({"kind": "a"}, at_least=1)])
    retriever.retrieve(np.eye(4)[[0, 0, 0, 2, 2, 2, 2, 2]])
    before = retriever.report()
    with pytest.raises(fs.InfeasibleFloorsError) as caught:
        retriever.promise(promises=[fs.Promise({"kind": "a"}, at_least=16)])
    assert str(caught.value) == (
        "After 8 of 20 requests: kind=a (at least 16, 3 so far) cannot hold. One change would suffice: kind=a at least"
        " 15. Or lengthen the horizon: promise(horizon=...)."
    )
    assert (caught.value.conflict, caught.value.largest) == (("kind=a",), {"kind=a": 15})
    assert retriever.report() == before
    retriever.promise(promises=[fs.Promise({"kind": "a"}, at_least=16)], horizon=21)
    retriever.retrieve(np.eye(4)[[2] * 13])
    assert retriever.report().esp == 1.0


def test_a_ledger_that_is_too_far_is_refused_with_what_could_hold() -> None:
    catalog, ledger = fs.Catalog(np.eye(4), {"kind": ["a", "a", "b", "b"]}), fs.MemoryLedger(1)

    def opened(at_least: int) -> fs.FairRetriever:
        promises = [fs.Promise({"kind": "a"}, at_least=at_least)]
        return fs.FairRetriever(catalog, k=1, horizon=20, promises=promises, ledger=ledger)

    opened(1).retrieve(np.eye(4)[[2] * 8])
    with pytest.raises(
        fs.InfeasibleFloorsError, match=r"at least 12\. Or lengthen the horizon, or start with a new"
    ) as e:
        opened(16)
    assert e.value.largest == {"kind=a": 12}


def test_a_ledger_is_continued_exactly_after_items_and_promises_changed(tmp_path: Path) -> None:
    catalog = two_kinds(6, 10)
    promises = [
        fs.Promise({"kind": "a"}, at_least=3),
        *fs.each(catalog, "id", at_least=1, where={"new": True}),
        fs.Promise({"kind": "b"}, at_most=40),
    ]
    terms: dict[str, Any] = {"k": 2, "horizon": 30, "batch_size": 2}
    users = np.random.default_rng(3).normal(size=(20, 3))
    one = fs.FairRetriever(catalog, promises=promises, **terms)
    other = fs.FairRetriever(catalog, promises=promises, ledger=str(tmp_path / "ledger.db"), **terms)
    for retriever in (one, other):
        retriever.retrieve(users[:5])
        retriever.upsert(None, {"kind": ["c", "a"], "new": [True, False]}, [7, 0])
        retriever.remove([2])  # its promise ends
        retriever.retrieve(users[5:8])
        retriever.promise(promises=[*promises[1:], fs.Promise({"kind": "c"}, at_least=2)])
        retriever.retrieve(users[8:9])
    other.close()
    with fs.FairRetriever(one.catalog, promises=one.promises, ledger=str(tmp_path / "ledger.db"), **terms) as again:
        assert again.report() == one.report()
        assert again.retrieve(users[9:]).ids.tolist() == one.retrieve(users[9:]).ids.tolist()
        assert again.report().prices == one.report().prices


@pytest.mark.parametrize("of_groups", [True, False])
def test_a_ledger_is_continued_after_requests_that_could_not_show_what_was_promised(
    of_groups: bool, tmp_path: Path
) -> None:
    catalog = two_kinds()
    given: dict[str, Any] = {"promises": [fs.Promise({"kind": "a"}, at_most=4), fs.Promise({"kind": "b"}, at_least=3)]}
    if of_groups:
        given = {"floors": {"b": 6}}
    given |= {"k": 2, "horizon": 3, "batch_size": 2, "ledger": str(tmp_path / "ledger.db")}
    with fs.FairRetriever(catalog, **given) as retriever:
        retriever.retrieve(ALIKE[:2], where={"id": 0})
        exposures = retriever.report().exposures
    with fs.FairRetriever(catalog, **given) as retriever:
        assert retriever.report().exposures == exposures
        retriever.retrieve(ALIKE[:1])
        report = retriever.report()
    assert report.is_over
    assert report.exposures["kind=b" if not of_groups else "b"] == 2


def test_items_that_would_make_a_floor_certain_too_late_are_not_refused() -> None:
    catalog = two_kinds(6, 2)
    retriever = fs.FairRetriever(
        catalog, k=2, horizon=10, promises=[fs.Promise({"kind": "b"}, at_least=5)], max_exclude=2
    )
    assert not retriever.report().promises[0].certain  # requests may exclude both items
    retriever.retrieve(ALIKE[:8], exclude=[[6, 7]] * 8)
    retriever.upsert(-np.ones((3, 3)), {"kind": ["b"] * 3, "new": [False] * 3}, [10, 11, 12])
    retriever.retrieve(ALIKE[:2])
    (row,) = retriever.report().promises
    assert (row.exposures <= 4, row.certain, row.status) == (True, False, "missed")
    # With enough requests left, it becomes certain.
    retriever.upsert(-np.ones((1, 3)), {"kind": ["b"], "new": [False]}, [13])
    retriever.retrieve(ALIKE[:10], exclude=[[6, 7]] * 10)
    (row,) = retriever.report().promises
    assert (row.certain, row.status) == (True, "kept")


def test_items_are_not_refused_because_limited_requests_have_lost_a_floor() -> None:
    promises = [fs.Promise({"kind": "b"}, at_least=12), fs.Promise({"new": True}, at_least=1)]
    retriever = fs.FairRetriever(two_kinds(), k=2, horizon=10, promises=promises)
    retriever.retrieve(ALIKE[:8], where={"kind": "a"})
    retriever.upsert(-np.ones((1, 3)), {"kind": ["b"], "new": [False]}, [20])
    retriever.retrieve(ALIKE[:2])
    assert retriever.report().exposures == {"kind=b": 4, "new=True": 10}
    with pytest.raises(fs.InfeasibleFloorsError):
        retriever.remove([2, 3, 4, 5, 6, 7, 20])


def test_every_slot_becomes_a_promise_when_items_outside_the_caps_are_gone() -> None:
    caps = [fs.Promise({"kind": "a"}, at_most=16), fs.Promise({"kind": "b"}, at_least=4)]
    retriever = fs.FairRetriever(two_kinds(3, 2), k=2, horizon=10, promises=caps)
    retriever.retrieve(ALIKE[:4])
    retriever.remove([4])  # one b is left: each list has an a at least
    retriever.retrieve(ALIKE[:6])
    report = retriever.report()
    assert report.exposures["every slot"] == 20
    assert all(promise.kept for promise in report.promises)
