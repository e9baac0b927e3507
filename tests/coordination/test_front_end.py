"""Requests with names, other numbers of candidates, and horizons that end by the clock."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger, SqliteLedger
from fairsync.ledger.base import MAX_ANSWERS
from worlds import make_world


def test_a_request_that_is_repeated_gets_its_answer_again(tmp_path: Path) -> None:
    """From another front end, after a restart, and twice in one call; and it counts once."""
    world = make_world(1, items=60, horizon=100, tightness=0.6)
    with SqliteLedger(tmp_path / "a.db", world.catalog.n_groups) as ledger:
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
    with SqliteLedger(tmp_path / "a.db", world.catalog.n_groups) as ledger:
        coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=100, ledger=ledger)
        front = FrontEnd(world.catalog, coordinator)
        later = front.retrieve(world.users[:1], request_ids=["c"])
        assert later.ids.tolist() == again.ids[1:2].tolist()
        assert coordinator.report().requests == 5
        with pytest.raises(InvalidInputError, match="4 candidates, and now k is 3"):
            front.retrieve(world.users[:1], k=3, request_ids=["c"])
        with pytest.raises(InvalidInputError, match="2 request_ids"):
            front.retrieve(world.users[:1], request_ids=["x", "y"])


def test_front_ends_that_are_asked_the_same_at_once() -> None:
    """Whoever settles first has answered; the other gives the same answer, and only one counts."""
    world = make_world(2, items=60, horizon=500, tightness=0.5)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=500, batch_size=4)
    answers: list[dict[str, list[object]]] = [{} for _ in range(4)]
    groups: dict[str, list[object]] = {}
    gate = threading.Barrier(4)

    def work(mine: int) -> None:
        front = FrontEnd(world.catalog, coordinator)
        for start in range(0, 400, 10):
            names: list[str | None] = [f"{number}" for number in range(start, start + 10)]
            gate.wait(timeout=60)
            found = front.retrieve(world.users[start : start + 10], request_ids=names)
            for name, ids, labels in zip(names, found.ids.tolist(), found.groups.tolist(), strict=True):
                answers[mine][str(name)], groups[str(name)] = ids, labels

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert answers[0] == answers[1] == answers[2] == answers[3]
    impressions = Counter(label for labels in groups.values() for label in labels)
    report = coordinator.report()
    assert report.exposures == {label: impressions[label] for label in world.catalog.labels}


def test_what_was_answered_too_long_ago_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(1)
    ledger = MemoryLedger(world.catalog.n_groups)
    front = FrontEnd(world.catalog, Coordinator(world.catalog, k=world.k, ledger=ledger))
    monkeypatch.setattr(ledger, "answer", lambda _: b"")
    with pytest.raises(InvalidInputError, match="too long ago"):
        front.retrieve(world.users[:1], request_ids=["old"])
    assert MAX_ANSWERS > 1000


def test_fewer_or_more_candidates() -> None:
    world = make_world(5, items=60, horizon=90, tightness=0.4)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=90)
    front = FrontEnd(world.catalog, coordinator)
    impressions: Counter[object] = Counter()
    for start, k in zip(range(0, 90, 10), (4, 2, 4, 7, 1, 4, 4, 3, 4), strict=True):
        found = front.retrieve(world.users[start : start + 10], k)
        assert found.ids.shape == (10, k)
        impressions.update(found.groups.ravel().tolist())
    report = coordinator.report()
    assert report.exposures == {label: impressions[label] for label in world.catalog.labels}
    assert report.esp == 1
    with pytest.raises(InvalidInputError, match="k is 61"):
        front.retrieve(world.users[:1], 61)


def test_more_candidates_now_promise_nothing_for_those_to_come() -> None:
    """Everybody prefers b; a is promised all slots. One request with three of them cannot count on more like it."""
    catalog = Catalog(np.array([[0.1]] * 3 + [[1.0]] * 3), ["a"] * 3 + ["b"] * 3)
    coordinator = Coordinator(catalog, k=1, floors={"a": 10}, horizon=10, batch_size=1)
    front = FrontEnd(catalog, coordinator)
    front.retrieve(np.ones((1, 1)), 3)
    front.retrieve(np.ones((9, 1)))
    assert coordinator.report().esp == 1


def test_an_answer_that_cannot_be_given_leaves_no_lease_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another front end answers one of the requests, with another number of candidates, after this one has looked."""
    world = make_world(1)
    ledger = MemoryLedger(world.catalog.n_groups)
    coordinator = Coordinator(world.catalog, k=world.k, ledger=ledger)
    front = FrontEnd(world.catalog, coordinator)
    front.retrieve(world.users[:1], 2, ["x"])
    answer, settle, told = ledger.answer, coordinator.settle, [False]

    def settle_late(*arguments: Any) -> None:
        told[0] = True
        settle(*arguments)

    monkeypatch.setattr(coordinator, "settle", settle_late)
    monkeypatch.setattr(ledger, "answer", lambda name: answer(name) if told[0] else None)
    with pytest.raises(InvalidInputError, match="2 candidates, and now k is 3"):
        front.retrieve(world.users[:2], 3, ["y", "x"])
    assert coordinator.lease(1).batch.left == coordinator.terms.horizon - 1


def test_a_horizon_ends_when_the_next_begins() -> None:
    """However many requests came: fewer than expected, or more. Both are served, and floors hold where they can."""
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
    had = coordinator.report().exposures  # traffic falls short, and that is seen in time
    coordinator.set_targets({label: max(floor - had[label], 0) for label, floor in floors.items()}, 40)
    front.retrieve(world.users[60:100])
    assert coordinator.report().esp == 1
    first, second, third = [*coordinator.ledger.past(), coordinator.ledger.totals()]
    assert (first.requests, second.requests, third.requests) == (0, 250, 100)
    assert (first.began, second.began, third.began) == (0.0, 1000.0, 2000.0)


def test_what_was_shown_counts_once() -> None:
    world = make_world(6, items=60, horizon=200)
    coordinator = Coordinator(world.catalog, k=world.k, horizon=200)
    assert coordinator.record_impressions(np.array([1, 0, 2, 0]), "shown a")
    assert coordinator.record_impressions(np.array([1, 0, 0, 0]), "shown b")
    assert not coordinator.record_impressions(np.array([9, 9, 9, 9]), "shown a")
    impressions = coordinator.ledger.totals().impressions
    assert impressions is not None
    assert impressions.tolist() == [2, 0, 2, 0]
    assert coordinator.report().requests == 0
