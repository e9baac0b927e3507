"""Feasibility: whether a new promise can be kept beside the existing ones, and the largest floor that can."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.errors import InvalidInputError
from fairsync.plan import NO_CAP, Demands, Program, largest_value, least_shortfall
from fairsync.schedule.active_windows import ActiveWindows, WindowProgress
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.plan import make_plan
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.seasonal_profile import Ints
    from fairsync.schedule.supply import Supply
    from fairsync.schedule.window import Span, Window

_WEEK = timedelta(days=7)
# Shares are rounded down to this many digits.
_DIGITS = 4
_ROUNDING = 1e-6
# A promise misses more if it does by more than this: less is rounding.
_MISSED = 0.5
# As many promises are named in a message.
_SHOWN = 3


@dataclass(frozen=True)
class Feasibility:
    """The result of checking a promise.

    Attributes
    ----------
    promise : ScheduledPromise
        The promise that was checked.
    largest : float
        The largest floor that expected traffic can deliver beside all other promises of its priority or a higher one:
        a number of exposures, or a share if the promise is one.
    largest_safe : float
        The largest floor that the lower bound of the traffic can deliver, if requests exclude as much as they may.
    tightest : Span
        The window that limits ``largest``: one of the windows of the coming week, or the campaign.
    effective_from : datetime or None
        When the promise can take effect: now, or at the start of the next window if too little is left of the active
        one. None if the promise is refused.
    per_list : int
        The items of the selection that a request can show: 0 if there are none, or if a floor of a group alone must
        count on a request that excludes them all.
    is_expected : bool
        Whether requests may exclude all items of the selection, so that it is expected, and not certain, that enough
        of them can show it.
    displaced : tuple of ScheduledPromise
        The promises that its cap, or its limit per list, would keep from their floors. It is refused if there are any.
    pushes_out : tuple of ScheduledPromise
        The promises of a lower priority that would miss more than without it.
    limit_reason : str
        Why its cap, or its limit per list, cannot be kept. It is refused unless this is empty.
    """

    promise: ScheduledPromise
    largest: float
    largest_safe: float
    tightest: Span
    effective_from: datetime | None
    per_list: int = 1
    displaced: tuple[ScheduledPromise, ...] = ()
    pushes_out: tuple[ScheduledPromise, ...] = ()
    limit_reason: str = ""
    is_expected: bool = False

    @property
    def accepted(self) -> bool:
        """Whether expected traffic can keep the promise beside those of its priority or a higher one."""
        return _asked(self.promise) <= self.largest and not self.displaced and not self.limit_reason

    @property
    def message(self) -> str:
        """The result in one or two sentences."""
        asked, subject = _asked(self.promise), str(self.promise)
        if not self.accepted:
            return f"{subject} cannot be kept: {self.reason}. {self.remedy}"
        others = f" Then {_listed(self.pushes_out)} would be missed." if self.pushes_out else ""
        if asked > self.largest_safe:
            safe = f" To be safe, promise {_number(self.largest_safe)}." if self.largest_safe else ""
            and_shown = " and enough requests do not exclude its items" if self.is_expected else ""
            return f"{subject} can be kept{self._start_phrase}, if traffic comes as expected{and_shown}.{safe}{others}"
        return f"{subject} can be kept{self._start_phrase}, also if traffic is low.{others}"

    @property
    def reason(self) -> str:
        """Why no larger floor is feasible."""
        if self.limit_reason:
            return self.limit_reason
        if self.displaced and _asked(self.promise) <= self.largest:
            return f"beside it, {_listed(self.displaced)} could not be kept"
        if not self.per_list:
            return "it has no item that every request can show: none at all, or requests may exclude them (max_exclude)"
        start, end = (self.promise.window.local(edge) for edge in (self.tightest.start, self.tightest.end))
        room = f"room for {_number(self.largest)}" if self.largest else "no room"
        return f"the window from {start} to {end} is expected to have {room} beside all other promises"

    @property
    def remedy(self) -> str:
        """The floor or window to promise instead."""
        if self.limit_reason:
            return "Raise its limit or those of other promises, or choose other windows."
        if self.displaced and _asked(self.promise) <= self.largest:
            return "Raise the limit, or lower those promises first."
        if not self.per_list:
            return "Add such items, or declare a smaller max_exclude."
        if not self.largest:
            return "Lower another promise first, or choose a longer window."
        safe = f"; to be safe, {_number(self.largest_safe)}" if self.largest_safe else ""
        return (
            f"The largest feasible floor is {_number(self.largest)}{safe}. Lower the floor to that, or lengthen the"
            " window."
        )

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
            "pushes_out": [one.to_dict() for one in self.pushes_out],
            "displaced": [one.to_dict() for one in self.displaced],
            "limit_reason": self.limit_reason,
            "message": self.message,
        }


def check_promise(
    promise: ScheduledPromise,
    promises: Iterable[ScheduledPromise],
    exposures: Mapping[ScheduledPromise, int],
    forecast: TrafficForecast,
    now: datetime,
    supply: Supply,
    *,
    impression_rates: Mapping[str, float] | None = None,
    requests: Mapping[ScheduledPromise, int] | None = None,
) -> Feasibility:
    """Check a new promise against the forecast and the existing promises.

    A recurring promise is limited by its weakest window, so every window that begins within a week of its start is
    checked. A campaign is checked as a whole.

    Parameters
    ----------
    promise
        The promise to check. If it is already among the promises, it is checked beside the others. The exposures of
        its active window, if any, are taken from ``exposures``.
    promises, exposures, forecast, now, supply, impression_rates, requests
        As for :func:`fairsync.schedule.make_plan`.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window
    >>> now, supply = datetime(2026, 3, 2, 18, tzinfo=UTC), Supply.of_groups({"toys": 2, "books": 2}, k=2)
    >>> made = [ScheduledPromise.of_group("toys", 1000, Window.day("UTC"))]
    >>> more = ScheduledPromise.of_group("books", 900, Window.day("UTC"))
    >>> verdict = check_promise(more, made, {}, Forecast(rate=0.01), now, supply)
    >>> verdict.accepted, verdict.largest  # a day has 864 requests of two slots
    (False, 728)
    >>> print(verdict.message)
    900 exposures of group=books (each day, UTC) cannot be kept: the window from 2026-03-03 00:00 to 2026-03-04 00:00
    is expected to have room for 728 beside all other promises. The largest feasible floor is 728. Lower the floor to
    that, or lengthen the window.
    """
    check = FeasibilityCheck(
        promise, tuple(promises), exposures, forecast, check_aware(now, "now"), supply, impression_rates, requests or {}
    )
    return check.run()


@dataclass(frozen=True)
class FeasibilityCheck:
    """A check of a promise beside others, with a snapshot of all that it depends on.

    Attributes
    ----------
    promise : ScheduledPromise
        The promise to check.
    others : tuple of ScheduledPromise
        The existing promises.
    exposures, traffic, now, supply, impression_rates, requests
        As for :func:`fairsync.schedule.make_plan`, where the traffic is the forecast.
    checkpoint : Callable
        Called for each window and each deadline; raises to end the check.
    """

    promise: ScheduledPromise
    others: tuple[ScheduledPromise, ...]
    exposures: Mapping[ScheduledPromise, int]
    traffic: TrafficForecast
    now: datetime
    supply: Supply
    impression_rates: Mapping[str, float] | None = None
    requests: Mapping[ScheduledPromise, int] = field(default_factory=dict)
    checkpoint: Callable[[], object] = lambda: None

    def run(self, *, up_to_asked: bool = False) -> Feasibility:
        """Return whether the expected traffic can deliver the promise; see :func:`check_promise`.

        Parameters
        ----------
        up_to_asked
            Whether to look for no larger floors than the promise asks for, and no further than to the first window that
            refuses it, which is many times as fast: ``largest`` is then that of this window, and ``largest_safe`` 0.
        """
        promise, now = self.promise, self.now
        every = [other for other in dict.fromkeys(self.others) if other != promise]
        rivals = [other for other in every if other.promise.priority <= promise.promise.priority]
        current = promise.window.at(now)
        if promise.window.recurs:
            first = max(now, promise.window.start or now)
            spans = [span for span in promise.window.between(first, first + 2 * _WEEK) if span.start < first + _WEEK]
        else:
            spans = [span for span in (current or promise.window.after(now),) if span]
        if not spans:
            raise _nothing_to_come(promise.window, now)
        asked, start = _asked(promise), max(spans[0].start, now)
        most = asked if up_to_asked else None
        by_window = []
        for span in spans:
            by_window.append((self._largest(rivals, span, most), span))
            if up_to_asked and by_window[-1][0] < asked:
                break
        largest, tightest = min(by_window, key=lambda one: one[0])
        largest_safe: float = 0
        if not up_to_asked:
            largest_safe = min(self._largest(rivals, span, most, is_safe=True) for span in spans)
        has_limit = promise.promise.at_most is not None or promise.promise.at_most_per_list is not None
        limit_reason = next(filter(None, (self._limit_reason(every, span) for span in spans)), "") if has_limit else ""
        displaced = self._missing_more(rivals, start) if asked <= largest and has_limit and not limit_reason else ()
        effective_from: datetime | None = None
        pushes_out: tuple[ScheduledPromise, ...] = ()
        if asked <= largest and not displaced and not limit_reason:
            at_once = not promise.window.recurs or (
                current is not None
                and self._largest(rivals, current, asked) >= asked
                and not (has_limit and self._limit_reason(every, current))
            )
            effective_from = now if at_once and current else spans[0].start
            pushes_out = self._missing_more(every, start) if len(every) > len(rivals) else ()
        (code,) = self.supply.codes_of([promise.selection])
        per_list = int(self.supply.most[code])
        is_expected = per_list > 0 and not self.supply.assured.most[code]
        return Feasibility(
            promise, largest, largest_safe, tightest, effective_from, per_list, displaced, pushes_out, limit_reason,
            is_expected,
        )  # fmt: skip

    def pushes_out(self, verdict: Feasibility) -> tuple[ScheduledPromise, ...]:
        """Return the promises that would miss more if the promise were made, whether it was accepted or not."""
        if verdict.accepted:
            return verdict.pushes_out
        if verdict.displaced or verdict.limit_reason:
            return verdict.displaced
        is_active = self.promise.window.at(self.now) is not None
        moment = self.now if is_active else verdict.tightest.start
        exposures, requests = (self.exposures, self.requests) if is_active else ({}, {})
        most = replace(self.promise.promise, priority=1)  # as if it came before all others
        forced = replace(self.promise, promise=most)

        def missed(promises: tuple[ScheduledPromise, ...]) -> dict[ScheduledPromise, int]:
            plan = make_plan(
                promises,
                exposures,
                self.traffic,
                moment,
                self.supply,
                impression_rates=self.impression_rates,
                requests=requests,
            )
            return {one.promise: one.shortfall for one in plan.statuses}

        later = tuple(  # those of its own priority, too, would have to give way
            replace(one, promise=replace(one.promise, priority=one.promise.priority + 1)) for one in self.others
        )
        before, after = missed(later), missed((*later, forced))
        return tuple(
            other for other, one in zip(self.others, later, strict=True) if after.get(one, 0) > before.get(one, 0)
        )

    def _largest(
        self, others: list[ScheduledPromise], span: Span, most: float | None, *, is_safe: bool = False
    ) -> float:
        """Return the largest floor of a window from now on, `most` at most: exposures that count, or a share.

        By expected traffic, or if `is_safe` by its lower bound.
        """
        self.checkpoint()
        start, supply = max(span.start, self.now), self.supply.assured if is_safe else self.supply
        active = ActiveWindows.of([*others, self.promise], start, supply, self.impression_rates)
        progress, requests = self._progress(active), self._expected(active)
        if is_safe:
            lower = [int(self.traffic.lower_bound(start, end, self.now)) for end in active.deadlines]
            requests = np.array(lower, dtype=np.int64)
        this = active.promises.index(self.promise)
        times, offset = active.multiples(this, progress, requests)
        is_share = isinstance(self.promise.promise.at_least, float)
        if most is None:
            most = 1.0 if is_share else float(progress.exposures[this]) + self.supply.k * float(requests[-1])
        value: float = largest_value(active.program(progress, requests), times, offset, most)
        if not is_share:
            return math.floor(value + _ROUNDING)
        shown = math.floor(value * 10**_DIGITS + _ROUNDING) / 10**_DIGITS
        return shown if value < most * (1 - _ROUNDING) else most

    def _missing_more(self, others: list[ScheduledPromise], start: datetime) -> tuple[ScheduledPromise, ...]:
        """Return the promises that would miss more beside the promise than without it, by expected traffic."""
        beside, without = self._missed([*others, self.promise], start), self._missed(others, start)
        return tuple(one for one in others if beside.get(one, 0.0) > without.get(one, 0.0) + _MISSED)

    def _limit_reason(self, others: list[ScheduledPromise], span: Span) -> str:
        """Return why the cap or the limit per list cannot be kept from a window on; empty if it can."""
        start, promise, window = max(span.start, self.now), self.promise.promise, self.promise.window
        so_far = int(self.exposures.get(self.promise, 0)) if self.now in span else 0
        came = int(self.requests.get(self.promise, 0)) if self.now in span else 0
        cap = promise.cap(self.supply.k * (came + int(self._expect(start, span.end))))
        if cap is not None and so_far > cap:
            return f"it has had {count(so_far, 'exposure')} since {window.local(span.start)}"
        empty = self._empty([*others, self.promise], start)
        if empty > _MISSED and empty > self._empty(others, start) + _MISSED:
            between = f"from {window.local(span.start)} to {window.local(span.end)}"
            return f"caps and limits per list leave too few items to fill all lists {between}"
        return ""

    def _empty(self, promises: list[ScheduledPromise], start: datetime) -> float:
        """Return the slots that cannot be filled under caps and limits per list, by expected traffic."""
        supply = self.supply
        if supply.unreduced is None:
            return 0.0
        active = ActiveWindows.of(promises, start, supply, self.impression_rates)
        program = active.program(self._progress(active), self._expected(active))
        demands, all_items = program.demands, len(supply.selections)
        codes, rates = np.array(supply.codes_of(active.supply.selections), dtype=np.int64), active.impression_rates
        capped = np.flatnonzero(demands.at_most < NO_CAP)
        caps = np.ceil(demands.at_most[capped] / rates[demands.selection[capped]]).astype(np.int64)
        slots, segments = program.requests * program.k, np.arange(len(program.requests))
        # Shares are whole numbers of exposures: each of these caps may be rounded down by nearly one.
        slots = np.maximum(slots - np.bincount(demands.last[capped], minlength=len(slots)), 0)
        limits = None
        if program.list_limits is not None:
            limits = np.full(all_items + 1, program.k)
            limits[codes] = program.list_limits
        filled = Demands.of(
            np.concatenate([codes[demands.selection[capped]], np.full(len(slots), all_items)]),
            np.concatenate([demands.first[capped], segments]),
            np.concatenate([demands.last[capped], segments]),
            np.concatenate([np.zeros(len(capped), dtype=np.int64), slots]),
            np.concatenate([caps, np.full(len(slots), NO_CAP)]),
        )
        offsets, of_each = supply.membership.offsets, supply.membership.promises
        in_all = Membership(
            all_items + 1, np.insert(of_each, offsets[1:], all_items), offsets + np.arange(len(offsets))
        )
        every = Program(in_all, supply.unreduced, program.k, program.requests, filled, limits)
        return float(least_shortfall(every).shortfall.sum())

    def _missed(self, promises: list[ScheduledPromise], start: datetime) -> dict[ScheduledPromise, float]:
        """Return the exposures that promises miss from a moment on, by expected traffic."""
        active = ActiveWindows.of(promises, start, self.supply, self.impression_rates)
        shortfall = least_shortfall(active.program(self._progress(active), self._expected(active))).shortfall
        missed: dict[ScheduledPromise, float] = {}
        for demand in np.flatnonzero(shortfall).tolist():
            promise = active.promises[active.promise_of(demand)]
            missed[promise] = missed.get(promise, 0.0) + float(shortfall[demand])
        return missed

    @cached_property
    def _expect(self) -> Callable[[datetime, datetime], float]:
        def expect(start: datetime, end: datetime) -> float:
            self.checkpoint()
            return self.traffic.expected(start, end, self.now)

        return cache(expect)  # many have the same deadline

    def _expected(self, active: ActiveWindows) -> Ints:
        return np.array([int(self._expect(active.now, end)) for end in active.deadlines], dtype=np.int64)

    def _progress(self, active: ActiveWindows) -> WindowProgress:
        """Return how far windows will have come, if promises gain exposures at their pace until then."""
        exposures, requests = np.zeros((2, len(active.promises)), dtype=np.int64)
        for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
            if span is None or self.now not in span:
                continue
            so_far, came = int(self.exposures.get(promise, 0)), int(self.requests.get(promise, 0))
            soon = int(self._expect(self.now, active.now))
            if isinstance(promise.promise.at_least, float):
                exposures[p] = max(so_far, promise.promise.floor(self.supply.k * (came + soon)) if soon else 0)
            else:
                missing = max(promise.promise.floor(0) - so_far, 0)
                whole, left = (self._expect(at, active.deadlines[active.deadline[p]]) for at in (self.now, active.now))
                exposures[p] = so_far + missing - (math.ceil(missing * left / whole) if whole else missing)
            requests[p] = came + soon
        return WindowProgress(exposures, np.zeros_like(exposures), requests)


def _nothing_to_come(window: Window, now: datetime) -> InvalidInputError:
    """Return the refusal of a window that has no span which is still to begin, or under way for a campaign."""
    if window.end is None or window.end <= now or not window.recurs:
        which = f"time of {window}" if window.recurs else f"{window}"
        return InvalidInputError(f"the {which} is over: choose one that ends after {now.isoformat()}.")
    first = max(now, window.start or now)
    return InvalidInputError(
        f"no whole {window.kind} is left between {window.local(first)} and {window.local(window.end)}, {window.zone}:"
        " choose a later end."
    )


def _asked(promise: ScheduledPromise) -> float:
    """Return the floor that a promise asks for, as a number or a share."""
    return promise.promise.at_least or 0


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{100 * value:g} %"


def _listed(promises: tuple[ScheduledPromise, ...]) -> str:
    more = f" and {count(len(promises) - _SHOWN, 'more promise')}" if len(promises) > _SHOWN else ""
    return ", ".join(str(one) for one in promises[:_SHOWN]) + more
