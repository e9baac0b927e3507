"""Projections: how the present windows of promises are likely to end."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Literal, NamedTuple

from fairsync.schedule.active_windows import thin_out
from fairsync.service.promises.conversion import window_record
from fairsync.service.schema import PromiseView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule import PromiseStatus, ScheduledPromise, TrafficForecast
    from fairsync.service.schema import PastWindow

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
        Price in force by label.
    natural
        Exposures per request without promises, by label, as far as they were measured.
    """

    def __init__(
        self,
        now: datetime,
        statuses: Iterable[PromiseStatus],
        exposures: Mapping[ScheduledPromise, int],
        past: Sequence[PastWindow],
        traffic: TrafficForecast,
        prices: Mapping[Label, float],
        natural: Mapping[Label, float],
    ) -> None:
        self.now = now
        self._statuses = {one.promise: one for one in statuses}
        self._exposures, self._past, self._forecast = exposures, past, traffic
        self._prices, self._natural = prices, natural
        # Of thousands of different ends, as many as can be forecast within a fraction of a second.
        self._ends = thin_out(now, sorted({one.span.end for one in self._statuses.values()}), _MOST_ENDS)
        self._requests: dict[datetime, tuple[float, float]] = {}

    def view(self, name: str, promise: ScheduledPromise) -> PromiseView:
        """Return a promise with its state."""
        status, so_far = self._statuses.get(promise), self._exposures.get(promise, 0)
        span = status.span if status else promise.window.after(self.now)
        if span is None:
            return self._ended(name, promise)
        state: Literal["kept", "on track", "at risk", "impossible"] = "on track"
        if so_far >= promise.floor:
            state = "kept"
        elif status and not status.possible:
            state = "impossible"
        elif status and status.at_risk:
            state = "at risk"
        return PromiseView(
            id=name,
            group=promise.group,
            floor=promise.floor,
            window=window_record(promise.window),
            start=span.start,
            end=span.end,
            exposures=so_far,
            projected=self.ahead(promise).projected,
            possible=state != "impossible",
            shortfall=float(max(promise.floor - max(status.reachable, so_far), 0)) if status else 0.0,
            impossible_since=status.impossible_since if status and state != "kept" else None,
            state=state,
        )

    def ahead(self, promise: ScheduledPromise) -> Projection:
        """Return the exposures projected at the end of the window.

        A subsidised group reaches its floor by the requests that can be counted on, at its present pace perhaps much
        sooner. From then on it gets its natural exposures, those without promises. A group without a subsidy goes on at
        a rate between its pace so far, while others are subsidised, and its natural rate.
        """
        status, so_far = self._statuses.get(promise), self._exposures.get(promise, 0)
        if status is None:  # its window begins later, and was found possible
            return Projection(*(3 * [float(max(promise.floor, so_far))]))
        expected, sure = self._traffic(status.span.end)
        pace = (status.at_pace - status.exposures) / expected if expected > 0 else 0.0
        subsidised = self._prices.get(promise.group, 0.0) < 0
        # Before a measurement, the natural rate is known only of a group without a subsidy.
        natural = self._natural.get(promise.group, 0.0 if subsidised else pace)
        certain, reached = (float(max(level, so_far)) for level in (status.certain, status.reachable))
        if not status.possible:  # other promises need all slots too, so that no group gets its natural exposures
            return Projection(certain, reached, reached)
        if so_far + natural * expected > promise.floor:
            slow, fast = sorted([pace, natural])
            ends = so_far + slow * sure, so_far + (slow + fast) / 2 * expected, so_far + fast * (2 * expected - sure)
            # A group that is subsidised all the same loses slots to other subsidised groups.
            return Projection(
                certain if subsidised else max(ends[0], certain), max(ends[1], reached), max(ends[2], reached)
            )
        needed = min((reached - so_far) / pace, sure) if pace > 0 else sure
        soon, late = (reached + natural * (expected - requests) for requests in (needed, sure))
        return Projection(certain, (soon + late) / 2, soon + natural * (expected - sure))

    def _traffic(self, end: datetime) -> tuple[float, float]:
        """Return the requests expected until a moment, and those that can be counted on."""
        end = self._ends[max(bisect_right(self._ends, end) - 1, 0)]
        if end not in self._requests:
            traffic, until = self._forecast, max(end, self.now)
            expected = traffic.expected(self.now, until, self.now)
            self._requests[end] = expected, min(traffic.lower_bound(self.now, until, self.now), expected)
        return self._requests[end]

    def _ended(self, name: str, promise: ScheduledPromise) -> PromiseView:
        """Return a promise without further windows, with the outcome of its last one."""
        last = next((one for one in reversed(self._past) if one.promise == name), None)
        exposures = last.exposures if last else 0
        return PromiseView(
            id=name,
            group=promise.group,
            floor=promise.floor,
            window=window_record(promise.window),
            start=last.start if last else promise.window.start or self.now,
            end=last.end if last else promise.window.end or self.now,
            exposures=exposures,
            projected=float(exposures),
            possible=exposures >= promise.floor,
            shortfall=float(max(promise.floor - exposures, 0)),
            impossible_since=last.impossible_since if last else None,
            state="kept" if exposures >= promise.floor else "impossible",
        )
