"""Status reports of the scheduler and the cost monitor."""

import math
from datetime import timedelta

import pytest

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.simulated_shop import SimulatedShop, utc

DAY = Window.day("UTC")
START = utc("2026-03-03T00:00")


def make_shop() -> SimulatedShop:
    return SimulatedShop(
        ["Toys", "Books", "Garden", "Kitchen"],
        [ScheduledPromise.of_group("Toys", 1900, DAY), ScheduledPromise.of_group("Books", 1500, DAY)],
        START,
    )


def test_groups_without_a_promise_need_nothing_in_the_period() -> None:
    shop = make_shop()
    shop.advance(14)
    floors = {group.group: group.floor for group in shop.promise_service.overview().groups}
    assert floors["Garden"] == floors["Kitchen"] == 0
    assert 0 < floors["Toys"] <= 1900


def test_the_overview_adds_up() -> None:
    shop = make_shop()
    shop.advance(14)
    overview = shop.promise_service.overview()
    assert (overview.now, overview.started) == (START + timedelta(hours=14), START)
    assert (overview.period_start, overview.period_end) == (START, START + timedelta(days=1))
    assert sum(group.retrieved for group in overview.groups) == overview.requests * overview.k
    assert sum(group.items for group in overview.groups) == overview.items == len(shop.promise_service.catalog)
    assert overview.expected_requests > overview.requests
    assert overview.cost is not None
    assert overview.cost_share == pytest.approx(overview.cost / (overview.relevance + overview.cost))
    views = {view.group: view for view in overview.promises}
    assert {group.group: group.retrieved for group in overview.groups if group.group in views} == {
        label: view.exposures for label, view in views.items()
    }
    assert all(math.copysign(1, group.price) == 1 for group in overview.groups if group.price == 0), "never -0"


def test_past_windows_come_latest_first() -> None:
    shop = make_shop()
    shop.advance(72)
    past = shop.promise_service.past()
    assert [one.end for one in past] == [START + timedelta(days=day) for day in (3, 3, 2, 2, 1, 1)]
    assert shop.promise_service.past(limit=2) == past[:2]
