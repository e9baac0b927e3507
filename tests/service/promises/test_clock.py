"""A clock that jumps: what is believed, what is taken back, and that every exposure counts once, when it was.

FAIRSYNC_JUMPS=200 tries that many cases of a service whose clock goes wrong, instead of a few.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.ledger import MemoryLedger, SqliteLedger
from fairsync.schedule import Forecast, Promise, Window
from fairsync.service.promises.clock import SteadyClock, machine_run, steady_seconds
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.set_back import SLACK, PeriodTimes

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.ledger import Ledger
    from fairsync.service.schema import PastWindow

JUMPS = int(os.environ.get("FAIRSYNC_JUMPS", "3"))
HOUR = 3600.0
START = datetime(2026, 3, 2, tzinfo=UTC)


class Wall:
    """A wall clock that somebody sets, and steady seconds beside it."""

    def __init__(self) -> None:
        self.steady, self.error = 0.0, 0.0

    def make(self) -> SteadyClock:
        return SteadyClock(lambda: 1e9 + self.steady + self.error, lambda: self.steady)

    def read(self, clock: SteadyClock, seconds: float) -> list[float]:
        """Let time go by, and return by how much the clock was wrong, second by second."""
        wrong = []
        for _ in range(round(seconds)):
            self.steady += 1.0
            wrong.append(clock() - 1e9 - self.steady)
        return wrong


@pytest.mark.parametrize("jump", [5 * HOUR, -5 * HOUR])
def test_a_jump_is_believed_when_it_has_lasted_and_taken_back_in_the_same_way(jump: float) -> None:
    wall = Wall()
    clock = wall.make()
    assert set(wall.read(clock, 10)) == {0.0}
    wall.error = jump
    assert set(wall.read(clock, 300)) == {0.0}
    assert set(wall.read(clock, 100)) == {jump}
    wall.error = 0.0
    assert set(wall.read(clock, 300)) == {jump}
    assert set(wall.read(clock, 100)) == {0.0}, "it neither stands still nor lags behind"


def test_a_jump_that_does_not_last_is_never_believed() -> None:
    wall = Wall()
    clock = wall.make()
    for jump in (9 * HOUR, -2 * HOUR, 3 * HOUR, 40.0, 9 * HOUR):  # each is another one: patience begins anew
        wall.error = jump
        assert set(wall.read(clock, 299)) == {0.0}
    wall.error = 0.0
    assert set(wall.read(clock, 1000)) == {0.0}


def test_a_clock_that_is_brought_back_in_small_steps_is_followed() -> None:
    """As time services do with small errors; meanwhile time does not go back."""
    wall = Wall()
    clock = wall.make()
    times = []
    for _ in range(500):
        wall.error -= 0.7
        wall.read(clock, 1)
        times.append(clock())
    assert times == sorted(times)
    assert times[-1] - 1e9 == pytest.approx(wall.steady + wall.error)


@given(st.lists(st.tuples(st.sampled_from([0, 60, -60, 7000, -9000]), st.integers(1, 500)), max_size=6))
@settings(max_examples=40)
def test_whatever_the_wall_clock_does(steps: list[tuple[int, int]]) -> None:
    """Time goes on second by second but for jumps that had lasted; in the end the wall clock is right."""
    wall = Wall()
    clock = wall.make()
    impressions = lasted = 0.0
    for error, seconds in [*steps, (0, 400)]:
        lasted = lasted if error == wall.error else 0
        wall.error = error
        for wrong in wall.read(clock, seconds):
            lasted += 1
            assert wrong == impressions or (wrong == error and lasted > 300)
            impressions = wrong
    assert impressions == 0


def test_steady_seconds_go_on() -> None:
    seconds = [steady_seconds() for _ in range(100)]
    assert seconds == sorted(seconds)


class WrongClock:
    """Goes by the time that it really is, and by how many hours it is wrong."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self) -> float:
        return START.timestamp() + (self._world.hours + self._world.error) * HOUR

    @property
    def jumped(self) -> float:
        return self._world.error * HOUR

    @property
    def run(self) -> str:
        return self._world.machine

    @property
    def zero(self) -> float:
        return START.timestamp() + self._world.error * HOUR


