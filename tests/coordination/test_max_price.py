"""The highest price of a promise in coordinators: it gives up rather than pay more, whoever keeps the counts."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
from fairsync.search import make_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

K, REQUESTS = 4, 400


def make_catalog() -> fs.Catalog:
    """Return items of which "far" lie further from all users than "near": an exposure costs about one half."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(0.0, 0.02, size=(60, 6))
    vectors[:, 0] += np.repeat([1.0, 0.5], 30)
    return fs.Catalog(
        vectors, {"place": ["near"] * 30 + ["far"] * 30, "new": [number % 2 == 0 for number in range(60)]}
    )


def make_users(n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    users = rng.normal(0.0, 0.1, size=(n, 6))
    users[:, 0] = 1.0
    return users


def serve(coordinator: fs.Coordinator, targets: list[fs.Promise], *, by_the_clock: bool = True) -> tuple[int, int]:
    """Return the exposures of far items, and of new ones, with the targets set again every 50 requests."""
    catalog, shown = make_catalog(), np.zeros(2, dtype=np.int64)
    front, users = fs.FrontEnd(catalog, coordinator), make_users(REQUESTS)
    for begin in range(0, REQUESTS, 50):
        if by_the_clock:
            left = REQUESTS - begin
            had = {"far": int(shown[0]), "new": int(shown[1])}
            more = [
                fs.Promise(one.where, max(int(one.at_least or 0) - had["far" if "place" in one.where else "new"], 0),
                           max_price=one.max_price)
                for one in targets
            ]  # fmt: skip
            coordinator.set_targets(promises=more, requests=left, restart_at=1.0 if not begin else None)
        rows = catalog.rows_of(front.retrieve(users[begin : begin + 50]).ids.ravel())
        shown += [int((rows >= 30).sum()), int((rows % 2 == 0).sum())]
    return int(shown[0]), int(shown[1])


def clocked(**settings: Any) -> fs.Coordinator:
    return fs.Coordinator(make_catalog(), k=K, horizon=1, auto_restart=False, batch_size=16, **settings)


@pytest.fixture(params=["local", "shared"])
def open_clocked(request: pytest.FixtureRequest) -> Callable[[], fs.Coordinator]:
    if request.param == "local":
        return clocked
    start = request.getfixturevalue("start")
    return lambda: start(make_catalog(), k=K, horizon=1, auto_restart=False, batch_size=16)


def test_a_promise_gives_up_rather_than_pay_more(open_clocked: Callable[[], fs.Coordinator]) -> None:
    far, new = fs.Promise({"place": "far"}, 600, max_price=0.2), fs.Promise({"new": True}, 900)
    coordinator = open_clocked()
    had, others = serve(coordinator, [far, new])
    assert had < 300, "an exposure costs half of the relevance of the last candidate"
    assert others >= 900, "the others are kept"
    gave_way = coordinator.report().gave_way["far"]
    assert gave_way.reason == "max_price"
    assert gave_way.exposures == 600 - had


def test_a_price_that_suffices_changes_nothing(open_clocked: Callable[[], fs.Coordinator]) -> None:
    coordinator = open_clocked()
    had, others = serve(coordinator, [fs.Promise({"place": "far"}, 600, max_price=5.0), fs.Promise({"new": True}, 900)])
    assert had >= 600
    assert others >= 900
    assert not coordinator.report().gave_way


def test_over_a_horizon() -> None:
    def far(price: float | None) -> int:
        promises = [fs.Promise({"place": "far"}, 600, max_price=price), fs.Promise({"new": True}, 900)]
        with fs.Coordinator(make_catalog(), k=K, promises=promises, horizon=REQUESTS, batch_size=16) as coordinator:
            had, others = serve(coordinator, [], by_the_clock=False)
            assert others >= 900
            assert (price == 0.2) == ("place=far" in coordinator.report().gave_way)
            return had

    assert far(0.2) < 300
    assert far(5.0) >= 600
    assert far(None) >= 600


@pytest.mark.parametrize("price", [0.2, 5.0])
def test_the_limit_ends_with_the_horizon(price: float) -> None:
    coordinator = clocked()
    far = fs.Promise({"place": "far"}, 200, max_price=price)
    for start in (1.0, 2.0):
        coordinator.set_targets(promises=[far], requests=REQUESTS, restart_at=start)
        assert coordinator.totals().requests == 0
        front = fs.FrontEnd(make_catalog(), coordinator)
        front.retrieve(make_users(REQUESTS))
        assert ("far" in coordinator.report().gave_way) == (price == 0.2)


def limit_of(coordinator: fs.Coordinator) -> float | None:
    """Return the highest subsidy of the first promise, as front ends get it; None if its unit is not known."""
    lease = coordinator.lease(1)
    coordinator.release(lease.number)
    return None if lease.batch.highest is None else float(lease.batch.highest[0])


def test_requests_that_are_answered_twice_do_not_change_the_unit_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another front end answers most of them between lease and settlement."""
    promises, catalog = [fs.Promise({"place": "far"}, 100, max_price=0.2)], make_catalog()
    coordinator = fs.Coordinator(catalog, k=K, promises=promises, horizon=REQUESTS)
    one, other = fs.FrontEnd(catalog, coordinator), fs.FrontEnd(catalog, coordinator)
    users, ids, settle = np.repeat(make_users(1), 10, axis=0), [str(number) for number in range(10)], coordinator.settle

    def settle_late(number: int, settlement: Any) -> Any:
        monkeypatch.undo()
        other.retrieve(users[:9], request_ids=ids[:9])
        return settle(number, settlement)

    monkeypatch.setattr(coordinator, "settle", settle_late)
    one.retrieve(users, request_ids=ids)
    assert coordinator.totals().requests == 10
    assert limit_of(coordinator) == pytest.approx(0.2 * np.sort(catalog.embeddings @ users[0])[-K])


def make_limited(url: str, *more: fs.Promise, **settings: Any) -> fs.Coordinator:
    promises = [fs.Promise({"place": "far"}, 300, max_price=0.05), *more]
    return fs.Coordinator(make_catalog(), k=K, promises=promises, horizon=100, batch_size=10, ledger=url, **settings)


@pytest.fixture(params=["local", "shared"])
def open_limited(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], fs.Coordinator]:
    """Open coordinators with a promise that is too dear, one after the other over the same ledger."""
    url = request.getfixturevalue("url") if request.param == "shared" else f"sqlite:///{tmp_path / 'ledger.db'}"
    return partial(make_limited, url)


@pytest.fixture
def open_shared(url: str) -> Callable[..., fs.Coordinator]:
    return partial(make_limited, url)


def test_a_coordinator_whose_floors_gave_way_can_be_replaced(open_limited: Callable[[], fs.Coordinator]) -> None:
    """The requests that are left could not deliver what was given up."""
    with open_limited() as first:
        fs.FrontEnd(make_catalog(), first).retrieve(make_users(90))
        gave_way = first.report().gave_way
        assert gave_way["place=far"].exposures > 10 * K
        limit = limit_of(first)
    with open_limited() as second:
        assert second.report().gave_way == gave_way
        assert limit_of(second) == limit
        fs.FrontEnd(make_catalog(), second).retrieve(make_users(5))
        assert second.report().gave_way


def test_coordinators_know_what_others_have_given_up(open_shared: Callable[..., fs.Coordinator]) -> None:
    with open_shared(replica="one") as first, open_shared(replica="other") as second:
        fronts = [fs.FrontEnd(make_catalog(), one) for one in (first, second)]
        fronts[0].retrieve(make_users(60))
        given_up = first.report().gave_way["place=far"]
        assert second.report().gave_way["place=far"].since == given_up.since
        fronts[1].retrieve(make_users(10))
        of_both = [one.report().gave_way["place=far"] for one in (first, second)]
        assert [(one.since, one.exposures) for one in of_both] == [(given_up.since, 300)] * 2
        with open_shared(replica="third") as third:
            assert third.report().gave_way["place=far"].since == given_up.since
        for _ in range(3):
            fronts[1].retrieve(make_users(10))
        fronts[0].retrieve(make_users(5))  # the next horizon
        fronts[1].retrieve(make_users(1))
        assert second.report().requests == 6


@pytest.mark.parametrize("is_leased", [False, True])
def test_promises_can_be_changed_while_others_have_given_way(
    open_limited: Callable[[], fs.Coordinator], is_leased: bool
) -> None:
    """What was given up cannot be met any more. Neither is it waited for, nor is the change refused for it."""
    with open_limited() as coordinator:
        front, promises = fs.FrontEnd(make_catalog(), coordinator), [*(coordinator.promises or ())]
        front.retrieve(make_users(90))
        lease = coordinator.lease(2) if is_leased else None
        change = {"promises": [*promises, fs.Promise({"new": True}, 8)]}
        waiting = threading.Thread(target=coordinator.promise, kwargs=change, daemon=True)
        waiting.start()
        waiting.join(20)
        assert not waiting.is_alive()
        assert list(coordinator.report().gave_way) == ["place=far"]
        if lease is not None:
            coordinator.release(lease.number)
        front.retrieve(make_users(10))
        assert coordinator.report().exposures["new=True"] >= 8


def test_a_coordinator_takes_over_while_floors_have_given_way(open_shared: Callable[..., fs.Coordinator]) -> None:
    with open_shared() as first:
        fs.FrontEnd(make_catalog(), first).retrieve(make_users(90))
    with open_shared(fs.Promise({"new": True}, 8), if_differs="take over") as second:
        assert second.report().gave_way
        fs.FrontEnd(make_catalog(), second).retrieve(make_users(10))
        assert second.report().exposures["new=True"] >= 8


def test_the_unit_of_the_limit_is_learnt_from_past_requests(open_limited: Callable[[], fs.Coordinator]) -> None:
    catalog = make_catalog()
    with open_limited() as coordinator:
        assert limit_of(coordinator) is None
        coordinator.calibrate(make_users(50), catalog, make_index("exact", catalog))
        fifth = np.sort(make_users(50) @ catalog.embeddings.T, axis=1)[:, -K]
        assert limit_of(coordinator) == pytest.approx(0.05 * fifth.mean(), rel=0.01)
