"""Forecasts against plain calculations, and through all that can go wrong with clocks and counts."""

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
from fairsync.schedule import Forecast, backtest

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def busy(moment: datetime) -> int:
    """Return the requests in an hour of a week that is always the same: quiet nights and Sundays."""
    return (20 if moment.weekday() == 6 else 100) + (10 * moment.hour if moment.hour < 20 else 0)


def seen(weeks: float, zone: str = "UTC", factor: float = 1.0, **options: Any) -> Forecast:
    forecast = Forecast(rate=1.0, zone=zone, slot=3600, **options)
    for hour in range(round(weeks * 168)):
        moment = START + hour * HOUR
        forecast = forecast.observe(moment, round(factor * busy(moment.astimezone(ZoneInfo(zone)))))
    return forecast


def usual(start: datetime, end: datetime) -> int:
    return sum(busy(start + hour * HOUR) for hour in range(int((end - start) / HOUR)))


def test_without_history_a_given_rate_and_half_of_it() -> None:
    forecast = Forecast(rate=0.5)
    assert forecast.expected(START, START + HOUR) == 1800
    assert forecast.cautious(START, START + HOUR) == 900
    assert forecast.expected(START, START) == forecast.cautious(START, START) == 0
    assert forecast.expected(START, START + HOUR, now=START + HOUR) == 1800  # it was not observed


def test_a_week_that_repeats_is_learnt() -> None:
    forecast, now = seen(8), START + 8 * 7 * DAY
    for first, last in ((0, 1), (3, 4), (6, 7), (0, 7)):
        assert forecast.expected(now + first * DAY, now + last * DAY, now) == pytest.approx(
            usual(now + first * DAY, now + last * DAY), rel=0.05
        )
    assert 0.85 < forecast.cautious(now, now + DAY) / usual(now, now + DAY) < 1


def test_the_clock_of_the_zone_counts() -> None:
    # Berlin's clocks go forward on 29 March: the busy hours come an hour earlier by UTC.
    forecast, now = seen(3.5, "Europe/Berlin"), START + 35 * DAY
    berlin = ZoneInfo("Europe/Berlin")
    for hour in (5, 12, 17, 19):
        moment = now + hour * HOUR
        assert forecast.expected(moment, moment + HOUR, now) == pytest.approx(busy(moment.astimezone(berlin)), rel=0.05)


def test_a_day_at_seventy_per_cent_goes_on_below_the_usual_and_tomorrow_less_so() -> None:
    forecast, now = seen(4), START + 28 * DAY
    for hour in range(14):
        forecast = forecast.observe(now + hour * HOUR, round(0.7 * busy(now + hour * HOUR)))
    now += 14 * HOUR
    shares = []
    for first in (0, 24, 72):
        start = now + first * HOUR
        shares.append(forecast.expected(start, start + 6 * HOUR, now) / usual(start, start + 6 * HOUR))
    assert 0.7 < shares[0] < 0.85 < shares[1] < shares[2] < 1


def test_what_came_is_counted_and_only_what_was_over() -> None:
    forecast = seen(2).observe(START + 14 * DAY, 777)
    start = START + 14 * DAY
    assert forecast.expected(start, start + HOUR, now=start + HOUR) == 777
    assert forecast.expected(start, start + HOUR / 2, now=start + HOUR) == 777 / 2
    assert forecast.expected(start, start + HOUR, now=start + HOUR / 2) == seen(2).expected(start, start + HOUR)
    assert forecast.cautious(start, start + HOUR, now=start + HOUR) == 777
    both = forecast.cautious(start, start + 2 * HOUR, now=start + HOUR)
    assert both == 777 + forecast.cautious(start + HOUR, start + 2 * HOUR)


def test_the_future_changes_nothing() -> None:
    short, long, now = seen(3), seen(5, factor=1.0), START + 21 * DAY
    assert long.expected(now, now + DAY) == short.expected(now, now + DAY)
    assert long.cautious(now, now + DAY) == short.cautious(now, now + DAY)


