"""The meter of costs: a fair sample, gentle looks, and a service that goes on whatever becomes of them."""

import math
import threading
import time

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.schedule import Promise, Window
from fairsync.service.promises.cost_monitor import FEWEST, AnswerReservoir
from fairsync.service.server.prometheus import Metrics
from service.dashboard.simulated_shop import FailingShards, SimulatedShop, utc

DAY = Window.day("UTC")
LABELS = ["Toys", "LoopState", "Garden", "Kitchen"]
PROMISES = [Promise("Toys", 1900, DAY), Promise("LoopState", 1500, DAY)]


def make_shop() -> SimulatedShop:
    return SimulatedShop(LABELS, PROMISES, utc("2026-03-03T00:00"))


def test_every_request_of_a_tick_is_as_likely_in_the_sample() -> None:
    catalog = Catalog(np.eye(1000), ["one"] * 1000)
    seen = np.zeros(1000)
    sample = AnswerReservoir(size=100)
    for began in range(60):
        for start in range(0, 1000, 40):
            rows = np.arange(start, start + 40)[:, None]
            sample.add(
                catalog,
                float(began),
                np.zeros((40, 1, 1000)),
                Candidates.of(catalog, rows, np.ones((40, 1)), np.ones(40)),
            )
        answered = sample.answered(catalog)
        assert answered is not None
        assert len(set(answered.rows.ravel().tolist())) == 100
        seen[answered.rows.ravel()] += 1
    # Each comes 6 times in 60, give or take; early, middle and late ones alike.
    thirds = seen[:999].reshape(3, -1).sum(axis=1) / seen.sum()
    assert thirds == pytest.approx([1 / 3] * 3, abs=0.02)


def test_says_why_it_knows_nothing_then_an_estimate_and_never_more() -> None:
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
    assert sum(cost for cost in costs.values() if cost) == pytest.approx(least.cost_share)
    assert costs["Garden"] == pytest.approx(0, abs=1e-4), "nothing was promised to it"
    text = Metrics(promise_service).text().decode()
    assert f"fairsync_least_cost_share {least.least_share}" in text
    assert f"fairsync_cost_ratio {least.ratio}" in text
    assert f'fairsync_group_cost_share{{group="Toys"}} {costs["Toys"]}' in text


def test_groups_without_promise_need_nothing_in_the_tick() -> None:
    shop = make_shop()
    shop.advance(14)
    floors = {group.group: group.floor for group in shop.promise_service.overview().groups}
    assert floors["Garden"] == floors["Kitchen"] == 0
    assert 0 < floors["Toys"] <= 1900


def test_looks_by_itself_while_requests_are_answered_and_ends_when_told() -> None:
    shop = make_shop()
    shop.serve(200)
    shop.promise_service.cost_monitor.every = 60.0
    shop.promise_service.refresh()
    until = time.monotonic() + 20
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
    size = len(shop.promise_service.cost_monitor.sample)
    shop.serve(50)
    assert len(shop.promise_service.cost_monitor.sample) == size, "what lacked a part cannot be compared"
    shop.estimate_cost()
    least = shop.promise_service.overview().least
    assert "out of reach" in least.reason
    assert least.ratio == known.ratio, "what was known stays, with its time"
    assert least.at == known.at


def test_other_items_begin_another_sample() -> None:
    shop = make_shop()
    shop.serve(100)
    promise_service = shop.promise_service
    promise_service.upsert_items(np.eye(16)[:1], ["Toys"], [10_000])
    shop.estimate_cost()
    assert promise_service.cost_monitor.last is None, "nothing was answered from these items yet"
    shop.serve(80)
    assert len(promise_service.cost_monitor.sample) == 80
    shop.estimate_cost()
    assert promise_service.cost_monitor.last is not None
