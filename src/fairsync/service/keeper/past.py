"""Windows that are over: how they ended, what was known of it before, and what nobody was there to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.service.records import PastWindow
from fairsync.windows import Outlook

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fairsync.windows import Plan, Promise, Span


def windows_ended(plan: Plan, promises: Mapping[str, Promise], now: datetime) -> list[tuple[str, Outlook]]:
    """Return the windows of promises that have ended since a plan was made, with their names, earliest end first.

    Nothing begins or ends before a plan's tick does. So these are the windows of its outlooks, and those that have come
    and gone since the tick ended, which no plan ever saw: the service was down.

    Parameters
    ----------
    plan
        The last one that was made.
    promises
        By their names.
    now
        Windows that end later are not over.

    Examples
    --------
    The service planned at 21:50 and was not there again before 0:10.

    >>> from datetime import UTC, datetime
    >>> from fairsync.windows import Forecast, Promise, Window, make_plan
    >>> hourly, evening = Promise("toys", 9, Window.hour("UTC")), datetime(2026, 3, 2, 21, 50, tzinfo=UTC)
    >>> plan = make_plan([hourly], {}, Forecast(rate=1.0), evening, k=10, caps={"toys": 10})
    >>> ended = windows_ended(plan, {"a": hourly}, datetime(2026, 3, 3, 0, 10, tzinfo=UTC))
    >>> [(name, outlook.span.start.hour) for name, outlook in ended]
    [('a', 21), ('a', 22), ('a', 23)]
    """
    names = {promise: name for name, promise in promises.items()}
    seen = [(names[one.promise], one) for one in plan.outlooks if one.span.end <= now and one.promise in names]
    unseen = [
        (name, Outlook(promise, span, exposures=0, at_pace=0, reachable=0, certain=0))
        for name, promise in promises.items()
        for span in promise.window.between(plan.span.end, now)
    ]
    return sorted([*seen, *unseen], key=lambda one: one[1].span.end)


def past_window(name: str, outlook: Outlook, exposures: int, requests: int, down: Span | None) -> PastWindow:
    """Return how a window has ended.

    Parameters
    ----------
    name, outlook
        The last that was known of it.
    exposures, requests
        That came in it.
    down
        When nobody was there around its end.
    """
    kept = exposures >= outlook.promise.floor
    note = "" if kept or down is None else f"the service was down from {_words(down.start)} to {_words(down.end)} UTC"
    return PastWindow(
        promise=name,
        group=outlook.promise.group,
        start=outlook.span.start,
        end=outlook.span.end,
        floor=outlook.promise.floor,
        exposures=exposures,
        kept=kept,
        requests=requests,
        at_risk_since=outlook.at_risk_since,
        impossible_since=outlook.impossible_since,
        foreseen=outlook.foreseen,
        note=note,
    )


def _words(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
