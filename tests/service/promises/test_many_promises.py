"""Thousands of promises: they are planned, shown, changed, saved and loaded, and nothing grows with their square."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import Ledger, MemoryLedger
from fairsync.schedule import Feasibility, FeasibilityCheck, Forecast, ScheduledPromise, Window
from fairsync.service.promises.pace import PaceHistory
from fairsync.service.promises.promise_service import PromiseService
from service.running import small_catalog

START = datetime(2026, 3, 2, 10, 15, tzinfo=UTC)
MANY = 3_000


def staggered(group: int) -> Window:
    """Return a campaign that ends at another moment than that of any other group."""
    return Window.campaign(START - timedelta(hours=1), START + timedelta(minutes=60 + 10 * group), "UTC")


def make_service(windows: list[Window], ledger: Ledger | None = None) -> tuple[PromiseService, list[datetime]]:
    """Return a service with one promise to each of as many groups as there are windows, and its clock."""
    n, clock = len(windows), [START]
    catalog = Catalog(np.random.default_rng(0).normal(size=(2 * n, 4)), np.tile(np.arange(n), 2))
    ledger = MemoryLedger(n) if ledger is None else ledger
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, ledger=ledger, auto_restart=False)
    promises = [ScheduledPromise.of_group(group, 3, window) for group, window in enumerate(windows)]
    front, forecast = FrontEnd(catalog, coordinator), Forecast(rate=100.0)
    service = PromiseService(front, coordinator, promises, forecast, clock=lambda: clock[0].timestamp())
    return service, clock


@pytest.mark.parametrize("kind", ["days", "staggered campaigns"])
def test_thousands_of_promises_are_served(kind: str) -> None:
    """With a time that grew with the square or the cube of their number, this would take hours."""
    windows = [Window.day("UTC")] * MANY if kind == "days" else [staggered(group) for group in range(MANY)]
    ledger = MemoryLedger(MANY)
    service, clock = make_service(windows, ledger)
    found = service.retrieve(np.random.default_rng(1).normal(size=(200, 4)))
    clock[0] += timedelta(seconds=10)
    service.refresh()
    views = service.promises()
    counts = np.bincount(found.groups.ravel(), minlength=MANY)
    assert [(one.group, one.exposures) for one in views] == list(enumerate(counts.tolist()))
    assert {one.state for one in views} <= {"kept", "on track"}, "100 requests a second are plenty"
    overview = service.overview()
    assert (len(overview.promises), len(overview.groups), overview.alerts) == (MANY, MANY, [])
    made = service.editor.set_promise(ScheduledPromise.of_group(7, 5, Window.week("UTC")))
    assert service.editor.preview(ScheduledPromise.of_group(8, 5, Window.week("UTC"))).feasible
    service.editor.delete_promise(made.id)
    service.close()
    again, _ = make_service(windows, ledger)
    assert [(one.id, one.exposures) for one in again.promises()] == [(one.id, one.exposures) for one in views]


def test_promises_hold_while_another_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a promise beside thousands takes seconds: planning and requests must not wait for it."""
    service, clock = make_service([Window.day("UTC")] * 3)
    checking, go_on = threading.Event(), threading.Event()
    run = FeasibilityCheck.run

    def slow(check: FeasibilityCheck, *arguments: Any, **options: Any) -> Feasibility:
        checking.set()
        assert go_on.wait(240)
        return run(check, *arguments, **options)

    monkeypatch.setattr(FeasibilityCheck, "run", slow)
    thread = threading.Thread(
        target=service.editor.set_promise, args=(ScheduledPromise.of_group(0, 5, Window.week("UTC")),)
    )
    thread.start()
    try:
        assert checking.wait(240)
        clock[0] += timedelta(seconds=10)
        refreshing = threading.Thread(target=service.refresh, daemon=True)
        refreshing.start()
        refreshing.join(30)
        assert not refreshing.is_alive(), "planning waits for the check"
        assert service.scheduler.plan.span.start == clock[0]
    finally:
        go_on.set()
        thread.join(30)
    assert [one.floor for one in service.promises()] == [3, 3, 3, 5]


def test_a_promise_is_checked_again_if_others_were_changed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    service, _ = make_service([Window.day("UTC")] * 3)
    checked: list[int] = []
    run = FeasibilityCheck.run

    def meanwhile(check: FeasibilityCheck, *arguments: Any, **options: Any) -> Feasibility:
        checked.append(len(check.others))
        if len(checked) == 1:  # another caller makes the same promise
            service.editor.set_promise(ScheduledPromise.of_group(0, 7, Window.week("UTC")))
        return run(check, *arguments, **options)

    monkeypatch.setattr(FeasibilityCheck, "run", meanwhile)
    with pytest.raises(InvalidInputError, match="already"):
        service.editor.set_promise(ScheduledPromise.of_group(0, 5, Window.week("UTC")))
    assert [one.floor for one in service.promises()] == [3, 3, 3, 7]
    service.editor.set_promise(ScheduledPromise.of_group(1, 5, Window.week("UTC")))
    assert checked == [3, 3, 4]


def test_paces_of_thousands_of_promises_fit_into_memory() -> None:
    window, few, many = Window.day("UTC"), PaceHistory(), PaceHistory()
    promises = [ScheduledPromise.of_group(group, 3, window) for group in range(MANY)]
    prices = dict.fromkeys(promises, 0.0)
    for step in range(100):
        for history, some in ((few, promises[:3]), (many, promises)):
            history.record(START + timedelta(seconds=5 * step), some, {}, prices, step)
    assert few.points == 300, "all of them"
    assert MANY <= many.points <= 240_000


@pytest.mark.parametrize("every", ["campaign", "day"])
def test_a_window_that_begins_in_seven_thousand_years_is_not_forecast(every: str) -> None:
    """The forecast has a number for every quarter of an hour: until then it would take gigabytes."""
    catalog = small_catalog()
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, auto_restart=False)
    service = PromiseService(
        FrontEnd(catalog, coordinator), coordinator, [], Forecast(rate=1.0), clock=lambda: START.timestamp()
    )
    begin = datetime(8999, 1, 1, tzinfo=UTC)
    window = Window(every, "UTC", begin, begin + timedelta(days=30))
    service.editor.set_promise(ScheduledPromise.of_group("toys", 1, window))
    (view,) = service.overview().promises
    assert view.start == begin
    assert service.overview().period_end == START.replace(hour=11, minute=0)
