"""Promises kept day after day, with the real parts and a clock that the test sets."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.lease import Settlement
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.errors import InfeasibleFloorsError, InvalidInputError, UnknownPromiseError
from fairsync.ledger import Entry, Ledger, MemoryLedger, SqlLedger
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.ledger_settings import fit_ledger
from fairsync.service.promises.promise_service import PromiseService
from schedule.traffic import with_floor

START = datetime(2026, 3, 2, tzinfo=UTC)
DAY = Window.day("UTC")


class Clock:
    """A clock that the test sets."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now.timestamp()

    def go_on(self, **how_long: float) -> None:
        self.now += timedelta(**how_long)


class World:
    """A promise service over items of which all users prefer the red ones."""

    def __init__(
        self, promises: list[ScheduledPromise], *, ledger: Ledger | None = None, seed: int = 0, **options: Any
    ) -> None:
        self.rng = np.random.default_rng(seed)
        vectors = self.rng.normal(size=(120, 8)) + np.repeat([[1.0], [0.0], [0.0]], 40, axis=0)
        self.catalog = Catalog(vectors, ["red"] * 40 + ["blue"] * 40 + ["green"] * 40, ids=list(range(120)))
        self.clock = Clock()
        self.ledger: Ledger = MemoryLedger(3) if ledger is None else ledger
        self.promises, self.options = promises, options
        self.impressions: Counter[Any] = Counter()
        self.start()

    def start(self, catalog: Catalog | None = None) -> None:
        items = self.catalog if catalog is None else catalog
        coordinator = Coordinator(items, k=4, floors=0, horizon=1, ledger=self.ledger, auto_restart=False)
        front = FrontEnd(items, coordinator)
        forecast = Forecast(rate=self.options.pop("rate", 100 / 3600), slot=1800)
        self.promise_service = PromiseService(
            front, coordinator, self.promises, forecast, clock=self.clock, **self.options
        )

    def serve(self, n: int) -> Counter[Any]:
        found = self.promise_service.retrieve(self.rng.normal(size=(n, 8)) + 1.0)
        counts = Counter(found.groups.ravel().tolist())
        self.impressions.update(counts)
        return counts

    def pass_hours(self, hours: int, per_hour: int = 100, steps: int = 2) -> None:
        """Let time pass with even traffic, in a number of steps per hour."""
        for _ in range(hours * steps):
            self.promise_service.refresh()
            self.serve(per_hour // steps)
            self.clock.go_on(minutes=60 / steps)
        self.promise_service.refresh()


def test_a_daily_promise_is_kept_day_after_day() -> None:
    world = World(
        [ScheduledPromise.of_group("blue", 1500, DAY), ScheduledPromise.of_group("green", 100, Window.hour("UTC"))],
        rate=0.028,
    )
    world.pass_hours(72)
    past = world.promise_service.past(1000)
    days = [one for one in past if one.group == "blue"]
    hours = [one for one in past if one.group == "green"]
    assert (len(days), len(hours)) == (3, 72)
    assert all(one.kept for one in past[:-1])
    assert sum(one.exposures for one in days) == world.impressions["blue"]
    assert sum(one.exposures for one in hours) == world.impressions["green"]
    assert max(one.exposures for one in days[:2]) < 1700, "no more than need be, once traffic is known"
    overview = world.promise_service.overview()
    assert overview.period_start == START + timedelta(days=3)
    assert [view.state for view in overview.promises] == ["on track", "on track"]


def test_a_shortfall_of_traffic_is_reported_early() -> None:
    """Usual days teach what to expect; then hardly anybody comes."""
    world = World([ScheduledPromise.of_group("blue", 6000, DAY)])
    world.pass_hours(24 * 9)
    assert all(one.kept for one in world.promise_service.past())
    world.pass_hours(10, per_hour=10)
    view = world.promise_service.promises()[0]
    assert view.state in ("at risk", "impossible")
    world.pass_hours(14, per_hour=10)
    last = world.promise_service.past()[0]
    assert not last.kept
    assert last.exposures <= 24 * 10 * 4
    assert last.impossible_since is not None
    assert last.impossible_since <= last.start + timedelta(hours=18)
    world.pass_hours(24)
    assert world.promise_service.past()[0].kept, "the next day is as usual"


def test_a_promise_that_few_requests_can_show_is_reported_early() -> None:
    world = World([ScheduledPromise.of_group("blue", 900, DAY)])
    world.pass_hours(24 * 3)
    (view,) = world.promise_service.promises()
    assert (view.state, view.eligible_share, view.reason) == ("on track", None, "")
    coordinator, shown = world.promise_service.coordinator, 0
    while shown < 200:  # three in a hundred can show blue
        lease = coordinator.lease(50)
        n, groups = lease.batch.requests, len(coordinator.labels)
        able = np.where(np.arange(groups) == coordinator.groups.code_of("blue"), 0.03 * n, n)
        slots = EligibleSlots(n, n, able, able, n)
        coordinator.settle(lease.number, Settlement(Entry(np.zeros(groups, dtype=np.int64), n, 0.0, 0.0), slots=slots))
        shown += n
    coordinator.lease(1)  # what is known of a price batch is used from the next one on
    (view,) = world.promise_service.promises()
    assert view.eligible_share is not None
    assert view.eligible_share < 0.9
    assert view.reason.startswith("only ") == (view.state == "at risk")


def test_a_surge_does_not_end_the_window() -> None:
    world = World([ScheduledPromise.of_group("blue", 2000, DAY)])
    world.pass_hours(5)
    world.serve(6000)
    assert world.promise_service.overview().requests == 6500
    world.pass_hours(19)
    (day,) = world.promise_service.past()
    assert day.kept
    assert day.exposures == world.impressions["blue"]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqlLedger]:
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        yield ledger


