"""The forecast against plain calculations, and with clocks that jump and slots that come late or never."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def busy(moment: datetime) -> int:
    """Return the requests in an hour of a constant weekly pattern with quiet nights and Sundays."""
    return (20 if moment.weekday() == 6 else 100) + (10 * moment.hour if moment.hour < 20 else 0)


def seen(weeks: float, zone: str = "UTC", factor: float = 1.0, **options: Any) -> Forecast:
    forecast = Forecast(rate=1.0, zone=zone, slot=3600, **options)
    for hour in range(round(weeks * 168)):
        moment = START + hour * HOUR
        forecast = forecast.observe(moment, round(factor * busy(moment.astimezone(ZoneInfo(zone)))))
    return forecast


def total(start: datetime, end: datetime) -> int:
    return sum(busy(start + hour * HOUR) for hour in range(int((end - start) / HOUR)))


def test_without_history_the_default_rate_and_half_of_it_as_lower_bound() -> None:
    forecast = Forecast(rate=0.5)
    assert forecast.expected(START, START + HOUR) == 1800
    assert forecast.lower_bound(START, START + HOUR) == 900
    assert forecast.expected(START, START) == forecast.lower_bound(START, START) == 0
    assert forecast.expected(START, START + HOUR, now=START + HOUR) == 1800  # it was not observed


def test_a_weekly_pattern_is_learnt() -> None:
    forecast, now = seen(8), START + 8 * 7 * DAY
    for first, last in ((0, 1), (3, 4), (6, 7), (0, 7)):
        assert forecast.expected(now + first * DAY, now + last * DAY, now) == pytest.approx(
            total(now + first * DAY, now + last * DAY), rel=0.05
        )
    assert 0.85 < forecast.lower_bound(now, now + DAY) / total(now, now + DAY) < 1


def test_the_profile_follows_local_time() -> None:
    # Berlin's clocks go forward on 29 March: the busy hours come an hour earlier by UTC.
    forecast, now = seen(3.5, "Europe/Berlin"), START + 35 * DAY
    berlin = ZoneInfo("Europe/Berlin")
    for hour in (5, 12, 17, 19):
        moment = now + hour * HOUR
        assert forecast.expected(moment, moment + HOUR, now) == pytest.approx(busy(moment.astimezone(berlin)), rel=0.05)


def test_the_level_of_a_day_at_seventy_per_cent_decays() -> None:
    forecast, now = seen(4), START + 28 * DAY
    for hour in range(14):
        forecast = forecast.observe(now + hour * HOUR, round(0.7 * busy(now + hour * HOUR)))
    now += 14 * HOUR
    shares = []
    for first in (0, 24, 72):
        start = now + first * HOUR
        shares.append(forecast.expected(start, start + 6 * HOUR, now) / total(start, start + 6 * HOUR))
    assert 0.7 < shares[0] < 0.85 < shares[1] < shares[2] < 1


def test_slots_that_are_over_count_with_their_actual_requests() -> None:
    forecast = seen(2).observe(START + 14 * DAY, 777)
    start = START + 14 * DAY
    assert forecast.expected(start, start + HOUR, now=start + HOUR) == 777
    assert forecast.expected(start, start + HOUR / 2, now=start + HOUR) == 777 / 2
    assert forecast.expected(start, start + HOUR, now=start + HOUR / 2) == seen(2).expected(start, start + HOUR)
    assert forecast.lower_bound(start, start + HOUR, now=start + HOUR) == 777
    both = forecast.lower_bound(start, start + 2 * HOUR, now=start + HOUR)
    assert both == 777 + forecast.lower_bound(start + HOUR, start + 2 * HOUR)


def test_slots_after_now_are_not_used() -> None:
    short, long, now = seen(3), seen(5, factor=1.0), START + 21 * DAY
    assert long.expected(now, now + DAY) == short.expected(now, now + DAY)
    assert long.lower_bound(now, now + DAY) == short.lower_bound(now, now + DAY)


def test_old_weeks_lose_weight() -> None:
    forecast = seen(4)
    for hour in range(6 * 168):
        moment = START + 28 * DAY + hour * HOUR
        forecast = forecast.observe(moment, 2 * busy(moment))
    now = START + 70 * DAY
    # Weights of the weeks, by a plain sum: those of the first four against those of the last six.
    weights = [2.0 ** (-7 * back / 21) for back in range(10)]
    share = sum(weights[:6]) / sum(weights)
    assert forecast.expected(now + 28 * DAY, now + 35 * DAY, now) == pytest.approx(
        (2 * share + (1 - share)) * total(now, now + 7 * DAY), rel=0.02
    )


def test_the_lower_bound_is_the_lowest_past_ratio() -> None:
    rng = np.random.default_rng(1)
    forecast = Forecast(rate=1.0, slot=3600)
    for day in range(30):
        factor = rng.uniform(0.5, 1.5)
        for hour in range(24):
            forecast = forecast.observe(START + day * DAY + hour * HOUR, round(1000 * factor))
    now = START + 30 * DAY
    ratios = []
    for back in range(1, 24):  # before that there was not a week to learn from
        then = now - back * DAY
        came = forecast.expected(then, then + DAY, now=now)
        ratios.append(came / forecast.expected(then, then + DAY, now=then))
    wanted = forecast.expected(now, now + DAY) * min(ratios) * (1 - 0.5 / 24)
    assert forecast.lower_bound(now, now + DAY) == pytest.approx(wanted)
    # A week ahead there are 17 questions, which are two weeks that do not overlap.
    long = forecast.lower_bound(now, now + 7 * DAY) / forecast.expected(now, now + 7 * DAY)
    assert long <= 1 - 0.5 / 3


@given(st.data())
@settings(max_examples=50)
def test_late_repeated_and_shuffled_slots(data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 1000)), max_size=60))
    order = list(slots)
    random.Random(data.draw(st.integers(0, 9))).shuffle(order)
    last: dict[int, int] = dict(slots)
    plain = Forecast(rate=1.0)
    for slot, requests in sorted(last.items()):
        plain = plain.observe(START + slot * HOUR / 4, requests)
    mixed = Forecast(rate=1.0)
    for slot, _ in order:  # in any order, more than once, by any moment in the slot
        mixed = mixed.observe(START + slot * HOUR / 4, 5)
    for slot, _ in order:
        mixed = mixed.observe(START + slot * HOUR / 4 + HOUR / 7, last[slot])
    assert mixed.to_dict() == plain.to_dict()
    now = START + data.draw(st.integers(0, 500)) * HOUR / 4
    middle, end = now + data.draw(st.integers(0, 3000)) * HOUR / 60, now + 60 * HOUR
    again = Forecast.from_dict(json.loads(json.dumps(mixed.to_dict())))
    assert again.expected(now, end) == plain.expected(now, end)
    parts = plain.expected(now, middle, now) + plain.expected(middle, end, now)
    assert parts == pytest.approx(plain.expected(now, end))
    assert 0 <= plain.lower_bound(now, end) <= plain.expected(now, end)


def test_missing_slots_are_unknown_rather_than_0() -> None:
    whole, now = seen(4), START + 28 * DAY
    values = whole.to_dict()
    kept = [place for place in range(len(values["slots"])) if place % 5]
    holes = Forecast.from_dict(values | {name: [values[name][place] for place in kept] for name in ("slots", "counts")})
    assert holes.expected(now, now + DAY) == pytest.approx(whole.expected(now, now + DAY), rel=0.05)
    assert holes.coverage(START, now) == pytest.approx(0.8, abs=0.01)
    assert whole.coverage(START, now) == 1


def test_a_clock_that_jumps() -> None:
    steady, now = seen(4), START + 28 * DAY
    jumped = steady
    for hour in range(6):
        jumped = jumped.observe(datetime(2060, 1, 1, hour, tzinfo=UTC), 10**9)  # far ahead
        jumped = jumped.observe(datetime(1999, 1, 1, hour, tzinfo=UTC), 10**9)  # and back
    assert jumped.expected(now, now + DAY) == steady.expected(now, now + DAY)
    assert jumped.lower_bound(now, now + DAY) == steady.lower_bound(now, now + DAY)


def test_the_history_is_bounded_and_read_only() -> None:
    forecast = Forecast(rate=1.0, slot=3600).learn([], START, START + 200 * DAY)
    assert len(forecast.slots) == 84 * 24
    assert forecast.slots[-1] == int((START + 200 * DAY).timestamp()) // 3600 - 1
    with pytest.raises(ValueError, match="read-only"):
        forecast.counts[0] = 1


@pytest.mark.parametrize("slot", [900, 3600])
def test_learning_a_log_equals_observing_its_slots(slot: int) -> None:
    times = np.random.default_rng(0).integers(0, 2 * 86_400, size=500) + int(START.timestamp()) - 3600
    learnt = Forecast(1.0, slot=slot).learn(times, START, START + DAY)
    observed = Forecast(1.0, slot=slot)
    for low in range(int(START.timestamp()), int((START + DAY).timestamp()), slot):
        count = int(((times >= low) & (times < low + slot)).sum())
        observed = observed.observe(datetime.fromtimestamp(low, UTC), count)
    assert learnt.to_dict() == observed.to_dict()


def test_no_traffic_at_all() -> None:
    forecast = Forecast(1.0).learn([], START, START + 28 * DAY)
    assert forecast.expected(START + 28 * DAY, START + 29 * DAY) == 0
    assert forecast.lower_bound(START + 28 * DAY, START + 29 * DAY) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Forecast(-1.0), "rate must be"),
        (lambda: Forecast(float("nan")), "rate must be"),
        (lambda: Forecast(True), "rate must be"),
        (lambda: Forecast(1.0, zone="Mars"), "no time zone"),
        (lambda: Forecast(1.0, slot=7), "divide an hour"),
        (lambda: Forecast(1.0, slot=7200), "divide an hour"),
        (lambda: Forecast(1.0).observe(START, -1), "requests must be"),
        (lambda: Forecast(1.0).observe(START, 1.5), "requests must be"),  # type: ignore[arg-type]
        (lambda: Forecast(1.0).observe(datetime(2026, 3, 2), 1), "slot is .* without a time zone"),
        (lambda: Forecast(1.0).learn([], START, START), "no whole slot"),
        (lambda: Forecast(1.0).expected(START, START - HOUR), "before its start"),
        (lambda: Forecast(1.0).lower_bound(START, START, datetime(2026, 3, 2)), "now is .* without a time zone"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()
