"""Windows that are over: how they ended, what was known of it before, and what nobody was there to see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairsync.schedule import PromiseStatus
from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fairsync.schedule import Plan, Promise, Span


def windows_ended(plan: Plan, promises: Mapping[str, Promise], now: datetime) -> list[tuple[str, PromiseStatus]]:
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
    >>> from fairsync.schedule import Forecast, Promise, Window, make_plan
    >>> hourly, evening = Promise("toys", 9, Window.hour("UTC")), datetime(2026, 3, 2, 21, 50, tzinfo=UTC)
    >>> plan = make_plan([hourly], {}, Forecast(rate=1.0), evening, k=10, caps={"toys": 10})
    >>> ended = windows_ended(plan, {"a": hourly}, datetime(2026, 3, 3, 0, 10, tzinfo=UTC))
    >>> [(name, status.span.start.hour) for name, status in ended]
    [('a', 21), ('a', 22), ('a', 23)]
    """
    names = {promise: name for name, promise in promises.items()}
    seen = [(names[one.promise], one) for one in plan.statuses if one.span.end <= now and one.promise in names]
    unseen = [
        (name, PromiseStatus(promise, span, exposures=0, at_pace=0, reachable=0, certain=0))
        for name, promise in promises.items()
        for span in promise.window.between(plan.span.end, now)
    ]
    return sorted([*seen, *unseen], key=lambda one: one[1].span.end)


def why_unseen(gap: Span, jump: float, last_jump: float) -> str:
    """Say why nobody was there when windows ended.

    Parameters
    ----------
    gap
        From the last plan to the next.
    jump
        Seconds by which the clock jumped meanwhile; nan if that is not known.
    last_jump
        Seconds by which it is known to have jumped last, and which were not taken back.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from fairsync.schedule import Span
    >>> night = Span(datetime(2026, 3, 2, 21, 50, tzinfo=UTC), datetime(2026, 3, 3, 0, 10, tzinfo=UTC))
    >>> why_unseen(night, jump=0.0, last_jump=0.0)
    'the service was down from 2026-03-02 21:50 to 2026-03-03 00:10 UTC'
    >>> why_unseen(night, jump=8400.0, last_jump=0.0)
    'the clock was set forward from 2026-03-02 21:50 to 2026-03-03 00:10 UTC'
    """
    if jump > 0:
        what = "the clock was set forward"
    elif math.isnan(jump) and last_jump < 0:  # it may have been set right while nobody looked
        what = f"the clock had been set back by {-last_jump / 3600:.1f} h; it was wrong, or the service was down,"
    else:
        what = "the service was down"
    return f"{what} from {_words(gap.start)} to {_words(gap.end)} UTC"


def past_window(name: str, status: PromiseStatus, exposures: int, requests: int, why: str) -> PastWindow:
    """Return how a window has ended.

    Parameters
    ----------
    name, outlook
        The last that was known of it.
    exposures, requests
        That came in it.
    why
        Nobody was there around its end; empty if somebody was.
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
        note="" if kept else why,
    )


def _words(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