def test_a_restart_forgets_nothing(file: SqlLedger) -> None:
    """Not the counts of the window, nor prices, promises and traffic; also when it was away over the end of a day."""
    # So that promises are still under way in the evening.
    world = World([ScheduledPromise.of_group("blue", 2000, DAY)], ledger=file, worst_case_traffic=1.0)
    made = world.promise_service.editor.set_promise(
        ScheduledPromise.of_group("green", 700, Window.week("Europe/Berlin"))
    )
    world.pass_hours(15)
    before = world.promise_service.overview()
    world.promise_service.close()
    world.promises = []  # those of the ledger count
    world.start()
    after = world.promise_service.overview()
    assert [(one.group, one.exposures, one.floor) for one in after.promises] == [
        (one.group, one.exposures, one.floor) for one in before.promises
    ]
    assert next(one.price for one in after.groups if one.group == "blue") < 0
    assert world.promise_service.scheduler.state.forecast.coverage(START, START + timedelta(hours=15)) == 1
    assert after.promises[1].id == made.id
    world.pass_hours(5)
    world.promise_service.close()
    world.clock.go_on(hours=6)
    world.start()
    (day,) = world.promise_service.past()
    assert (day.exposures, day.start) == (world.impressions["blue"], START)
    world.pass_hours(2)
    assert world.promise_service.promises()[0].start == START + timedelta(days=1)


def test_windows_that_came_and_went_while_it_was_down_are_listed(file: SqlLedger) -> None:
    berlin = Window.campaign(START + timedelta(hours=30), START + timedelta(hours=40), "Europe/Berlin")
    world = World(
        [
            ScheduledPromise.of_group("blue", 500, DAY),
            ScheduledPromise.of_group("green", 5, Window.hour("UTC")),
            ScheduledPromise.of_group("red", 1, berlin),
        ],
        ledger=file,
    )
    world.pass_hours(20)
    world.clock.go_on(hours=53, minutes=30)  # killed, not closed
    world.start()
    past = world.promise_service.past(1000)
    missed = [one for one in past if one.end > START + timedelta(hours=20)]
    # Four hours of the first day, which had its floor by then, all of the next two, and one of the fourth.
    assert Counter(one.group for one in missed) == {"blue": 3, "green": 53, "red": 1}
    assert [one.end for one in past] == sorted((one.end for one in past), reverse=True)
    for one in missed:
        if one.start >= START + timedelta(hours=20):
            assert (one.kept, one.exposures, one.requests) == (False, 0, 0)
            assert one.note == "the service was down from 2026-03-02 20:00 to 2026-03-05 01:30 UTC"
    assert not any(one.note for one in past if one.kept or one.end <= START + timedelta(hours=20))
    world.pass_hours(2)
    assert len(world.promise_service.past(1000)) == len(past) + 2, "each is listed once"


