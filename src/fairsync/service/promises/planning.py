"""Planning: from counts and forecast to a plan for the coordinator, or to a verdict on a promise."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fairsync.floors import group_capacities
from fairsync.promises.selection import selection_name
from fairsync.schedule import Supply, check_promise, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.schedule import Feasibility, Forecast, Plan, PromiseStatus, ScheduledPromise, TrafficForecast
    from fairsync.service.promises.impression_rate import ExposureRule

_Number = TypeVar("_Number", int, float)
_log = logging.getLogger(__name__)


class Planner:
    """Plans for the groups of a coordinator.

    Parameters
    ----------
    coordinator
        Knows the groups and k.
    rule
        What counts as an exposure.
    worst_case_traffic
        Worst-case traffic, as a fraction of the forecast; see :func:`fairsync.schedule.make_plan`.
    attribute
        The attribute of the groups.
    """

    def __init__(
        self, coordinator: Coordinator, rule: ExposureRule, worst_case_traffic: float, attribute: str = "group"
    ) -> None:
        self._coordinator, self._rule, self.worst_case_traffic = coordinator, rule, worst_case_traffic
        self._attribute = attribute

    def capacities(self) -> dict[Label, int]:
        """Return the largest number of each group's items in one answer."""
        capacities = group_capacities(
            self._coordinator.groups, self._coordinator.k, self._coordinator.terms.max_exclude
        )
        return dict(zip(self._coordinator.labels, capacities.tolist(), strict=True))

    def supply(self) -> Supply:
        """Return what one answer can hold of each group."""
        return Supply.of_groups(self.capacities(), self._coordinator.k, self._attribute)

    def _by_selection(self, values: Mapping[Label, _Number]) -> dict[str, _Number]:
        return {selection_name({self._attribute: label}): value for label, value in values.items()}

    def traffic(self, forecast: Forecast) -> TrafficForecast:
        """Return the forecast of requests whose exposures count in time."""
        return self._rule.traffic(forecast)

    def plan(
        self,
        promises: Sequence[ScheduledPromise],
        exposures: Mapping[ScheduledPromise, int],
        forecast: Forecast,
        now: datetime,
        previous: Plan | None,
        requests: Mapping[ScheduledPromise, int] | None = None,
    ) -> Plan:
        """Return the plan from now to the end of the period, and log promises that it finds at risk or impossible."""
        labels = self._coordinator.labels
        plan = make_plan(
            promises,
            exposures,
            self.traffic(forecast),
            now,
            self.supply(),
            previous,
            impression_rates=self._by_selection(self._rule.shares(labels)),
            pending=self._by_selection(self._rule.pending(labels)),
            requests=requests,
            worst_case_traffic=self.worst_case_traffic,
        )
        _log_warnings(plan.statuses, now)
        return plan

    def check(
        self,
        promise: ScheduledPromise,
        others: Iterable[ScheduledPromise],
        exposures: Mapping[ScheduledPromise, int],
        forecast: Forecast,
        now: datetime,
    ) -> Feasibility:
        """Return whether the expected traffic can deliver a promise beside others."""
        return self.prepare_check(promise, others, exposures, forecast, now).run()

    def prepare_check(
        self,
        promise: ScheduledPromise,
        others: Iterable[ScheduledPromise],
        exposures: Mapping[ScheduledPromise, int],
        forecast: Forecast,
        now: datetime,
        requests: Mapping[ScheduledPromise, int] | None = None,
    ) -> FeasibilityCheck:
        """Return the check of a promise, which takes time and depends on nothing that changes."""
        rates = self._by_selection(self._rule.shares(self._coordinator.labels))
        return FeasibilityCheck(
            promise, tuple(others), exposures, self.traffic(forecast), now, self.supply(), rates, requests
        )


@dataclass(frozen=True)
class FeasibilityCheck:
    """A check of a promise, with a snapshot of all that it depends on; see :func:`fairsync.schedule.check_promise`."""

    promise: ScheduledPromise
    others: tuple[ScheduledPromise, ...]
    exposures: Mapping[ScheduledPromise, int]
    traffic: TrafficForecast
    now: datetime
    supply: Supply
    rates: Mapping[str, float]
    requests: Mapping[ScheduledPromise, int] | None = None

    def run(self, checkpoint: Callable[[], object] = lambda: None) -> Feasibility:
        """Return whether the expected traffic can deliver the promise.

        Parameters
        ----------
        checkpoint
            Called every now and then; raises to end the check.
        """
        traffic = _CheckpointedTraffic(self.traffic, checkpoint)
        return check_promise(
            self.promise, self.others, self.exposures, traffic, self.now, self.supply,
            impression_rates=self.rates, requests=self.requests,
        )  # fmt: skip


@dataclass(frozen=True)
class _CheckpointedTraffic:
    """A forecast that calls a function whenever it is asked, which checks do for each window and deadline."""

    traffic: TrafficForecast
    checkpoint: Callable[[], object]

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        self.checkpoint()
        return self.traffic.expected(start, end, now)

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        self.checkpoint()
        return self.traffic.lower_bound(start, end, now)


def _log_warnings(statuses: Sequence[PromiseStatus], now: datetime) -> None:
    """Log each promise of which it has just become known that it may be missed, or will be."""
    for one in statuses:
        until = f"{one.promise} until {one.promise.window.local(one.span.end)}"
        if one.impossible_since == now:
            _log.warning("%s cannot be kept: %d will be missing", until, one.shortfall)
        elif one.at_risk_since == now:
            _log.info("%s is at risk: %d may be missing", until, one.floor - one.certain)
