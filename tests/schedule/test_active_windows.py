"""Active windows: few deadlines stand for many, and later windows are counted as one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairsync.schedule import Forecast, ScheduledPromise, Window, make_plan
from fairsync.schedule.active_windows import MOST_DEADLINES, ActiveWindows, thin_out
from schedule.traffic import START

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label

HOUR = timedelta(hours=1)


@given(st.sets(st.integers(1, 10**6), min_size=1, max_size=300), st.integers(4, 80))
def test_few_deadlines_stand_for_many(minutes: set[int], most: int) -> None:
    deadlines = [START + timedelta(minutes=one) for one in sorted(minutes)]
    kept = thin_out(START, deadlines, most)
    assert set(kept) <= set(deadlines)
    assert kept == tuple(sorted(kept))
    assert kept[: most // 2] == tuple(deadlines[: most // 2]), "the nearest are exact"
    if len(deadlines) <= most:
        assert kept == tuple(deadlines)
        return
    assert len(kept) <= most
    far = deadlines[most // 2 :]
    ratio = ((far[-1] - START) / (far[0] - START)) ** (1 / (most - most // 2))
    for deadline in far:
        earlier = max(one for one in kept if one <= deadline)
        assert (deadline - START) / (earlier - START) <= ratio * (1 + 1e-9)


def test_later_windows_are_counted_as_one_by_one() -> None:
    windows = [Window.hour("UTC"), Window.day("Europe/Berlin"), Window.week("UTC")]
    windows += [Window.campaign(START + n * HOUR, START + (n + 30) * HOUR, "UTC") for n in (-5, 0, 5, 100)]
    windows += [Window("day", "UTC", start=START + 50 * HOUR), Window("day", "UTC", end=START + 100 * HOUR)]
    promises = [ScheduledPromise.of_group("toys", 1 + n, window) for n, window in enumerate(windows)]
    active = ActiveWindows.of(promises, START, 3, {"toys": 3})
    counted = active.requirements([0] * len(active.promises), [0] * len(active.deadlines)).later_windows
    for promise, span, row in zip(active.promises, active.spans, counted.tolist(), strict=True):
        start = span.end if span else START
        assert row == [len(list(promise.window.between(start, end))) for end in active.deadlines]


def test_a_plan_with_thousands_of_deadlines_is_as_with_few() -> None:
    """Campaigns that end one after the other get the pace that each of them alone would need, or a little more."""
    n, forecast = 2_000, Forecast(rate=10.0)
    promises = [
        ScheduledPromise.of_group(group, 50, Window.campaign(START - HOUR, START + (1 + group) * HOUR, "UTC"))
        for group in range(n)
    ]
    capacities: dict[Label, int] = dict.fromkeys(range(n), 3)
    plan = make_plan(promises, {}, forecast, START, 20, capacities)
    assert len(ActiveWindows.of(promises, START, 20, capacities).deadlines) <= MOST_DEADLINES
    assert plan.span.end == START + HOUR
    assert all(one.possible and not one.at_risk for one in plan.statuses)
    floors = np.array([plan.floors[group] for group in range(n)])
    alone = np.array(
        [make_plan([one], {}, forecast, START, 20, capacities).floors[one.group] for one in promises[:200:10]]
    )
    # Alone, all of a campaign's time is its period: its pace is its floor by its hours.
    paces = alone / np.arange(1, 201)[::10]
    assert floors[0] == 50
    assert (floors[:200:10] >= np.floor(paces) - 1).all()
    assert floors.sum() <= 2 * sum(50 / (1 + group) for group in range(n)) + n