def test_impressions_count() -> None:
    """Two fifths of the candidates are shown, of green ones fewer; some reports come late, twice, or never."""
    world = World(
        [ScheduledPromise.of_group("blue", 1000, DAY), ScheduledPromise.of_group("green", 300, DAY)],
        count="impressions",
        report_within=600.0,
    )
    waiting: list[tuple[datetime, str, list[Any]]] = []
    seen: Counter[Any] = Counter()
    number = 0
    while world.clock.now < START + timedelta(days=1):
        world.promise_service.refresh()
        names: list[str | None] = [f"r{number + i}" for i in range(10)]
        number += 10
        found = world.promise_service.retrieve(world.rng.normal(size=(10, 8)) + 1.0, names)
        for name, ids, groups in zip(names, found.ids.tolist(), found.groups.tolist(), strict=True):
            chance = world.rng.random(len(ids))
            items = [i for i, g, c in zip(ids, groups, chance, strict=True) if c < (0.2 if g == "green" else 0.4)]
            if world.rng.random() < 0.9:
                at = world.clock.now + timedelta(minutes=float(world.rng.exponential(5)))
                waiting.append((at, str(name), [*items, 9999]))
        world.clock.go_on(minutes=6)
        for at, request, items in sorted(waiting, key=lambda one: one[0]):
            if at <= world.clock.now < START + timedelta(days=1):
                result = world.promise_service.record_impressions(request, items)
                assert (result.counted, result.repeated, result.unknown) == (len(items) - 1, 0, 1)
                again = world.promise_service.record_impressions(request, items)
                assert (again.counted, again.repeated, again.unknown) == (0, 1, 1)
                rows = np.array(items[:-1], dtype=np.int64)
                seen.update(world.catalog.labels_of(world.catalog.group_of[rows]).tolist())
                waiting.remove((at, request, items))
    overview = world.promise_service.overview()
    assert {one.group: one.impressions for one in overview.groups} == {"blue": 0, "green": 0, "red": 0} | dict(seen)
    world.promise_service.refresh()
    kept = {one.group: one for one in world.promise_service.past()}
    assert kept["blue"].exposures == seen["blue"]
    assert kept["blue"].exposures >= 1000 * 0.97
    assert kept["green"].exposures >= 300 * 0.97
    assert kept["blue"].exposures < 1300


def test_a_promise_made_late_begins_with_the_next_window_and_spares_the_others() -> None:
    """At eight in the evening four hours are left, of 1,600 slots: too few for a day's promise."""
    world = World([ScheduledPromise.of_group("blue", 2000, DAY)])
    world.pass_hours(20)
    late = ScheduledPromise.of_group("green", 3000, DAY)
    assert "from 2026-03-03 00:00 on" in world.promise_service.editor.preview(late).message
    made = world.promise_service.editor.set_promise(late)
    assert (made.start, made.state, made.exposures) == (START + timedelta(days=1), "on track", 0)
    with pytest.raises(InvalidInputError, match="already"):
        world.promise_service.editor.set_promise(late)
    more = with_floor(late, 3200)
    assert "from 2026-03-03 00:00 on" in world.promise_service.editor.preview(more, made.id).message
    changed = world.promise_service.editor.set_promise(more, made.id)
    assert changed.start == START + timedelta(days=1), "also when it is changed before it has begun"
    assert {one.group: one.state for one in world.promise_service.promises()}["blue"] in ("on track", "kept")
    world.pass_hours(4)
    (first,) = world.promise_service.past()
    assert (first.group, first.kept) == ("blue", True)
    assert world.impressions["green"] < 1000, "nothing was done for it yet"
    world.pass_hours(24)
    assert {(one.group, one.kept) for one in world.promise_service.past()[:2]} == {("blue", True), ("green", True)}
    early = ScheduledPromise.of_group("red", 10, DAY)
    assert world.promise_service.editor.set_promise(early).start == START + timedelta(days=2), (
        "where the rest is enough, at once"
    )


