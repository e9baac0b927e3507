"""Projections against the outcomes of windows."""

from datetime import timedelta

import pytest

from fairsync.schedule import ScheduledPromise, Window
from service.dashboard.simulated_shop import SimulatedShop, utc

DAY = Window.day("UTC")
FLOORS = {"Toys": 1500, "Books": 400, "Garden": 600, "Kitchen": 2400, "Music": 1200, "Art": 300}
START = utc("2026-03-03T00:00")


def test_days_end_within_the_band_and_near_the_forecast() -> None:
    shop = SimulatedShop(
        list(FLOORS), [ScheduledPromise.of_group(label, floor, DAY) for label, floor in FLOORS.items()], START
    )
    inside, errors = [], []
    for _ in range(3):
        shop.advance(16)
        shop.estimate_cost()
        paces = [shop.promise_service.pace(view.id) for view in shop.promise_service.promises()]
        views = {view.group: view.projected for view in shop.promise_service.promises()}
        shop.advance(8)
        ends = {one.group: one.exposures for one in shop.promise_service.past(len(FLOORS))}
        for pace in paces:
            assert pace.low <= pace.projected <= pace.high
            assert pace.projected == views[pace.group]
            inside.append(pace.low - 1 <= ends[pace.group] <= pace.high + 1)
            errors.append(abs(pace.projected - ends[pace.group]) / ends[pace.group])
    assert sum(inside) >= 0.8 * len(inside)
    assert sum(errors) / len(errors) < 0.1


def test_what_cannot_be_kept_is_not_expected_to_reach_its_floor() -> None:
    shop = SimulatedShop(
        list(FLOORS), [ScheduledPromise.of_group(label, 3 * floor, DAY) for label, floor in FLOORS.items()], START
    )
    shop.advance(10, traffic=0.5)
    shop.estimate_cost()
    lost = [view for view in shop.promise_service.promises() if view.state == "impossible"]
    assert lost
    for view in lost:
        assert view.projected == pytest.approx(view.floor - view.shortfall)


def test_a_campaign_before_during_and_after() -> None:
    shop = SimulatedShop(list(FLOORS), [], START)
    window = Window.campaign(START + timedelta(days=1), START + timedelta(days=2), "UTC")
    made = shop.promise_service.editor.set_promise(ScheduledPromise.of_group("Toys", 500, window))
    assert (made.state, made.projected, made.exposures) == ("on track", 500, 0)
    shop.advance(24 + 12)
    during = shop.view("Toys")
    assert during.exposures > 0
    shop.advance(24)
    after, past = shop.view("Toys"), shop.promise_service.past()[0]
    assert (after.exposures, after.projected, after.end) == (past.exposures, past.exposures, window.end)
    assert after.state == "kept"
    assert shop.promise_service.pace(after.id).end == window.end
    assert shop.promise_service.overview().alerts == []
