"""Feasibility: whether a new promise can be kept beside the existing ones, and the largest floor that can."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule.active_windows import ActiveWindows
from fairsync.schedule.datetimes import check_aware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.window import Span

_WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Feasibility:
    """The result of checking a promise.

    Attributes
    ----------
    promise : ScheduledPromise
        The promise that was checked.
    largest : int
        The largest floor that expected traffic can deliver beside all other promises.
    largest_safe : int
        The largest floor that the lower bound of the traffic can deliver.
    tightest : Span
        The window that limits ``largest``: one of the windows of the coming week, or the campaign.
    effective_from : datetime or None
        When the promise can take effect: now, or at the start of the next window if too little is left of the active
        one. None if the promise is refused.
    cap : int
        The items of the group that every request can show. 0 if the group has none, or if a request may exclude them
        all.
    """

    promise: ScheduledPromise
    largest: int
    largest_safe: int
    tightest: Span
    effective_from: datetime | None
    cap: int = 1

    @property
    def accepted(self) -> bool:
        """Whether expected traffic can deliver the floor."""
        return self.promise.floor <= self.largest

    @property
    def message(self) -> str:
        """The result in one or two sentences."""
        subject = f"The floor of group {self.promise.group!r} is {self.promise.floor:,} ({self.promise.window})"
        if not self.accepted:
            return f"{subject}, which cannot be met: {self.reason}. {self.remedy}"
        if self.promise.floor > self.largest_safe:
            safe = f" To be safe, promise {self.largest_safe:,}." if self.largest_safe else ""
            return f"{subject}, which can be met{self._start_phrase}, if traffic comes as expected.{safe}"
        return f"{subject}, which can be met{self._start_phrase}, also if traffic is low."

    @property
    def reason(self) -> str:
        """Why no larger floor is feasible."""
        if not self.cap:
            return "it has no item that every request can show: none at all, or requests may exclude them (max_exclude)"
        start, end = (self.promise.window.local(edge) for edge in (self.tightest.start, self.tightest.end))
        room = f"room for {self.largest:,}" if self.largest else "no room"
        return f"the window from {start} to {end} is expected to have {room} beside all other promises"

    @property
    def remedy(self) -> str:
        """The floor or window to promise instead."""
        if not self.cap:
            return "Add items to the group, or declare a smaller max_exclude."
        if not self.largest:
            return "Lower another promise first, or choose a longer window."
        safe = f"; to be safe, {self.largest_safe:,}" if self.largest_safe else ""
        return f"The largest feasible floor is {self.largest:,}{safe}. Lower the floor to that, or lengthen the window."

    @property
    def _start_phrase(self) -> str:
        """The start of the first window, unless the promise takes effect at once."""
        window, start = self.promise.window, self.effective_from
        span = window.at(start) if start else None
        return f" from {window.local(span.start)} on" if span and span.start == start else ""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {
            "promise": self.promise.to_dict(),
            "accepted": self.accepted,
            "largest": self.largest,
            "largest_cautious": self.largest_safe,
            "tightest": self.tightest.to_dict(),
            "holds_from": self.effective_from.isoformat() if self.effective_from else None,
            "message": self.message,
        }


def check_promise(
    promise: ScheduledPromise,
    promises: Iterable[ScheduledPromise],
    exposures: Mapping[ScheduledPromise, int],
    forecast: TrafficForecast,
    now: datetime,
    k: int,
    capacities: Mapping[Label, int],
    impression_rates: Mapping[Label, float] | None = None,
) -> Feasibility:
    """Check a new promise against the forecast and the existing promises.

    A recurring promise is limited by its weakest window, so every window that begins within a week of its start is
    checked. A campaign is checked as a whole.

    Parameters
    ----------
    promise
        The promise to check. If it is already among the promises, it is checked beside the others. The exposures of
        its active window, if any, are taken from ``exposures``.
    promises, exposures, forecast, now, k, capacities, impression_rates
        As for :func:`fairsync.schedule.make_plan`.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Window
    >>> now, shown = datetime(2026, 3, 2, 18, tzinfo=UTC), {"toys": 2, "books": 2}
    >>> made = [ScheduledPromise.of_group("toys", 1000, Window.day("UTC"))]
    >>> more = ScheduledPromise.of_group("books", 900, Window.day("UTC"))
    >>> verdict = check_promise(more, made, {}, Forecast(rate=0.01), now, 2, shown)
    >>> verdict.accepted, verdict.largest  # a day has 864 requests of two slots
    (False, 728)
    >>> print(verdict.message)
    The floor of group 'books' is 900 (each day, UTC), which cannot be met: the window from 2026-03-03 00:00 to
    2026-03-04 00:00 is expected to have room for 728 beside all other promises. The largest feasible floor is 728.
    Lower the floor to that, or lengthen the window.
    """
    now = check_aware(now, "now")
    others = [other for other in dict.fromkeys(promises) if other != promise]

    @cache  # many promises have the same deadline
    def expect(start: datetime, end: datetime) -> float:
        return forecast.expected(start, end, now)

    def limits(span: Span, start: datetime) -> tuple[int, int]:
        """Return the largest floors of a window from a moment on, by expected traffic and by its lower bound."""
        active = ActiveWindows.of([*others, promise], start, k, capacities, impression_rates)
        missing = [
            _missing_at(other, other_span, exposures, expect, now, start, active.deadlines[deadline])
            for other, other_span, deadline in zip(active.promises, active.spans, active.deadline.tolist(), strict=True)
        ]
        expected = [int(expect(start, deadline)) for deadline in active.deadlines]
        lower_bound = [int(forecast.lower_bound(start, deadline, now)) for deadline in active.deadlines]
        so_far = int(exposures.get(promise, 0)) if now in span else 0
        by_expected, by_lower_bound = (
            so_far + _largest_floor(active, promise, missing, requests) for requests in (expected, lower_bound)
        )
        return by_expected, by_lower_bound

    current = promise.window.at(now)
    if promise.window.recurs:
        first = max(now, promise.window.start or now)
        spans = [span for span in promise.window.between(first, first + 2 * _WEEK) if span.start < first + _WEEK]
    else:
        spans = [span for span in (current or promise.window.after(now),) if span]
    if not spans:
        raise InvalidInputError(f"the {promise.window} is over: choose one that ends after {now.isoformat()}.")
    by_window = [(*limits(span, max(span.start, now)), span) for span in spans]
    largest, _, tightest = min(by_window, key=lambda one: (one[0], one[1]))
    largest_safe = min(safe for _, safe, _ in by_window)
    effective_from = None
    if promise.floor <= largest:
        at_once = not promise.window.recurs or (current is not None and limits(current, now)[0] >= promise.floor)
        effective_from = now if at_once and current else spans[0].start
    return Feasibility(promise, largest, largest_safe, tightest, effective_from, capacities.get(promise.group, 0))


def _missing_at(
    promise: ScheduledPromise,
    span: Span | None,
    exposures: Mapping[ScheduledPromise, int],
    expect: Callable[[datetime, datetime], float],
    now: datetime,
    start: datetime,
    deadline: datetime,
) -> int:
    """Return the exposures that a promise will miss at ``start``, if it gains exposures at its pace until then."""
    if span is None:
        return 0
    if now not in span:
        return promise.floor
    missing = max(promise.floor - int(exposures.get(promise, 0)), 0)
    whole, left = (expect(moment, deadline) for moment in (now, start))
    return missing if whole == 0 else min(missing, math.ceil(missing * left / whole))


def _largest_floor(active: ActiveWindows, promise: ScheduledPromise, missing: list[int], requests: list[int]) -> int:
    """Return the largest floor of a promise, in counted exposures, for which all promises stay feasible."""
    this = active.promises.index(promise)
    every = active.requirements([0 if p == this else count for p, count in enumerate(missing)], requests)
    is_other = np.arange(len(active.promises)) != this
    others = replace(every, later_windows=every.later_windows * is_other[:, None])
    own, group = int(every.deadline[this]), int(every.group[this])
    cap = int(every.capacities[group])
    until: list[int] = every.requests.tolist()
    limits = [cap * until[own]]
    for s in range(len(until)):
        due = others.due(s)
        slack = until[s] * others.k - int(due.sum())
        windows = 1 + int(every.later_windows[this, s])
        # Exposures that other promises of the group require count for this promise too.
        limits.append((cap * max(until[own] - until[s], 0) + int(due[group]) + max(slack, 0)) // windows)
        if s >= own:
            limits.append(cap * until[s] // windows)
    most = np.zeros_like(every.missing)
    most[this] = max(min(limits), 0)
    return active.counted_exposures(most)[this]
