"""Status reports: promises with their projections, their paces, past windows, and the overview of the whole service."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec.structs import replace

from fairsync.promises.selection import is_selection
from fairsync.service.promises.alerts import Alerts
from fairsync.service.promises.columns import column_of
from fairsync.service.promises.pace import PaceHistory
from fairsync.service.promises.projections import Projections
from fairsync.service.promises.promise_series import days_of, series_of
from fairsync.service.schema import GroupView, LeastCost, Overview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog.groups import Label
    from fairsync.schedule import ScheduledPromise
    from fairsync.service.promises.cost_monitor import CostMonitor
    from fairsync.service.promises.scheduler import Scheduler
    from fairsync.service.schema import Pace, PastWindow, PromiseView, ShardView


class StatusReporter:
    """Reports the state of promises, groups and costs.

    Parameters
    ----------
    scheduler
        Knows promises, plan and counts.
    cost_monitor
        Knows the last estimate of the costs.
    count
        What an exposure is.
    """

    def __init__(
        self, scheduler: Scheduler, cost_monitor: CostMonitor, count: Literal["retrieved", "impressions"]
    ) -> None:
        self._scheduler, self._coordinator, self._monitor = scheduler, scheduler.coordinator, cost_monitor
        self._count, self._started = count, scheduler.now()
        self._paces, self._alerts = PaceHistory(), Alerts()
        self.record_paces()

    def promises(self) -> dict[str, PromiseView]:
        """Return every promise with its state, by id, without those that ended before the past windows begin."""
        with self._scheduler.lock:
            projections = self._projections()
            state = self._scheduler.state
            every = ((name, projections.view(name, one)) for name, one in state.promises.items())
            views = {name: view for name, view in every if view is not None}
            for name in views if state.series else ():
                series = series_of(name, state.series)
                if series is not None:
                    days = days_of(state.series[series].window)
                    views[name] = replace(views[name], series=series, window=replace(views[name].window, days=days))
        # Impressions depend on the last stage, which is not forecast here.
        if self._count != "retrieved" or not self._coordinator.has_outlooks:
            return views
        return {name: self._with_outlook(view) for name, view in views.items()}

    def pace(self, name: str) -> Pace:
        """Return the pace of a promise in its present window."""
        with self._scheduler.lock:
            state = self._scheduler.state
            return self._paces.pace(name, state.promises[name], self._projections(), state.forecast)

    def past(self, limit: int) -> list[PastWindow]:
        """Return the latest windows that are over, the latest first."""
        now = self._scheduler.now()  # an earlier run may have saved later windows, before the clock was set back
        return [one for one in self._scheduler.state.past[::-1] if one.end <= now][:limit]

    def overview(self, items: int, shards: list[ShardView], degraded: float, clock_skew: float) -> Overview:
        """Return the overview.

        Parameters
        ----------
        items
            Items in the catalog.
        shards
            Shards of the index.
        degraded
            Share of recent answers that lacked a part of the catalog.
        clock_skew
            Seconds by which the wall clock is ahead of the service.
        """
        scheduler, promises = self._scheduler, list(self.promises().values())
        now, end, totals = scheduler.now(), scheduler.plan.span.end, self._coordinator.totals()
        cost = None if math.isnan(totals.cost) else float(totals.cost)
        whole, budget = totals.relevance + (cost or 0.0), scheduler.state.costs.budget
        spent = None if budget is None else scheduler.spent(now)
        return Overview(
            now=now,
            started=self._started,
            count=self._count,
            policy=self._coordinator.policy.name,
            k=self._coordinator.k,
            items=items,
            period_start=scheduler.periods.started(totals) or self._started,
            period_end=end,
            requests=totals.requests,
            expected_requests=totals.requests + scheduler.state.forecast.expected(now, max(end, now), now),
            relevance=totals.relevance,
            cost=cost,
            cost_share=None if cost is None or not whole else cost / abs(whole),
            least=self._least_cost(),
            budget=None if budget is None else budget.share,
            budget_spent=None if spent is None else spent.share,
            gave_way="" if budget is None or spent is None else budget.text(spent),
            degraded=degraded,
            promises=promises,
            groups=self._groups(),
            alerts=self._alerts.now(
                now,
                promises,
                degraded=degraded,
                shards=shards,
                clock_skew=clock_skew,
                budget="" if budget is None or spent is None else budget.text(spent),
            ),
            shards=shards,
        )

    def record_paces(self) -> None:
        """Add a point to the pace of every promise."""
        scheduler, requests = self._scheduler, self._coordinator.totals().requests
        promises, exposures = scheduler.state.promises.values(), scheduler.exposures()
        self._paces.record(scheduler.now(), promises, exposures, self._by_promise(self._prices()), requests)

    def _with_outlook(self, view: PromiseView) -> PromiseView:
        """Return the state of a promise with what is to be expected of it, where requests have rules of their own."""
        now, missing = self._scheduler.now(), max(view.floor - view.exposures, 0)
        if view.end <= now:
            return view
        left = round(self._scheduler.state.forecast.expected(max(view.start, now), view.end, now))
        if view.group is None:
            return view
        outlook = self._coordinator.outlook(view.group, missing, left)
        if outlook is None:
            return view
        state, shortfall = view.state, view.shortfall
        if outlook.outlook == "will miss" and view.state == "on track":
            state, shortfall = "at risk", max(view.shortfall, float(outlook.shortfall))
        return replace(view, eligible_share=outlook.share, reason=outlook.reason, state=state, shortfall=shortfall)

    def _prices(self) -> dict[Label, float]:
        return dict(zip(self._coordinator.labels, self._coordinator.prices().tolist(), strict=True))

    def _by_promise(self, values: Mapping[Label, float]) -> dict[ScheduledPromise, float]:
        """Return values of promises from those of columns, as far as these are known."""
        scheduler = self._scheduler
        columns = ((one, column_of(one, scheduler.attribute)) for one in scheduler.state.promises.values())
        return {one: values[column] for one, column in columns if column in values}

    def _projections(self) -> Projections:
        scheduler = self._scheduler
        return Projections(
            scheduler.now(),
            scheduler.plan.statuses,
            scheduler.exposures(),
            scheduler.state.past,
            scheduler.traffic(),
            self._by_promise(self._prices()),
            self._by_promise(self._natural_rates()),
            self._coordinator.k,
            scheduler.periods.requests,
            scheduler.attribute,
            {one: name for name, one in scheduler.state.promises.items()},
            scheduler.state.costs.budget,
            scheduler.given_up(scheduler.plan.statuses),
            {} if self._monitor.last is None else self._by_promise(self._monitor.last.group_costs),
        )

    def _natural_rates(self) -> dict[Label, float]:
        """Return the exposures per request of each group without promises, as far as they were measured."""
        last = self._monitor.last
        if last is None:
            return {}
        if self._count == "retrieved":
            return last.natural_rates
        shares = self._scheduler.periods.counted() / self._coordinator.totals().exposures.clip(1)
        by_label = dict(zip(self._coordinator.labels, shares.tolist(), strict=True))
        return {label: rate * by_label.get(label, 0.0) for label, rate in last.natural_rates.items()}

    def _least_cost(self) -> LeastCost:
        last, reason, replica = self._monitor.last, self._monitor.reason, self._coordinator.replica
        if last is None:
            return LeastCost(sample=0, reason=reason, replica=replica)
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
            reason=reason,
            replica=replica,
        )

    def _groups(self) -> list[GroupView]:
        totals, groups = self._coordinator.totals(), self._coordinator.groups
        prices, floors = self._coordinator.prices().tolist(), self._floors()
        costs = {} if self._monitor.last is None else self._monitor.last.group_costs
        return [
            GroupView(
                group=label,
                items=int(groups.group_sizes[code]),
                retrieved=int(totals.exposures[code]),
                impressions=0 if totals.impressions is None else int(totals.impressions[code]),
                floor=floors[code],
                price=prices[code],
                cost_share=costs.get(label),
            )
            for code, label in enumerate(groups.labels)
            if not is_selection(label)
        ]

    def _floors(self) -> list[int]:
        """Return what each group needs in the present period.

        The coordinator's targets start from the present counts: exposures beyond a promise are no floor.
        """
        scheduler, targets = self._scheduler, self._coordinator.terms.floors
        missing = scheduler.missing_at_start()
        if self._count == "retrieved":
            targets = np.minimum(targets, missing)
        return [int(target) if needed > 0 else 0 for target, needed in zip(targets, missing, strict=True)]
