"""Active windows: few deadlines stand for many, and later windows are counted as one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window, make_plan
from fairsync.schedule.active_windows import MOST_DEADLINES, ActiveWindows, WindowProgress, thin_out
from schedule.traffic import START, floors_of

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
    active = ActiveWindows.of(promises, START, Supply.of_groups({"toys": 3}, 3))
    nothing = np.zeros(len(active.promises), dtype=np.int64)
    requests = np.arange(1, 1 + len(active.deadlines))
    demands = active.program(WindowProgress(nothing, nothing, nothing), requests).demands
    with_window = sum(span is not None for span in active.spans)
    for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
        later = list(promise.window.between(span.end if span else START, active.deadlines[-1]))
        own = [d for d in range(with_window, len(demands)) if active.promise_of(d) == p]
        assert sum(int(demands.at_least[d]) for d in own) == len(later) * promise.floor
        for one in later:
            inside = [
                d for d in own
                if active.deadlines[demands.first[d] - 1] <= one.start and one.end <= active.deadlines[demands.last[d]]
            ]  # fmt: skip
            assert inside, "in segments that contain it"


def test_a_plan_with_thousands_of_deadlines_is_as_with_few() -> None:
    """Campaigns that end one after the other get the pace that each of them alone would need, or a little more."""
    n, forecast = 2_000, Forecast(rate=10.0)
    promises = [
        ScheduledPromise.of_group(group, 50, Window.campaign(START - HOUR, START + (1 + group) * HOUR, "UTC"))
        for group in range(n)
    ]
    capacities: dict[Label, int] = dict.fromkeys(range(n), 3)
    plan = make_plan(promises, {}, forecast, START, Supply.of_groups(capacities, 20))
    assert len(ActiveWindows.of(promises, START, Supply.of_groups(capacities, 20)).deadlines) <= MOST_DEADLINES
    assert plan.span.end == START + HOUR
    assert all(one.possible and not one.at_risk for one in plan.statuses)
    planned = floors_of(plan)
    floors = np.array([planned[group] for group in range(n)])
    alone = np.array(
        [
            floors_of(make_plan([one], {}, forecast, START, Supply.of_groups(capacities, 20)))[one.group]
            for one in promises[:200:10]
        ]
    )
    # Alone, all of a campaign's time is its period: its pace is its floor by its hours.
    paces = alone / np.arange(1, 201)[::10]
    assert floors[0] == 50
    assert (floors[:200:10] >= np.floor(paces) - 1).all()
    assert floors.sum() <= 2 * sum(50 / (1 + group) for group in range(n)) + n