def test_a_promise_raised_late_holds_as_it_was_until_the_next_window() -> None:
    world = World([ScheduledPromise.of_group("blue", 2000, DAY), ScheduledPromise.of_group("green", 600, DAY)])
    world.pass_hours(20)
    (name,) = (one.id for one in world.promise_service.promises() if one.group == "green")
    higher = ScheduledPromise.of_group("green", 3000, DAY)
    changed = world.promise_service.editor.set_promise(higher, name)
    tomorrow = START + timedelta(days=1)
    assert (changed.id, changed.floor, changed.start) == (name, 3000, tomorrow)
    greens = [one for one in world.promise_service.promises() if one.group == "green"]
    assert {(one.floor, one.start, one.end) for one in greens} == {
        (3000, tomorrow, tomorrow + timedelta(days=1)),
        (600, START, tomorrow),
    }
    lower = world.promise_service.editor.set_promise(with_floor(higher, 2900), name)
    assert lower.start == tomorrow, "it has not begun"
    world.pass_hours(28)
    past = [(one.group, one.floor, one.kept) for one in world.promise_service.past()]
    assert sorted(past) == sorted(
        [("blue", 2000, True), ("green", 600, True), ("blue", 2000, True), ("green", 2900, True)]
    )
    assert [one.id for one in world.promise_service.promises() if one.group == "green"] == [name], (
        "what it replaced is over"
    )
    lowest = world.promise_service.editor.set_promise(with_floor(higher, 5), name)
    assert lowest.start == START + timedelta(days=2), "what is lowered is lowered at once"


def test_promises_are_checked_before_they_are_made() -> None:
    world = World([ScheduledPromise.of_group("blue", 500, DAY)])
    world.pass_hours(3)
    name = world.promise_service.promises()[0].id
    good = ScheduledPromise.of_group("green", 200, DAY)
    preview = world.promise_service.editor.preview(good)
    assert preview.feasible
    assert preview.least_cost is not None
    assert preview.least_cost >= 0
    much = ScheduledPromise.of_group("green", 10**6, DAY)
    refused = world.promise_service.editor.preview(much)
    assert not refused.feasible
    assert 0 < refused.largest < 10**6
    with pytest.raises(InfeasibleFloorsError, match=f"{refused.largest:,}"):
        world.promise_service.editor.set_promise(much)
    made = world.promise_service.editor.set_promise(good)
    assert made.exposures == world.impressions["green"], "the day has had them already"
    with pytest.raises(InvalidInputError, match="already"):
        world.promise_service.editor.set_promise(good)
    changed = world.promise_service.editor.set_promise(with_floor(good, 300), made.id)
    assert (changed.floor, changed.exposures) == (300, made.exposures)
    with pytest.raises(UnknownPromiseError):
        world.promise_service.editor.delete_promise("none")
    with pytest.raises(UnknownPromiseError):
        world.promise_service.editor.set_promise(good, "none")
    with pytest.raises(UnknownPromiseError):
        world.promise_service.pace("none")
    world.promise_service.editor.delete_promise(name)
    assert [one.group for one in world.promise_service.promises()] == ["green"]
    world.pass_hours(21)
    assert [one.group for one in world.promise_service.past()] == ["green"]
    pace = world.promise_service.pace(made.id)
    assert pace.expected[-1][1] == pytest.approx(300)


def test_the_pace_of_a_promise() -> None:
    world = World([ScheduledPromise.of_group("blue", 500, DAY)])
    world.pass_hours(12, steps=20)
    pace = world.promise_service.pace(world.promise_service.promises()[0].id)
    assert [point.exposures for point in pace.points] == sorted(point.exposures for point in pace.points)
    assert 100 < len(pace.points) <= 240
    assert pace.points[-1].exposures == world.impressions["blue"]
    assert (pace.start, pace.end, pace.floor) == (START, START + timedelta(days=1), 500)


def test_items_come_and_go(file: SqlLedger) -> None:
    world = World([ScheduledPromise.of_group("blue", 500, DAY)], ledger=file)
    world.pass_hours(2)
    world.promise_service.items.upsert(world.rng.normal(size=(20, 8)), ["new"] * 20, list(range(200, 220)))
    world.promise_service.items.remove(list(range(60, 80)))
    world.promise_service.editor.set_promise(ScheduledPromise.of_group("new", 300, DAY))
    world.pass_hours(22)
    assert {one.group: one.kept for one in world.promise_service.past()} == {"blue": True, "new": True}
    assert len(world.promise_service.catalog) == 120
    world.promise_service.close()
    # The files have only the old items: the group stays, without any.
    labels = world.promise_service.scheduler.state.labels
    world.start(world.catalog.under(labels))
    assert world.promise_service.promises()[1].group == "new"


