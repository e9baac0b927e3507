"""Records of past windows."""

from datetime import UTC, datetime, timedelta

import pytest

from fairsync.schedule import Forecast, PromiseStatus, ScheduledPromise, Span, Supply, Window, make_plan
from fairsync.service.promises.past_windows import past_window, windows_ended

NOON, ONE = datetime(2026, 3, 2, 12, tzinfo=UTC), datetime(2026, 3, 2, 13, tzinfo=UTC)


def test_only_a_missed_window_blames_the_outage() -> None:
    promise = ScheduledPromise.of_group("toys", 9, Window.hour("UTC"))
    status = PromiseStatus(
        promise, Span(NOON, ONE), exposures=1, at_pace=2, reachable=3, certain=3, impossible_since=NOON, foreseen=6
    )
    missed, kept = (past_window("a", status, exposures, 40, "down") for exposures in (8, 9))
    assert (missed.kept, missed.note, missed.foreseen, missed.requests) == (False, "down", 6, 40)
    assert (kept.kept, kept.note) == (True, "")
    assert (kept.start, kept.end, kept.impossible_since) == (NOON, ONE, NOON)


@pytest.mark.parametrize("most", [1, 100, 250, 10_000])
def test_of_a_long_outage_the_latest_windows_are_listed(most: int) -> None:
    """All windows of thousands of promises would take the memory of the service when it starts."""
    promises = {
        f"{n}": ScheduledPromise.of_group(n, 9, Window.hour("UTC") if n % 2 else Window.day("UTC")) for n in range(100)
    }
    supply = Supply.of_groups(dict.fromkeys(range(100), 10), k=10)
    plan = make_plan(promises.values(), {}, Forecast(rate=1.0), NOON, supply)
    now = NOON + timedelta(days=3)
    every, latest = windows_ended(plan, promises, now), windows_ended(plan, promises, now, most=most)
    of_the_plan = [one for one in every if one[1].span.start <= NOON]
    others = [one for one in every if one not in of_the_plan]
    assert len(others) == 50 * 71 + 50 * 2, "71 hours and 2 days that no plan covers"
    kept = [one for one in latest if one not in of_the_plan]
    assert kept == others[-len(kept) :]
    assert min(most, len(others)) <= len(kept) < most + 100
