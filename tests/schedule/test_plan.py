"""Floors of plans always fit, and keep every promise that the lower bound of the traffic can deliver."""

import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync import Catalog, FairRetriever, Promise, UnknownGroupError
from fairsync.catalog.atoms import Membership
from fairsync.catalog.groups import Label
from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast, Plan, ScheduledPromise, Supply, Window, check_promise, make_plan
from schedule.traffic import (
    DAY,
    HOUR,
    START,
    Hours,
    by_selection,
    counts_after,
    floors_of,
    forced,
    serve_floors_only,
    with_floor,
)

HOURS = 6


@st.composite
def situations(draw: st.DrawFn, recurring: bool) -> tuple[list[ScheduledPromise], Hours, int, dict[Label, int]]:
    """Draw a few hours of traffic, and promises that need a large part of its slots."""
    k = draw(st.integers(1, 4))
    capacities: dict[Label, int] = {group: draw(st.integers(1, k)) for group in range(draw(st.integers(1, 3)))}
    sure = draw(st.lists(st.integers(0, 5), min_size=HOURS, max_size=HOURS))
    likely = [low + draw(st.integers(0, 5)) for low in sure]
    promises = []
    for _ in range(draw(st.integers(1, 4))):
        group, last = draw(st.sampled_from(list(capacities))), draw(st.integers(1, HOURS))
        first = 0 if not recurring else draw(st.integers(0, last - 1))
        floor = draw(st.integers(1, max(1, sum(sure[first:last]) * int(capacities[group]))))
        if recurring and draw(st.booleans()):
            promises.append(ScheduledPromise.of_group(group, max(1, floor // 8), Window.hour("UTC")))
        else:
            window = Window.campaign(START + first * HOUR, START + last * HOUR, "UTC")
            promises.append(ScheduledPromise.of_group(group, floor, window))
    return promises, Hours(likely, sure), k, capacities


@pytest.mark.parametrize("recurring", [False, True])
@settings(max_examples=50)
@given(data=st.data())
def test_any_traffic_above_the_lower_bound_keeps_all_feasible_promises(recurring: bool, data: st.DataObject) -> None:
    promises, forecast, k, capacities = data.draw(situations(recurring))
    came = [low + data.draw(st.integers(0, 8)) for low in forecast.lower_hourly]
    plans, outcomes = serve_floors_only(promises, forecast, came, k, capacities)
    # If no window begins later, the first plan tells. Otherwise a window is safe if none of its plans warned.
    warned = {
        (status.promise, status.span)
        for plan in (plans if recurring else plans[:1])
        for status in plan.statuses
        if any(other.at_risk for other in plan.statuses)
    }
    for window, exposures in outcomes.items():
        if window not in warned:
            assert exposures >= window[0].floor


@settings(max_examples=50)
@given(st.data())
def test_floors_always_fit_and_plans_can_be_serialised(data: st.DataObject) -> None:
    promises, forecast, k, capacities = data.draw(situations(True))
    at = START + data.draw(st.integers(0, HOURS * 60)) * HOUR / 60
    exposures = {promise: data.draw(st.integers(0, 2 * promise.floor)) for promise in promises}
    plan = make_plan(promises, exposures, forecast, at, Supply.of_groups(capacities, k))
    assert plan.horizon >= 1
    assert sum(floors_of(plan).values()) <= plan.horizon * k
    assert all(0 <= floor <= plan.horizon * capacities[group] for group, floor in floors_of(plan).items())
    assert plan.span.start == at < plan.span.end
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    for promise in promises:  # no window begins or ends within the period
        inside = promise.window.after(at + HOUR / 3600)
        assert inside is None or inside.start >= plan.span.end
    for status in plan.statuses:
        assert status.certain <= status.reachable or not status.possible
        assert status.possible == (status.impossible_since is None)
        assert status.span.end >= plan.span.end


def test_a_retriever_takes_the_floors_of_a_plan_and_keeps_them() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(40, 4)), ["red"] * 36 + ["blue"] * 3 + ["green"])
    capacities: dict[Label, int] = {"red": 5, "blue": 3, "green": 1}
    promises = [
        ScheduledPromise.of_group("blue", 120, Window.hour("UTC")),
        ScheduledPromise.of_group("green", 200, Window.day("UTC")),
    ]
    supply = Supply.of_groups(capacities, 5)
    plan = make_plan(promises, {}, Hours([60] * 24, [50] * 24), START, supply, worst_case_traffic=1 / 3)
    assert (floors_of(plan), plan.horizon) == ({"blue": 60, "green": 3}, 20)
    retriever = FairRetriever(catalog, k=5, floors=floors_of(plan), horizon=plan.horizon)
    retriever.retrieve(rng.normal(size=(plan.horizon, 4)))
    assert retriever.report().esp == 1.0


TOYS: dict[Label, int] = {"toys": 4, "books": 4}
DAILY = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
SALE = ScheduledPromise.of_group("toys", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))