def test_an_unknown_count_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="count must be"):
        World([], count="clicked")


def test_groups_of_changed_files_keep_their_counts(tmp_path: Path) -> None:
    """One group is gone and another one has come, which sorts before the others: counts stay with their labels."""
    path = tmp_path / "a.db"
    with SqlLedger(path, 3) as ledger:
        world = World(
            [ScheduledPromise.of_group("blue", 500, DAY), ScheduledPromise.of_group("green", 100, DAY)], ledger=ledger
        )
        world.pass_hours(3)
        world.promise_service.close()
    vectors = world.rng.normal(size=(120, 8))
    changed = Catalog(vectors, ["red"] * 40 + ["blue"] * 40 + ["amber"] * 40, ids=list(range(120)))
    with SqlLedger(path, changed.n_groups) as ledger:
        world.ledger = ledger
        fitted = fit_ledger(changed, ledger)
        assert fitted.labels == ["blue", "green", "red", "amber"]
        world.start(fitted)
        views = {view.group: view for view in world.promise_service.promises()}
        assert views["blue"].exposures == world.impressions["blue"]
        assert views["green"].exposures == world.impressions["green"]
        assert not views["green"].possible or world.impressions["green"] >= 100
        world.serve(10)


@pytest.mark.parametrize("count_cold", [True, False])
def test_impressions_of_cold_answers_count_as_set(count_cold: bool) -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), ["a", "b", "c"] * 10)
    coordinator = Coordinator(catalog, k=4, floors=0, horizon=1, auto_restart=False)
    front = FrontEnd(catalog, coordinator, count_cold=count_cold)
    service = PromiseService(front, coordinator, [], Forecast(rate=1.0), count="impressions", clock=Clock())
    found = service.retrieve(np.array([np.ones(4), np.zeros(4)]), ["warm", "cold"])
    assert found.cold.tolist() == [False, True]
    assert coordinator.totals().requests == (2 if count_cold else 1)
    results = [service.record_impressions(name, found.ids[i].tolist()) for i, name in enumerate(["warm", "cold"])]
    assert [one.counted for one in results] == [4, 4 if count_cold else 0]
    assert [one.unknown for one in results] == [0, 0]
    impressions = coordinator.totals().impressions
    assert impressions is not None
    assert impressions.sum() == (8 if count_cold else 4)


def test_costs_are_estimated_without_cold_requests() -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), ["a", "b", "c"] * 10)
    coordinator = Coordinator(catalog, k=4, floors=0, horizon=1, auto_restart=False)
    service = PromiseService(FrontEnd(catalog, coordinator), coordinator, [], Forecast(rate=1.0), clock=Clock())
    service.retrieve(np.zeros((3, 4)))
    assert service.cost_monitor.reservoir.seen == 0
    service.retrieve(np.array([np.ones(4), np.zeros(4), -np.ones(4)]))
    assert service.cost_monitor.reservoir.seen == 2


def test_costs_are_estimated_under_the_rules_of_the_requests_that_are_not_cold() -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), {"kind": ["a", "b", "c"] * 10})
    coordinator = Coordinator(catalog, k=4, floors=0, horizon=1, auto_restart=False)
    service = PromiseService(FrontEnd(catalog, coordinator), coordinator, [], Forecast(rate=1.0), clock=Clock())
    users = np.array([np.zeros(4), np.ones(4), np.zeros(4), -np.ones(4)])
    found = service.retrieve(users, exclude=[[0], [1], [2], [3, 4]], where=[None, {"kind": "a"}, None, {"kind": "b"}])
    answered = service.cost_monitor.reservoir.answered(catalog)
    assert answered is not None
    assert answered.eligible is not None
    kinds, rows = catalog.labels_of(catalog.group_of), np.arange(30)
    allowed = {1: (kinds == "a") & (rows != 1), 3: (kinds == "b") & ~np.isin(rows, [3, 4])}
    for i, user in enumerate(answered.users[:, 0]):  # a sample is in random order
        position = 1 if user[0] > 0 else 3
        assert answered.rows[i].tolist() == found.rows[position].tolist()
        assert answered.eligible.mask(i).tolist() == allowed[position].tolist()
    assert len(answered.users) == 2
