"""How promises are going to end, as far as is known now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from fairsync.service.schema import PromiseView, WindowRecord

if TYPE_CHECKING:
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule import Promise, Window
    from fairsync.service.promises.promise_service import PromiseService


class Ahead(NamedTuple):
    """Exposures at the end of a window: with little traffic, as expected, and with much."""

    low: float
    projected: float
    high: float


class Projections:
    """Where all promises stand at this moment. What they share is found once: there may be hundreds.

    Whoever makes one holds the lock of the planner.

    Parameters
    ----------
    keeper
        Of the promises.
    """

    def __init__(self, service: PromiseService) -> None:
        scheduler = service.scheduler
        self.scheduler, self.now, self.exposures = scheduler, scheduler.now(), scheduler.exposures()
        self.statuses = {one.promise: one for one in scheduler.plan.statuses}
        self._past = scheduler.notes.past
        self._natural = _natural_rates(service)
        self._prices = dict(zip(service.coordinator.labels, service.coordinator.prices().tolist(), strict=True))
        self._requests: dict[datetime, tuple[float, float]] = {}

    def view(self, name: str, promise: Promise) -> PromiseView:
        """Return a promise and where it stands."""
        status, so_far = self.statuses.get(promise), self.exposures.get(promise, 0)
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

    def ahead(self, promise: Promise) -> Ahead:
        """Return what is expected at the end of the window, and how it may come otherwise.

        A group that needs help is helped to its floor, no later than by the requests that can be counted on; at its
        present pace perhaps much sooner. From then on it gets what it would if nothing were promised. A group that
        needs none goes on between its pace so far, while others are helped, and what it would get by itself.
        """
        status, so_far = self.statuses.get(promise), self.exposures.get(promise, 0)
        if status is None:  # it begins later, and was found possible
            return Ahead(*(3 * [float(max(promise.floor, so_far))]))
        expected, sure = self._traffic(status.span.end)
        pace = (status.at_pace - status.exposures) / expected if expected > 0 else 0.0
        helped = self._prices.get(promise.group, 0.0) < 0
        # As long as it was not measured, what a group gets by itself is seen only where it is not helped.
        natural = self._natural.get(promise.group, 0.0 if helped else pace)
        certain, reached = (float(max(level, so_far)) for level in (status.certain, status.reachable))
        if not status.possible:  # others need the room as much, so that nobody gets what would come by itself
            return Ahead(certain, reached, reached)
        if so_far + natural * expected > promise.floor:
            slow, fast = sorted([pace, natural])
            ends = so_far + slow * sure, so_far + (slow + fast) / 2 * expected, so_far + fast * (2 * expected - sure)
            # One that is helped all the same has its place taken by others who are.
            return Ahead(certain if helped else max(ends[0], certain), max(ends[1], reached), max(ends[2], reached))
        needed = min((reached - so_far) / pace, sure) if pace > 0 else sure
        soon, late = (reached + natural * (expected - requests) for requests in (needed, sure))
        return Ahead(certain, (soon + late) / 2, soon + natural * (expected - sure))

    def _traffic(self, end: datetime) -> tuple[float, float]:
        """Return the requests expected until then, and those that can be counted on."""
        if end not in self._requests:
            traffic, until = self.scheduler.traffic(), max(end, self.now)
            expected = traffic.expected(self.now, until, self.now)
            self._requests[end] = expected, min(traffic.cautious(self.now, until, self.now), expected)
        return self._requests[end]

    def _ended(self, name: str, promise: Promise) -> PromiseView:
        """Return a promise that has no window any more, as its last one ended."""
        last = next((one for one in reversed(self._past) if one.promise == name), None)
        had = last.exposures if last else 0
        return PromiseView(
            id=name,
            group=promise.group,
            floor=promise.floor,
            window=window_record(promise.window),
            start=last.start if last else promise.window.start or self.now,
            end=last.end if last else promise.window.end or self.now,
            exposures=had,
            projected=float(had),
            possible=had >= promise.floor,
            shortfall=float(max(promise.floor - had, 0)),
            impossible_since=last.impossible_since if last else None,
            state="kept" if had >= promise.floor else "impossible",
        )


def window_record(window: Window) -> WindowRecord:
    """Return a window as the API has it."""
    fields = {"every": window.kind, "zone": window.zone, "start": window.start, "end": window.end}
    return msgspec.convert(msgspec.to_builtins(fields), WindowRecord)


def _natural_rates(service: PromiseService) -> dict[Label, float]:
    """Return what counts per request of each group, were nothing promised, as far as it was measured."""
    last, totals = service.cost_monitor.last, service.coordinator.totals()
    if last is None:
        return {}
    rates = dict(zip(last.labels, last.costs.natural.tolist(), strict=True))
    if service.count == "impressions":
        counted = service.scheduler.counted()
        shares = dict(zip(service.coordinator.labels, (counted / totals.exposures.clip(1)).tolist(), strict=True))
        rates = {label: rate * shares.get(label, 0.0) for label, rate in rates.items()}
    return rates