def by_toys(value: float) -> dict[str, Any]:
    return {DAILY.selection: value}


STEADY = Hours([100] * 24 * 14, [80] * 24 * 14)


def test_shares_and_the_largest_of_a_groups_promises() -> None:
    noon = START + 12 * HOUR
    # The day misses 40. The sale misses 650 of 13/14 of its traffic, of which this half day is 1/13: 50.
    plan = make_plan([DAILY, SALE], {DAILY: 60, SALE: 50}, STEADY, noon, Supply.of_groups(TOYS, 4))
    assert floors_of(plan) == {"toys": 50}
    assert plan.horizon == 12 * 80
    assert (plan.expected, plan.lower_bound) == (1200, 960)
    plan = make_plan([DAILY, SALE], {DAILY: 30, SALE: 50}, STEADY, noon, Supply.of_groups(TOYS, 4))
    assert floors_of(plan) == {"toys": 70}


def test_shares_of_many_small_promises_add_up() -> None:
    week = Window.week("UTC")
    promises = [ScheduledPromise.of_group(group, 3, week) for group in range(50)]
    capacities: dict[Label, int] = dict.fromkeys(range(51), 1)
    hourly = ScheduledPromise.of_group(50, 1, Window.hour("UTC"))
    exposures: dict[ScheduledPromise, int] = {}
    done = 0
    for hour in range(168):
        plan = make_plan([*promises, hourly], exposures, STEADY, START + hour * HOUR, Supply.of_groups(capacities, 4))
        assert plan.horizon == 80
        floors = floors_of(plan)
        assert floors[50] == 1
        assert sum(floors.values()) - 1 == math.floor((150 - done) / (168 - hour) + 0.5)  # not one for each group
        exposures = counts_after(plan, by_selection(floors), plan.span.end - HOUR / 3600)
        exposures.pop(hourly)
        done = sum(exposures[promise] for promise in promises)
        assert max(exposures[promise] for promise in promises) - min(exposures[promise] for promise in promises) <= 1
    assert all(exposures[promise] == 3 for promise in promises)


def test_a_horizon_reaches_to_the_next_deadline_that_misses_something() -> None:
    """Also beyond the period: an hour that has what was promised does not make the horizon short."""
    hourly = ScheduledPromise.of_group("books", 1, Window.hour("UTC"))
    daily = ScheduledPromise.of_group("toys", 96, Window.day("UTC"))
    supply = Supply.of_groups(TOYS, 4)
    plans = [make_plan([hourly, daily], {hourly: had}, STEADY, START, supply) for had in (0, 1)]
    assert [(floors_of(plan)["toys"], plan.horizon, plan.span.end - START) for plan in plans] == [
        (4, 80, HOUR),
        (96, 24 * 80, HOUR),
    ]


