"""Plans: from promises per time to floors over a number of requests, which a retriever can keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.windows.agenda import Agenda
from fairsync.windows.allot import allot, deliverable, split
from fairsync.windows.moments import check_moment
from fairsync.windows.outlook import Outlook
from fairsync.windows.urgent import bring_forward, least_requests, without_hopeless
from fairsync.windows.window import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fairsync.groups import Label
    from fairsync.windows.demand import Demand
    from fairsync.windows.forecast import Traffic
    from fairsync.windows.promise import Promise
    from fairsync.windows.usual import Ints

SLUMP = 1 / 3
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
    outlooks : tuple of Outlook
        Of the promises under way.
    """

    span: Span
    floors: Mapping[Label, int]
    horizon: int
    expected: float
    cautious: float
    cut: Mapping[Label, int]
    outlooks: tuple[Outlook, ...]

    def count(self, gained: Mapping[Label, int], now: datetime) -> dict[Promise, int]:
        """Return the exposures of each promise in its window at a later moment, for the next plan.

        Parameters
        ----------
        gained
            {label: exposures} from the moment of this plan up to now, or to the end of the tick.
        now
            If it lies beyond a promise's window, the next window begins with nothing.
        """
        now = check_moment(now, "now")
        return {
            outlook.promise: outlook.exposures + int(gained.get(outlook.promise.group, 0))
            for outlook in self.outlooks
            if now in outlook.span
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
            "outlooks": [outlook.to_dict() for outlook in self.outlooks],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """Return what :meth:`to_dict` wrote."""
        floors, cut = ({label: int(number) for label, number in values[name]} for name in ("floors", "cut"))
        outlooks = tuple(Outlook.from_dict(one) for one in values["outlooks"])
        horizon, expected, cautious = int(values["horizon"]), float(values["expected"]), float(values["cautious"])
        return cls(Span.from_dict(values["span"]), floors, horizon, expected, cautious, cut, outlooks)


def make_plan(
    promises: Iterable[Promise],
    exposures: Mapping[Promise, int],
    forecast: Traffic,
    now: datetime,
    k: int,
    caps: Mapping[Label, int],
    previous: Plan | None = None,
    shares: Mapping[Label, float] | None = None,
    coming: Mapping[Label, int] | None = None,
    slump: float = SLUMP,
) -> Plan:
    r"""Return the floors of the present tick, and the outlook of each promise.

    A promise that ends with the tick needs all that it misses. A longer one needs its share by expected traffic,
    :math:`D_p \, E_{tick} / E_{p}`, and at least what the requests that can be counted on after the tick could not
    carry (:mod:`fairsync.windows.demand`). A group's floor is the largest of its promises'. To plan anew within a tick,
    because traffic differs from what was expected or because the horizon has passed, call it again with newer counts.

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
    slump
        What to be prepared for: traffic may fall to this part of what is expected, from one moment to the next. Floors
        that could not be met then are brought forward (:mod:`fairsync.windows.urgent`). With 1, the forecast is
        trusted, which costs less where much is promised.

    Examples
    --------
    At 18:00 the day has a quarter of its traffic to come, the week of the sale six and a quarter of seven.

    >>> from datetime import UTC, date, datetime
    >>> from fairsync.windows import Forecast, Promise, Window
    >>> daily = Promise("toys", 100, Window.day("UTC"))
    >>> sale = Promise("books", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
    >>> plan = make_plan([daily, sale], {daily: 70, sale: 75}, Forecast(rate=0.01),
    ...                  datetime(2026, 3, 2, 18, tzinfo=UTC), k=10, caps={"toys": 10, "books": 10})
    >>> plan.floors, plan.horizon, round(plan.expected)
    ({'toys': 30, 'books': 25}, 108, 216)
    """
    agenda = Agenda.of(promises, now, k, caps, shares)
    now, coming = agenda.now, coming or {}
    for promise, count in exposures.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
            raise InvalidInputError(f"the exposures so far must be whole numbers, 0 or more; of {promise}: {count!r}.")
    missing = [
        max(promise.floor - int(exposures.get(promise, 0)) - int(coming.get(promise.group, 0)), 0) if span else 0
        for promise, span in zip(agenda.promises, agenda.spans, strict=True)
    ]
    if not 0 < slump <= 1:
        raise InvalidInputError(f"slump must lie above 0 and at most at 1, got {slump!r}.")
    expected = [forecast.expected(now, deadline, now) for deadline in agenda.deadlines]
    cautious = forecast.cautious(now, agenda.end, now)
    after = [forecast.cautious(agenda.end, deadline, now) for deadline in agenda.deadlines]
    first = least_requests(expected[0], cautious, slump)
    least = [
        first + least_requests(max(whole - expected[0], 0.0), counted_on, slump)
        for whole, counted_on in zip(expected, after, strict=True)
    ]
    likely = agenda.demand(missing, [int(requests) for requests in expected])
    sure = agenda.demand(missing, [int(cautious) + int(requests) for requests in after])
    worst = without_hopeless(agenda.demand(missing, least))

    wanted = _shares(likely, expected)
    # Floors that reach beyond what can be counted on would put those at risk that do not.
    horizon = max(int(cautious), 1)
    given = allot(worst, wanted, horizon)
    short = np.maximum(sure.per_group(np.maximum(wanted, sure.overdue(0))) - given, 0)
    floors, horizon = bring_forward(worst, given, horizon)
    return Plan(
        Span(now, agenda.end),
        dict(zip(agenda.labels, floors.tolist(), strict=True)),
        horizon,
        expected[0],
        cautious,
        {label: lost for label, lost in zip(agenda.labels, short.tolist(), strict=True) if lost},
        _outlooks(agenda, exposures, missing, forecast, likely, sure, previous),
    )


def _shares(demand: Demand, expected: list[float]) -> Ints:
    """Return what each promise should get in the tick by expected traffic, rounded so that sums are right."""
    shares = np.zeros_like(demand.missing)
    for s, requests in enumerate(expected):
        ending = np.flatnonzero(demand.place == s)
        missing = demand.missing[ending].tolist()
        part = expected[0] / requests if requests > 0 else 1.0
        # Rounding up loses nothing; a whole number that arithmetic made a hair too large stays what it is.
        shares[ending] = split(min(sum(missing), math.ceil(sum(missing) * part - 1e-6)), missing)
    return shares


def _outlooks(
    agenda: Agenda,
    exposures: Mapping[Promise, int],
    missing: list[int],
    forecast: Traffic,
    likely: Demand,
    sure: Demand,
    previous: Plan | None,
) -> tuple[Outlook, ...]:
    before = {(last.promise, last.span): last for last in previous.outlooks} if previous else {}
    unmet, maybe_unmet = (_unmet(agenda, demand, missing) for demand in (likely, sure))
    past: dict[datetime, float] = {}
    outlooks = []
    for place, (promise, span) in enumerate(zip(agenda.promises, agenda.spans, strict=True)):
        if span is None:
            continue
        if span.start not in past:
            past[span.start] = forecast.expected(span.start, agenda.now, agenda.now)
        so_far = int(exposures.get(promise, 0))
        ahead = int(likely.requests[likely.place[place]])
        outlook = Outlook(
            promise,
            span,
            so_far,
            at_pace=so_far + round(so_far / max(past[span.start], 1.0) * ahead),
            reachable=max(promise.floor, so_far) - unmet[place],
            certain=max(promise.floor, so_far) - maybe_unmet[place],
        )
        outlooks.append(outlook.following(before.get((promise, span)), agenda.now))
    return tuple(outlooks)


def _unmet(agenda: Agenda, demand: Demand, missing: list[int]) -> list[int]:
    """Return (P,) by how many exposures that count each promise is going to fail."""
    can = deliverable(demand)
    counting = agenda.that_count(can)
    return [
        0 if had >= need else max(lack - count, 1)
        for had, need, lack, count in zip(can.tolist(), demand.missing.tolist(), missing, counting, strict=True)
    ]