def test_old_weeks_fade() -> None:
    forecast = seen(4)
    for hour in range(6 * 168):
        moment = START + 28 * DAY + hour * HOUR
        forecast = forecast.observe(moment, 2 * busy(moment))
    now = START + 70 * DAY
    # Weights of the weeks, by a plain sum: those of the first four against those of the last six.
    weights = [2.0 ** (-7 * back / 21) for back in range(10)]
    share = sum(weights[:6]) / sum(weights)
    assert forecast.expected(now + 28 * DAY, now + 35 * DAY, now) == pytest.approx(
        (2 * share + (1 - share)) * usual(now, now + 7 * DAY), rel=0.02
    )


def test_the_cautious_number_is_the_lowest_ratio_that_was_seen() -> None:
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
    assert forecast.cautious(now, now + DAY) == pytest.approx(wanted)
    # A week ahead there are 17 questions, which are two weeks that do not overlap.
    long = forecast.cautious(now, now + 7 * DAY) / forecast.expected(now, now + 7 * DAY)
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
    assert 0 <= plain.cautious(now, end) <= plain.expected(now, end)


def test_missing_slots_are_unknown_and_not_empty() -> None:
    whole, now = seen(4), START + 28 * DAY
    values = whole.to_dict()
    kept = [place for place in range(len(values["slots"])) if place % 5]
    holes = Forecast.from_dict(values | {name: [values[name][place] for place in kept] for name in ("slots", "counts")})
    assert holes.expected(now, now + DAY) == pytest.approx(whole.expected(now, now + DAY), rel=0.05)
    assert holes.known(START, now) == pytest.approx(0.8, abs=0.01)
    assert whole.known(START, now) == 1


def test_a_clock_that_jumps() -> None:
    steady, now = seen(4), START + 28 * DAY
    jumped = steady
    for hour in range(6):
        jumped = jumped.observe(datetime(2060, 1, 1, hour, tzinfo=UTC), 10**9)  # far ahead
        jumped = jumped.observe(datetime(1999, 1, 1, hour, tzinfo=UTC), 10**9)  # and back
    assert jumped.expected(now, now + DAY) == steady.expected(now, now + DAY)
    assert jumped.cautious(now, now + DAY) == steady.cautious(now, now + DAY)


def test_it_does_not_grow_without_end() -> None:
    forecast = Forecast(rate=1.0, slot=3600).learn([], START, START + 200 * DAY)
    assert len(forecast.slots) == 84 * 24
    assert forecast.slots[-1] == int((START + 200 * DAY).timestamp()) // 3600 - 1
    with pytest.raises(ValueError, match="read-only"):
        forecast.counts[0] = 1


@pytest.mark.parametrize("slot", [900, 3600])
def test_learning_times_is_observing_slots(slot: int) -> None:
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
    assert forecast.cautious(START + 28 * DAY, START + 29 * DAY) == 0


def test_backtest_finds_noise_and_says_how_often_caution_held() -> None:
    rng = np.random.default_rng(3)
    forecast = Forecast(1.0, slot=3600)
    for hour in range(10 * 168):
        moment = START + hour * HOUR
        forecast = forecast.observe(moment, int(rng.poisson(busy(moment))))
    result = backtest(forecast, START + 28 * DAY, START + 70 * DAY, 6 * HOUR, 7 * HOUR)
    assert len(result.actual) == 144
    assert result.error < 0.06  # the noise of 900 requests alone is 3 %
    assert result.kept >= 0.93
    assert 0.8 < result.cautious.sum() / result.actual.sum() < 1


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
        (lambda: Forecast(1.0).cautious(START, START, datetime(2026, 3, 2)), "now is .* without a time zone"),
        (lambda: backtest(Forecast(1.0), START, START + DAY, HOUR, HOUR), "no span .* was observed"),
        (lambda: backtest(Forecast(1.0), START, START + DAY, HOUR, 0 * HOUR), "longer than nothing"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()