def test_what_must_come_is_not_put_off_by_the_next_plan() -> None:
    """Six exposures must come within six requests. Two requests later, with none of them, four requests are left."""
    promise = ScheduledPromise.of_group("toys", 6, Window.hour("UTC"))
    forecast, supply = Hours([60], [50]), Supply.of_groups(TOYS, 4)

    def plan_at(minute: int, had: int, came: int, previous: Plan | None) -> Plan:
        at = START + minute * HOUR / 60
        return make_plan(
            [promise], {promise: had}, forecast, at, supply, previous,
            requests={promise: came}, worst_case_traffic=0.01, until_next=9,
        )  # fmt: skip

    first = plan_at(0, 0, 0, None)
    assert (floors_of(first), first.horizon) == ({"toys": 6}, 6)
    assert plan_at(1, 0, 2, None).horizon == 6, "on its own, the plan would start again"
    second = plan_at(1, 0, 2, first)
    assert (floors_of(second), second.horizon) == ({"toys": 6}, 4)
    third = plan_at(2, 3, 5, second)
    assert (floors_of(third), third.horizon) == ({"toys": 3}, 1)


def test_within_a_priority_what_can_be_kept_comes_first() -> None:
    """Of 100 requests with one slot, toys need 500 and books 20: only books can be kept, whatever ends first."""
    one: dict[Label, int] = {"toys": 1, "books": 1}
    toys = ScheduledPromise.of_group("toys", 500, Window.campaign(START, START + HOUR, "UTC"))
    books = ScheduledPromise.of_group("books", 20, Window.campaign(START, START + HOUR, "UTC"))
    forecast, supply = Hours([100], [80]), Supply.of_groups(one, 1)
    plan = make_plan([toys, books], {}, forecast, START, supply)
    assert floors_of(plan)["books"] == min(plan.horizon, 20)
    first = replace(toys, promise=replace(toys.promise, priority=1))
    second = replace(books, promise=replace(books.promise, priority=2))
    plan = make_plan([first, second], {}, forecast, START, supply)
    assert floors_of(plan) == {"toys": plan.horizon, "books": 0}, "a higher priority gets all it can"


@pytest.mark.parametrize("overlap", [False, True])
def test_the_largest_promise_is_not_put_off_by_all_others(overlap: bool) -> None:
    """Five sixths of all slots are promised: at noon every promise has nearly half, and at the end all of it."""
    sizes = {"toys": 1500, "books": 400, "garden": 600, "kitchen": 2400, "music": 1200, "art": 300}
    promises = [ScheduledPromise.of_group(group, size, Window.day("UTC")) for group, size in sizes.items()]
    supply = Supply.of_groups(dict.fromkeys(sizes, 10), 10)
    if overlap:
        promises.append(ScheduledPromise(Promise({"new": True}, at_least=300), Window.day("UTC")))
        atoms = [(group,) for group in range(6)] + [(group, 6) for group in range(6)]
        names = tuple(promise.selection for promise in promises)
        supply = Supply(names, Membership.of(atoms, 7), np.array([9] * 6 + [3] * 6), 10)
    had, plan = dict.fromkeys(promises, 0), None
    for batch in range(8 * 24):  # four requests each
        if batch == 8 * 12:
            assert all(had[promise] >= 0.4 * int(promise.promise.at_least or 0) for promise in promises)
        came = dict.fromkeys(promises, 4 * batch)
        at = START + batch / 8 * HOUR
        plan = make_plan(promises, had, Hours([32] * 24, [29] * 24), at, supply, plan, requests=came, until_next=4)
        for promise, target in zip(promises, plan.targets, strict=True):
            had[promise] += math.ceil(int(target.at_least or 0) * min(4 / plan.horizon, 1))
    assert all(had[promise] >= int(promise.promise.at_least or 0) for promise in promises)


def test_an_hour_is_not_delayed_by_thousands_of_campaigns() -> None:
    """No list has a place for one of each, so campaigns come in long steps. The hour keeps its own, short one."""
    capacities: dict[Label, int] = {f"item {number}": 1 for number in range(3_000)}
    campaigns = [ScheduledPromise.of_group(label, 20, Window.week("UTC")) for label in capacities]
    hour = ScheduledPromise.of_group("wine", 30, Window.hour("UTC"))
    supply = Supply.of_groups({**capacities, "wine": 1}, 10)
    traffic = Hours([60] * 168, [50] * 168)
    alone = make_plan(campaigns, {}, traffic, START, supply)
    assert alone.horizon > 5_000
    both = make_plan([*campaigns, hour], {}, traffic, START, supply)
    assert both.horizon <= 30
    floors = floors_of(both)
    assert floors["wine"] == both.horizon, "one in each list"
    assert sum(floors.values()) - floors["wine"] >= 0.8 * 9 * both.horizon, "campaigns go on meanwhile"


