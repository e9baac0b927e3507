"""Traffic that is known hour by hour, in place of a forecast."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fairsync.catalog.groups import Label
from fairsync.schedule import Plan, Promise, Span, make_plan

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True)
class Hours:
    """So many requests are expected in each hour after the start, and so many can be counted on; then none."""

    likely: list[int]
    sure: list[int]

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        return self._sum(self.likely, start, end)

    def cautious(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        return self._sum(self.sure, start, end)

    def _sum(self, hours: list[int], start: datetime, end: datetime) -> float:
        low, high = ((moment - START) / HOUR for moment in (start, end))
        within = (max(min(high, hour + 1) - max(low, hour), 0.0) for hour in range(len(hours)))
        return sum(count * part for count, part in zip(hours, within, strict=True))


def serve_floors_only(
    promises: list[Promise],
    forecast: Hours,
    came: list[int],
    k: int,
    caps: dict[Label, int],
    step: int = 10**6,
) -> tuple[list[Plan], dict[tuple[Promise, Span], int]]:
    """Serve hour by hour with a retriever that does what floors demand, as late as it may, and nothing else.

    Plans are made anew whenever a horizon has passed, and after ``step`` requests. Returns all plans, and what each
    window that ended has had.
    """
    plans: list[Plan] = []
    exposures: dict[Promise, int] = {}
    outcomes: dict[tuple[Promise, Span], int] = {}
    for hour, requests in enumerate(came):
        now, left = START + hour * HOUR, requests
        while True:
            plan = make_plan(promises, exposures, forecast, now, k, caps, plans[-1] if plans else None)
            plans.append(plan)
            served = min(left, plan.horizon, step)
            gained = forced(plan, served, k, caps)
            exposures, left = plan.count(gained, now), left - served
            if left == 0:
                break
            now = START + (hour + 1 - left / requests) * HOUR
        end = START + (hour + 1) * HOUR
        for status in plan.statuses:
            if status.span.end == end:
                outcomes[status.promise, status.span] = exposures[status.promise]
        exposures = plan.count(gained, end)
    return plans, outcomes


def forced(plan: Plan, requests: int, k: int, caps: dict[Label, int]) -> dict[Label, int]:
    """Return the least exposures after so many requests of the horizon: what the rest of it could not hold."""
    rest = plan.horizon - requests
    gained = {label: max(floor - rest * caps[label], 0) for label, floor in plan.floors.items()}
    lacking = sum(plan.floors.values()) - rest * k - sum(gained.values())
    for label, floor in plan.floors.items():
        more = min(max(lacking, 0), floor - gained[label], requests * caps[label] - gained[label])
        gained[label] += more
        lacking -= more
    assert all(count <= requests * caps[label] for label, count in gained.items())
    return gained
