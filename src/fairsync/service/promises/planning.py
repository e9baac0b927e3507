"""Planning: from counts and forecast to a plan for the coordinator, or to a verdict on a promise."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.policies import Terms
from fairsync.promises import Promise
from fairsync.promises.floors import capacities_of
from fairsync.promises.home_atoms import with_homes
from fairsync.promises.resolve import find_atoms
from fairsync.promises.selection import conditions_of, is_selection
from fairsync.schedule import FeasibilityCheck, Supply, make_plan
from fairsync.service.promises.columns import group_of, selection_of
from fairsync.service.promises.impressions import ReportedInTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.coordination.coordinator import Coordinator
    from fairsync.schedule import Forecast, Plan, PromiseStatus, ScheduledPromise, TrafficForecast, Window
    from fairsync.service.promises.impressions import ImpressionRate

_log = logging.getLogger(__name__)


class Planner:
    """Plans for the groups of a coordinator.

    Parameters
    ----------
    coordinator
        Knows the groups and k.
    rate
        The share of candidates that are shown, if impressions count; None if candidates count.
    worst_case_traffic
        Worst-case traffic, as a fraction of the forecast; see :func:`fairsync.schedule.make_plan`.
    catalog
        Returns the items, if promises may be about other selections than groups.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        rate: ImpressionRate | None,
        worst_case_traffic: float,
        catalog: Callable[[], Catalog] | None = None,
    ) -> None:
        self._coordinator, self._rate, self.worst_case_traffic = coordinator, rate, worst_case_traffic
        self._attribute, self._catalog = coordinator.group_attribute, catalog
        self._supplied: tuple[Catalog, frozenset[str], Supply] | None = None

    def capacities(self) -> dict[Label, int]:
        """Return the largest number of each group's items in one answer."""
        return self._capacities(self._coordinator.terms.max_exclude)

    def _capacities(self, max_exclude: int) -> dict[Label, int]:
        one = self._coordinator
        capacities = capacities_of(one.groups.group_sizes, one.k, max_exclude)
        return dict(zip(one.labels, capacities.tolist(), strict=True))

    def supply(self, promises: Iterable[ScheduledPromise]) -> Supply:
        """Return what one answer can hold of each selection that promises are about."""
        others = tuple(dict.fromkeys(one.selection for one in promises if group_of(one, self._attribute) is None))
        if not others or self._catalog is None:
            capacities = {label: one for label, one in self.capacities().items() if not is_selection(label)}
            unreduced = self._capacities(max_exclude=0)
            supply = Supply.of_groups(capacities, self._coordinator.k, self._attribute)
            return replace(supply, unreduced=np.array([unreduced[label] for label in capacities], dtype=np.int64))
        catalog = self._catalog()
        known = self._supplied
        # Promises to items end one by one: selections that are not asked for any more do no harm, unless they are many.
        is_known = known is not None and known[0] is catalog and known[1].issuperset(others)
        if known is None or not is_known or len(known[1]) > 2 * len(others):
            supply = supply_of(catalog, others, self._coordinator.k, self._coordinator.terms.max_exclude)
            self._supplied = known = catalog, frozenset(others), supply
        return known[2]

    def _impression_rates(self) -> dict[str, float] | None:
        """Return the share of each column's candidates that count, by selection; None if all do."""
        return None if self._rate is None else self._by_selection(self._rate.shares)

    def _by_selection(self, values: Callable[[int], NDArray[Any]]) -> dict[str, Any]:
        labels = self._coordinator.labels
        numbers = zip(labels, values(len(labels)).tolist(), strict=True)
        return {selection_of(label, self._attribute): number for label, number in numbers}

    def traffic(self, forecast: Forecast) -> TrafficForecast:
        """Return the forecast of requests whose exposures count in time."""
        return forecast if self._rate is None else ReportedInTime(forecast, self._rate.within)

    def plan(
        self,
        promises: Sequence[ScheduledPromise],
        exposures: Mapping[ScheduledPromise, int],
        forecast: Forecast,
        now: datetime,
        previous: Plan | None,
        requests: Mapping[ScheduledPromise, int] | None = None,
        until_next: int = 1,
        *,
        logs: bool = True,
    ) -> Plan:
        """Return the plan from now to the end of the period, and log promises that it finds at risk or impossible."""
        plan = make_plan(
            promises,
            exposures,
            self.traffic(forecast),
            now,
            self.supply(promises),
            previous,
            impression_rates=self._impression_rates(),
            pending=None if self._rate is None else self._by_selection(self._rate.pending),
            requests=requests,
            worst_case_traffic=self.worst_case_traffic,
            until_next=until_next,
        )
        if logs:
            _log_warnings(plan.statuses, now)
        return plan

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
        rates, every = self._impression_rates(), (promise, *others)
        supply, traffic = self.supply(every), self.traffic(forecast)
        return FeasibilityCheck(promise, every[1:], exposures, traffic, now, supply, rates, requests or {})


def supply_of(catalog: Catalog, selections: Sequence[str], k: int, max_exclude: int = 0) -> Supply:
    """Return what one answer can hold of each label of the groups, and of further selections.

    If requests may exclude items, floors of groups alone are certain: an answer holds what is left of a group in any
    case. Other selections overlap and may be as small as one item, so that floors can only be expected: an answer then
    holds what it holds without exclusions.

    Parameters
    ----------
    catalog
        The items.
    selections
        The names of the selections.
    k
        Candidates per request.
    max_exclude
        The most items that a request excludes.
    """
    attribute = catalog.group_attribute
    groups = dict.fromkeys(selection_of(label, attribute) for label in catalog.labels if not is_selection(label))
    names = groups | dict.fromkeys(selections)
    atoms = find_atoms(catalog, [Promise(conditions_of(name), at_least=0) for name in names])
    once = np.ones(len(names), dtype=np.int64)  # a selection that every request can show can be certain
    sure = capacities_of(atoms.sizes, k, max_exclude)
    terms = Terms(once, sure, k, 1, 1, max_exclude=max_exclude, membership=atoms.membership)
    atoms, terms = with_homes(atoms, terms)
    unreduced = capacities_of(atoms.sizes, k)
    expected = terms.capacities if len(names) == len(groups) else unreduced
    return Supply(tuple(names), atoms.membership, expected, k, unreduced, terms.capacities)


def alike(promises: Mapping[str, ScheduledPromise]) -> list[list[str]]:
    """Return the ids of promises that have the same windows, priority and kind of bounds, the largest floor first.

    If the first of them fits beside all others, all of them do.
    """
    found: dict[tuple[Window, int, tuple[str, ...]], list[str]] = {}
    for name, promise in promises.items():
        given = promise.promise
        bounds = (given.at_least, given.at_most, given.at_most_per_list)
        key = promise.window, given.priority, tuple(type(bound).__name__ for bound in bounds)
        found.setdefault(key, []).append(name)
    return [sorted(names, key=lambda name: -(promises[name].promise.at_least or 0)) for names in found.values()]


def _log_warnings(statuses: Sequence[PromiseStatus], now: datetime) -> None:
    """Log each promise of which it has just become known that it may be missed, or will be."""
    for one in statuses:
        if one.impossible_since == now:
            _log.warning("%s cannot be kept: %d will be missing", _until(one), one.shortfall)
        elif one.at_risk_since == now:
            _log.info("%s is at risk: %d may be missing", _until(one), one.floor - one.certain)


def _until(status: PromiseStatus) -> str:
    return f"{status.promise} until {status.promise.window.local(status.span.end)}"
