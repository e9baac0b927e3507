"""The saved state: it survives a round trip through the ledger, and says when it cannot be read."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger
from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window, make_plan
from fairsync.service.promises.budget import RelevanceBudget, Spent
from fairsync.service.promises.cost_book import CostBook
from fairsync.service.promises.ledger_time import LedgerTime
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.schema import PastWindow

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOURLY = ScheduledPromise.of_group("toys", 9, Window.hour("UTC"))


def past(start: datetime, exposures: int = 9) -> PastWindow:
    end, kept = start + timedelta(hours=1), exposures >= 9
    return PastWindow(promise="a", group="toys", start=start, end=end, floor=9, exposures=exposures, kept=kept)


def make_state() -> SavedState:
    plan = make_plan([HOURLY], {}, Forecast(rate=1.0), NOON, Supply.of_groups({"toys": 10}, k=10))
    time = LedgerTime(((5000.0, 3600.0),))
    return SavedState(("toys", "wine", 7), {"a": HOURLY}, Forecast(rate=1.0), plan, (past(NOON),), 12, time)


def test_it_is_loaded_as_it_was_saved() -> None:
    ledger, state = MemoryLedger(3), make_state()
    assert SavedState.load(ledger) is None
    state.save(ledger)
    loaded = SavedState.load(ledger)
    assert loaded is not None
    assert (loaded.labels, loaded.promises, loaded.past) == (state.labels, state.promises, state.past)
    assert (loaded.plan, loaded.requests, loaded.ledger_time) == (state.plan, state.requests, state.ledger_time)
    assert loaded.forecast.to_dict() == state.forecast.to_dict()


def test_a_state_of_an_earlier_version_is_loaded_and_one_of_a_later_version_refused() -> None:
    ledger = MemoryLedger(3)
    make_state().save(ledger)
    document = json.loads(ledger.load("service") or b"")
    del document["ledger_time"]
    ledger.save("service", json.dumps(document).encode())
    loaded = SavedState.load(ledger)
    assert loaded is not None
    assert loaded.ledger_time == LedgerTime()
    ledger.save("service", json.dumps({**document, "format": 2}).encode())
    with pytest.raises(InvalidInputError, match="format 2, not 1: update FairSync"):
        SavedState.load(ledger)


def test_costs_are_loaded_as_they_were_saved() -> None:
    budget = RelevanceBudget(0.01, cut=2, at=Spent(2.0, 100.0, 100), pause=128, rate=0.02)
    costs = CostBook(budget, {"toys": 0.5, 7: 0.25}, {'{"new": true}': 1.5})
    ledger = MemoryLedger(3)
    replace(make_state(), costs=costs).save(ledger)
    loaded = SavedState.load(ledger)
    assert loaded is not None
    assert loaded.costs == costs
    document = json.loads(ledger.load("service") or b"")
    del document["budget"]  # as an earlier version has saved it
    ledger.save("service", json.dumps(document).encode())
    loaded = SavedState.load(ledger)
    assert loaded is not None
    assert loaded.costs == replace(costs, budget=None)
    for name in ("subsidies", "exposure_costs"):
        del document[name]  # and one before that
    ledger.save("service", json.dumps(document).encode())
    loaded = SavedState.load(ledger)
    assert loaded is not None
    assert loaded.costs == CostBook()


def test_a_window_that_ends_again_replaces_the_record_of_its_first_end() -> None:
    state = make_state().with_past([past(NOON + timedelta(hours=1))]).with_past([past(NOON, exposures=3)])
    assert [(one.start.hour, one.exposures) for one in state.past] == [(13, 9), (12, 3)]


def test_the_forecast_observes_requests_once() -> None:
    state = make_state().with_requests(12, NOON)
    assert state.requests == 12
    later = state.with_requests(40, NOON).with_requests(50, NOON + timedelta(seconds=1))
    assert later.requests == 50
    assert later.forecast.counts.tolist() == [38]
    assert later.with_requests(50, NOON) is later


def test_recurring_promises_that_have_ended_are_dropped() -> None:
    ended = ScheduledPromise.of_group("wine", 1, Window("day", "UTC", end=datetime(2026, 3, 2, tzinfo=UTC)))
    campaign = ScheduledPromise.of_group(
        "wine", 1, Window.campaign(NOON - timedelta(days=2), NOON - timedelta(days=1), "UTC")
    )
    state = SavedState(("toys", "wine"), {"a": HOURLY, "b": ended, "c": campaign}, Forecast(rate=1.0))
    assert set(state.without_ended(NOON).promises) == {"a", "c"}, "the outcome of a campaign stays visible"