class World:
    """A keeper by a clock that can be wrong, and what clients received, hour by hour of the time that it really is."""

    def __init__(self, ledger: Ledger | None = None, machine: str = "") -> None:
        self.machine = machine
        rng = np.random.default_rng(0)
        self.catalog = Catalog(rng.normal(size=(60, 8)), ["red"] * 40 + ["blue"] * 20)
        self.ledger: Ledger = MemoryLedger(2) if ledger is None else ledger
        self.hours, self.error, self.users = 0.0, 0.0, rng.normal(size=(4000, 8))
        self.received: dict[int, Counter[Any]] = {}
        self.promises = [Promise("blue", 20, Window.hour("UTC")), Promise("blue", 400, Window.day("UTC"))]
        self.start()

    def start(self) -> None:
        coordinator = Coordinator(self.catalog, k=2, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        forecast = Forecast(rate=20 / HOUR, slot=1800)
        self.now = WrongClock(self)
        self.promise_service = PromiseService(
            FrontEnd(self.catalog, coordinator), coordinator, self.promises, forecast, clock=self.now
        )

    def go_on(self, halves: int) -> None:
        """Let half hours go by, with ten requests in each."""
        for _ in range(halves):
            groups = self.promise_service.retrieve(self.users[:10]).groups.ravel().tolist()
            self.users = np.roll(self.users, -10, axis=0)
            self.received.setdefault(int(self.hours), Counter()).update(groups)
            self.hours += 0.5
            self.promise_service.refresh()  # a service does so every second, and sees by how much the clock jumps

    def jump(self, error: float) -> None:
        self.error = error
        self.promise_service.refresh()

    def past(self, every: timedelta) -> list[PastWindow]:
        """Return windows past; of those before the first start, a wrong clock may have made some."""
        found = [
            one for one in self.promise_service.past(10_000) if one.end - one.start == every and one.start >= START
        ]
        starts = [one.start for one in found]
        assert len(set(starts)) == len(starts), "a window is there twice"
        return sorted(found, key=lambda one: one.start)

    def blue(self, start: datetime, hours: float) -> int:
        first = (start - START) / timedelta(hours=1)
        return sum(counts["blue"] for hour, counts in self.received.items() if first <= hour < first + hours)

    def check(self, *, exactly: bool = True) -> None:
        """Compare every window with what clients received in it, and the ledger with all of it."""
        days, hours = self.past(timedelta(days=1)), self.past(timedelta(hours=1))
        totals_list = [*self.ledger.past(), self.ledger.totals()]
        assert sum(int(one.exposures.sum()) for one in totals_list) == sum(c.total() for c in self.received.values())
        assert sum(one.requests for one in totals_list) * 2 == sum(c.total() for c in self.received.values())
        assert all(one.end.timestamp() <= self.now() for one in [*days, *hours])
        if exactly:
            assert [one.exposures for one in days] == [self.blue(one.start, 24) for one in days]
            assert [one.exposures for one in hours] == [self.blue(one.start, 1) for one in hours]
            assert all(one.kept == (one.exposures >= one.floor) for one in [*days, *hours])
            assert all(now.start == before.end for before, now in itertools.pairwise(hours)), "an hour is missing"
        for alert in self.promise_service.overview().alerts:
            assert alert.since.timestamp() <= self.now(), alert
        overview = self.promise_service.overview()
        assert overview.period_start <= overview.now + timedelta(seconds=SLACK)
        assert overview.now < overview.period_end
        for pace in map(self.promise_service.pace, self.promise_service.scheduler.notes.promises):
            moments = [pace.start, *(point.at for point in pace.points), overview.now]
            assert moments == sorted(moments)
        for view in self.promise_service.promises():
            assert view.start.timestamp() <= self.now() < view.end.timestamp()
            assert not view.impossible_since or view.impossible_since.timestamp() <= self.now()


@given(
    st.integers(4, 40), st.sampled_from([-30, -7, -5, -1, 1, 3, 5, 12, 24, 49]), st.integers(1, 15), st.integers(1, 2)
)
@settings(max_examples=JUMPS)
def test_a_wrong_time_that_was_believed_and_taken_back_leaves_no_trace(
    before: int, error: int, lasts: int, times: int
) -> None:
    """Whatever was counted meanwhile counts when it was, in every window, once."""
    world = World()
    world.go_on(before)
    for _ in range(times):
        world.jump(error)
        world.go_on(lasts)
        world.jump(0)
        world.check()
        world.go_on(3)
    world.go_on(-int(world.hours * 2) % 48)
    world.check()
    days = world.past(timedelta(days=1))
    assert len(days) == int(world.hours // 24)
    assert all(one.kept for one in days)


@pytest.mark.parametrize("error", [-5, 5])
def test_a_keeper_by_a_steady_clock(error: int) -> None:
    """The same with the clock that a service has: a jump of an hour and a half is believed after five minutes."""
    world = World()
    wall = SteadyClock(lambda: START.timestamp() + (world.hours + world.error) * HOUR, lambda: world.hours * HOUR)
    world.promise_service.scheduler._clock = wall

    def go_on(minutes: int) -> None:
        for _ in range(minutes):
            world.hours += 1 / 60
            world.promise_service.refresh()

    world.go_on(9)
    for wrong in (error, 0):
        world.error = wrong
        go_on(4)
        assert world.promise_service.scheduler.now().timestamp() == pytest.approx(
            world.now() + (error - 2 * wrong) * HOUR
        ), "not yet"
        go_on(2)
        assert world.promise_service.scheduler.now().timestamp() == pytest.approx(world.now())
        go_on(24)
        world.go_on(3)
    world.go_on(48 - round(world.hours * 2))
    world.check(exactly=False)
    (day,) = world.past(timedelta(days=1))
    assert day.exposures == world.blue(START, 24)


@pytest.mark.parametrize(("error", "when"), [(-30, "wrong"), (30, "right")])
def test_a_restart_elsewhere_meanwhile_loses_nothing(tmp_path: Path, error: int, when: str) -> None:
    """Of a clock that nobody there looked at, it is not known how wrong it was; but every exposure counts once."""
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        world = World(ledger)
        world.go_on(25)
        if when == "right":
            world.jump(error)
            world.go_on(5)
            world.error = 0
        else:
            world.error = error
        world.start()
        world.go_on(3)
        if when == "wrong":
            world.jump(0)
        world.check(exactly=False)
        world.go_on(48 * 2 - int(world.hours * 2))
        world.check(exactly=False)
        days = world.past(timedelta(days=1))
        received = sum(counts["blue"] for counts in world.received.values())
        assert sum(one.exposures for one in days) == received, "each is in one day"
        assert days[-1].exposures == world.blue(days[-1].start, 24), "it is over and done with"


@pytest.mark.parametrize(
    ("error", "started"), [(-30, "right"), (30, "right"), (-5, "wrong"), (5, "wrong, right"), (-30, "wrong, right")]
)
def test_a_restart_meanwhile_leaves_no_trace(error: int, started: str) -> None:
    """On the same machine it is known how wrong the clock was, also if it was set while the service was down."""
    world = World(machine="one")
    world.go_on(44)
    for now, hours in (("wrong", error), ("right", 0)):
        world.error = hours
        if now in started:
            world.start()
        world.promise_service.refresh()
        world.go_on(5)
    world.check()
    (day,) = world.past(timedelta(days=1))
    assert day.kept
    assert not any(one.note for one in world.promise_service.past(10_000) if one.kept)


@pytest.mark.parametrize(("machine", "why"), [("", "had been set back by 30.0 h; it was wrong"), ("one", "")])
def test_windows_that_a_wrong_clock_has_left_empty_say_so(machine: str, why: str) -> None:
    """After a restart elsewhere nobody knows whether the clock was set right, or a day has gone by."""
    world = World(machine=machine)
    world.go_on(60)
    world.jump(-30)
    world.go_on(6)
    world.error = 0
    world.start()
    notes = {one.note for one in world.past(timedelta(hours=1)) if one.exposures == 0}
    assert len(notes) == bool(why)
    assert all(why in note for note in notes)


def test_windows_that_were_leapt_over_say_so() -> None:
    world = World()
    world.go_on(4)
    world.jump(5)
    unseen = [one for one in world.past(timedelta(hours=1)) if one.start >= START + timedelta(hours=3)]
    assert len(unseen) == 4
    assert {one.note for one in unseen} == {"the clock was set forward from 2026-03-02 02:00 to 2026-03-02 07:00 UTC"}


def test_clocks_of_one_machine_can_be_compared() -> None:
    assert machine_run() == machine_run()
    wall = Wall()
    kept = PeriodTimes().by(SteadyClock(lambda: 1e9 + wall.steady, lambda: wall.steady, run="one"))
    wall.steady, wall.error = 5000.0, -7200.0
    later = SteadyClock(lambda: 1e9 + wall.steady + wall.error, lambda: wall.steady, run="one")
    elsewhere = SteadyClock(lambda: 1e9 + wall.steady + wall.error, lambda: wall.steady, run="two")
    assert kept.jump_to(later) == -7200.0
    assert math.isnan(kept.jump_to(elsewhere))
    assert math.isnan(PeriodTimes().jump_to(later)), "nothing was written down"
    wall.error = 1.5
    assert kept.jump_to(SteadyClock(lambda: 1e9 + wall.steady + wall.error, lambda: wall.steady, run="one")) == 0


@pytest.mark.parametrize("error", [-5.0, -0.25, 0.25, 5.0])
def test_what_is_shown_meanwhile_and_afterwards_is_in_order(error: float) -> None:
    """Also where the clock is set back within a window. (A tick by a clock a quarter off has parts of two hours.)"""
    world = World()
    world.go_on(9)
    world.jump(error)
    world.check(exactly=False)
    world.go_on(3)
    world.check(exactly=False)
    world.jump(0)
    world.check(exactly=False)
    assert world.promise_service.overview().period_start.timestamp() == world.now(), (
        "it began when the clock was set right"
    )
    world.go_on(1)
    world.check(exactly=False)


def test_a_time_service_that_steps_the_clock_forward_is_simply_right() -> None:
    """It was behind from the start: windows that passed unseen are told, and nothing is moved."""
    world = World()
    world.error = -5.0
    world.start()
    world.go_on(8)
    world.jump(0)
    world.go_on(48 - int(world.hours * 2) % 48)
    assert all(one.end.timestamp() <= world.now() for one in world.promise_service.past())
    world.check(exactly=False)


def test_tick_times_are_written_down(tmp_path: Path) -> None:
    times = PeriodTimes().after(-100.0, [5.0, 1000.0, 1050.5], 960.0)
    assert [times.of(period) for period in (5.0, 1000.0, 1050.5)] == [5.0, 900.0, 950.5]
    times = times.at(1050.6, 960.0)
    with SqliteLedger(tmp_path / "a.db", 2) as ledger:
        times.save(ledger)
        assert PeriodTimes.load(ledger) == times
        assert dict(times.moved) == {1000.0: 900.0, 1050.5: 950.5, 1050.6: 960.0}
        ledger.save("clock", b"[[1000.0, 900.0]]")  # as it was first written down
        assert PeriodTimes.load(ledger) == PeriodTimes({1000.0: 900.0})
    back = times.after(103.0, [5.0, 1000.0, 1050.5, 1050.6, 1200.0], 1310.0)
    assert [back.of(period) for period in (5.0, 1000.0, 1050.5, 1050.6, 1200.0)] == [
        5.0,
        1000.0,
        1050.5,
        1063.0,
        1303.0,
    ]
