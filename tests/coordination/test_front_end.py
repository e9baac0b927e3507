"""Front ends: idempotent requests, other numbers of candidates, and horizons that end by the clock."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import ExpiredRequestError, FairSyncError, InvalidInputError
from fairsync.inputs import check_users
from fairsync.ledger import MemoryLedger, Retention, SqlLedger
from fairsync.search import ExactIndex, Hits
from worlds import make_world


def test_a_repeated_request_gets_the_same_answer(tmp_path: Path) -> None:
    """From another front end, after a restart, and twice in one call. It counts once."""
    world = make_world(1, items=60, horizon=100, tightness=0.6)
    with SqlLedger(tmp_path / "a.db", world.catalog.n_groups) as ledger:
        coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=100, ledger=ledger)
        left, right = FrontEnd(world.catalog, coordinator), FrontEnd(world.catalog, coordinator)
        names = [None, "a", "b", "a", None]
        found = left.retrieve(world.users[:5], request_ids=names)
        assert found.ids[1].tolist() == found.ids[3].tolist()
        assert coordinator.report().requests == 4
        again = right.retrieve(world.users[[20, 21, 2]], request_ids=["b", "c", "a"])
        assert again.ids[[0, 2]].tolist() == found.ids[[2, 1]].tolist()
        assert again.relevance[[0, 2]].tolist() == found.relevance[[2, 1]].tolist()
        assert coordinator.report().requests == 5
    with SqlLedger(tmp_path / "a.db", world.catalog.n_groups) as ledger:
        coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=100, ledger=ledger)
        front = FrontEnd(world.catalog, coordinator)
        later = front.retrieve(world.users[:1], request_ids=["c"])
        assert later.ids.tolist() == again.ids[1:2].tolist()
        assert coordinator.report().requests == 5
        with pytest.raises(InvalidInputError, match="4 candidates, and now k is 3"):
            front.retrieve(world.users[:1], k=3, request_ids=["c"])
        with pytest.raises(InvalidInputError, match="2 request_ids"):
            front.retrieve(world.users[:1], request_ids=["x", "y"])


def test_the_same_requests_to_several_front_ends_at_once() -> None:
    """The first that settles has answered; the others give the same answer, and it counts once."""
    world = make_world(2, items=60, horizon=500, tightness=0.5)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=500, batch_size=4)
    answers: list[dict[str, list[object]]] = [{} for _ in range(4)]
    groups: dict[str, list[object]] = {}
    gate = threading.Barrier(4)

    def work(mine: int) -> None:
        front = FrontEnd(world.catalog, coordinator)
        for start in range(0, 400, 10):
            names: list[str | None] = [f"{number}" for number in range(start, start + 10)]
            gate.wait(timeout=240)
            found = front.retrieve(world.users[start : start + 10], request_ids=names)
            for name, ids, labels in zip(names, found.ids.tolist(), found.groups.tolist(), strict=True):
                answers[mine][str(name)], groups[str(name)] = ids, labels

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
    assert answers[0] == answers[1] == answers[2] == answers[3]
    returned = Counter(label for labels in groups.values() for label in labels)
    report = coordinator.report()
    assert report.exposures == {label: returned[label] for label in world.catalog.labels}


def test_a_request_answered_too_long_ago_is_refused() -> None:
    world = make_world(1)
    ledger = MemoryLedger(world.catalog.n_groups, Retention(seconds=1e-9))
    front = FrontEnd(world.catalog, Coordinator(world.catalog, k=world.k, ledger=ledger))
    front.retrieve(world.users[:1], request_ids=["old"])
    front.retrieve(world.users[:1])  # deletes what is too old
    with pytest.raises(ExpiredRequestError, match="old"):
        front.retrieve(world.users[:1], request_ids=["old"])
    assert ledger.totals().requests == 2


def test_fewer_or_more_candidates() -> None:
    world = make_world(5, items=60, horizon=90, tightness=0.4)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=90)
    front = FrontEnd(world.catalog, coordinator)
    returned: Counter[object] = Counter()
    for start, k in zip(range(0, 90, 10), (4, 2, 4, 7, 1, 4, 4, 3, 4), strict=True):
        found = front.retrieve(world.users[start : start + 10], k=k)
        assert found.ids.shape == (10, k)
        returned.update(found.groups.ravel().tolist())
    report = coordinator.report()
    assert report.exposures == {label: returned[label] for label in world.catalog.labels}
    assert report.esp == 1
    with pytest.raises(InvalidInputError, match="k is 61"):
        front.retrieve(world.users[:1], k=61)


def test_a_larger_k_is_not_assumed_for_later_requests() -> None:
    """All users prefer b; a is promised all slots. A request with three slots does not mean that others have them."""
    catalog = Catalog(np.array([[0.1]] * 3 + [[1.0]] * 3), ["a"] * 3 + ["b"] * 3)
    coordinator = Coordinator(catalog, k=1, floors={"a": 10}, horizon=10, batch_size=1)
    front = FrontEnd(catalog, coordinator)
    front.retrieve(np.ones((1, 1)), k=3)
    front.retrieve(np.ones((9, 1)))
    assert coordinator.report().esp == 1


def test_a_failure_after_the_search_releases_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another front end has answered one of the requests meanwhile, with another k."""
    world = make_world(1)
    ledger = MemoryLedger(world.catalog.n_groups)
    coordinator = Coordinator(world.catalog, k=world.k, ledger=ledger)
    front = FrontEnd(world.catalog, coordinator)
    front.retrieve(world.users[:1], k=2, request_ids=["x"])
    answers, settle, settling = ledger.answers, coordinator.settle, [False]

    def settle_late(*arguments: Any) -> None:
        settling[0] = True
        settle(*arguments)

    monkeypatch.setattr(coordinator, "settle", settle_late)
    monkeypatch.setattr(ledger, "answers", lambda names: answers(names) if settling[0] else {})
    with pytest.raises(InvalidInputError, match="2 candidates, and now k is 3"):
        front.retrieve(world.users[:2], k=3, request_ids=["y", "x"])
    assert coordinator.lease(1).batch.left == coordinator.terms.horizon - 1


