"""Past windows: how they ended, what was foreseen, and which of them ended while the service was down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.schedule import PromiseStatus
from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fairsync.schedule import Plan, Promise, Span


def windows_ended(plan: Plan, promises: Mapping[str, Promise], now: datetime) -> list[tuple[str, PromiseStatus]]:
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

    Examples
    --------
    The service planned at 21:50, and was down until 0:10.

    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, Promise, Window, make_plan
    >>> hourly, evening = Promise("toys", 9, Window.hour("UTC")), datetime(2026, 3, 2, 21, 50, tzinfo=UTC)
    >>> plan = make_plan([hourly], {}, Forecast(rate=1.0), evening, k=10, caps={"toys": 10})
    >>> ended = windows_ended(plan, {"a": hourly}, datetime(2026, 3, 3, 0, 10, tzinfo=UTC))
    >>> [(name, status.span.start.hour) for name, status in ended]
    [('a', 21), ('a', 22), ('a', 23)]
    """
    names = {promise: name for name, promise in promises.items()}
    planned = [(names[one.promise], one) for one in plan.statuses if one.span.end <= now and one.promise in names]
    unplanned = [
        (name, PromiseStatus(promise, span, exposures=0, at_pace=0, reachable=0, certain=0))
        for name, promise in promises.items()
        for span in promise.window.between(plan.span.end, now)
    ]
    return sorted([*planned, *unplanned], key=lambda one: one[1].span.end)


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


def past_window(name: str, status: PromiseStatus, exposures: int, requests: int, outage: str) -> PastWindow:
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
    """
    kept = exposures >= status.promise.floor
    return PastWindow(
        promise=name,
        group=status.promise.group,
        start=status.span.start,
        end=status.span.end,
        floor=status.promise.floor,
        exposures=exposures,
        kept=kept,
        requests=requests,
        at_risk_since=status.at_risk_since,
        impossible_since=status.impossible_since,
        foreseen=status.foreseen,
        note="" if kept else outage,
    )
