"""Plan: turn promises per window into floors over a number of requests, which a retriever can guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule.active_windows import ActiveWindows
from fairsync.schedule.allocation import allocate, apportion, deliverable
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.promise_status import PromiseStatus
from fairsync.schedule.safety_margin import bring_forward, cap_unreachable, worst_case_requests
from fairsync.schedule.window import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints

WORST_CASE_TRAFFIC = 1 / 3
"""Default worst-case traffic, as a fraction of the forecast."""


@dataclass(frozen=True)
class Plan:
    """Floors and horizon from now to the end of the period, and the status of each promise.

    Attributes
    ----------
    span : Span
        From the moment of planning to the end of the period.
    floors : Mapping
        {label: exposures} to retrieve within ``horizon`` requests. They are always feasible.
    horizon : int
        Requests over which the floors are spread: the lower bound of the forecast, or less, but at least 1. If they
        have come before the period ends, make another plan.
    expected : float
        Expected requests until the end of the period.
    lower_bound : float
        Lower bound of the requests until the end of the period (5 % quantile).
    cut : Mapping
        {label: exposures} that should be retrieved in the period and do not fit into the horizon.
    statuses : tuple of PromiseStatus
        The status of each promise with an active window.
    """

    span: Span
    floors: Mapping[Label, int]
    horizon: int
    expected: float
    lower_bound: float
    cut: Mapping[Label, int]
    statuses: tuple[PromiseStatus, ...]

    def count(self, gained: Mapping[Label, int], now: datetime) -> dict[ScheduledPromise, int]:
        """Return the exposures of each promise in its window at a later moment, for the next plan.

        Parameters
        ----------
        gained
            {label: exposures} from the moment of this plan to ``now``, or to the end of the period.
        now
            The later moment. A promise whose window has ended by then is left out: its next window starts at 0.
        """
        now = check_aware(now, "now")
        return {
            status.promise: status.exposures + int(gained.get(status.promise.group, 0))
            for status in self.statuses
            if now in status.span
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {
            "span": self.span.to_dict(),
            "floors": [[label, floor] for label, floor in self.floors.items()],
            "horizon": self.horizon,
            "expected": self.expected,
            "cautious": self.lower_bound,
            "cut": [[label, count] for label, count in self.cut.items()],
            # Plans that are already stored in ledgers use the keys "cautious" and "outlooks".
            "outlooks": [status.to_dict() for status in self.statuses],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], attribute: str = "group") -> Plan:
        """Return the object that :meth:`to_dict` describes; see :meth:`ScheduledPromise.from_dict`."""
        floors, cut = ({label: int(number) for label, number in values[name]} for name in ("floors", "cut"))
        statuses = tuple(PromiseStatus.from_dict(one, attribute) for one in values["outlooks"])
        horizon, expected, lower_bound = int(values["horizon"]), float(values["expected"]), float(values["cautious"])
        return cls(Span.from_dict(values["span"]), floors, horizon, expected, lower_bound, cut, statuses)


def make_plan(
    promises: Iterable[ScheduledPromise],
    exposures: Mapping[ScheduledPromise, int],
    forecast: TrafficForecast,
    now: datetime,
    k: int,
    capacities: Mapping[Label, int],
    previous: Plan | None = None,
    impression_rates: Mapping[Label, float] | None = None,
    pending: Mapping[Label, int] | None = None,
    worst_case_traffic: float = WORST_CASE_TRAFFIC,
) -> Plan:
    r"""Return the floors of the current period, and the status of each promise.

    A promise that ends with the period needs all the exposures that it misses. A longer one needs its share by
    expected traffic, :math:`D_p \, E_{period} / E_{p}`, and at least the exposures that worst-case traffic after
    the period could not deliver (:mod:`fairsync.schedule.requirements`). A group's floor is the largest of its
    promises'. Plan again with newer counts when traffic differs from the forecast, or when the horizon has passed.

    Parameters
    ----------
    promises
        The promises. A group may have several.
    exposures
        Exposures of each promise in its active window. A promise that is not named has 0.
    forecast
        The traffic forecast.
    now
        The moment of planning.
    k
        Candidates per request.
    capacities
        {label: min(k, items of the group)}.
    previous
        The previous plan. It tells since when a promise has been at risk or impossible.
    impression_rates
        {label: fraction of the retrieved exposures that counts}, for services that count impressions only. A label
        that is not named has 1.
    pending
        {label: exposures} that were retrieved before and will still count. A label that is not named has 0.
    worst_case_traffic
        Worst-case traffic, as a fraction of the forecast. Floors that could not be met if traffic dropped to it are
        brought forward (:mod:`fairsync.schedule.safety_margin`). The value 1 trusts the forecast, which costs less
        relevance where much is promised.

    Examples
    --------
    At 18:00 the day has a quarter of its traffic to come, the week of the sale six and a quarter of seven.

    >>> from datetime import UTC, date, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Window
    >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
    >>> sale = ScheduledPromise.of_group("books", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
    >>> plan = make_plan([daily, sale], {daily: 70, sale: 75}, Forecast(rate=0.01),
    ...                  datetime(2026, 3, 2, 18, tzinfo=UTC), k=10, capacities={"toys": 10, "books": 10})
    >>> plan.floors, plan.horizon, round(plan.expected)
    ({'toys': 30, 'books': 25}, 108, 216)
    """
    active = ActiveWindows.of(promises, now, k, capacities, impression_rates)
    now, pending = active.now, pending or {}
    for promise, count in exposures.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
            raise InvalidInputError(f"the exposures so far must be whole numbers, 0 or more; of {promise}: {count!r}.")
    missing = [
        max(promise.floor - int(exposures.get(promise, 0)) - int(pending.get(promise.group, 0)), 0) if span else 0
        for promise, span in zip(active.promises, active.spans, strict=True)
    ]
    if not 0 < worst_case_traffic <= 1:
        raise InvalidInputError(f"worst_case_traffic must lie above 0 and at most at 1, got {worst_case_traffic!r}.")
    expected = [forecast.expected(now, deadline, now) for deadline in active.deadlines]
    lower_bound = forecast.lower_bound(now, active.end, now)
    after = [forecast.lower_bound(active.end, deadline, now) for deadline in active.deadlines]
    first = worst_case_requests(expected[0], lower_bound, worst_case_traffic)
    worst_case = [
        first + worst_case_requests(max(whole - expected[0], 0.0), bound, worst_case_traffic)
        for whole, bound in zip(expected, after, strict=True)
    ]
    at_expected = active.requirements(missing, [int(requests) for requests in expected])
    at_lower_bound = active.requirements(missing, [int(lower_bound) + int(requests) for requests in after])
    at_worst_case = cap_unreachable(active.requirements(missing, worst_case))

    wanted = _paced_exposures(at_expected, expected)
    # A horizon beyond the lower bound would put the floors at risk that fit into it.
    horizon = max(int(lower_bound), 1)
    given = allocate(at_worst_case, wanted, horizon)
    needed = at_lower_bound.per_group(np.maximum(wanted, at_lower_bound.due_per_promise(0)))
    cut = np.maximum(needed - given, 0)
    floors, horizon = bring_forward(at_worst_case, given, horizon)
    return Plan(
        Span(now, active.end),
        dict(zip(active.labels, floors.tolist(), strict=True)),
        horizon,
        expected[0],
        lower_bound,
        {label: count for label, count in zip(active.labels, cut.tolist(), strict=True) if count},
        _statuses(active, exposures, missing, forecast, at_expected, at_lower_bound, previous),
    )


def _paced_exposures(requirements: Requirements, expected: list[float]) -> Ints:
    """Return (P,) the exposures that each promise should get in the period, in proportion to expected traffic.

    Promises with the same deadline are apportioned together, so that rounding does not inflate their sum.
    """
    paced = np.zeros_like(requirements.missing)
    for s, requests in enumerate(expected):
        ending = np.flatnonzero(requirements.deadline == s)
        missing = requirements.missing[ending].tolist()
        fraction = expected[0] / requests if requests > 0 else 1.0
        # The tolerance keeps an integer that floating-point arithmetic made slightly too large.
        paced[ending] = apportion(min(sum(missing), math.ceil(sum(missing) * fraction - 1e-6)), missing)
    return paced


def _statuses(
    active: ActiveWindows,
    exposures: Mapping[ScheduledPromise, int],
    missing: list[int],
    forecast: TrafficForecast,
    at_expected: Requirements,
    at_lower_bound: Requirements,
    previous: Plan | None,
) -> tuple[PromiseStatus, ...]:
    before = {(last.promise, last.span): last for last in previous.statuses} if previous else {}
    shortfall, possible_shortfall = (
        _shortfalls(active, requirements, missing) for requirements in (at_expected, at_lower_bound)
    )
    past: dict[datetime, float] = {}
    statuses = []
    for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
        if span is None:
            continue
        if span.start not in past:
            past[span.start] = forecast.expected(span.start, active.now, active.now)
        so_far = int(exposures.get(promise, 0))
        ahead = int(at_expected.requests[at_expected.deadline[p]])
        status = PromiseStatus(
            promise,
            span,
            so_far,
            at_pace=so_far + round(so_far / max(past[span.start], 1.0) * ahead),
            reachable=max(promise.floor, so_far) - shortfall[p],
            certain=max(promise.floor, so_far) - possible_shortfall[p],
        )
        statuses.append(status.carry_over(before.get((promise, span)), active.now))
    return tuple(statuses)


def _shortfalls(active: ActiveWindows, requirements: Requirements, missing: list[int]) -> list[int]:
    """Return (P,) the counted exposures that each promise will miss at its deadline."""
    can = deliverable(requirements)
    counted = active.counted_exposures(can)
    return [
        0 if got >= need else max(lack - count, 1)
        for got, need, lack, count in zip(can.tolist(), requirements.missing.tolist(), missing, counted, strict=True)
    ]
