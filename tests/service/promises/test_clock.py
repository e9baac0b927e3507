"""The monotonic clock: it never jumps, follows small steps gradually, and reports clock skew."""

from __future__ import annotations

import itertools
import logging
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.ledger import MemoryLedger
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.promises.clock import TOLERANCE, MonotonicClock, monotonic_seconds
from fairsync.service.promises.promise_service import PromiseService
from service.running import small_catalog

HOUR = 3600.0
START = datetime(2026, 3, 2, 10, tzinfo=UTC)


class Machine:
    """A machine whose wall clock can be set: monotonic seconds, and by how much the wall clock is wrong."""

    def __init__(self) -> None:
        self.seconds, self.error = 0.0, 0.0

    def make_clock(self) -> MonotonicClock:
        return MonotonicClock(lambda: START.timestamp() + self.seconds + self.error, lambda: self.seconds)

    def read(self, clock: MonotonicClock, seconds: int) -> list[float]:
        """Let time pass, and return by how much the clock is wrong, second by second."""
        errors = []
        for _ in range(seconds):
            self.seconds += 1.0
            errors.append(clock() - START.timestamp() - self.seconds)
        return errors


@pytest.mark.parametrize("jump", [5 * HOUR, -5 * HOUR, 2.5, -2.5])
def test_a_jump_of_the_wall_clock_is_reported_and_not_followed(jump: float, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = machine.make_clock()
    assert set(machine.read(clock, 10)) == {0.0}
    assert clock.skew == 0
    machine.error = jump
    with caplog.at_level(logging.WARNING):
        assert set(machine.read(clock, 10_000)) == {0.0}
        assert clock.skew == jump
        assert [record.message for record in caplog.records] == [
            f"clock skew: the wall clock is {abs(jump):,.0f} s {'ahead of' if jump > 0 else 'behind'} the service:"
            " restart the service to adopt it"
        ], "logged once"
        machine.error = 0.0
        assert set(machine.read(clock, 100)) == {0.0}
        assert clock.skew == 0
    assert "skew is over" in caplog.records[-1].message
    machine.error = jump
    assert machine.make_clock()() == pytest.approx(START.timestamp() + machine.seconds + jump), "a restart adopts it"


@pytest.mark.parametrize("step", [1.5, -1.5])
def test_a_small_step_is_followed_gradually(step: float) -> None:
    machine = Machine()
    clock = machine.make_clock()
    machine.error = step
    errors = machine.read(clock, 200)
    assert max(abs(after - before) for before, after in itertools.pairwise([0.0, *errors])) < 0.011
    assert errors[-1] == pytest.approx(step)
    assert clock.skew == 0


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, -1.9, 60.0, -60.0, 7000.0]), st.integers(1, 300)), max_size=6))
@settings(max_examples=40, deadline=None)
def test_time_never_jumps_whatever_the_wall_clock_does(steps: list[tuple[float, int]]) -> None:
    machine = Machine()
    clock = machine.make_clock()
    before = 0.0
    for error, seconds in steps:
        machine.error = error
        for after in machine.read(clock, seconds):
            assert abs(after - before) <= 0.011, "each second lasts about a second"
            before = after
            assert clock.skew == 0 or abs(clock.skew) > TOLERANCE


def test_monotonic_seconds_ascend() -> None:
    seconds = [monotonic_seconds() for _ in range(100)]
    assert seconds == sorted(seconds)


