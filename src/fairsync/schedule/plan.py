"""Plans: from promises per time to floors over a number of requests, which a retriever can keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule.active_windows import ActiveWindows
from fairsync.schedule.allocation import allocate, deliverable, split
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.promise_status import PromiseStatus
from fairsync.schedule.safety_margin import bring_forward, cap_unreachable, worst_case_requests
from fairsync.schedule.window import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.promise import Promise
    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints

WORST_CASE_TRAFFIC = 1 / 3
"""Traffic may fall to this part of what is expected, unless something else is said."""


@dataclass(frozen=True)
class Plan:
    """What to do from now to the end of the tick, and how each promise stands.

    Attributes
    ----------
    span : Span
        From the moment of planning to the end of the tick.
    floors : Mapping
        {label: exposures} to hand out within ``horizon`` requests. They always fit.
    horizon : int
        Requests to spread them over: those that can be counted on, 1 at least. When they have come and the tick is not
        over, plan again.
    expected, cautious : float
        Requests expected until the end of the tick, and those that can be counted on.
    cut : Mapping
        {label: exposures} that the tick should hand out and for which so many requests have no room.
    outlooks : tuple of PromiseStatus
        Of the promises under way.
    """

    span: Span
    floors: Mapping[Label, int]
    horizon: int
    expected: float
    cautious: float
    cut: Mapping[Label, int]
    statuses: tuple[PromiseStatus, ...]

    def count(self, gained: Mapping[Label, int], now: datetime) -> dict[Promise, int]:
        """Return the exposures of each promise in its window at a later moment, for the next plan.

        Parameters
        ----------
        gained
            {label: exposures} from the moment of this plan up to now, or to the end of the tick.
        now
            If it lies beyond a promise's window, the next window begins with nothing.
        """
        now = check_aware(now, "now")
        return {
            status.promise: status.exposures + int(gained.get(status.promise.group, 0))
            for status in self.statuses
            if now in status.span
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "span": self.span.to_dict(),
            "floors": [[label, floor] for label, floor in self.floors.items()],
            "horizon": self.horizon,
            "expected": self.expected,
            "cautious": self.cautious,
            "cut": [[label, lost] for label, lost in self.cut.items()],
            "outlooks": [status.to_dict() for status in self.statuses],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """Return what :meth:`to_dict` wrote."""
        floors, cut = ({label: int(number) for label, number in values[name]} for name in ("floors", "cut"))
        statuses = tuple(PromiseStatus.from_dict(one) for one in values["outlooks"])
        horizon, expected, cautious = int(values["horizon"]), float(values["expected"]), float(values["cautious"])
        return cls(Span.from_dict(values["span"]), floors, horizon, expected, cautious, cut, statuses)


def make_plan(
    promises: Iterable[Promise],
    exposures: Mapping[Promise, int],
    forecast: TrafficForecast,
    now: datetime,
    k: int,
    caps: Mapping[Label, int],
    previous: Plan | None = None,
    shares: Mapping[Label, float] | None = None,
    coming: Mapping[Label, int] | None = None,
    worst_case_traffic: float = WORST_CASE_TRAFFIC,
) -> Plan:
    r"""Return the floors of the present tick, and the outlook of each promise.

    A promise that ends with the tick needs all that it misses. A longer one needs its share by expected traffic,
    :math:`D_p \, E_{tick} / E_{p}`, and at least what the requests that can be counted on after the tick could not
    carry (:mod:`fairsync.schedule.requirements`). A group's floor is the largest of its promises'. Call it again
    with newer counts when traffic differs from what was expected, or when the horizon has passed.

    Parameters
    ----------
    promises
        Any number per group.
    exposures
        Of each promise in its window under way; 0 if it is not named.
    forecast
        Requests to come.
    now
        The moment.
    k
        Candidates per request.
    caps
        {label: min(k, items of the group)}.
    previous
        The last plan, from which it is known since when a promise is at risk, or impossible.
    shares
        {label: part of the exposures handed out that counts}, where only what is really shown does; 1 if not named.
    coming
        {label: exposures} that are going to count although no more is handed out; 0 if not named.
    worst_case_traffic
        What to be prepared for: traffic may fall to this part of what is expected, from one moment to the next. Floors
        that could not be met then are brought forward (:mod:`fairsync.schedule.safety_margin`). With 1, the forecast is
        trusted, which costs less where much is promised.

    Examples
    --------
    At 18:00 the day has a quarter of its traffic to come, the week of the sale six and a quarter of seven.

    >>> from datetime import UTC, date, datetime
    >>> from fairsync.schedule import Forecast, Promise, Window
    >>> daily = Promise("toys", 100, Window.day("UTC"))
    >>> sale = Promise("books", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
    >>> plan = make_plan([daily, sale], {daily: 70, sale: 75}, Forecast(rate=0.01),
    ...                  datetime(2026, 3, 2, 18, tzinfo=UTC), k=10, caps={"toys": 10, "books": 10})
    >>> plan.floors, plan.horizon, round(plan.expected)
    ({'toys': 30, 'books': 25}, 108, 216)
    """
    active = ActiveWindows.of(promises, now, k, caps, shares)
    now, coming = active.now, coming or {}
    for promise, count in exposures.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
            raise InvalidInputError(f"the exposures so far must be whole numbers, 0 or more; of {promise}: {count!r}.")
    missing = [
        max(promise.floor - int(exposures.get(promise, 0)) - int(coming.get(promise.group, 0)), 0) if span else 0
        for promise, span in zip(active.promises, active.spans, strict=True)
    ]
    if not 0 < worst_case_traffic <= 1:
        raise InvalidInputError(f"worst_case_traffic must lie above 0 and at most at 1, got {worst_case_traffic!r}.")
    expected = [forecast.expected(now, deadline, now) for deadline in active.deadlines]
    cautious = forecast.cautious(now, active.end, now)
    after = [forecast.cautious(active.end, deadline, now) for deadline in active.deadlines]
    first = worst_case_requests(expected[0], cautious, worst_case_traffic)
    least = [
        first + worst_case_requests(max(whole - expected[0], 0.0), counted_on, worst_case_traffic)
        for whole, counted_on in zip(expected, after, strict=True)
    ]
    likely = active.requirements(missing, [int(requests) for requests in expected])
    sure = active.requirements(missing, [int(cautious) + int(requests) for requests in after])
    worst = cap_unreachable(active.requirements(missing, least))

    wanted = _shares(likely, expected)
    # Floors that reach beyond what can be counted on would put those at risk that do not.
    horizon = max(int(cautious), 1)
    given = allocate(worst, wanted, horizon)
    short = np.maximum(sure.per_group(np.maximum(wanted, sure.overdue(0))) - given, 0)
    floors, horizon = bring_forward(worst, given, horizon)
    return Plan(
        Span(now, active.end),
        dict(zip(active.labels, floors.tolist(), strict=True)),
        horizon,
        expected[0],
        cautious,
        {label: lost for label, lost in zip(active.labels, short.tolist(), strict=True) if lost},
        _outlooks(active, exposures, missing, forecast, likely, sure, previous),
    )


def _shares(requirements: Requirements, expected: list[float]) -> Ints:
    """Return what each promise should get in the tick by expected traffic, rounded so that sums are right."""
    shares = np.zeros_like(requirements.missing)
    for s, requests in enumerate(expected):
        ending = np.flatnonzero(requirements.place == s)
        missing = requirements.missing[ending].tolist()
        part = expected[0] / requests if requests > 0 else 1.0
        # Rounding up loses nothing; a whole number that arithmetic made a hair too large stays what it is.
        shares[ending] = split(min(sum(missing), math.ceil(sum(missing) * part - 1e-6)), missing)
    return shares


def _outlooks(
    active: ActiveWindows,
    exposures: Mapping[Promise, int],
    missing: list[int],
    forecast: TrafficForecast,
    likely: Requirements,
    sure: Requirements,
    previous: Plan | None,
) -> tuple[PromiseStatus, ...]:
    before = {(last.promise, last.span): last for last in previous.statuses} if previous else {}
    unmet, maybe_unmet = (_unmet(active, requirements, missing) for requirements in (likely, sure))
    past: dict[datetime, float] = {}
    statuses = []
    for place, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
        if span is None:
            continue
        if span.start not in past:
            past[span.start] = forecast.expected(span.start, active.now, active.now)
        so_far = int(exposures.get(promise, 0))
        ahead = int(likely.requests[likely.place[place]])
        status = PromiseStatus(
            promise,
            span,
            so_far,
            at_pace=so_far + round(so_far / max(past[span.start], 1.0) * ahead),
            reachable=max(promise.floor, so_far) - unmet[place],
            certain=max(promise.floor, so_far) - maybe_unmet[place],
        )
        statuses.append(status.following(before.get((promise, span)), active.now))
    return tuple(statuses)


def _unmet(active: ActiveWindows, requirements: Requirements, missing: list[int]) -> list[int]:
    """Return (P,) by how many exposures that count each promise is going to fail."""
    can = deliverable(requirements)
    counting = active.that_count(can)
    return [
        0 if had >= need else max(lack - count, 1)
        for had, need, lack, count in zip(can.tolist(), requirements.missing.tolist(), missing, counting, strict=True)
    ]
