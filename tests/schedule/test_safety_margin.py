"""Floors are met under worst-case traffic, because exposures are brought forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule import ScheduledPromise, Window, make_plan
from fairsync.schedule.requirements import Requirements
from fairsync.schedule.safety_margin import bring_forward, cap_unreachable
from schedule.linear_program import requirements_cases
from schedule.traffic import HOUR, START, Hours, serve_floors_only

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


@given(requirements_cases(), st.integers(1, 20))
def test_floors_brought_forward_fit_into_the_slots(requirements: Requirements, horizon: int) -> None:
    given_ = np.zeros_like(requirements.capacities)
    floors, near = bring_forward(requirements, given_, horizon)
    assert 1 <= near <= horizon
    assert floors.sum() <= near * requirements.k
    assert (floors <= requirements.capacities * near).all()
    assert (floors >= 0).all()


def test_safe_promises_keep_their_pace() -> None:
    """At a third of the traffic, a promise of a quarter of the slots is safe and one of half the slots is not."""
    forecast = Hours([900], [800])
    capacities: dict[Label, int] = {"toys": 1}
    for floor, horizon in ((225, 800), (450, 450)):
        plan = make_plan(
            [ScheduledPromise.of_group("toys", floor, Window.hour("UTC"))], {}, forecast, START, 1, capacities
        )
        assert (plan.floors, plan.horizon) == ({"toys": floor}, horizon)
    trusting = make_plan(
        [ScheduledPromise.of_group("toys", 450, Window.hour("UTC"))],
        {},
        forecast,
        START,
        1,
        capacities,
        worst_case_traffic=1.0,
    )
    assert trusting.horizon == 800


def test_floors_of_later_windows_are_capped_at_what_they_can_get() -> None:
    """Each of two groups has a later window with ten requests, and each request can hold one item of a group."""
    later_windows = np.array([[0, 1], [0, 1]])
    requirements = Requirements(
        group=np.array([0, 1]), missing=np.array([5, 5]), floor=np.array([40, 8]), deadline=np.array([0, 0]),
        later_windows=later_windows, requests=np.array([6, 16]), capacities=np.array([1, 1]), k=1,
    )  # fmt: skip
    assert cap_unreachable(requirements).floor.tolist() == [5, 4]  # 10 and 8 alone; together 10 slots for 18


@pytest.mark.parametrize(("books", "toys"), [(8, 10), (16, 20)])
def test_a_longer_promise_relies_on_later_windows_only_where_they_are_safe(books: int, toys: int) -> None:
    """A sale of two hours needs 20 toys. Each hour brings 8 of them; the worst case is a third of the 60 requests.

    If the second hour's floors fit into 20 requests, the first hour brings half of the sale. If they do not, it is
    unknown how many of those slots toys will get, and the first hour brings all.
    """
    sale = ScheduledPromise.of_group("toys", 20, Window.campaign(START, START + 2 * HOUR, "UTC"))
    hourly = [
        ScheduledPromise.of_group("toys", 8, Window.hour("UTC")),
        ScheduledPromise.of_group("books", books, Window.hour("UTC")),
    ]
    _, outcomes = serve_floors_only(
        [sale, *hourly], Hours([60, 60], [60, 60]), [60], 1, {"toys": 1, "books": 1}, step=1
    )
    assert [outcomes[promise, span] for promise, span in outcomes] == [toys, books]
