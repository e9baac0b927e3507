"""The scheduler over restarts: windows that passed during an outage, and a clock that was set back or forward."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.ledger import MemoryLedger
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.promises.clock import ClockReading
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.promises.scheduler import Scheduler

if TYPE_CHECKING:
    from fairsync.service.schema import PastWindow

START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class World:
    """A scheduler and a front end on a ledger that outlives them, and exposures by the clock of the test."""

    def __init__(self, now: datetime = START) -> None:
        self.rng = np.random.default_rng(0)
        self.catalog = Catalog(self.rng.normal(size=(60, 8)), ["red"] * 40 + ["blue"] * 20)
        self.ledger, self.now = MemoryLedger(2), now
        self.set_ahead = self.skew = 0.0  # seconds by which the clock was set, and by which another one is ahead
        self.given: dict[datetime, Counter[Any]] = {}
        self.promises = {
            "a": ScheduledPromise.of_group("blue", 20, Window.hour("UTC")),
            "b": ScheduledPromise.of_group("blue", 400, Window.day("UTC")),
        }
        self.start()

    def start(self, count: str = "retrieved", boot: str | None = None) -> None:
        self.coordinator = Coordinator(self.catalog, k=2, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        self.front = FrontEnd(self.catalog, self.coordinator)
        initial = SavedState(tuple(self.catalog.labels), self.promises, Forecast(rate=20 / 3600, slot=1800))

        def clock() -> float:
            return self.now.timestamp()

        read = None if boot is None else lambda: ClockReading(clock(), self.skew, boot, clock() - self.set_ahead)
        self.scheduler = Scheduler(
            self.coordinator, initial, count, clock, plan_seconds=5.0, report_within=60.0, read_clock=read
        )

    def run(self, hours: float) -> None:
        """Let half hours pass, with ten requests in each."""
        for _ in range(round(2 * hours)):
            groups = self.front.retrieve(self.rng.normal(size=(10, 8))).groups.ravel().tolist()
            hour = self.now.replace(minute=0, second=0)
            self.given.setdefault(hour, Counter()).update(groups)
            self.now += HOUR / 2
            self.scheduler.refresh()

    def past(self, length: timedelta) -> dict[datetime, PastWindow]:
        found = [one for one in self.scheduler.state.past if one.end - one.start == length and one.end <= self.now]
        by_start = {one.start: one for one in found}
        assert len(by_start) == len(found), "a window is there twice"
        return by_start

    def blue(self, start: datetime, hours: int) -> int:
        return sum(counts["blue"] for hour, counts in self.given.items() if start <= hour < start + hours * HOUR)

    def check_counts(self) -> None:
        """Compare every window with the exposures that were given in it, and the ledger with all of them."""
        for start, one in self.past(HOUR).items():
            assert (one.exposures, one.kept) == (self.blue(start, 1), self.blue(start, 1) >= 20)
        for start, one in self.past(DAY).items():
            assert one.exposures == self.blue(start, 24)
        totals = [*self.ledger.past(), self.ledger.totals()]
        assert sum(int(one.exposures.sum()) for one in totals) == sum(one.total() for one in self.given.values())
        starts = [one.began for one in totals if one.began]
        assert starts == sorted(set(starts)), "periods ascend"


def test_periods_end_where_windows_do() -> None:
    world = World()
    world.run(3.5)
    assert world.scheduler.plan.span.end == START + 4 * HOUR
    assert world.scheduler.periods.started(world.coordinator.totals()) == START + 3 * HOUR
    assert world.scheduler.exposures() == {
        world.promises["a"]: world.blue(START + 3 * HOUR, 1),
        world.promises["b"]: world.blue(START, 24),
    }
    world.check_counts()
    assert len(world.past(HOUR)) == 3


@pytest.mark.parametrize("is_long", [False, True])
def test_a_passed_horizon_makes_a_plan_unless_plans_take_long(monkeypatch: pytest.MonkeyPatch, is_long: bool) -> None:
    """Requests wait for a plan: one that takes long is not followed by another before its time by the clock."""
    monkeypatch.setattr("fairsync.service.promises.scheduler._LONG_PLAN", -1.0 if is_long else 3600.0)
    monkeypatch.setattr("fairsync.service.promises.scheduler._PLANNING", 1e-9)
    world = World()
    for _ in range(2):
        while world.coordinator.totals().requests < world.coordinator.terms.horizon:
            world.front.retrieve(world.rng.normal(size=(1, 8)))
        assert world.scheduler.refresh() is not is_long
        world.now += timedelta(seconds=5)
        assert world.scheduler.refresh(), "after the seconds between two plans there is one in any case"


@pytest.mark.parametrize("minutes", [0, 7, 29])
def test_a_restart_within_a_period_continues_it(minutes: int) -> None:
    """Requests, exposures and prices are those before, whether or not the scheduler was closed."""
    world = World()
    world.run(2.5)
    before, prices = world.coordinator.totals(), world.coordinator.prices().tolist()
    assert before.requests == 10
    assert any(prices)
    world.coordinator.save()
    world.now += timedelta(minutes=minutes)
    for _ in range(3):
        world.start()
        totals = world.coordinator.totals()
        assert (totals.requests, totals.began) == (before.requests, before.began)
        assert totals.exposures.tolist() == before.exposures.tolist()
        assert world.coordinator.prices().tolist() == prices
        assert world.scheduler.plan.span.end == START + 3 * HOUR
        assert world.scheduler.exposures()[world.promises["a"]] == world.blue(START + 2 * HOUR, 1)
    world.now = START + 2.5 * HOUR
    world.run(1)
    world.check_counts()
    assert len(world.ledger.past()) == 4, "the first is empty, and each hour is one period"


def test_a_restart_after_the_end_of_a_period_begins_another() -> None:
    world = World()
    world.run(2.5)
    world.now += HOUR
    world.start()
    assert world.coordinator.totals().requests == 0
    assert world.scheduler.periods.started(world.coordinator.totals()) == START + 3.5 * HOUR
    world.run(1)
    world.check_counts()


def test_a_restart_before_the_first_request_of_a_period() -> None:
    """The ledger does not know the period yet: the hour before must not continue."""
    world = World()
    world.run(3)  # ends with a plan for the next hour
    world.now += HOUR / 4
    world.start()
    assert world.coordinator.totals().requests == 0
    world.now += HOUR / 4
    world.run(1.5)
    world.check_counts()


def test_a_crash_between_the_beginning_of_a_period_and_its_first_save() -> None:
    """The window that has ended is listed all the same."""
    world = World()
    world.run(2.5)
    saved = world.ledger.load("service")
    assert saved is not None
    world.now += HOUR / 2
    world.scheduler.refresh()
    world.run(0.5)
    world.ledger.save("service", saved)  # as if the process had died before the save
    world.start()
    assert START + 2 * HOUR in world.past(HOUR)
    world.run(1)
    world.check_counts()


def test_an_outage_is_noted_in_the_windows_that_it_spoilt() -> None:
    world = World()
    world.run(2)
    world.now += 5 * HOUR
    world.start()
    notes = {one.note for start, one in world.past(HOUR).items() if start >= START + 2 * HOUR}
    assert notes == {"the service was down from 2026-03-02 02:00 to 2026-03-02 07:00 UTC"}
    world.check_counts()


@pytest.mark.parametrize(("boot", "skew"), [("a", 0.0), ("b", 30 * DAY.total_seconds())])
def test_a_clock_that_was_set_ahead_missed_no_window(boot: str, skew: float, caplog: pytest.LogCaptureFixture) -> None:
    """It was 30 days behind: monotonic seconds tell on the same machine, and on another one the skew that was seen."""
    world = World()
    world.start(boot="a")
    world.run(1.5)
    world.skew = skew
    world.scheduler.save()
    world.now += 30 * DAY + 3 * HOUR  # and it was really down for three hours
    world.set_ahead, world.skew = 30 * DAY.total_seconds(), 0.0
    with caplog.at_level(logging.WARNING):
        world.start(boot=boot)
    said = "the clock was wrong, and was set from 2026-03-02 01:30 to 2026-04-01 01:30 UTC"
    assert f"{said}: windows in between are not listed as missed" in caplog.text
    hours = world.past(HOUR)
    right = START + 30 * DAY
    assert sorted(hours) == [START, START + HOUR, right + 2 * HOUR, right + 3 * HOUR]
    assert {one.note for start, one in hours.items() if start > START and not one.kept} == {said}
    assert list(world.past(DAY)) == [START]
    world.run(2)
    world.check_counts()
    assert world.scheduler.state.past[-1].note == ""


def test_an_outage_with_readings_of_the_clock_is_an_outage() -> None:
    """Also where the clock drifts by a few hundredths of a percent."""
    world = World()
    world.start(boot="a")
    world.run(1.5)
    world.now += 20 * DAY
    world.set_ahead = 500.0
    world.start(boot="a")
    assert len(world.past(HOUR)) == 1 + 20 * 24
    assert len(world.past(DAY)) == 20


def test_a_service_that_never_answered_has_missed_nothing() -> None:
    world = World()
    world.now += 30 * DAY
    world.start()
    assert list(world.past(HOUR)) == list(world.past(DAY)) == [START], "the windows that it planned"


@pytest.mark.parametrize("hours", [0.5, 5, 30, 24 * 400])
def test_a_restart_with_a_clock_set_back(hours: float, caplog: pytest.LogCaptureFixture) -> None:
    """The first run was by a clock that was ahead; its counts stay in its windows, and new ones in theirs."""
    world = World(START + hours * HOUR)
    world.run(4.5)
    world.now -= hours * HOUR
    with caplog.at_level(logging.WARNING):
        world.start()
    assert f"the clock is {hours * 3600:.0f} s behind the last plan: it was set back" in caplog.text
    assert world.scheduler.periods.started(world.coordinator.totals()) == world.now
    world.run(48 - (world.now - START) / HOUR)
    world.check_counts()
    assert all(one.kept for start, one in world.past(HOUR).items() if start >= START + 5 * HOUR)
    assert len(world.past(DAY)) == 2
    world.start()
    world.check_counts()
    world.run(2)
    world.check_counts()


def test_a_clock_set_back_twice_and_forward_again() -> None:
    world = World()
    for hours in (3, -10, 2, -1, 40):
        world.now += hours * HOUR
        world.start()
        world.run(3)
        world.check_counts()


def test_seconds_between_the_clocks_of_replicas_begin_no_new_axis(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.run(2)
    world.now -= timedelta(seconds=1.5)
    world.start()
    assert world.scheduler.state.ledger_time.offsets == ()
    assert not caplog.records


def test_a_change_that_fails_changes_nothing() -> None:
    world = World()
    before = world.scheduler.state

    def refuse(promises: object) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.scheduler.change(refuse)
    assert world.scheduler.state is before


def test_a_promise_within_a_period_begins_another_one() -> None:
    """Its exposures are counted from its own start on."""
    world = World()
    world.run(0.5)
    campaign = ScheduledPromise.of_group("red", 5, Window.campaign(START + HOUR / 2, START + 2 * HOUR, "UTC"))
    world.scheduler.change(lambda promises: {**promises, "c": campaign})
    assert world.scheduler.exposures()[campaign] == 0
    world.run(0.5)
    assert world.scheduler.exposures()[campaign] <= 20
    world.check_counts()