def test_a_horizon_ends_when_the_next_begins() -> None:
    """With fewer requests than expected, or more: all are served, and floors hold where they can be met."""
    world = make_world(6, items=60, horizon=200, tightness=0.5)
    coordinator = Coordinator(world.catalog, k=world.k, floors=0, horizon=1, auto_restart=False)
    front = FrontEnd(world.catalog, coordinator)
    coordinator.set_targets(world.floors, 200, restart_at=1000.0)
    front.retrieve(world.users)
    assert coordinator.report().esp == 1
    front.retrieve(world.users[:50])  # more than expected
    assert coordinator.report().requests == 250
    floors = {label: floor // 4 for label, floor in world.floors.items()}
    coordinator.set_targets(floors, 400, restart_at=2000.0)
    front.retrieve(world.users[:60])
    assert coordinator.report().requests == 60
    had = coordinator.report().exposures  # less traffic than expected, noticed in time
    coordinator.set_targets({label: max(floor - had[label], 0) for label, floor in floors.items()}, 40)
    front.retrieve(world.users[60:100])
    assert coordinator.report().esp == 1
    first, second, third = [*coordinator.ledger.past(), coordinator.ledger.totals()]
    assert (first.requests, second.requests, third.requests) == (0, 250, 100)
    assert (first.began, second.began, third.began) == (0.0, 1000.0, 2000.0)


def test_impressions_are_recorded_once_by_key() -> None:
    world = make_world(6, items=60, horizon=200)
    coordinator = Coordinator(world.catalog, k=world.k, horizon=200)
    assert coordinator.record_impressions(np.array([1, 0, 2, 0]), "shown a")
    assert coordinator.record_impressions(np.array([1, 0, 0, 0]), "shown b")
    assert not coordinator.record_impressions(np.array([9, 9, 9, 9]), "shown a")
    impressions = coordinator.ledger.totals().impressions
    assert impressions is not None
    assert impressions.tolist() == [2, 0, 2, 0]
    assert coordinator.report().requests == 0


def test_candidates_keep_their_rows_unless_they_were_saved() -> None:
    world = make_world(1, items=60, horizon=100)
    front = FrontEnd(world.catalog, Coordinator(world.catalog, k=world.k, horizon=100, batch_size=4))
    found = front.retrieve(world.users[:10])
    assert world.catalog.ids_of(found.rows).tolist() == found.ids.tolist()
    ids: list[str | None] = ["a", None, "b", "b"]
    once = front.retrieve(world.users[:4], request_ids=ids)
    assert once.rows[2].tolist() == once.rows[3].tolist()
    assert (front.retrieve(world.users[[0, 2]], request_ids=["a", "b"]).rows == -1).all()


def test_users_that_were_checked_are_not_checked_again() -> None:
    world = make_world(1, items=60, horizon=100)
    fronts = [FrontEnd(world.catalog, Coordinator(world.catalog, k=world.k, horizon=100)) for _ in range(2)]
    vectors = check_users(world.users[:10], world.catalog)
    expected = fronts[0].retrieve(world.users[:10]).ids
    assert fronts[1].retrieve(vectors, checked=True).ids.tolist() == expected.tolist()


class GatedIndex(ExactIndex):
    """An index whose searches wait until the test lets them go on."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self.searching, self.go_on = threading.Event(), threading.Event()

    def search(self, *arguments: Any, **options: Any) -> Hits:
        self.searching.set()
        assert self.go_on.wait(240)
        return super().search(*arguments, **options)


def test_closing_waits_for_calls_under_way_and_leaves_no_lease() -> None:
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"])
    coordinator = Coordinator(catalog, k=2, floors=4, horizon=4)
    index = GatedIndex(catalog)
    front, closed = FrontEnd(catalog, coordinator, index=index), threading.Event()

    def close() -> None:
        front.close()
        closed.set()

    serving = threading.Thread(target=front.retrieve, args=[np.ones((4, 4))])
    serving.start()
    assert index.searching.wait(240)
    closing = threading.Thread(target=close)
    closing.start()
    assert not closed.is_set()
    index.go_on.set()
    closing.join(30)
    assert closed.is_set()
    assert coordinator.totals().requests == 4, "the call was settled before the front end was closed"
    serving.join(30)
    with pytest.raises(FairSyncError, match="The front end is closed: make another one"):
        front.retrieve(np.ones((1, 4)))


def test_a_call_that_fails_does_not_hinder_closing() -> None:
    world = make_world(1, items=60, horizon=100)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=100)
    with FrontEnd(world.catalog, coordinator) as front, pytest.raises(InvalidInputError):
        front.retrieve(np.full((1, 5), np.nan))
    FrontEnd(world.catalog, coordinator).retrieve(world.users)
    assert coordinator.report().esp == 1, "the coordinator stays open"


SHOP = Catalog(
    np.random.default_rng(3).normal(size=(8, 4)),
    {"category": ["a", "a", "a", "a", "a", "b", "b", "b"], "in_stock": [True] * 6 + [False] * 2},
    ids=["a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3"],
)


def test_requests_exclude_ids_and_have_conditions() -> None:
    coordinator = Coordinator(SHOP, k=4, floors={"b": 1}, horizon=100, max_exclude=1)
    front, user = FrontEnd(SHOP, coordinator), np.ones((1, 4))
    found = front.retrieve(
        np.repeat(user, 3, axis=0),
        exclude=[["a1", "gone"], ["a1", "a2", "a3"], None],
        where=[None, {"category": "a"}, {"in_stock": True}],
    )
    assert not {"a1", "gone"} & set(found.ids[0].tolist())
    assert sorted(found.ids[1].tolist()) == ["", "", "a4", "a5"]
    assert not {"b2", "b3"} & set(found.ids[2].tolist())
    assert found.unknown_excluded.tolist() == [1, 0, 0]
    assert found.short.tolist() == [False, True, False]
    assert front.limited_requests == 2
    report = coordinator.report()
    assert report.requests == 3
    assert sum(report.exposures.values()) == 4 + 2 + 4


def test_a_condition_that_no_item_meets_is_refused_or_gives_an_empty_list() -> None:
    coordinator = Coordinator(SHOP, k=2, horizon=100)
    front, users = FrontEnd(SHOP, coordinator), np.ones((2, 4))
    nothing = {"category": "b", "in_stock": {"not": [True, False]}}
    with pytest.raises(InvalidInputError, match="request 1: no item meets"):
        front.retrieve(users, where=[None, nothing])
    assert coordinator.report().requests == 0
    found = front.retrieve(users, where=[None, nothing], allow_empty=True)
    assert found.short.tolist() == [False, True]
    assert found.ids[1].tolist() == ["", ""]
    alone = front.retrieve(users[:1], where=nothing, allow_empty=True)
    assert (alone.ids.tolist(), alone.short.tolist()) == ([["", ""]], [True])


def test_a_repeated_request_with_other_rules_gets_the_saved_answer() -> None:
    """A short list is saved as it is, and the unknown ids are those of the call."""
    coordinator = Coordinator(SHOP, k=4, horizon=100)
    front, user = FrontEnd(SHOP, coordinator), np.ones((1, 4))
    first = front.retrieve(user, request_ids=["r"], where={"category": "b"})
    again = front.retrieve(user, request_ids=["r"], exclude=[["b1", "x", "y"]])
    assert again.ids.tolist() == first.ids.tolist()
    assert again.short.tolist() == [True]
    assert again.relevance.tolist() == first.relevance.tolist()
    assert again.unknown_excluded.tolist() == [2]
    assert coordinator.report().requests == 1


def test_short_lists_that_another_front_end_has_answered_meanwhile_count_once() -> None:
    """Two front ends answer the same request at the same time; the later one takes its counts back."""
    coordinator = Coordinator(SHOP, k=4, horizon=100, batch_size=1)
    later = FrontEnd(SHOP, coordinator)

    class Slow(ExactIndex):
        def search(self, *arguments: Any) -> Hits:
            hits = super().search(*arguments)
            if not coordinator.report().requests:
                later.retrieve(np.ones((1, 4)), request_ids=["r"], where={"category": "b"})
            return hits

    front = FrontEnd(SHOP, coordinator, index=Slow(SHOP))
    found = front.retrieve(np.ones((1, 4)), request_ids=["r"], where={"category": "b"})
    assert found.short.tolist() == [True]
    report = coordinator.report()
    assert report.requests == 1
    assert report.exposures == {"a": 0, "b": 3}
    assert report.relevance == pytest.approx(found.relevance[0, :3].sum())