def test_a_service_raises_an_alert_and_keeps_its_windows() -> None:
    machine, catalog = Machine(), small_catalog()
    ledger = MemoryLedger(catalog.n_groups)

    def start() -> PromiseService:
        coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, ledger=ledger, auto_restart=False)
        promises = [ScheduledPromise.of_group("toys", 5, Window.hour("UTC"))]
        front = FrontEnd(catalog, coordinator)
        return PromiseService(front, coordinator, promises, Forecast(rate=0.01), clock=machine.make_clock())

    service = start()
    service.retrieve(np.ones((5, 8)))
    machine.seconds, machine.error = 600.0, 5 * HOUR
    service.refresh()
    assert service.past() == [], "no window has ended"
    assert service.promises()[0].start == START
    (alert,) = service.overview().alerts
    assert (alert.kind, alert.since) == ("clock", START + timedelta(minutes=10))
    assert alert.message == "The wall clock is 18,000 s ahead of the service: restart the service to adopt it."
    machine.seconds += 60.0
    assert service.overview().alerts[0].since == alert.since
    service.close()
    service = start()
    assert service.overview().alerts == []
    assert service.overview().now == START + timedelta(hours=5, minutes=11)
    assert [one.start for one in service.past()] == [START], "no time has passed, so that no other window was missed"


class WrongForHours:
    """A service with an hourly promise on a machine whose clock is set, and stays wrong for hours."""

    def __init__(self) -> None:
        self.machine, self.catalog = Machine(), small_catalog()
        self.ledger, self.sent = MemoryLedger(self.catalog.n_groups), 0
        self.service = self.start()

    def start(self) -> PromiseService:
        coordinator = Coordinator(self.catalog, k=3, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        promises, front = (
            [ScheduledPromise.of_group("toys", 5, Window.hour("UTC"))],
            FrontEnd(self.catalog, coordinator),
        )
        return PromiseService(front, coordinator, promises, Forecast(rate=0.01), clock=self.machine.make_clock())

    def restart(self) -> None:
        self.service.close()
        self.service = self.start()

    def go_on(self, hours: float) -> None:
        """Let time pass, with four requests every five minutes."""
        for _ in range(int(12 * hours)):
            self.service.retrieve(np.random.default_rng(self.sent).normal(size=(4, 8)))
            self.sent += 4
            self.machine.seconds += 300.0
            self.service.refresh()


@pytest.mark.parametrize("error", [5 * HOUR, -5 * HOUR, 24 * HOUR])
def test_a_clock_that_is_wrong_for_hours_changes_nothing(error: float) -> None:
    wrong = WrongForHours()
    wrong.go_on(1.5)
    wrong.machine.error = error
    wrong.go_on(4)
    assert [one.kind for one in wrong.service.overview().alerts] == ["clock"]
    wrong.machine.error = 0.0
    wrong.go_on(1.5)
    assert wrong.service.overview().alerts == []
    past = wrong.service.past()[::-1]
    assert [one.start for one in past] == [START + timedelta(hours=hour) for hour in range(7)]
    assert all(one.kept and one.requests == 48 for one in past)


@pytest.mark.parametrize("error", [5 * HOUR, -5 * HOUR, 24 * HOUR, -26 * HOUR])
def test_a_service_that_ran_for_hours_by_a_wrong_clock_is_set_right(error: float) -> None:
    """Each request counts once, in a window that the service had; none is listed as missed."""
    wrong = WrongForHours()
    wrong.go_on(1.5)
    wrong.machine.error = error
    wrong.restart()
    assert wrong.service.overview().now == START + timedelta(hours=1.5, seconds=error)
    wrong.go_on(3)
    wrong.machine.error = 0.0
    wrong.go_on(1)
    wrong.restart()
    assert wrong.service.overview().now == START + timedelta(hours=5.5)
    wrong.go_on(2)
    past, now = wrong.service.past(), wrong.service.overview().now
    assert all(one.end <= now for one in past)
    assert len({one.start for one in past}) == len(past)
    assert sum(one.requests for one in past) <= wrong.sent
    assert all(one.requests > 0 for one in past), "a window that never was"
    assert {START + timedelta(hours=hour) for hour in (0, 6)} <= {one.start for one in past if one.kept}
    totals = [*wrong.ledger.past(), wrong.service.coordinator.totals()]
    assert sum(one.requests for one in totals) == wrong.sent
    assert sum(int(one.exposures.sum()) for one in totals) == 3 * wrong.sent
