"""The history of a promise over its window."""

from datetime import UTC, datetime, timedelta

from fairsync.promises import Promise
from fairsync.schedule import Forecast, PromiseStatus, ScheduledPromise, Window
from fairsync.service.promises.pace import PaceHistory
from fairsync.service.promises.projections import Projections

START = datetime(2026, 3, 2, tzinfo=UTC)
DAILY = ScheduledPromise.of_group("toys", 240, Window.day("UTC"))


def pace_at(history: PaceHistory, now: datetime) -> list[tuple[datetime, int]]:
    forecast, span = Forecast(rate=1.0), DAILY.window.at(now)
    assert span is not None
    status = PromiseStatus(DAILY, span, exposures=5, at_pace=240, reachable=240, certain=240)
    projections = Projections(now, [status], {DAILY: 5}, [], forecast, {}, {})
    pace = history.pace("a", DAILY, projections, forecast)
    assert (pace.start, pace.end) == (span.start, span.end)
    assert (pace.expected[0][1], pace.expected[-1][1]) == (0, DAILY.floor)
    return [(point.at, point.exposures) for point in pace.points]


def test_points_are_thinned_out_and_the_last_one_stays() -> None:
    history = PaceHistory()
    moments = [START + timedelta(minutes=minute) for minute in range(1000)]
    for count, now in enumerate(moments):
        history.record(now, [DAILY], {DAILY: count}, {DAILY: -0.5}, count)
    points = pace_at(history, moments[-1])
    assert 100 < len(points) <= 240
    assert points[0] == (START, 0)
    assert points[-1] == (moments[-1], 999)
    assert points == sorted(points)


def test_a_new_window_begins_with_no_points() -> None:
    history = PaceHistory()
    history.record(START, [DAILY], {DAILY: 7}, {DAILY: 0.0}, 1)
    tomorrow = START + timedelta(days=1)
    history.record(tomorrow, [DAILY], {DAILY: 0}, {DAILY: 0.0}, 1)
    assert pace_at(history, tomorrow) == [(tomorrow, 0)]


def test_promises_about_the_same_items_and_windows_have_one_point_at_a_time() -> None:
    history, more = PaceHistory(), ScheduledPromise(Promise({"group": "toys"}, at_least=500, priority=2), DAILY.window)
    moments = [START + timedelta(minutes=minute) for minute in range(3)]
    for count, now in enumerate(moments):
        history.record(now, [DAILY, more], {DAILY: count, more: count}, {}, count)
    assert pace_at(history, moments[-1]) == [(now, count) for count, now in enumerate(moments)]
    assert history.points == 3
