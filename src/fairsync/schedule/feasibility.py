"""Whether a new promise can be kept beside those that were made, and the most that could be promised."""

from __future__ import annotations

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
    from fairsync.schedule.promise import Promise
    from fairsync.schedule.window import Span

_WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Feasibility:
    """What came of checking a promise.

    Attributes
    ----------
    promise : Promise
        What was asked for.
    largest : int
        The largest floor that expected traffic can carry beside all other promises.
    largest_cautious : int
        The largest floor that the traffic which can be counted on carries.
    tightest : Span
        The window that sets the first limit: of all windows of the coming week, or the campaign.
    holds_from : datetime or None
        From when on it can be kept: at once, or from the next window on if what is left of the present one is too
        little. None if it is refused.
    """

    promise: Promise
    largest: int
    largest_cautious: int
    tightest: Span
    holds_from: datetime | None

    @property
    def accepted(self) -> bool:
        """Whether expected traffic can carry it."""
        return self.promise.floor <= self.largest

    @property
    def message(self) -> str:
        """One or two sentences for people."""
        subject = f"The floor of group {self.promise.group!r} is {self.promise.floor:,} ({self.promise.window})"
        if not self.accepted:
            return f"{subject}, which cannot be met: {self.reason}. {self.remedy}"
        if self.promise.floor > self.largest_cautious:
            safe = f" To be safe, promise {self.largest_cautious:,}." if self.largest_cautious else ""
            return f"{subject}, which can be met{self._from}, if traffic comes as expected.{safe}"
        return f"{subject}, which can be met{self._from}, also if traffic is low."

    @property
    def reason(self) -> str:
        """Why no more can be promised."""
        start, end = (self.promise.window.local(edge) for edge in (self.tightest.start, self.tightest.end))
        room = f"room for {self.largest:,}" if self.largest else "no room"
        return f"the window from {start} to {end} is expected to have {room} beside all other promises"

    @property
    def remedy(self) -> str:
        """What to promise instead."""
        if not self.largest:
            return "Lower another promise first, or choose a longer window."
        safe = f"; to be safe, {self.largest_cautious:,}" if self.largest_cautious else ""
        return f"The largest feasible floor is {self.largest:,}{safe}. Lower the floor to that, or lengthen the window."

    @property
    def _from(self) -> str:
        """From when on, unless at once."""
        window, start = self.promise.window, self.holds_from
        span = window.at(start) if start else None
        return f" from {window.local(span.start)} on" if span and span.start == start else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "promise": self.promise.to_dict(),
            "accepted": self.accepted,
            "largest": self.largest,
            "largest_cautious": self.largest_cautious,
            "tightest": self.tightest.to_dict(),
            "holds_from": self.holds_from.isoformat() if self.holds_from else None,
            "message": self.message,
        }


