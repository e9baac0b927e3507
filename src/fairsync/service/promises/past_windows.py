"""Past windows: how they ended, what was foreseen, and which of them ended while the service was down."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from fairsync.schedule import PromiseStatus, Span
from fairsync.service.promises.columns import group_of
from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.schedule import Plan, ScheduledPromise
    from fairsync.service.promises.clock import ClockReading
    from fairsync.service.promises.cost_book import GivenUp


# A clock that differs by less than this, and this share of the time since, was not set: it drifts.
_DRIFT_SECONDS, _DRIFT_SHARE = 60.0, 1e-3


def windows_ended(
    plan: Plan,
    promises: Mapping[str, ScheduledPromise],
    now: datetime,
    known_since: datetime | None = None,
    most: int = sys.maxsize,
) -> list[tuple[str, PromiseStatus]]:
    """Return the windows of promises that have ended since a plan was made, with the promises' ids, earliest end first.

    No window begins or ends within the period of a plan. So these are the windows of the plan's statuses, and those
    that began and ended after its period, which no plan covers: the service was down.

    Parameters
    ----------
    plan
        The last plan.
    promises
        Promises by id.
    now
        The time; windows that end later are not over.
    known_since
        When the service was first seen by a right clock. Windows after the plan that began earlier never were.
    most
        If there are more windows that no plan covers, those that ended last, about as many as this.

    Examples
    --------
    The service planned at 21:50, and was down until 0:10.

    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window, make_plan
    >>> hourly = ScheduledPromise.of_group("toys", 9, Window.hour("UTC"))
    >>> evening = datetime(2026, 3, 2, 21, 50, tzinfo=UTC)
    >>> plan = make_plan([hourly], {}, Forecast(rate=1.0), evening, Supply.of_groups({"toys": 10}, k=10))
    >>> ended = windows_ended(plan, {"a": hourly}, datetime(2026, 3, 3, 0, 10, tzinfo=UTC))
    >>> [(name, status.span.start.hour) for name, status in ended]
    [('a', 21), ('a', 22), ('a', 23)]
    """
    names = {promise: name for name, promise in promises.items()}
    planned = [(names[one.promise], one) for one in plan.statuses if one.span.end <= now and one.promise in names]
    # After a month without the service, thousands of hourly promises would have millions of windows.
    number = Counter(promise.window for promise in promises.values())
    spans_of = {window: list(window.between(plan.span.end, now)) for window in number}
    ending: Counter[datetime] = Counter()
    for window, spans in spans_of.items():
        ending.update({span.end: number[window] for span in spans})
    latest = sorted(ending, reverse=True)
    listed = list(accumulate(ending[end] for end in latest))
    first = latest[min(bisect_left(listed, most), len(latest) - 1)] if latest else now
    unplanned = [
        (name, PromiseStatus(promise, span, exposures=0, at_pace=0, reachable=0, certain=0))
        for name, promise in promises.items()
        for span in spans_of[promise.window]
        if span.end >= first and (known_since is None or span.start >= known_since)
    ]
    return sorted([*planned, *unplanned], key=lambda one: one[1].span.end)


def clock_change(saved: ClockReading | None, now: ClockReading | None) -> Span | None:
    """Return the time that a clock which was set ahead has left out since the state was last saved; None if it was not.

    No window was missed there, because no time has passed: the clock was wrong before. If the machine was restarted
    and the service had not noticed that its clock was wrong, nothing can tell this from an outage. Nor can a machine
    tell that it was paused: windows that were missed then are left out, too.

    Parameters
    ----------
    saved, now
        The clock at the last save, and now; None if the clock has no readings.

    Examples
    --------
    >>> from fairsync.service.promises.clock import ClockReading
    >>> before = ClockReading(0.0, boot="a", seconds=5.0)
    >>> clock_change(before, ClockReading(9600.0, boot="a", seconds=605.0)).end.isoformat()
    '1970-01-01T02:30:00+00:00'
    >>> clock_change(before, ClockReading(600.1, boot="a", seconds=605.0)) is None
    True
    """
    if saved is None or now is None:
        return None
    moment = saved.by(now)
    if moment - saved.time <= _DRIFT_SECONDS + _DRIFT_SHARE * max(now.time - moment, 0.0):
        return None
    return Span(datetime.fromtimestamp(saved.time, UTC), datetime.fromtimestamp(moment, UTC))


def describe_clock_change(change: Span) -> str:
    """Say that windows ended because the clock was set.

    Examples
    --------
    >>> change = Span(datetime(2026, 3, 2, 21, 50, tzinfo=UTC), datetime(2026, 4, 1, 21, 50, tzinfo=UTC))
    >>> describe_clock_change(change)
    'the clock was wrong, and was set from 2026-03-02 21:50 to 2026-04-01 21:50 UTC'
    """
    return f"the clock was wrong, and was set from {change.start:%Y-%m-%d %H:%M} to {change.end:%Y-%m-%d %H:%M} UTC"


def describe_outage(gap: Span) -> str:
    """Say why windows ended unobserved.

    Parameters
    ----------
    gap
        The time from the last plan to the next one.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Span
    >>> describe_outage(Span(datetime(2026, 3, 2, 21, 50, tzinfo=UTC), datetime(2026, 3, 3, 0, 10, tzinfo=UTC)))
    'the service was down from 2026-03-02 21:50 to 2026-03-03 00:10 UTC'
    """
    return f"the service was down from {gap.start:%Y-%m-%d %H:%M} to {gap.end:%Y-%m-%d %H:%M} UTC"


def describe_unlimited(status: PromiseStatus) -> str:
    """Say since when the limit per list of a promise was left out."""
    since = status.promise.window.local(status.unlimited_since) if status.unlimited_since else ""
    return f"its limit per list was left out from {since} on: lists could not be filled, or it crossed another limit"


def past_window(
    name: str,
    status: PromiseStatus,
    exposures: int,
    requests: int,
    outage: str,
    k: int = 1,
    attribute: str = "group",
    lost: GivenUp | None = None,
) -> PastWindow:
    """Return the record of a window that is over.

    Parameters
    ----------
    name
        Id of the promise.
    status
        The last status of the promise in this window.
    exposures, requests
        Counts of the window.
    outage
        Why its end was not observed; empty if it was.
    k
        Candidates per request: a share is one of all slots that the window really had.
    attribute
        The attribute of the groups.
    lost
        Why it was given up, if it was.
    """
    promise, slots = status.promise.promise, k * requests
    floor, cap = promise.floor(slots), promise.cap(slots)
    kept = exposures >= floor and (cap is None or exposures <= cap) and status.unlimited_since is None
    reason = describe_unlimited(status) if status.unlimited_since else "" if lost is None else lost.reason
    of_share = isinstance(promise.at_least, float) or isinstance(promise.at_most, float)
    return PastWindow(
        promise=name,
        name=promise.name,
        group=group_of(status.promise, attribute),
        start=status.span.start,
        end=status.span.end,
        floor=floor,
        cap=cap,
        share=exposures / slots if of_share and slots else None,
        priority=promise.priority,
        exposures=exposures,
        kept=kept,
        requests=requests,
        at_risk_since=status.at_risk_since,
        impossible_since=status.impossible_since,
        foreseen=status.foreseen,
        note="" if kept else outage or reason,
        gave_way_to=[] if kept else [one.promise.name for one in status.gives_way_to],
        would_cost=None if kept or lost is None else lost.would_cost,
    )