def test_exposures_that_later_requests_cannot_deliver_come_now() -> None:
    # Of 400 exposures the second hour's 80 requests (lower bound) hold 320 at 4 each, less the slot that is promised to
    # books. So at least 81 have to come in the first hour. By expected traffic, nearly all in the second hour, 4 would
    # do. At a constant rate over the requests that can be counted on, it is half of them.
    promise = ScheduledPromise.of_group("toys", 400, Window.campaign(START, START + 2 * HOUR, "UTC"))
    clock = ScheduledPromise.of_group("books", 1, Window.hour("UTC"))
    forecast = Hours([100, 9_900], [80, 80])
    plan = make_plan([promise, clock], {}, forecast, START, Supply.of_groups(TOYS, 4), worst_case_traffic=1 / 3)
    assert floors_of(plan) == {"toys": 200, "books": 1}


def test_later_windows_of_other_groups_are_reserved() -> None:
    # Each hour has at least 80 requests of one slot, 60 of them promised to books: toys can have 20 an hour, 40 in all.
    one: dict[Label, int] = {"toys": 1, "books": 1}
    books = ScheduledPromise.of_group("books", 60, Window.hour("UTC"))
    toys = ScheduledPromise.of_group("toys", 40, Window.campaign(START, START + 2 * HOUR, "UTC"))
    forecast = Hours([800, 8000], [80, 80])
    plan = make_plan([books, toys], {}, forecast, START, Supply.of_groups(one, 1))
    assert sum(floors_of(plan).values()) == plan.horizon, "every slot is needed, from the first request on"
    assert floors_of(plan)["books"] > 0, "books have less time"
    assert not any(status.at_risk for status in plan.statuses)
    statuses = make_plan([books, with_floor(toys, 41)], {}, forecast, START, Supply.of_groups(one, 1)).statuses
    assert sum(status.at_risk for status in statuses) == 1, "one exposure is too much"


def test_a_campaign_to_come_is_reserved_too_and_its_start_ends_the_period() -> None:
    one: dict[Label, int] = {"toys": 1, "books": 1}
    soon = ScheduledPromise.of_group("books", 70, Window.campaign(START + 2 * HOUR, START + 3 * HOUR, "UTC"))
    toys = ScheduledPromise.of_group("toys", 180, Window.campaign(START, START + 3 * HOUR, "UTC"))
    plan = make_plan([soon, toys], {}, Hours([100] * 3, [80] * 3), START, Supply.of_groups(one, 1))
    assert plan.span.end == START + 2 * HOUR
    assert [(status.promise, status.certain) for status in plan.statuses] == [(toys, 170)]


@pytest.mark.parametrize("came", [8, 12, 54])
def test_what_must_come_is_not_put_off_plan_by_plan(came: int) -> None:
    """A plan before every request, and floors are met as late as possible: an hour with few requests is kept."""
    promise = ScheduledPromise.of_group("toys", 6, Window.hour("UTC"))
    forecast, supply, had = Hours([54], [49]), Supply.of_groups(TOYS, 4), 0
    plan = None
    for request in range(came):
        at = START + (request + 0.5) / came * HOUR
        plan = make_plan(
            [promise], {promise: had}, forecast, at, supply, plan, requests={promise: request}, until_next=2
        )
        had += forced(plan, 1, 4, TOYS)["toys"]
    assert had >= 6


