"""Traffic that is known hour by hour, used as a forecast."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from fairsync.catalog.groups import Label
from fairsync.promises.selection import selection_name
from fairsync.schedule import Plan, ScheduledPromise, Span, Supply, make_plan

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True)
class Hours:
    """A forecast with given expected requests and lower bounds for each hour after START, and 0 after that."""

    expected_hourly: list[int]
    lower_hourly: list[int]

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        return self._sum(self.expected_hourly, start, end)

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        return self._sum(self.lower_hourly, start, end)

    def sustained(self, end: datetime, now: datetime) -> float:
        return self.expected(now, end)

    def _sum(self, hours: list[int], start: datetime, end: datetime) -> float:
        low, high = ((moment - START) / HOUR for moment in (start, end))
        within = (max(min(high, hour + 1) - max(low, hour), 0.0) for hour in range(len(hours)))
        return sum(count * part for count, part in zip(hours, within, strict=True))


def serve_floors_only(
    promises: list[ScheduledPromise],
    forecast: Hours,
    came: list[int],
    k: int,
    capacities: dict[Label, int],
    step: int = 10**6,
) -> tuple[list[Plan], dict[tuple[ScheduledPromise, Span], int]]:
    """Serve hour by hour with a retriever that meets floors as late as possible and does nothing else.

    A new plan is made whenever a horizon has passed, and after ``step`` requests. Returns all plans, and the exposures
    of each window that ended.
    """
    plans: list[Plan] = []
    exposures: dict[ScheduledPromise, int] = {}
    since: dict[tuple[ScheduledPromise, Span | None], int] = {}
    total = 0
    outcomes: dict[tuple[ScheduledPromise, Span], int] = {}
    for hour, requests in enumerate(came):
        now, left = START + hour * HOUR, requests
        while True:
            in_window = {promise: total - since.get((promise, promise.window.at(now)), total) for promise in promises}
            plan = make_plan(
                promises, exposures, forecast, now, Supply.of_groups(capacities, k), plans[-1] if plans else None,
                requests=in_window,
            )  # fmt: skip
            plans.append(plan)
            for status in plan.statuses:
                since.setdefault((status.promise, status.span), total)
            served = min(left, plan.horizon, step)
            total += served
            gained = by_selection(forced(plan, served, k, capacities))
            exposures, left = counts_after(plan, gained, now), left - served
            if left == 0:
                break
            now = START + (hour + 1 - left / requests) * HOUR
        end = START + (hour + 1) * HOUR
        for status in plan.statuses:
            if status.span.end == end:
                outcomes[status.promise, status.span] = exposures[status.promise]
        exposures = counts_after(plan, gained, end)
    return plans, outcomes


def counts_after(plan: Plan, gained: Mapping[str, int], now: datetime) -> dict[ScheduledPromise, int]:
    """Return the exposures of each promise in its window, for a plan at a later moment, when selections gained some."""
    return {
        status.promise: status.exposures + gained.get(status.promise.selection, 0)
        for status in plan.statuses
        if now in status.span
    }


def forced(plan: Plan, requests: int, k: int, capacities: dict[Label, int]) -> dict[Label, int]:
    """Return the fewest exposures possible after ``requests``: those that the rest of the horizon cannot hold."""
    rest = plan.horizon - requests
    gained = {label: max(floor - rest * capacities[label], 0) for label, floor in floors_of(plan).items()}
    lacking = sum(floors_of(plan).values()) - rest * k - sum(gained.values())
    for label, floor in floors_of(plan).items():
        more = min(max(lacking, 0), floor - gained[label], requests * capacities[label] - gained[label])
        gained[label] += more
        lacking -= more
    assert all(count <= requests * capacities[label] for label, count in gained.items())
    return gained


def floors_of(plan: Plan) -> dict[Label, int]:
    """Return {label: exposures} to retrieve within the horizon of a plan for groups."""
    return {next(iter(target.where.values())): int(target.at_least or 0) for target in plan.targets}


def with_floor(promise: ScheduledPromise, floor: int) -> ScheduledPromise:
    """Return the promise with another floor."""
    return replace(promise, promise=replace(promise.promise, at_least=floor))


def by_selection(counts: dict[Label, int]) -> dict[str, int]:
    """Return counts of groups by the name of their selection."""
    return {selection_name({"group": label}): count for label, count in counts.items()}
