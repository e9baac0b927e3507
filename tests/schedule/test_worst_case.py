"""Floors are met under worst-case traffic, because exposures are brought forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule import ScheduledPromise, Supply, Window, make_plan
from schedule.traffic import HOUR, START, Hours, floors_of, serve_floors_only

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label

HOURS = 4


@settings(max_examples=40)
@given(st.data())
def test_traffic_that_halves_at_any_time_keeps_all_feasible_floors(data: st.DataObject) -> None:
    """The forecast is confident and wrong. Yet no floor is missed that could be kept with one request less.

    A floor that needs its cap in every single request can miss by one, where another group fills a list.
    """
    k = data.draw(st.integers(1, 3))
    capacities: dict[Label, int] = {
        group: data.draw(st.integers(1, k)) for group in range(data.draw(st.integers(1, 2)))
    }
    likely = data.draw(st.lists(st.integers(8, 30), min_size=HOURS, max_size=HOURS))
    breaks = data.draw(st.integers(0, HOURS))
    came = [count if hour < breaks else -(-count // 2) for hour, count in enumerate(likely)]
    window = Window.campaign(START, START + HOURS * HOUR, "UTC")
    promises = [
        ScheduledPromise.of_group(
            group, data.draw(st.integers(1, max(1, 3 * k * sum(likely) // (4 * len(capacities))))), window
        )
        for group in capacities
    ]
    _, outcomes = serve_floors_only(promises, Hours(likely, likely), came, k, capacities, step=1)
    requests = sum(came) - 1
    possible = all(promise.floor <= requests * capacities[promise.group] for promise in promises)
    if possible and sum(promise.floor for promise in promises) <= requests * k:
        assert all(exposures >= promise.floor for (promise, _), exposures in outcomes.items())


def test_safe_promises_keep_their_pace() -> None:
    """At a third of the traffic, a promise of a quarter of the slots is safe and one of half the slots is not.

    The worst case has 300 requests: the other 150 exposures must come before.
    """
    forecast = Hours([900], [800])
    capacities: dict[Label, int] = {"toys": 1}
    for floor, target, horizon in ((225, 225, 800), (450, 150, 150)):
        plan = make_plan(
            [ScheduledPromise.of_group("toys", floor, Window.hour("UTC"))],
            {},
            forecast,
            START,
            Supply.of_groups(capacities, 1),
            worst_case_traffic=1 / 3,
        )
        assert (floors_of(plan), plan.horizon) == ({"toys": target}, horizon)
    trusting = make_plan(
        [ScheduledPromise.of_group("toys", 450, Window.hour("UTC"))],
        {},
        forecast,
        START,
        Supply.of_groups(capacities, 1),
        worst_case_traffic=1.0,
    )
    assert trusting.horizon == 800
