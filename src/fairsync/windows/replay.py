"""Promises tried on past traffic: what would have been planned, delivered, and known to fail."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.windows.moments import check_moment
from fairsync.windows.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from fairsync.groups import Label
    from fairsync.windows.forecast import Forecast
    from fairsync.windows.plan import Plan
    from fairsync.windows.promise import Promise
    from fairsync.windows.window import Span

    Serve: TypeAlias = Callable[[Plan, int, int], Mapping[Label, int]]
    """(plan, first request, last request + 1) -> {label: exposures} that these requests brought."""


@dataclass(frozen=True)
class Outcome:
    """How a window of a promise ended.

    Attributes
    ----------
    promise : Promise
        What was promised.
    span : Span
        The window.
    exposures : int
        What came of it.
    requests : int
        That came in the window.
    at_risk_since, impossible_since : datetime or None
        When a plan first warned, and when one first found it impossible.
    counted_on : bool
        Whether, after every plan in the window, the requests came that were counted on in the tick and up to its end.
    """

    promise: Promise
    span: Span
    exposures: int
    requests: int
    at_risk_since: datetime | None
    impossible_since: datetime | None
    counted_on: bool

    @property
    def kept(self) -> bool:
        """Whether the floor was reached."""
        return self.exposures >= self.promise.floor


def replay(
    times: ArrayLike,
    promises: Sequence[Promise],
    forecast: Forecast,
    k: int,
    caps: Mapping[Label, int],
    serve: Serve,
    start: datetime,
    end: datetime,
    every: timedelta,
) -> tuple[Outcome, ...]:
    """Plan and serve past requests as if they came now, and return how every whole window ended.

    Parameters
    ----------
    times
        Unix seconds of the requests, ascending.
    promises, k, caps
        As for :func:`fairsync.windows.make_plan`.
    forecast
        What was known at the start. It learns as time goes on.
    serve
        Answers requests under a plan: its floors, over its horizon.
    start, end
        Of the replay.
    every
        Plans are made anew after so long, after a horizon, and at the end of a tick.

    Examples
    --------
    Every request shows one toy if it must, and none otherwise.

    >>> from fairsync.windows import Forecast, Promise, Window
    >>> start = datetime(2026, 3, 2, tzinfo=UTC)
    >>> times = np.arange(start.timestamp(), (start + timedelta(days=2)).timestamp(), 600)
    >>> daily = Promise("toys", 100, Window.day("UTC"))
    >>> serve = lambda plan, first, last: {"toys": min(plan.floors["toys"], last - first)}
    >>> ends = replay(times, [daily], Forecast(rate=1 / 600), 10, {"toys": 1}, serve,
    ...               start, start + timedelta(days=2), every=timedelta(hours=1))
    >>> [(end.exposures, end.requests, end.kept) for end in ends]
    [(100, 144, True), (100, 144, True)]
    """
    arrivals = np.asarray(times, dtype=np.float64)
    if np.any(np.diff(arrivals) < 0):
        raise InvalidInputError("times must ascend: sort them.")
    now, end = check_moment(start, "start"), check_moment(end, "end")
    begin, plan = now, None
    exposures: dict[Promise, int] = {}
    warned: dict[tuple[Promise, Span], datetime] = {}
    let_down: set[tuple[Promise, Span]] = set()
    outcomes: list[Outcome] = []

    def before(moment: datetime) -> int:
        return int(np.searchsorted(arrivals, moment.timestamp()))

    first = before(now)
    while now < end:
        plan = make_plan(promises, exposures, forecast, now, k, caps, plan)
        tick = plan.span.end
        too_few = {
            deadline: before(tick) - first < int(plan.cautious)
            or before(deadline) - before(tick) < int(forecast.cautious(tick, deadline, now))
            for deadline in {outlook.span.end for outlook in plan.outlooks}
        }
        for outlook in plan.outlooks:
            window = (outlook.promise, outlook.span)
            if outlook.at_risk:
                warned.setdefault(window, now)
            if too_few[outlook.span.end]:
                let_down.add(window)
        until = min(tick, now + every, end)
        last = before(until)
        if last - first > plan.horizon:  # it has passed before the time: plan anew at the next request
            last = first + plan.horizon
            until = max(now, datetime.fromtimestamp(arrivals[last], UTC))
        gained = serve(plan, first, last)
        for outlook in plan.outlooks:
            if begin <= outlook.span.start and outlook.span.end <= until:
                window = (outlook.promise, outlook.span)
                outcomes.append(
                    Outcome(
                        *window,
                        exposures=outlook.exposures + int(gained.get(outlook.promise.group, 0)),
                        requests=before(outlook.span.end) - before(outlook.span.start),
                        at_risk_since=warned.get(window),
                        impossible_since=outlook.impossible_since,
                        counted_on=window not in let_down,
                    )
                )
        exposures = plan.count(gained, until)
        slot = int(now.timestamp()) // forecast.slot * forecast.slot
        over = int(until.timestamp()) // forecast.slot * forecast.slot
        if over > slot:
            forecast = forecast.learn(
                arrivals[before(now - timedelta(seconds=forecast.slot)) : before(until)],
                datetime.fromtimestamp(slot, UTC),
                datetime.fromtimestamp(over, UTC),
            )
        now, first = until, last
    return tuple(outcomes)