def check_promise(
    promise: Promise,
    promises: Iterable[Promise],
    exposures: Mapping[Promise, int],
    forecast: TrafficForecast,
    now: datetime,
    k: int,
    caps: Mapping[Label, int],
    shares: Mapping[Label, float] | None = None,
) -> Feasibility:
    """Check a new promise against the forecast and the promises that were made.

    A promise for each hour is only as good as the weakest hour: every window that begins in the coming week, or in the
    first one, is checked, and a campaign as a whole.

    Parameters
    ----------
    promise
        The new one. If it is already among the promises, it is checked beside the others. What its window has had so
        far, if it is under way, is taken from ``exposures``.
    promises, exposures, forecast, now, k, caps, shares
        As for :func:`fairsync.schedule.make_plan`.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, Promise, Window
    >>> now, caps = datetime(2026, 3, 2, 18, tzinfo=UTC), {"toys": 2, "books": 2}
    >>> made = [Promise("toys", 1000, Window.day("UTC"))]
    >>> verdict = check_promise(Promise("books", 900, Window.day("UTC")), made, {}, Forecast(rate=0.01), now, 2, caps)
    >>> verdict.accepted, verdict.largest  # a day has 864 requests of two slots
    (False, 728)
    >>> print(verdict.message)
    The floor of group 'books' is 900 (each day, UTC), which cannot be met: the window from 2026-03-03 00:00 to
    2026-03-04 00:00 is expected to have room for 728 beside all other promises. The largest feasible floor is 728.
    Lower the floor to that, or lengthen the window.
    """
    now = check_aware(now, "now")
    others = [other for other in dict.fromkeys(promises) if other != promise]

    @cache  # many promises end at the same time
    def expect(start: datetime, end: datetime) -> float:
        return forecast.expected(start, end, now)

    def limits(span: Span, start: datetime) -> tuple[int, int]:
        """Return the largest floors in a window from a moment on, for expected traffic and for what is sure."""
        active = ActiveWindows.of([*others, promise], start, k, caps, shares)
        missing = [_missing(other, place, exposures, expect, now, start) for other, place in _pairs(active)]
        expected = [int(expect(start, deadline)) for deadline in active.deadlines]
        cautious = [int(forecast.cautious(start, deadline, now)) for deadline in active.deadlines]
        had = int(exposures.get(promise, 0)) if now in span else 0
        return had + _largest(active, promise, missing, expected), had + _largest(active, promise, missing, cautious)

    rest = promise.window.at(now)
    if promise.window.recurs:
        first = max(now, promise.window.start or now)
        spans = [span for span in promise.window.between(first, first + 2 * _WEEK) if span.start < first + _WEEK]
    else:
        spans = [span for span in (rest or promise.window.after(now),) if span]
    if not spans:
        raise InvalidInputError(f"the {promise.window} is over: choose one that ends after {now.isoformat()}.")
    found = [(*limits(span, max(span.start, now)), span) for span in spans]
    largest, _, tightest = min(found, key=lambda one: (one[0], one[1]))
    cautious = min(sure for _, sure, _ in found)
    holds_from = None
    if promise.floor <= largest:
        at_once = not promise.window.recurs or (rest is not None and limits(rest, now)[0] >= promise.floor)
        holds_from = now if at_once and rest else spans[0].start
    return Feasibility(promise, largest, cautious, tightest, holds_from)


def _pairs(active: ActiveWindows) -> list[tuple[Promise, Span | None]]:
    return list(zip(active.promises, active.spans, strict=True))


def _missing(
    promise: Promise,
    span: Span | None,
    exposures: Mapping[Promise, int],
    expect: Callable[[datetime, datetime], float],
    now: datetime,
    start: datetime,
) -> int:
    """Return what a promise will miss at a moment to come, if until then it gets its share by expected traffic."""
    if span is None:
        return 0
    if now not in span:
        return promise.floor
    missing = max(promise.floor - int(exposures.get(promise, 0)), 0)
    whole, left = (expect(moment, span.end) for moment in (now, start))
    return missing if whole == 0 else min(missing, int(np.ceil(missing * left / whole)))


def _largest(active: ActiveWindows, promise: Promise, missing: list[int], requests: list[int]) -> int:
    """Return the largest floor of a promise for which everything can be delivered, in exposures that count."""
    here = active.promises.index(promise)
    every = active.requirements([0 if place == here else count for place, count in enumerate(missing)], requests)
    is_other = np.arange(len(active.promises)) != here
    others = replace(every, later=every.later * is_other[:, None])
    own, group = int(every.place[here]), int(every.group[here])
    cap = int(every.caps[group])
    until: list[int] = every.requests.tolist()
    limits = [cap * until[own]]
    for s, slack in enumerate(others.slack().tolist()):
        windows = 1 + int(every.later[here, s])
        # What the group is due anyway serves this promise too.
        limits.append((cap * max(until[own] - until[s], 0) + int(others.due(s)[group]) + max(slack, 0)) // windows)
        if s >= own:
            limits.append(cap * until[s] // windows)
    most = np.zeros_like(every.missing)
    most[here] = max(min(limits), 0)
    return active.that_count(most)[here]
