"""The largest feasible floor: by a linear program, one more exposure is infeasible."""

import json
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairsync.catalog.groups import Label
from fairsync.errors import InvalidInputError
from fairsync.promises.promise import Promise
from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window, check_promise, make_plan
from schedule.test_plan import HOURS, situations
from schedule.traffic import DAY, HOUR, START, Hours, with_floor


def fits(promises: list[ScheduledPromise], requests: list[int], k: int, capacities: dict[Label, int]) -> bool:
    """Return whether some way to deal out the slots of each hour keeps all campaigns, which have begun."""
    labels, n = list(capacities), len(requests)
    rows, limits = [], []
    for hour in range(n):
        row = np.zeros((len(labels), n))
        row[:, hour] = 1
        rows.append(row)
        limits.append(requests[hour] * k)
    for promise in promises:
        row, end = np.zeros((len(labels), n)), promise.window.end
        assert isinstance(end, datetime)
        row[labels.index(promise.group), : int((end - START) / HOUR)] = -1
        rows.append(row)
        limits.append(-promise.floor)
    most = [(0, capacities[label] * count) for label in labels for count in requests]
    found = linprog(np.zeros(len(most)), np.array(rows).reshape(len(rows), -1), limits, bounds=most)
    return bool(found.status == 0)


@settings(max_examples=60)
@given(data=st.data())
def test_a_floor_one_larger_is_infeasible(data: st.DataObject) -> None:
    others, forecast, k, capacities = data.draw(situations(recurring=False))
    last = data.draw(st.integers(1, HOURS))
    new = ScheduledPromise.of_group(
        data.draw(st.sampled_from(list(capacities))), 10**6, Window.campaign(START, START + last * HOUR, "UTC")
    )
    assume(fits(others, forecast.lower_hourly, k, capacities))
    verdict = check_promise(new, others, {}, forecast, START, Supply.of_groups(capacities, k))
    assert not verdict.accepted
    assert verdict.effective_from is None
    assert verdict.largest_safe <= verdict.largest
    for largest, requests in (
        (verdict.largest, forecast.expected_hourly),
        (verdict.largest_safe, forecast.lower_hourly),
    ):
        assert largest == 0 or fits([*others, with_floor(new, int(largest))], requests, k, capacities)
        assert not fits([*others, with_floor(new, int(largest) + 1)], requests, k, capacities)
    if verdict.largest_safe:
        again = check_promise(
            with_floor(new, int(verdict.largest_safe)), others, {}, forecast, START, Supply.of_groups(capacities, k)
        )
        assert again.accepted
        assert again.effective_from == START
        plan = make_plan([*others, again.promise], {}, forecast, START, Supply.of_groups(capacities, k))
        assert not any(status.at_risk for status in plan.statuses)


CAPS: dict[Label, int] = {"toys": 2, "books": 2}
# Nights are quiet: 10 requests an hour until 8:00, then 100. The lower bound is four fifths of that.
DAYS = Hours(
    [10 if hour % 24 < 8 else 100 for hour in range(24 * 21)], [8 if hour % 24 < 8 else 80 for hour in range(24 * 21)]
)


def test_the_weakest_hour_limits_an_hourly_promise() -> None:
    verdict = check_promise(
        ScheduledPromise.of_group("toys", 50, Window.hour("UTC")),
        [],
        {},
        DAYS,
        START + 12 * HOUR,
        Supply.of_groups(CAPS, 2),
    )
    assert (verdict.accepted, verdict.largest, verdict.largest_safe) == (False, 20, 16)
    assert verdict.tightest.start == START + DAY
    assert verdict.message == (
        "50 exposures of group=toys (each hour, UTC) cannot be kept: the window from"
        " 2026-03-03 00:00 to 2026-03-03 01:00"
        " is expected to have room for 20 beside all other promises. The largest feasible"
        " floor is 20; to be safe, 16. Lower the floor to that, or lengthen the window."
    )
    fine = check_promise(
        ScheduledPromise.of_group("toys", 18, Window.hour("UTC")),
        [],
        {},
        DAYS,
        START + 12 * HOUR,
        Supply.of_groups(CAPS, 2),
    )
    assert fine.accepted
    assert fine.message.endswith("if traffic comes as expected. To be safe, promise 16.")
    assert json.loads(json.dumps(fine.to_dict()))["largest"] == 20


