"""What the keeper shows of itself: to the dashboard, and to whoever asks."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np

from fairsync.schedule import Span
from fairsync.search import ShardedIndex
from fairsync.service.promises.cost_monitor import asked_in_period
from fairsync.service.schema import (
    Alert,
    GroupView,
    LeastCost,
    Overview,
    Pace,
    PacePoint,
    PromiseView,
    ShardView,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule import Promise
    from fairsync.service.promises.projections import Projections
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.promises.scheduler import Scheduler

# Points of a pace that are kept, and points of the line that the forecast asks for.
_MOST_POINTS, _LINE_POINTS = 240, 24


def make_overview(service: PromiseService) -> Overview:
    """Return where everything stands."""
    scheduler = service.scheduler
    now, plan, totals = scheduler.now(), scheduler.plan, service.coordinator.totals()
    promises = service.promises()
    cost = None if math.isnan(totals.cost) else float(totals.cost)
    whole = totals.relevance + (cost or 0.0)
    impressions = None if totals.impressions is None else totals.impressions.tolist()
    groups, prices = service.coordinator.groups, service.coordinator.prices().tolist()
    floors, costs, shards = _floors(service), _costs(service), shards_of(service)
    return Overview(
        now=now,
        started=service.started,
        count="retrieved" if service.count == "retrieved" else "impressions",
        policy=service.coordinator.policy.name,
        k=service.k,
        items=len(service.catalog),
        period_start=scheduler.period_began(totals) or service.started,
        period_end=plan.span.end,
        requests=totals.requests,
        expected_requests=totals.requests + scheduler.notes.forecast.expected(now, max(plan.span.end, now), now),
        relevance=totals.relevance,
        cost=cost,
        cost_share=None if cost is None or not whole else cost / abs(whole),
        least=least_cost(service),
        degraded=service.degraded,
        promises=promises,
        groups=[
            GroupView(
                group=label,
                items=int(groups.group_sizes[code]),
                retrieved=int(totals.exposures[code]),
                impressions=0 if impressions is None else int(impressions[code]),
                floor=floors[code],
                price=float(prices[code]) + 0.0,  # never -0
                cost_share=costs.get(label),
            )
            for code, label in enumerate(groups.labels)
        ],
        alerts=_alerts(service, promises, shards, now),
        shards=shards,
    )


def least_cost(service: PromiseService) -> LeastCost:
    """Return what promises cost next to the least possible, as it was last measured."""
    last, why, replica = service.cost_monitor.last, service.cost_monitor.why, service.coordinator.replica
    if last is None:
        return LeastCost(sample=0, reason=why, replica=replica)
    costs = last.costs
    ratio, low, high = costs.ratio or (None, None, None)
    return LeastCost(
        sample=costs.requests,
        at=last.at,
        cost_share=costs.share,
        least_share=costs.least,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        reason=why,
        replica=replica,
    )


def _costs(service: PromiseService) -> dict[Label, float]:
    last = service.cost_monitor.last
    return {} if last is None else dict(zip(last.labels, last.costs.groups.tolist(), strict=True))


def _floors(service: PromiseService) -> list[int]:
    """Return what each group needs in the present tick.

    The coordinator aims from where it stands: what a group has had beyond its promise is no floor.
    """
    aims, asked = service.coordinator.terms.floors, asked_in_period(service.scheduler)
    if service.count == "retrieved":
        aims = np.minimum(aims, asked)
    return [int(aim) if any_asked > 0 else 0 for aim, any_asked in zip(aims, asked, strict=True)]


def shards_of(service: PromiseService) -> list[ShardView]:
    """Return the parts of the catalog and how they are, where the index has any."""
    index = service.front.index
    index = getattr(index, "built", index)  # items that came or went lie over it
    health: Callable[[], list[object]] | None = getattr(index, "health", None)
    if health is None:  # shards in this process are up as long as it is
        sizes = [len(shard.rows) for shard in index.shards] if isinstance(index, ShardedIndex) else []
        return [ShardView(shard=shard, replica=0, items=size, up=True) for shard, size in enumerate(sizes)]
    return [
        ShardView(
            shard=getattr(one, "shard"),  # noqa: B009 -- Ray is optional, and so is its type
            replica=getattr(one, "replica"),  # noqa: B009
            items=getattr(one, "items"),  # noqa: B009
            up=getattr(one, "up"),  # noqa: B009
            error=getattr(one, "error"),  # noqa: B009
        )
        for one in health()
    ]


def _alerts(
    service: PromiseService, promises: list[PromiseView], shards: list[ShardView], now: datetime
) -> list[Alert]:
    alerts = []
    for view in promises:
        if view.state in ("impossible", "at risk") and view.end > now:
            impossible = view.state == "impossible"
            said = (
                f"will miss {view.shortfall:,.0f} of {view.floor:,} exposures"
                if impossible
                else "will be missed if traffic stays low"
            )
            alerts.append(
                Alert(
                    kind="impossible" if impossible else "at risk",
                    group=view.group,
                    promise=view.id,
                    message=f"The promise to {view.group} until {_end(view)} {said}.",
                    since=view.impossible_since or service.since(f"{view.state} {view.id}", now),
                )
            )
    if service.degraded > 0.001:
        message = f"{service.degraded:.1%} of recent answers lacked a part of the catalog."
        alerts.append(Alert(kind="degraded", message=message, since=service.since("degraded", now)))
    if not all(one.up for one in shards):
        alerts.append(Alert(kind="shard", message=_lost(shards), since=service.since("shard", now)))
    return alerts


def _end(view: PromiseView) -> str:
    """Say when a window ends, by the clocks of its own zone."""
    return f"{view.end.astimezone(ZoneInfo(view.window.zone)):%Y-%m-%d %H:%M} ({view.window.zone})"


def _lost(shards: list[ShardView]) -> str:
    """Say which parts of the catalog do not answer, and what that means."""
    down, up = [one for one in shards if not one.up], {one.shard for one in shards if one.up}
    items = {one.shard: one.items for one in shards}
    gone = [shard for shard in items if shard not in up]
    if not gone:
        who = ", ".join(f"{one.shard}.{one.replica}" for one in down[:5]) + (", ..." if len(down) > 5 else "")
        verb = "does" if len(down) == 1 else "do"
        return f"{len(down)} of {len(shards)} replicas {verb} not answer ({who}). Others have all their items."
    who = ", ".join(map(str, gone[:5])) + (", ..." if len(gone) > 5 else "")
    part = sum(items[shard] for shard in gone) / max(sum(items.values()), 1)
    verb = "does" if len(gone) == 1 else "do"
    return f"{len(gone)} of {len(items)} shards {verb} not answer ({who}): {part:.1%} of the items are out of reach."


class Paces:
    """Where each promise stood as time went by, thinned out as a window grows long."""

    def __init__(self) -> None:
        self._points: dict[tuple[Label, str, datetime], deque[PacePoint]] = {}

    def note(self, scheduler: Scheduler) -> None:
        """Take down where promises stand."""
        now = scheduler.now()
        prices = scheduler.coordinator.prices()
        totals, exposures = scheduler.coordinator.totals(), scheduler.exposures()
        kept = {}
        for promise in scheduler.notes.promises.values():
            span = promise.window.at(now)
            if span is None:
                continue
            key = _key(promise, span)
            # What was noted in what is now the future was noted by a clock that was wrong.
            points = deque(point for point in self._points.get(key, ()) if point.at <= now)
            code = scheduler.coordinator.groups.code_of(promise.group)
            points.append(
                PacePoint(
                    at=now,
                    exposures=exposures.get(promise, 0),
                    requests=totals.requests,
                    price=float(prices[code]) + 0.0,  # never -0
                )
            )
            if len(points) > _MOST_POINTS:  # every second one of those before will do
                points = deque([*list(points)[:-1:2], points[-1]])
            kept[key] = points
        self._points = kept

    def of(self, projections: Projections, name: str, promise: Promise) -> Pace:
        """Return the pace of a promise in its present window."""
        scheduler, view, ahead = projections.scheduler, projections.view(name, promise), projections.ahead(promise)
        span = Span(view.start, view.end)
        return Pace(
            promise=name,
            group=promise.group,
            floor=promise.floor,
            start=span.start,
            end=span.end,
            points=list(self._points.get(_key(promise, span), ())),
            expected=_line(scheduler, span, promise.floor, projections.now),
            projected=ahead.projected,
            low=ahead.low,
            high=ahead.high,
        )


def _key(promise: Promise, span: Span) -> tuple[Label, str, datetime]:
    return promise.group, str(promise.window), span.start


def _line(scheduler: Scheduler, span: Span, floor: int, now: datetime) -> list[tuple[datetime, float]]:
    """Return the pace that leads to the floor if exposures come in step with the traffic."""
    forecast, length = scheduler.notes.forecast, span.end - span.start
    moments = [span.start + length * (step / _LINE_POINTS) for step in range(_LINE_POINTS + 1)]
    came = [0.0]
    for before, after in itertools.pairwise(moments):
        came.append(came[-1] + forecast.expected(before, after, now))
    whole = came[-1] or 1.0
    return [(moment, floor * requests / whole) for moment, requests in zip(moments, came, strict=True)]
