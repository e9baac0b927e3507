"""Plan: turn promises per window into targets over a number of requests, which a coordinator can guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.plan import NO_CAP, blockers, least_shortfall
from fairsync.promises.promise import Promise
from fairsync.promises.selection import selection_name
from fairsync.schedule.active_windows import ActiveWindows, WindowProgress
from fairsync.schedule.bank import share_bank
from fairsync.schedule.promise_status import PromiseStatus
from fairsync.schedule.targets import Owed, next_targets
from fairsync.schedule.traffic import Traffic
from fairsync.schedule.window import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fairsync.plan import Program, ShortfallPlan
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.promise import ScheduledPromise
    from fairsync.schedule.seasonal_profile import Bools, Ints
    from fairsync.schedule.supply import Supply
    from fairsync.schedule.targets import PlanTargets

WORST_CASE_TRAFFIC = 0.1
"""Default worst-case traffic, as a fraction of the forecast."""

# Of this many promises that cannot be kept, it is said to which others they give way.
_MOST_EXPLAINED = 20


@dataclass(frozen=True)
class Plan:
    """Targets and horizon from now to the end of the period, and the status of each promise.

    Attributes
    ----------
    span : Span
        From the moment of planning to the end of the period.
    targets : tuple of Promise
        Bounds on the exposures to retrieve within ``horizon`` requests, one promise for each selection: ``at_least``,
        and ``at_most`` and ``at_most_per_list`` where there is a limit. They can hold together.
    horizon : int
        Requests over which the targets are spread: the lower bound of the forecast, or less, but at least 1. If they
        have come before the period ends, make another plan.
    expected : float
        Expected requests until the end of the period.
    lower_bound : float
        Lower bound of the requests until the end of the period (5 % quantile).
    statuses : tuple of PromiseStatus
        The status of each promise with an active window.
    """

    span: Span
    targets: tuple[Promise, ...]
    horizon: int
    expected: float
    lower_bound: float
    statuses: tuple[PromiseStatus, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {
            "span": self.span.to_dict(),
            "targets": [target.to_dict() for target in self.targets],
            "horizon": self.horizon,
            "expected": self.expected,
            "cautious": self.lower_bound,
            # Plans that are already stored in ledgers use the keys "cautious" and "outlooks".
            "outlooks": [status.to_dict() for status in self.statuses],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], attribute: str = "group") -> Plan:
        """Return the object that :meth:`to_dict` describes; see :meth:`ScheduledPromise.from_dict`."""
        targets = [Promise.from_dict(one) for one in values.get("targets", ())]
        # Plans that older versions stored have floors of groups.
        targets += [Promise({attribute: label}, int(floor)) for label, floor in values.get("floors", ())]
        statuses = tuple(PromiseStatus.from_dict(one, attribute) for one in values["outlooks"])
        horizon, expected, lower_bound = int(values["horizon"]), float(values["expected"]), float(values["cautious"])
        return cls(Span.from_dict(values["span"]), tuple(targets), horizon, expected, lower_bound, statuses)


def make_plan(
    promises: Iterable[ScheduledPromise],
    exposures: Mapping[ScheduledPromise, int],
    forecast: TrafficForecast,
    now: datetime,
    supply: Supply,
    previous: Plan | None = None,
    *,
    impression_rates: Mapping[str, float] | None = None,
    pending: Mapping[str, int] | None = None,
    requests: Mapping[ScheduledPromise, int] | None = None,
    worst_case_traffic: float = WORST_CASE_TRAFFIC,
    until_next: int = 1,
) -> Plan:
    """Return what to aim at until the next plan, and the status of each promise.

    A promise should get the same part of its missing exposures in every request until its end. It must get soon what it
    would miss if traffic fell to the worst case, by the linear program of :mod:`fairsync.plan`. Plan again with newer
    counts when traffic differs from the forecast, or when the horizon has passed.

    Parameters
    ----------
    promises
        The promises. A selection may have several.
    exposures
        Exposures of each promise in its active window. A promise that is not named has 0.
    forecast
        The traffic forecast.
    now
        The moment of planning.
    supply
        What one list can hold of each selection.
    previous
        The previous plan. It tells since when a promise has been at risk or impossible.
    impression_rates
        {selection: fraction of the retrieved exposures that counts}, for services that count impressions only. A
        selection that is not named has 1.
    pending
        {selection: exposures} that were retrieved before and will still count. A selection that is not named has 0.
    requests
        Requests in the active window of each promise so far. Shares are about them. A promise that is not named has 0.
    worst_case_traffic
        Worst-case traffic, as a fraction of the forecast. Floors that could not be met if traffic dropped to it are
        brought forward. The value 1 trusts the forecast, which costs less relevance where much is promised.
    until_next
        Requests that are likely to come before the next plan.

    Examples
    --------
    At 18:00 the day has a quarter of its traffic to come, the week of the sale six and a quarter of seven.

    >>> from datetime import UTC, date, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Supply, Window
    >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
    >>> sale = ScheduledPromise.of_group("books", 700, Window.campaign(date(2026, 3, 2), date(2026, 3, 8), "UTC"))
    >>> supply = Supply.of_groups({"toys": 10, "books": 10}, k=10)
    >>> plan = make_plan([daily, sale], {daily: 70, sale: 75}, Forecast(rate=0.01),
    ...                  datetime(2026, 3, 2, 18, tzinfo=UTC), supply)
    >>> plan.targets, plan.horizon, round(plan.expected)
    ((Promise(group=toys: at least 30), Promise(group=books: at least 25)), 108, 216)
    """
    active = ActiveWindows.of(promises, now, supply, impression_rates)
    for promise, count in exposures.items():
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 0:
            raise InvalidInputError(f"the exposures so far must be whole numbers, 0 or more; of {promise}: {count!r}.")
    if not 0 < worst_case_traffic <= 1:
        raise InvalidInputError(f"worst_case_traffic must lie above 0 and at most at 1, got {worst_case_traffic!r}.")
    progress = _progress(active, exposures, pending or {}, requests or {})
    traffic = Traffic.of(forecast, active, worst_case_traffic)
    until_next = check_positive(until_next, "until_next")
    bank = share_bank(active, progress, traffic, until_next)
    owed = None if previous is None else _owed(active, progress, previous)
    at_expected = active.program(progress, traffic.expected.astype(np.int64))
    by_expected = least_shortfall(at_expected)
    reachable = _reachable(active, progress, traffic, by_expected)
    targets = next_targets(active, progress, traffic, bank, until_next, reachable, owed)
    return Plan(
        Span(active.now, active.end),
        _as_promises(active, targets),
        targets.horizon,
        float(traffic.expected[0]),
        float(traffic.lower_bound[0]),
        _statuses(active, progress, forecast, traffic, at_expected, by_expected, previous),
    )


def _progress(
    active: ActiveWindows,
    exposures: Mapping[ScheduledPromise, int],
    pending: Mapping[str, int],
    requests: Mapping[ScheduledPromise, int],
) -> WindowProgress:
    promises = active.promises
    return WindowProgress(
        np.array([int(exposures.get(promise, 0)) for promise in promises], dtype=np.int64),
        np.array([int(pending.get(promise.selection, 0)) for promise in promises], dtype=np.int64),
        np.array([int(requests.get(promise, 0)) for promise in promises], dtype=np.int64),
    )


def _reachable(active: ActiveWindows, progress: WindowProgress, traffic: Traffic, by_expected: ShortfallPlan) -> Bools:
    """Return (P,) which promises can be kept beside the others under way, but for chance."""
    found = np.zeros(len(active.promises), dtype=np.bool_)
    if by_expected.shortfall[: len(active.with_window)].any():
        by_expected = least_shortfall(active.program(progress, traffic.best_case, later=False))
    found[active.with_window] = by_expected.shortfall[: len(active.with_window)] == 0
    return found


def _owed(active: ActiveWindows, progress: WindowProgress, previous: Plan) -> Owed | None:
    """Return what the previous plan asked for and did not get yet; None if its requests have come."""
    before = {(last.promise, last.span): last for last in previous.statuses}
    pairs = [
        (p, last)
        for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True))
        if span is not None and (last := before.get((promise, span))) is not None
    ]
    came = max((int(progress.requests[p]) - last.requests for p, last in pairs), default=previous.horizon)
    if not 0 <= came < previous.horizon:
        return None
    asked = {selection_name(target.where): int(target.at_least or 0) for target in previous.targets}
    left = np.zeros(len(active.supply.selections), dtype=np.int64)
    for p, last in pairs:
        gained = int(progress.exposures[p]) - last.exposures
        left[active.selection[p]] = max(asked.get(active.promises[p].selection, 0) - gained, 0)
    return Owed(previous.horizon - came, left)


def _as_promises(active: ActiveWindows, targets: PlanTargets) -> tuple[Promise, ...]:
    """Return one promise for each selection."""
    n = len(active.supply.selections)
    priority = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(priority, active.selection, active.priority)
    where, prices = {}, dict[int, list[float | None]]()
    for code, promise in zip(active.selection.tolist(), active.promises, strict=True):
        where[code] = promise.promise.where
        prices.setdefault(code, []).append(promise.promise.max_price)
    limits = active.list_limits
    return tuple(
        Promise(
            where[code],
            int(targets.at_least[code]),
            None if targets.at_most[code] >= NO_CAP else int(targets.at_most[code]),
            None if limits is None or limits[code] >= active.supply.k else int(limits[code]),
            priority=int(priority[code]),
            max_price=None if None in prices[code] else max(one for one in prices[code] if one is not None),
        )
        for code in range(n)
    )


def _statuses(
    active: ActiveWindows,
    progress: WindowProgress,
    forecast: TrafficForecast,
    traffic: Traffic,
    at_expected: Program,
    by_expected: ShortfallPlan,
    previous: Plan | None,
) -> tuple[PromiseStatus, ...]:
    before = {(last.promise, last.span): last for last in previous.statuses} if previous else {}
    expected, lower_bound = traffic.expected.astype(np.int64), traffic.lower_bound
    by_lower_bound = least_shortfall(active.program(progress, lower_bound))
    ahead = expected[active.deadline]
    floors, caps = active.floors(progress, ahead), active.caps(progress, ahead)
    shortfall = _counted_shortfall(active, progress, ahead, by_expected)
    possible = _counted_shortfall(active, progress, lower_bound[active.deadline], by_lower_bound)
    demand_of = {p: demand for demand, p in enumerate(active.with_window.tolist())}
    past: dict[datetime, float] = {}
    statuses, explained = [], 0
    for p, (promise, span) in enumerate(zip(active.promises, active.spans, strict=True)):
        if span is None:
            continue
        if span.start not in past:
            past[span.start] = forecast.expected(span.start, active.now, active.now)
        so_far, last = int(progress.exposures[p]), before.get((promise, span))
        came = int(progress.requests[p]) or max(past[span.start], 1.0)  # the forecast, if the plan was given none
        gives_way = last.gives_way_to if last and not last.possible else ()
        if shortfall[p] and explained < _MOST_EXPLAINED and (last is None or last.possible):
            explained += 1
            gives_way = _blocking(active, at_expected, demand_of[p])
        status = PromiseStatus(
            promise,
            span,
            so_far,
            at_pace=so_far + round(so_far / came * int(ahead[p])),
            reachable=max(int(floors[p]), so_far) - int(shortfall[p]),
            certain=max(int(floors[p]), so_far) - int(possible[p]),
            floor=int(floors[p]),
            cap=None if caps[p] >= NO_CAP else int(caps[p]),
            requests=int(progress.requests[p]),
            gives_way_to=gives_way if shortfall[p] else (),
        )
        statuses.append(status.carry_over(last, active.now))
    return tuple(statuses)


def _counted_shortfall(
    active: ActiveWindows, progress: WindowProgress, requests: Ints, solution: ShortfallPlan
) -> Ints:
    """Return (P,) the exposures that count and that each promise will miss at its deadline."""
    missing = active.missing(progress, requests)
    needed, short = active.retrieved(missing), np.zeros(len(missing), dtype=np.int64)
    some = active.with_window
    short[some] = np.ceil(solution.shortfall[: len(some)] - 1e-6).astype(np.int64)
    return np.where(short > 0, np.maximum(missing - active.counted(needed - short), 1), 0)


def _blocking(active: ActiveWindows, program: Program, demand: int) -> tuple[ScheduledPromise, ...]:
    """Return the promises to which one gives way."""
    every = blockers(program, demand).tolist()
    found = dict.fromkeys(active.promises[active.promise_of(one)] for one in every)
    return tuple(one for one in found if one != active.promises[active.promise_of(demand)])
