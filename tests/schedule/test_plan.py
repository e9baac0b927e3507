"""Plans: floors that always fit, and that deliver every promise that the traffic which was counted on can carry."""

import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync import Catalog, FairRetriever, UnknownGroupError
from fairsync.catalog.groups import Label
from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast, Plan, Promise, Window, check_promise, make_plan
from schedule.traffic import DAY, HOUR, START, Hours, serve_floors_only

HOURS = 6


@st.composite
def situations(draw: st.DrawFn, recurring: bool) -> tuple[list[Promise], Hours, int, dict[Label, int]]:
    """A few hours with promises that take up a good part of them."""
    k = draw(st.integers(1, 4))
    caps: dict[Label, int] = {group: draw(st.integers(1, k)) for group in range(draw(st.integers(1, 3)))}
    sure = draw(st.lists(st.integers(0, 5), min_size=HOURS, max_size=HOURS))
    likely = [low + draw(st.integers(0, 5)) for low in sure]
    promises = []
    for _ in range(draw(st.integers(1, 4))):
        group, last = draw(st.sampled_from(list(caps))), draw(st.integers(1, HOURS))
        first = 0 if not recurring else draw(st.integers(0, last - 1))
        floor = draw(st.integers(1, max(1, sum(sure[first:last]) * int(caps[group]))))
        if recurring and draw(st.booleans()):
            promises.append(Promise(group, max(1, floor // 8), Window.hour("UTC")))
        else:
            window = Window.campaign(START + first * HOUR, START + last * HOUR, "UTC")
            promises.append(Promise(group, floor, window))
    return promises, Hours(likely, sure), k, caps


@pytest.mark.parametrize("recurring", [False, True])
@settings(max_examples=50)
@given(data=st.data())
def test_any_traffic_that_was_counted_on_delivers_all_that_it_could(recurring: bool, data: st.DataObject) -> None:
    promises, forecast, k, caps = data.draw(situations(recurring))
    came = [low + data.draw(st.integers(0, 8)) for low in forecast.sure]
    plans, outcomes = serve_floors_only(promises, forecast, came, k, caps)
    # If nothing begins later, the first plan knows. Otherwise a window is safe if none of its plans warned.
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
def test_floors_always_fit_and_plans_can_be_written_down(data: st.DataObject) -> None:
    promises, forecast, k, caps = data.draw(situations(True))
    at = START + data.draw(st.integers(0, HOURS * 60)) * HOUR / 60
    exposures = {promise: data.draw(st.integers(0, 2 * promise.floor)) for promise in promises}
    plan = make_plan(promises, exposures, forecast, at, k, caps)
    assert plan.horizon >= 1
    assert sum(plan.floors.values()) <= plan.horizon * k
    assert all(0 <= floor <= plan.horizon * caps[group] for group, floor in plan.floors.items())
    assert plan.span.start == at < plan.span.end
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    for promise in promises:  # no window begins or ends within the tick
        inside = promise.window.after(at + HOUR / 3600)
        assert inside is None or inside.start >= plan.span.end
    for status in plan.statuses:
        assert status.certain <= status.reachable or not status.possible
        assert status.possible == (status.impossible_since is None)
        assert status.span.end >= plan.span.end


def test_a_retriever_takes_the_floors_of_a_plan_and_keeps_them() -> None:
    rng = np.random.default_rng(0)
    catalog = Catalog(rng.normal(size=(40, 4)), ["red"] * 36 + ["blue"] * 3 + ["green"])
    caps: dict[Label, int] = {"red": 5, "blue": 3, "green": 1}
    promises = [Promise("blue", 120, Window.hour("UTC")), Promise("green", 200, Window.day("UTC"))]
    plan = make_plan(promises, {}, Hours([60] * 24, [50] * 24), START, 5, caps)
    assert (plan.floors, plan.horizon) == ({"blue": 72, "green": 4}, 24)
    retriever = FairRetriever(catalog, k=5, floors=plan.floors, horizon=plan.horizon)
    retriever.retrieve(rng.normal(size=(24, 4)))
    assert retriever.report().esp == 1.0


TOYS: dict[Label, int] = {"toys": 4, "books": 4}
DAILY = Promise("toys", 100, Window.day("UTC"))
SALE = Promise("toys", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
STEADY = Hours([100] * 24 * 14, [80] * 24 * 14)


def test_shares_and_the_largest_of_a_groups_promises() -> None:
    noon = START + 12 * HOUR
    # The day misses 40. The sale misses 650 of 13/14 of its traffic, of which this half day is 1/13: 50.
    plan = make_plan([DAILY, SALE], {DAILY: 60, SALE: 50}, STEADY, noon, 4, TOYS)
    assert plan.floors == {"toys": 50}
    assert plan.horizon == 12 * 80
    assert (plan.expected, plan.cautious, plan.cut) == (1200, 960, {})
    plan = make_plan([DAILY, SALE], {DAILY: 30, SALE: 50}, STEADY, noon, 4, TOYS)
    assert plan.floors == {"toys": 70}


def test_shares_of_many_small_promises_add_up() -> None:
    week = Window.week("UTC")
    promises = [Promise(group, 3, week) for group in range(50)]
    caps: dict[Label, int] = dict.fromkeys(range(50), 1)
    hourly = Promise(0, 1, Window.hour("UTC"))
    exposures: dict[Promise, int] = {hourly: 1}
    done = 0
    for hour in range(168):
        plan = make_plan([*promises, hourly], exposures, STEADY, START + hour * HOUR, 4, caps)
        assert sum(plan.floors.values()) == math.ceil((150 - done) / (168 - hour))  # not one for each group
        exposures = plan.count(plan.floors, plan.span.end - HOUR / 3600) | {hourly: 1}
        done = sum(exposures[promise] for promise in promises)
        assert max(exposures[promise] for promise in promises) - min(exposures[promise] for promise in promises) <= 1
    assert all(exposures[promise] == 3 for promise in promises)


def test_what_later_requests_could_not_carry_comes_now() -> None:
    # Of 400 exposures the 80 sure requests of the second hour carry 320 at 4 each, less the slot that books are
    # promised in it. So 81 have to come in the first; by expected traffic, of which the second has nearly all, 4 would.
    promise = Promise("toys", 400, Window.campaign(START, START + 2 * HOUR, "UTC"))
    clock = Promise("books", 1, Window.hour("UTC"))
    forecast = Hours([100, 9_900], [80, 80])
    assert make_plan([promise, clock], {}, forecast, START, 4, TOYS).floors == {"toys": 81, "books": 1}


def test_later_windows_of_others_are_kept_free() -> None:
    # Each hour has 80 sure requests of one slot, 60 of them promised to books: toys can have 20 an hour, 40 by the end.
    one: dict[Label, int] = {"toys": 1, "books": 1}
    books = Promise("books", 60, Window.hour("UTC"))
    toys = Promise("toys", 40, Window.campaign(START, START + 2 * HOUR, "UTC"))
    forecast = Hours([800, 8000], [80, 80])
    plan = make_plan([books, toys], {}, forecast, START, 1, one)
    assert plan.floors == {"books": 60, "toys": 20}
    assert not any(status.at_risk for status in plan.statuses)
    more = replace(toys, floor=41)
    assert [status.at_risk for status in make_plan([books, more], {}, forecast, START, 1, one).statuses] == [
        False,
        True,
    ]


def test_a_campaign_to_come_is_kept_free_too_and_its_start_ends_the_tick() -> None:
    one: dict[Label, int] = {"toys": 1, "books": 1}
    soon = Promise("books", 70, Window.campaign(START + 2 * HOUR, START + 3 * HOUR, "UTC"))
    toys = Promise("toys", 180, Window.campaign(START, START + 3 * HOUR, "UTC"))
    plan = make_plan([soon, toys], {}, Hours([100] * 3, [80] * 3), START, 1, one)
    assert plan.span.end == START + 2 * HOUR
    assert [(status.promise, status.certain) for status in plan.statuses] == [(toys, 170)]


def test_where_it_cannot_fit_it_is_scaled_down_and_said() -> None:
    promises = [Promise("toys", 600, Window.hour("UTC")), Promise("books", 200, Window.hour("UTC"))]
    plan = make_plan(promises, {}, Hours([100] * 24, [80] * 24), START, 4, TOYS, worst_case_traffic=1.0)
    # 80 requests hold toys 320 times at most, and 320 slots are shared as 320 to 200
    assert plan.floors == {"toys": 197, "books": 123}
    assert plan.cut == {"toys": 403, "books": 77}
    assert plan.horizon == 80
    # Of the 100 that are expected, 400 slots as 400 to 200.
    assert [status.reachable for status in plan.statuses] == [267, 133]
    assert [status.shortfall for status in plan.statuses] == [333, 67]
    later = [promises[0], Promise("books", 200, Window.day("UTC"))]
    assert make_plan(later, {}, Hours([100] * 24, [80] * 24), START, 4, TOYS).floors == {"toys": 320, "books": 0}


def test_an_early_warning_while_it_is_still_possible() -> None:
    promise = Promise("toys", 360, Window.hour("UTC"))
    plan = make_plan([promise], {}, Hours([100], [80]), START, 4, TOYS)
    assert (plan.floors, plan.horizon, plan.cut) == ({"toys": 320}, 80, {"toys": 40})
    assert plan.statuses[0].possible
    assert plan.statuses[0].at_risk
    assert plan.statuses[0].certain == 320


def test_since_when_it_is_impossible() -> None:
    promise = Promise("toys", 1000, Window.campaign(START, START + 4 * HOUR, "UTC"))
    good, bad = Hours([100] * 4, [80] * 4), Hours([10] * 4, [5] * 4)
    plan = make_plan([promise], {promise: 0}, good, START, 4, TOYS)
    assert plan.statuses[0].impossible_since is None
    assert (plan.statuses[0].reachable, plan.statuses[0].certain) == (1000, 1000)
    plan = make_plan([promise], {promise: 100}, bad, START + HOUR, 4, TOYS, plan)
    found = plan.statuses[0]
    assert (found.possible, found.impossible_since, found.reachable, found.certain) == (False, START + HOUR, 220, 160)
    assert found.shortfall == 780
    assert found.at_pace == 100 + round(100 / 10 * 30)
    for forecast, possible in ((bad, False), (good, True)):  # it stays, also when traffic picks up
        again = make_plan([promise], {promise: 800}, forecast, START + 2 * HOUR, 4, TOYS, plan)
        assert again.statuses[0].possible is possible
        assert again.statuses[0].impossible_since == START + HOUR
    hourly = Promise("toys", 200, Window.hour("UTC"))
    failed = make_plan([hourly], {}, bad, START, 4, TOYS)
    assert failed.statuses[0].impossible_since == START
    assert make_plan([hourly], {}, good, START + HOUR, 4, TOYS, failed).statuses[0].impossible_since is None


def test_where_only_a_part_of_what_is_handed_out_counts() -> None:
    """One in four toys is shown. Of 40 that are missing, 8 are on their way: 128 must be handed out for the others."""
    promise, forecast = Promise("toys", 100, Window.hour("UTC")), Hours([100], [80])
    plan = make_plan(
        [promise],
        {promise: 60},
        forecast,
        START,
        4,
        TOYS,
        shares={"toys": 0.25},
        coming={"toys": 8},
        worst_case_traffic=1.0,
    )
    assert (plan.floors, plan.statuses[0].reachable, plan.statuses[0].certain) == ({"toys": 128}, 100, 100)
    # 100 requests can hand out 400, of which 100 count; 80 can hand out 320.
    cold = make_plan([replace(promise, floor=120)], {}, forecast, START, 4, TOYS, shares={"toys": 0.25}).statuses[0]
    assert (cold.reachable, cold.certain, cold.shortfall) == (100, 80, 20)
    verdict = check_promise(replace(promise, floor=120), [], {}, STEADY, START, 4, TOYS, {"toys": 0.25})
    assert (verdict.accepted, verdict.largest, verdict.largest_cautious) == (False, 100, 80)
    with pytest.raises(InvalidInputError, match="shares"):
        make_plan([promise], {}, forecast, START, 4, TOYS, shares={"toys": 0.0})
    with pytest.raises(InvalidInputError, match="worst_case_traffic"):
        make_plan([promise], {}, forecast, START, 4, TOYS, worst_case_traffic=0.0)


def test_counts_of_the_next_plan() -> None:
    plan = make_plan([DAILY, SALE], {DAILY: 60, SALE: 50}, STEADY, START + 12 * HOUR, 4, TOYS)
    assert plan.count({"toys": 7}, START + 13 * HOUR) == {DAILY: 67, SALE: 57}
    assert plan.count({"toys": 7}, START + 24 * HOUR) == {SALE: 57}  # a new day


def test_nothing_promised() -> None:
    plan = make_plan([], {}, STEADY, START + HOUR / 2, 4, {})
    assert (plan.floors, plan.span.end, plan.statuses) == ({}, START + HOUR, ())
    over = Promise("toys", 1, Window.campaign(START - DAY, START, "UTC"))
    assert make_plan([over], {}, STEADY, START, 4, TOYS).statuses == ()


def test_a_group_without_items() -> None:
    plan = make_plan([DAILY], {}, STEADY, START, 4, {"toys": 0})
    assert (plan.floors, plan.cut, plan.statuses[0].possible) == ({"toys": 0}, {"toys": 100}, False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"now": datetime(2026, 3, 2)}, "now is .* without a time zone"),
        ({"caps": {"tois": 4}}, "Did you mean 'tois'"),
        ({"caps": {"toys": 5}}, "the cap of group 'toys' is 5"),
        ({"k": 0}, "k must be a whole number"),
        ({"exposures": {DAILY: -1}}, "must be whole numbers, 0 or more; of 100 exposures of 'toys'"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "promises": [DAILY], "exposures": {}, "forecast": Forecast(1.0), "now": datetime(2026, 3, 2, tzinfo=UTC),
        "k": 4, "caps": {"toys": 4},
    }  # fmt: skip
    make_plan(**given)
    with pytest.raises((InvalidInputError, UnknownGroupError), match=message):
        make_plan(**{**given, **change})


@pytest.mark.parametrize(
    ("group", "floor", "window"), [(True, 1, DAILY.window), ("a", 0, DAILY.window), ("a", 1, "day")]
)
def test_bad_promises(group: Any, floor: Any, window: Any) -> None:
    with pytest.raises(InvalidInputError):
        Promise(group, floor, window)
