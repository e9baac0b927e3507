"""Projections: how the present windows of promises are likely to end."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from fairsync.schedule.active_windows import thin_out
from fairsync.service.promises.conversion import promise_fields
from fairsync.service.promises.past_windows import describe_unlimited
from fairsync.service.schema import PromiseView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.schedule import PromiseStatus, ScheduledPromise, Span, TrafficForecast
    from fairsync.service.promises.budget import RelevanceBudget
    from fairsync.service.promises.cost_book import GivenUp
    from fairsync.service.schema import PastWindow
    from fairsync.service.schema.promises import PromiseState

# Ends of windows until which requests are forecast.
_MOST_ENDS = 256


class Projection(NamedTuple):
    """Exposures at the end of a window: with little traffic, with the expected traffic, and with much."""

    low: float
    projected: float
    high: float


class Projections:
    """The states of all promises at one moment, and how their windows are likely to end.

    Parameters
    ----------
    now
        The time.
    statuses
        Statuses of the plan in force.
    exposures
        Exposures of promises in their present windows.
    past
        Past windows, oldest first.
    traffic
        Forecast of the requests whose exposures count in time.
    prices
        Prices in force of promises.
    natural
        Exposures per request that promises would have without any, as far as they were measured.
    k
        Candidates per request.
    requests
        Returns the requests of a present window so far.
    attribute
        The attribute of the groups.
    names
        Ids of promises.
    budget
        The budget, and which floors give way to it.
    given_up
        The promises that are given up, with the reasons.
    costs
        What promises have cost, as shares of all relevance, as far as they were measured.
    """

    def __init__(
        self,
        now: datetime,
        statuses: Iterable[PromiseStatus],
        exposures: Mapping[ScheduledPromise, int],
        past: Sequence[PastWindow],
        traffic: TrafficForecast,
        prices: Mapping[ScheduledPromise, float],
        natural: Mapping[ScheduledPromise, float],
        k: int = 1,
        requests: Callable[[Span], int] = lambda _: 0,
        attribute: str = "group",
        names: Mapping[ScheduledPromise, str] | None = None,
        budget: RelevanceBudget | None = None,
        given_up: Mapping[ScheduledPromise, GivenUp] | None = None,
        costs: Mapping[ScheduledPromise, float] | None = None,
    ) -> None:
        self._names, self._budget, self._given_up = names or {}, budget, given_up or {}
        self.now, self._k, self._requests_in, self._attribute = now, k, requests, attribute
        self._statuses = {one.promise: one for one in statuses}
        self._exposures, self._forecast = exposures, traffic
        self._last = {one.promise: one for one in past}
        self._prices, self._natural, self._costs = prices, natural, costs or {}
        # Of thousands of different ends, as many as can be forecast within a fraction of a second.
        self._ends = thin_out(now, sorted({one.span.end for one in self._statuses.values()}), _MOST_ENDS)
        self._requests: dict[datetime, tuple[float, float]] = {}
        self._slots: dict[Span, int] = {}

    def view(self, name: str, promise: ScheduledPromise) -> PromiseView | None:
        """Return a promise with its state; None if it is over, and how it ended is no longer among past windows."""
        status, so_far = self._statuses.get(promise), self._exposures.get(promise, 0)
        span = status.span if status else promise.window.after(self.now)
        if span is None:
            return self._ended(name, promise)
        slots = self.slots(span)
        floor, cap = (
            (status.floor, status.cap) if status else (promise.promise.floor(slots), promise.promise.cap(slots))
        )
        gives_way = self._budget is not None and self._budget.gives_way(promise) and so_far < floor
        projected, reachable = self.ahead(promise).projected, status.reachable if status else floor
        if gives_way and status:
            projected = reachable = round(self._without_subsidy(promise, status, so_far))
        state = _state(promise, status, so_far, floor, cap, reachable, gives_way=gives_way)
        lost = self._given_up.get(promise) if so_far < floor else None
        unlimited = status is not None and status.unlimited_since is not None
        return PromiseView(
            id=name,
            **promise_fields(promise, self._attribute),
            floor=floor,
            cap=cap,
            start=span.start,
            end=span.end,
            exposures=so_far,
            projected=projected,
            price=self._prices.get(promise, 0.0),
            cost_share=self._costs.get(promise),
            slots=float(slots),
            possible=state != "impossible",
            shortfall=float(max(floor - max(reachable, so_far), 0)) if status else 0.0,
            impossible_since=status.impossible_since if status and state != "kept" else None,
            state=state,
            reason=describe_unlimited(status) if status and unlimited else "" if lost is None else lost.reason,
            would_cost=None if lost is None else lost.would_cost,
            gives_way_to=[self._names[one] for one in status.gives_way_to if one in self._names] if status else [],
        )

    def slots(self, span: Span) -> int:
        """Return the slots of a window: those that came, and those that are expected."""
        if span not in self._slots:  # thousands of promises may have the same few windows
            expected = self._forecast.expected(max(span.start, self.now), max(span.end, self.now), self.now)
            came = self._requests_in(span) if self.now in span else 0
            self._slots[span] = self._k * (came + round(expected))
        return self._slots[span]

    def floor(self, promise: ScheduledPromise, span: Span) -> int:
        """Return the floor of a promise in a window; of a share, by expected traffic."""
        status = self._statuses.get(promise)
        if status is not None:
            return status.floor
        share = isinstance(promise.promise.at_least, float)
        return promise.promise.floor(self.slots(span) if share else 0)

    def ahead(self, promise: ScheduledPromise) -> Projection:
        """Return the exposures projected at the end of the window.

        A subsidised selection reaches its floor by the requests that can be counted on, at its present pace perhaps
        much sooner. From then on it gets its natural exposures, those without promises. A selection without a subsidy
        goes on at a rate between its pace so far, while others are subsidised, and its natural rate. A cap is kept.
        """
        status, so_far = self._statuses.get(promise), self._exposures.get(promise, 0)
        if status is None:  # its window begins later, and was found possible
            span = promise.window.after(self.now)
            floor = 0 if span is None else self.floor(promise, span)
            return Projection(*(3 * [float(max(floor, so_far))]))
        cap = status.cap
        found = self._uncapped(promise, status, so_far)
        return found if cap is None else Projection(*(min(level, max(float(cap), so_far)) for level in found))

    def _uncapped(self, promise: ScheduledPromise, status: PromiseStatus, so_far: int) -> Projection:
        """Return the projection as if there were no cap."""
        expected, sure = self._traffic(status.span.end)
        pace = (status.at_pace - status.exposures) / expected if expected > 0 else 0.0
        subsidised = self._prices.get(promise, 0.0) < 0
        # Before a measurement, the natural rate is known only of a group without a subsidy.
        natural = self._natural.get(promise, 0.0 if subsidised else pace)
        certain, reached = (float(max(level, so_far)) for level in (status.certain, status.reachable))
        if not status.possible:  # other promises need all slots too, so that no group gets its natural exposures
            return Projection(certain, reached, reached)
        if so_far + natural * expected > self.floor(promise, status.span):
            slow, fast = sorted([pace, natural])
            ends = so_far + slow * sure, so_far + (slow + fast) / 2 * expected, so_far + fast * (2 * expected - sure)
            # A group that is subsidised all the same loses slots to other subsidised groups.
            return Projection(
                certain if subsidised else max(ends[0], certain), max(ends[1], reached), max(ends[2], reached)
            )
        needed = min((reached - so_far) / pace, sure) if pace > 0 else sure
        soon, late = (reached + natural * (expected - requests) for requests in (needed, sure))
        return Projection(certain, (soon + late) / 2, soon + natural * (expected - sure))

    def _without_subsidy(self, promise: ScheduledPromise, status: PromiseStatus, so_far: int) -> float:
        """Return the exposures at the end if its floor gives way to the budget: at the natural rate, where known."""
        expected, _ = self._traffic(status.span.end)
        natural = self._natural.get(promise)
        return max(float(status.at_pace), so_far) if natural is None else so_far + natural * expected

    def _traffic(self, end: datetime) -> tuple[float, float]:
        """Return the requests expected until a moment, and those that can be counted on."""
        end = self._ends[max(bisect_right(self._ends, end) - 1, 0)]
        if end not in self._requests:
            traffic, until = self._forecast, max(end, self.now)
            expected = traffic.expected(self.now, until, self.now)
            self._requests[end] = expected, min(traffic.lower_bound(self.now, until, self.now), expected)
        return self._requests[end]

    def _ended(self, name: str, promise: ScheduledPromise) -> PromiseView | None:
        """Return a promise without further windows, with the outcome of its last one; None if that is not known."""
        last = self._last.get(name)
        if last is None:
            return None
        return PromiseView(
            id=name,
            **promise_fields(promise, self._attribute),
            floor=last.floor,
            cap=last.cap,
            start=last.start,
            end=last.end,
            exposures=last.exposures,
            projected=float(last.exposures),
            possible=last.kept,
            shortfall=float(max(last.floor - last.exposures, 0)),
            impossible_since=last.impossible_since,
            state="kept" if last.kept else "impossible",
        )


def _state(
    promise: ScheduledPromise,
    status: PromiseStatus | None,
    so_far: int,
    floor: int,
    cap: int | None,
    reachable: int,
    *,
    gives_way: bool,
) -> PromiseState:
    """Return the state of a promise; without a status, its window has not begun."""
    if (status and status.unlimited_since) or (cap is not None and so_far > cap):
        return "impossible"
    if so_far >= floor:
        # More requests may follow, which raise a share and may exceed a cap.
        return "kept" if isinstance(promise.promise.at_least, int) and cap is None else "on track"
    if status and (not status.possible or (gives_way and reachable < floor)):
        return "impossible"
    return "at risk" if gives_way or (status and status.at_risk) else "on track"
