"""What the keeper shows of itself: to the dashboard, and to whoever asks."""

from __future__ import annotations

import itertools
import math
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from fairsync.service.records import Alert, GroupView, Overview, Pace, PacePoint, PromiseView, ShardView, WindowRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.groups import Label
    from fairsync.service.keeper import Keeper
    from fairsync.service.planner import Planner
    from fairsync.windows import Outlook, Promise, Span, Window

# Points of a pace that are kept, and points of the line that the forecast asks for.
_MOST_POINTS, _LINE_POINTS = 240, 24


def make_view(planner: Planner, name: str, promise: Promise) -> PromiseView:
    """Return a promise and where it stands."""
    now = planner.now()
    outlook = next((one for one in planner.plan.outlooks if one.promise == promise), None)
    span = outlook.span if outlook else promise.window.after(now) or promise.window.at(planner.plan.span.start)
    so_far = planner.exposures().get(promise, 0)
    state: Literal["kept", "on track", "at risk", "impossible"] = "on track"
    if so_far >= promise.floor:
        state = "kept"
    elif outlook and not outlook.possible:
        state = "impossible"
    elif outlook and outlook.at_risk:
        state = "at risk"
    return PromiseView(
        id=name,
        group=promise.group,
        floor=promise.floor,
        window=window_record(promise.window),
        start=span.start if span else now,
        end=span.end if span else now,
        exposures=so_far,
        projected=_projected(outlook, so_far),
        possible=outlook is None or outlook.possible or so_far >= promise.floor,
        shortfall=float(max(promise.floor - max(outlook.reachable, so_far), 0)) if outlook else 0.0,
        impossible_since=outlook.impossible_since if outlook and state != "kept" else None,
        state=state,
    )


def make_overview(keeper: Keeper) -> Overview:
    """Return where everything stands."""
    planner = keeper.planner
    now, plan, standing = planner.now(), planner.plan, keeper.coordinator.standing()
    promises = keeper.promises()
    cost = None if math.isnan(standing.cost) else float(standing.cost)
    whole = standing.relevance + (cost or 0.0)
    began = datetime.fromtimestamp(standing.began, UTC) if standing.began else keeper.started
    shown = None if standing.shown is None else standing.shown.tolist()
    terms, groups = keeper.coordinator.terms, keeper.coordinator.groups
    prices = keeper.coordinator.prices().tolist()
    return Overview(
        now=now,
        started=keeper.started,
        count="retrieved" if keeper.count == "retrieved" else "shown",
        policy=keeper.coordinator.policy.name,
        k=keeper.k,
        items=len(keeper.catalog),
        tick_start=began,
        tick_end=plan.span.end,
        requests=standing.requests,
        expected_requests=standing.requests + planner.notes.forecast.expected(now, max(plan.span.end, now), now),
        relevance=standing.relevance,
        cost=cost,
        cost_share=None if cost is None or not whole else cost / abs(whole),
        degraded=keeper.degraded,
        promises=promises,
        groups=[
            GroupView(
                group=label,
                items=int(groups.group_sizes[code]),
                retrieved=int(standing.exposures[code]),
                shown=0 if shown is None else int(shown[code]),
                floor=int(terms.floors[code]),
                price=float(prices[code]),
            )
            for code, label in enumerate(groups.labels)
        ],
        alerts=_alerts(keeper, promises, now),
        shards=shards_of(keeper),
    )


def window_record(window: Window) -> WindowRecord:
    """Return a window as the API has it."""
    return WindowRecord.model_validate(
        {"every": window.kind, "zone": window.zone, "start": window.start, "end": window.end}
    )


def shards_of(keeper: Keeper) -> list[ShardView]:
    """Return the parts of the catalog and how they are, where the index has any."""
    health: Callable[[], list[object]] | None = getattr(keeper.front.index, "health", None)
    if health is None:
        return []
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


def _projected(outlook: Outlook | None, so_far: int) -> float:
    """Return what is expected at the end of the window: steered to the floor, if that is possible, or beyond."""
    if outlook is None:
        return float(so_far)
    return float(max(outlook.at_pace, outlook.reachable, so_far))


def _alerts(keeper: Keeper, promises: list[PromiseView], now: datetime) -> list[Alert]:
    alerts = []
    for view in promises:
        if view.state in ("impossible", "at risk"):
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
                    message=f"The promise to {view.group} until {view.end:%Y-%m-%d %H:%M} UTC {said}.",
                    since=view.impossible_since or keeper.since(f"{view.state} {view.id}", now),
                )
            )
    if keeper.degraded > 0.001:
        message = f"{keeper.degraded:.1%} of recent answers lacked a part of the catalog."
        alerts.append(Alert(kind="degraded", message=message, since=keeper.since("degraded", now)))
    return alerts


class Paces:
    """Where each promise stood as time went by, thinned out as a window grows long."""

    def __init__(self) -> None:
        self._points: dict[tuple[Label, str, datetime], deque[PacePoint]] = {}

    def note(self, planner: Planner) -> None:
        """Take down where promises stand."""
        now = planner.now()
        prices = planner.coordinator.prices()
        standing, exposures = planner.coordinator.standing(), planner.exposures()
        kept = {}
        for promise in planner.notes.promises.values():
            span = promise.window.at(now)
            if span is None:
                continue
            key = _key(promise, span)
            points = self._points.get(key, deque())
            code = planner.coordinator.groups.code_of(promise.group)
            points.append(
                PacePoint(
                    at=now,
                    exposures=exposures.get(promise, 0),
                    requests=standing.requests,
                    price=float(prices[code]),
                )
            )
            if len(points) > _MOST_POINTS:  # every second one of those before will do
                points = deque([*list(points)[:-1:2], points[-1]])
            kept[key] = points
        self._points = kept

    def of(self, planner: Planner, name: str, promise: Promise) -> Pace:
        """Return the pace of a promise in its present window."""
        now = planner.now()
        span = promise.window.at(now) or promise.window.after(now) or planner.plan.span
        points = list(self._points.get(_key(promise, span), ()))
        outlook = next((one for one in planner.plan.outlooks if one.promise == promise), None)
        so_far = planner.exposures().get(promise, 0)
        projected = _projected(outlook, so_far)
        return Pace(
            promise=name,
            group=promise.group,
            floor=promise.floor,
            start=span.start,
            end=span.end,
            points=points,
            expected=_line(planner, span, promise.floor, now),
            projected=projected,
            low=float(max(outlook.certain, so_far)) if outlook else projected,
            high=float(max(outlook.at_pace, projected)) if outlook else projected,
        )


def _key(promise: Promise, span: Span) -> tuple[Label, str, datetime]:
    return promise.group, str(promise.window), span.start


def _line(planner: Planner, span: Span, floor: int, now: datetime) -> list[tuple[datetime, float]]:
    """Return the pace that leads to the floor if exposures come in step with the traffic."""
    forecast, length = planner.notes.forecast, span.end - span.start
    moments = [span.start + length * (step / _LINE_POINTS) for step in range(_LINE_POINTS + 1)]
    came = [0.0]
    for before, after in itertools.pairwise(moments):
        came.append(came[-1] + forecast.expected(before, after, now))
    whole = came[-1] or 1.0
    return [(moment, floor * requests / whole) for moment, requests in zip(moments, came, strict=True)]
