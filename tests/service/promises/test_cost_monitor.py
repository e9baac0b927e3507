"""The cost monitor: estimates that come by themselves, and a service that goes on if they fail."""

import math
import threading
import time

import numpy as np
import pytest

from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.promises.cost_monitor import FEWEST
from fairsync.service.promises.reservoir import AnswerReservoir
from fairsync.service.server.prometheus import Metrics
from service.dashboard.simulated_shop import FailingShards, SimulatedShop, utc
from service.running import shop_catalog, small_service

DAY = Window.day("UTC")
LABELS = ["Toys", "Books", "Garden", "Kitchen"]
PROMISES = [ScheduledPromise.of_group("Toys", 2600, DAY), ScheduledPromise.of_group("Books", 2000, DAY)]


def make_shop() -> SimulatedShop:
    return SimulatedShop(LABELS, PROMISES, utc("2026-03-03T00:00"))


def test_it_says_why_there_is_no_estimate_and_then_makes_one() -> None:
    shop = make_shop()
    promise_service = shop.promise_service
    assert promise_service.overview().least.reason == "No request was answered yet."
    promise_service.cost_monitor.every = 0.0
    shop.serve(FEWEST - 1)
    promise_service.refresh()
    least = promise_service.overview().least
    assert (least.sample, least.least_share, least.ratio) == (0, None, None)
    assert "Too few requests" in least.reason
    assert {group.cost_share for group in promise_service.overview().groups} == {None}
    promise_service.cost_monitor.every = math.inf
    shop.advance(14)
    shop.estimate_cost()
    overview = promise_service.overview()
    least = overview.least
    assert least.reason == ""
    assert least.at == overview.now
    assert least.cost_share is not None
    assert least.least_share is not None
    assert overview.cost_share is not None
    assert 0 < least.least_share <= least.cost_share <= overview.cost_share * 1.001, "all requests are in the sample"
    assert least.ratio == pytest.approx(least.cost_share / least.least_share)
    costs = {group.group: group.cost_share for group in overview.groups}
    for view in overview.promises:
        assert promise_service.pace(view.id).cost_share == view.cost_share
        assert view.cost_share is not None
    assert sum(cost for cost in costs.values() if cost) == pytest.approx(least.cost_share)
    assert costs["Garden"] == pytest.approx(0, abs=1e-4), "nothing was promised to it"
    text = Metrics(promise_service).text().decode()
    assert f"fairsync_least_cost_share {least.least_share}" in text
    assert f"fairsync_cost_ratio {least.ratio}" in text
    assert f'fairsync_group_cost_share{{group="Toys"}} {costs["Toys"]}' in text


def test_it_estimates_while_requests_are_answered_and_stops_when_closed() -> None:
    shop = make_shop()
    shop.serve(200)
    shop.promise_service.cost_monitor.every = 60.0
    shop.promise_service.refresh()
    until = time.monotonic() + 240
    while shop.promise_service.cost_monitor.last is None:
        assert time.monotonic() < until
        shop.serve(2)
    last = shop.promise_service.cost_monitor.last
    shop.promise_service.refresh()
    assert shop.promise_service.cost_monitor.last is last, "not again before its time"
    shop.promise_service.close()
    assert not any(thread.name == "costs" for thread in threading.enumerate())


def test_a_part_out_of_reach_stops_the_estimate_and_not_the_service() -> None:
    shop = SimulatedShop(LABELS, PROMISES, utc("2026-03-03T00:00"), index=lambda catalog: FailingShards(catalog, 3))
    shop.advance(12)
    shop.estimate_cost()
    known = shop.promise_service.overview().least
    index = shop.promise_service.front.index
    assert isinstance(index, FailingShards)
    index.failed = frozenset({1})
    size = len(shop.promise_service.cost_monitor.reservoir)
    shop.serve(50)
    assert len(shop.promise_service.cost_monitor.reservoir) == size, "what lacked a part cannot be compared"
    shop.estimate_cost()
    least = shop.promise_service.overview().least
    assert "out of reach" in least.reason
    assert least.ratio == known.ratio, "what was known stays, with its time"
    assert least.at == known.at


def test_other_items_begin_another_sample() -> None:
    shop = make_shop()
    shop.serve(100)
    promise_service = shop.promise_service
    promise_service.items.upsert(np.eye(16)[:1], ["Toys"], [10_000])
    shop.estimate_cost()
    assert promise_service.cost_monitor.last is None, "nothing was answered from these items yet"
    shop.serve(80)
    assert len(promise_service.cost_monitor.reservoir) == 80
    shop.estimate_cost()
    assert promise_service.cost_monitor.last is not None


def test_rules_of_requests_are_no_cost_of_promises() -> None:
    """Without floors nothing is given up, whatever is excluded; short lists are not in the sample."""
    service = small_service(catalog=shop_catalog())
    users = np.random.default_rng(1).normal(size=(FEWEST, 8))
    best = service.retrieve(users).ids[:, :2].tolist()
    service.cost_monitor.reservoir = AnswerReservoir()
    where = [{"in_stock": True} if number % 2 else None for number in range(FEWEST)]
    service.retrieve(users, exclude=best, where=where)
    service.items.upsert(None, {"price": [99.0]}, ["i3"])  # keeps the sample
    service.retrieve(users[:3], where={"price": {"at_most": 1}})
    assert len(service.cost_monitor.reservoir) == FEWEST
    service.cost_monitor.measure()
    assert service.cost_monitor.last is not None, service.cost_monitor.reason
    assert service.cost_monitor.last.costs.share == pytest.approx(0, abs=1e-9)
    service.items.upsert(None, {"in_stock": [False] * 60}, [f"i{row}" for row in range(60)])
    service.cost_monitor.measure()
    assert "fewer items are eligible now" in service.cost_monitor.reason