def test_infeasible_floors_are_cut_and_reported() -> None:
    promises = [
        ScheduledPromise.of_group("toys", 600, Window.hour("UTC")),
        ScheduledPromise.of_group("books", 200, Window.hour("UTC")),
    ]
    plan = make_plan(
        promises, {}, Hours([100] * 24, [80] * 24), START, Supply.of_groups(TOYS, 4), worst_case_traffic=1.0
    )
    assert sum(floors_of(plan).values()) == 4 * plan.horizon, "all slots"
    # The 100 expected requests have 400 slots.
    assert [status.reachable for status in plan.statuses] == [200, 200]
    assert [status.shortfall for status in plan.statuses] == [400, 0]
    assert plan.statuses[0].gives_way_to == (promises[1],)
    # Toys cannot be kept. Books can, although they have more time: what they must have, one in each list, comes first.
    later = [promises[0], ScheduledPromise.of_group("books", 200, Window.day("UTC"))]
    plan = make_plan(later, {}, Hours([100] * 24, [80] * 24), START, Supply.of_groups(TOYS, 4))
    assert floors_of(plan) == {
        "toys": 240,
        "books": 80,
    }


def test_impression_rates_and_pending_impressions() -> None:
    """One in four retrieved toys is shown. 40 are missing, 8 of them pending: 128 must be retrieved for the others."""
    promise, forecast = ScheduledPromise.of_group("toys", 100, Window.hour("UTC")), Hours([100], [80])
    plan = make_plan(
        [promise],
        {promise: 60},
        forecast,
        START,
        Supply.of_groups(TOYS, 4),
        impression_rates=by_toys(0.25),
        pending=by_toys(8),
        worst_case_traffic=1.0,
    )
    assert (floors_of(plan), plan.statuses[0].reachable, plan.statuses[0].certain) == ({"toys": 128}, 100, 100)
    # 100 requests can retrieve 400 toys, of which 100 count; 80 can retrieve 320.
    rates = by_toys(0.25)
    cold = make_plan(
        [with_floor(promise, 120)], {}, forecast, START, Supply.of_groups(TOYS, 4), impression_rates=rates
    ).statuses[0]
    assert (cold.reachable, cold.certain, cold.shortfall) == (100, 80, 20)
    verdict = check_promise(
        with_floor(promise, 120), [], {}, STEADY, START, Supply.of_groups(TOYS, 4), impression_rates=rates
    )
    assert (verdict.accepted, verdict.largest, verdict.largest_safe) == (False, 100, 80)
    with pytest.raises(InvalidInputError, match="impression_rates"):
        make_plan([promise], {}, forecast, START, Supply.of_groups(TOYS, 4), impression_rates=by_toys(0.0))
    with pytest.raises(InvalidInputError, match="worst_case_traffic"):
        make_plan([promise], {}, forecast, START, Supply.of_groups(TOYS, 4), worst_case_traffic=0.0)


def test_nothing_promised() -> None:
    plan = make_plan([], {}, STEADY, START + HOUR / 2, Supply.of_groups({}, 4))
    assert (floors_of(plan), plan.span.end, plan.statuses) == ({}, START + HOUR, ())
    over = ScheduledPromise.of_group("toys", 1, Window.campaign(START - DAY, START, "UTC"))
    assert make_plan([over], {}, STEADY, START, Supply.of_groups(TOYS, 4)).statuses == ()


def test_a_group_without_items() -> None:
    plan = make_plan([DAILY], {}, STEADY, START, Supply.of_groups({"toys": 0}, 4))
    assert (floors_of(plan), plan.statuses[0].possible) == ({"toys": 0}, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"now": datetime(2026, 3, 2)}, "now is .* without a time zone"),
        ({"supply": Supply.of_groups({"tois": 4}, 4)}, "Did you mean .*tois"),
        ({"exposures": {DAILY: -1}}, "must be whole numbers, 0 or more; of 100 exposures of group=toys"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "promises": [DAILY], "exposures": {}, "forecast": Forecast(1.0), "now": datetime(2026, 3, 2, tzinfo=UTC),
        "supply": Supply.of_groups({"toys": 4}, 4),
    }  # fmt: skip
    make_plan(**given)
    with pytest.raises((InvalidInputError, UnknownGroupError), match=message):
        make_plan(**{**given, **change})


@pytest.mark.parametrize(
    ("capacities", "k", "message"),
    [({"toys": 5}, 4, "most of .*toys.* in one list is 5"), ({}, 0, "k must be a whole")],
)
def test_an_invalid_supply_is_refused(capacities: dict[Label, int], k: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Supply.of_groups(capacities, k)
