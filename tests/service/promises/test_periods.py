"""Periods as the ledger has them, and the exposures of windows."""

from datetime import UTC, datetime, timedelta

import numpy as np

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.ledger import Entry, MemoryLedger
from fairsync.schedule import ScheduledPromise, Span, Window
from fairsync.service.promises.ledger_time import LedgerTime
from fairsync.service.promises.periods import Periods

START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY, DAILY = (
    ScheduledPromise.of_group("b", 4, Window.hour("UTC")),
    ScheduledPromise.of_group("b", 50, Window.day("UTC")),
)


def make_periods(count: str = "retrieved", time: LedgerTime | None = None) -> Periods:
    """Return periods that began at 0:00, 1:00 and 2:00, with 1, 10 and 100 times as many exposures."""
    ledger = MemoryLedger(2)
    for hour in range(3):
        many, began = 10**hour, (START + hour * HOUR).timestamp()
        counts, shown = np.array([5, 3]) * many, np.array([2, 1]) * many
        ledger.record([Entry(counts, 4 * many, 1.0, 0.0, opens_horizon=True, began=began, impressions=shown)])
    catalog = Catalog(np.eye(2), ["a", "b"])
    return Periods(
        Coordinator(catalog, k=2, floors=0, horizon=1, ledger=ledger, auto_restart=False), count, time or LedgerTime()
    )


def test_a_window_is_the_sum_of_its_periods() -> None:
    for count, each in (("retrieved", 3), ("impressions", 1)):
        periods = make_periods(count)
        now = START + 2.5 * HOUR
        periods.recount([HOURLY, DAILY], now)
        assert periods.exposures([HOURLY, DAILY]) == {HOURLY: 100 * each, DAILY: 111 * each}
        span = Span(START, START + 2 * HOUR)
        assert periods.exposures_in(span, DAILY, periods.all()) == 11 * each
        assert periods.requests_in(span, periods.all()) == 44
        assert periods.before.requests == 44
        assert not periods.is_stale


def test_the_next_period_begins_with_nothing() -> None:
    periods = make_periods()
    start = periods.recount_for_next([HOURLY, DAILY], START + 3 * HOUR)
    assert start == (START + 3 * HOUR).timestamp()
    assert periods.before.exposures == {HOURLY: 0, DAILY: 333}
    assert periods.before.requests == 444
    assert periods.is_stale, "until the coordinator has begun it"


def test_periods_are_known_by_the_clock_that_was_set_back() -> None:
    """The last of them began in the ledger at 2:00, and at 0:30 by the clock."""
    two = (START + 2 * HOUR).timestamp()
    periods = make_periods(time=LedgerTime(((two, 5400.0),)))
    assert [periods.started(one) for one in periods.all()] == [None, START, START + HOUR, START + HOUR / 2]
    periods.recount([HOURLY], START + 0.75 * HOUR)
    assert periods.exposures([HOURLY]) == {HOURLY: 303}


def test_what_was_missing_when_the_period_began() -> None:
    periods = make_periods()
    periods.recount([HOURLY, DAILY], START + 2.5 * HOUR)
    exposures = periods.exposures([HOURLY, DAILY])
    missing = periods.missing_at_start(exposures, {HOURLY: 4, DAILY: 50})
    assert missing.tolist() == [0.0, 17.0], "the larger of 4 - 0 and 50 - 33"


def test_the_room_that_caps_had_when_the_period_began() -> None:
    periods = make_periods()
    periods.recount([HOURLY, DAILY], START + 2.5 * HOUR)
    exposures = periods.exposures([HOURLY, DAILY])
    assert periods.room_at_start(exposures, {HOURLY: 40, DAILY: 50}).tolist() == [np.inf, 17.0], "40 - 0 and 50 - 33"
    assert periods.room_at_start(exposures, {DAILY: 20})[1] == 0, "never less"
