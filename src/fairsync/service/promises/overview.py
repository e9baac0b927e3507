"""The overview: the state of the whole service in one record, for the dashboard and the API."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from fairsync.service.promises.periods import missing_at_start
from fairsync.service.schema import GroupView, LeastCost, Overview

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.service.promises.cost_monitor import Measured
    from fairsync.service.promises.scheduler import Scheduler
    from fairsync.service.schema import Alert, PromiseView, ShardView


def make_overview(
    scheduler: Scheduler,
    *,
    started: datetime,
    count: Literal["retrieved", "impressions"],
    items: int,
    least: LeastCost,
    group_costs: Mapping[Label, float],
    degraded: float,
    promises: list[PromiseView],
    alerts: list[Alert],
    shards: list[ShardView],
) -> Overview:
    """Return the overview.

    Parameters
    ----------
    scheduler
        Knows the present period, its counts, and the plan.
    started
        When the service was started.
    count
        What an exposure is.
    items
        Items in the catalog.
    least, group_costs
        The last estimate of the costs, and its part by label.
    degraded
        Share of recent answers that lacked a part of the catalog.
    promises, alerts, shards
        Records of the overview.
    """
    coordinator, plan, now = scheduler.coordinator, scheduler.plan, scheduler.now()
    totals = coordinator.totals()
    cost = None if math.isnan(totals.cost) else float(totals.cost)
    whole = totals.relevance + (cost or 0.0)
    return Overview(
        now=now,
        started=started,
        count=count,
        policy=coordinator.policy.name,
        k=coordinator.k,
        items=items,
        period_start=scheduler.periods.started(totals) or started,
        period_end=plan.span.end,
        requests=totals.requests,
        expected_requests=totals.requests + scheduler.state.forecast.expected(now, max(plan.span.end, now), now),
        relevance=totals.relevance,
        cost=cost,
        cost_share=None if cost is None or not whole else cost / abs(whole),
        least=least,
        degraded=degraded,
        promises=promises,
        groups=_group_views(scheduler, count, group_costs),
        alerts=alerts,
        shards=shards,
    )


def least_cost(last: Measured | None, reason: str, replica: str) -> LeastCost:
    """Return the record of the last estimate of the costs.

    Parameters
    ----------
    last
        The estimate, if there is one.
    reason
        Why there is no estimate, or no newer one.
    replica
        The replica that estimates.
    """
    costs = None if last is None else last.costs
    ratio, low, high = (costs and costs.ratio) or (None, None, None)
    return LeastCost(
        sample=costs.requests if costs else 0,
        at=last.at if last else None,
        cost_share=costs.share if costs else None,
        least_share=costs.least if costs else None,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        reason=reason,
        replica=replica,
    )


def _group_views(scheduler: Scheduler, count: str, costs: Mapping[Label, float]) -> list[GroupView]:
    coordinator, totals = scheduler.coordinator, scheduler.coordinator.totals()
    groups, prices, floors = coordinator.groups, coordinator.prices().tolist(), _floors(scheduler, count)
    impressions = None if totals.impressions is None else totals.impressions.tolist()
    return [
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
    ]


def _floors(scheduler: Scheduler, count: str) -> Sequence[int]:
    """Return what each group needs in the present period.

    The coordinator's targets start from the present counts: exposures beyond a promise are no floor.
    """
    coordinator = scheduler.coordinator
    missing = missing_at_start(scheduler.exposures(), scheduler.periods.counted(), coordinator.groups)
    targets = coordinator.terms.floors
    if count == "retrieved":
        targets = np.minimum(targets, missing)
    return [int(target) if needed > 0 else 0 for target, needed in zip(targets, missing, strict=True)]