def test_a_daily_promise_late_in_the_day_takes_effect_tomorrow() -> None:
    daily = ScheduledPromise.of_group("toys", 1000, Window.day("UTC"))
    early = check_promise(daily, [], {}, DAYS, START, Supply.of_groups(CAPS, 2))
    late = check_promise(daily, [], {}, DAYS, START + 22 * HOUR, Supply.of_groups(CAPS, 2))
    assert early.largest == late.largest == 2 * (8 * 10 + 16 * 100)
    assert early.effective_from == START
    assert late.effective_from == START + DAY
    assert late.message.endswith("can be kept from 2026-03-03 00:00 on, also if traffic is low.")


def test_a_daily_promise_beside_a_campaign_leaves_it_its_share() -> None:
    sale = ScheduledPromise.of_group("books", 14_000, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
    daily = ScheduledPromise.of_group("toys", 1, Window.day("UTC"))
    # A week has 7 x 3,360 slots, of which 14,000 are promised: 1,360 are left each day.
    assert check_promise(daily, [sale], {}, DAYS, START, Supply.of_groups(CAPS, 2)).largest == 1360
    # With two days left the sale should miss 4,000 exposures. It misses 6,000, which leaves less for others.
    behind = check_promise(daily, [sale], {sale: 8_000}, DAYS, START + 5 * DAY, Supply.of_groups(CAPS, 2))
    assert behind.largest == (2 * 3360 - 6_000) // 2
    # Exposures of another promise of the same group count for the new one too.
    assert (
        check_promise(
            ScheduledPromise.of_group("books", 1, daily.window), [sale], {}, DAYS, START, Supply.of_groups(CAPS, 2)
        ).largest
        == 3360
    )


def test_campaigns_in_the_future_the_present_and_the_past() -> None:
    def campaign(first: int, last: int) -> ScheduledPromise:
        return ScheduledPromise.of_group("toys", 100, Window.campaign(START + first * DAY, START + last * DAY, "UTC"))

    soon = check_promise(campaign(2, 3), [], {}, DAYS, START, Supply.of_groups(CAPS, 2))
    assert (soon.largest, soon.effective_from) == (3360, START + 2 * DAY)
    under_way = check_promise(campaign(0, 3), [], {}, DAYS, START + DAY, Supply.of_groups(CAPS, 2))
    assert (under_way.largest, under_way.effective_from) == (2 * 3360, START + DAY)
    with pytest.raises(InvalidInputError, match="is over: choose one that ends after"):
        check_promise(campaign(0, 1), [], {}, DAYS, START + DAY, Supply.of_groups(CAPS, 2))


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (Window("day", "UTC", None, START + DAY), "no whole day is left between .*: choose a later end"),
        (
            Window("week", "UTC", START + 8 * DAY, START + 12 * DAY),
            "no whole week is left between .* choose a later end",
        ),
        (Window("day", "UTC", START - DAY, START), "the time of each day from .* is over: choose one that ends after"),
    ],
)
def test_days_and_weeks_without_a_whole_one_to_come_are_refused_for_what_they_are(window: Window, words: str) -> None:
    """The first ends with the day under way, and the second is to come but short."""
    promise = ScheduledPromise.of_group("toys", 100, window)
    with pytest.raises(InvalidInputError, match=words):
        check_promise(promise, [], {}, DAYS, START + HOUR, Supply.of_groups(CAPS, 2))


def test_exposures_so_far_count_towards_a_campaign() -> None:
    """If a floor is raised while the campaign runs, earlier exposures are not required again."""
    campaign = ScheduledPromise.of_group("toys", 100, Window.campaign(START, START + 4 * HOUR, "UTC"))
    capacities: dict[Label, int] = {"toys": 1}
    forecast = Hours([10] * HOURS, [10] * HOURS)
    cold = check_promise(campaign, [], {}, forecast, START + 2 * HOUR, Supply.of_groups(capacities, 1))
    assert (cold.largest, cold.accepted) == (20, False)
    warm = check_promise(campaign, [], {campaign: 85}, forecast, START + 2 * HOUR, Supply.of_groups(capacities, 1))
    assert (warm.largest, warm.accepted) == (105, True)


@pytest.mark.parametrize("rate", [0.1, 20.0, 2_000.0])
def test_a_share_of_much_traffic_fits_beside_a_few_exposures(rate: float) -> None:
    """A share has as many slots as the factor of its value in the linear program: up to 10^11 a week."""
    supply = Supply.of_groups({"toys": 20, "tea": 20}, k=20)
    campaign = ScheduledPromise.of_group("toys", 50, Window.campaign(START, START + 7 * DAY, "UTC"))
    share = ScheduledPromise(Promise({"group": "tea"}, at_least=0.3), Window.day("UTC"))
    verdict = check_promise(share, [campaign], {}, Forecast(rate=rate), START, supply)
    assert verdict.accepted
    assert verdict.largest > 0.9
    assert verdict.largest_safe > 0.8
