"""The time of retrieve() with one promise for each of 10,000 new items among a million, beside search alone.

Every new item is promised exposures, ``each(catalog, "id", at_least=…, where={"new": True})``, so that there are as
many promises as new items, and as many atoms. Two states are measured. Under way: 50 exposures each within 60,000
requests; none has had them yet. Ending: so few, within so few requests, that promises end in every batch. The peer is
the same index without prices, in the same batches of 16, asked for the candidates only. Times alternate within one run.

Then the same in the promise service, which keeps such promises by the clock: 50 exposures in the first seven
days of each new item, and 2 where they end. Between calls it plans, as it does every five seconds; then planning goes
on in a second thread, and the slowest call meanwhile shows for how long a request waits.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress

from fairsync import Catalog, Coordinator, FairRetriever, FrontEnd, Promise, each
from fairsync.schedule import Forecast, ScheduledPromise
from fairsync.search import ExactIndex
from fairsync.service.promises.promise_series import first_days
from fairsync.service.promises.promise_service import PromiseService

DIM, K, BATCH = 64, 20, 16
ITEMS, NEW = 1_000_000, 10_000
WARM, MEASURED = 2_048, 1_024
MOST = 1.5
# Seconds between two plans, and the plans of a measurement.
PLAN, PLANS = 5.0, 6
DAYS = 7


@dataclass(frozen=True)
class Measurement:
    """Milliseconds of a request, the promises under way before and after, and the forced slots.

    Of the promise service also the seconds of a plan, and the milliseconds of the slowest call while it plans.
    """

    where: str
    state: str
    items: int
    call: int
    search_ms: float
    retrieve_ms: float
    before: int
    after: int
    forced: int
    plan_s: float = 0.0
    slowest_ms: float = 0.0

    @property
    def ratio(self) -> float:
        """The time of retrieve() divided by that of search alone."""
        return self.retrieve_ms / self.search_ms


class InRetriever:
    """The promises in a retriever."""

    where = "retriever"

    def __init__(self, catalog: Catalog, at_least: int, horizon: int) -> None:
        self.retriever = FairRetriever(
            catalog, k=K, horizon=horizon, promises=each(catalog, "id", at_least=at_least, where={"new": True}),
            batch_size=BATCH, index=one_thread,
        )  # fmt: skip
        self.retrieve = self.retriever.retrieve

    def under_way(self) -> int:
        """Return the promises that are not kept yet."""
        return sum(not kept for kept in self.retriever.report().satisfied.values())

    def forced(self) -> int:
        """Return the slots that the guard has filled."""
        return self.retriever.report().forced

    def pass_time(self, requests: int) -> None:
        """No-op: a retriever has no clock."""


class InService:
    """The promises in a promise service, which gets the requests of the horizon in the first days of new items."""

    where = "promise service"

    def __init__(self, catalog: Catalog, at_least: int, horizon: int) -> None:
        self.now, self.seconds = 1.8e9, 86_400 * DAYS / horizon
        self.coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, batch_size=BATCH, auto_restart=False)
        promise = ScheduledPromise(Promise({"new": True}, at_least=at_least, each="id"), first_days(DAYS))
        self.service = PromiseService(
            FrontEnd(catalog, self.coordinator, index=one_thread), self.coordinator, [promise],
            Forecast(1 / self.seconds), clock=lambda: self.now, plan_seconds=PLAN,
        )  # fmt: skip
        self.service.cost_monitor.every = float("inf")  # it has times of its own
        self.retrieve = self.service.retrieve

    def under_way(self) -> int:
        """Return the promises that are not kept yet."""
        return sum(one.state != "kept" for one in self.service.promises())

    def forced(self) -> int:
        """Return the slots that the guard has filled."""
        return self.coordinator.totals().forced

    def pass_time(self, requests: int) -> None:
        """Let the time pass in which some requests come."""
        self.now += requests * self.seconds

    def slowest_call(self, users: np.ndarray, call: int) -> float:
        """Return the seconds of the slowest call while another thread plans several times in a row."""
        done, slowest = threading.Event(), 0.0

        def plan() -> None:
            for _ in range(PLANS):
                self.now += PLAN
                self.service.refresh()
            done.set()

        thread = threading.Thread(target=plan)
        thread.start()
        start = 0
        while not done.is_set():
            began = time.perf_counter()
            self.retrieve(users[start : start + call])
            slowest = max(slowest, time.perf_counter() - began)
            start = (start + call) % (len(users) - call)
        thread.join()
        return slowest


def one_thread(catalog: Catalog) -> ExactIndex:
    """Return an index that searches by one thread."""
    return ExactIndex(catalog, threads=1)


def measure(
    served: InRetriever | InService,
    state: str,
    catalog: Catalog,
    users: np.ndarray,
    calls: Sequence[int],
    advance: Callable[[], object],
) -> list[Measurement]:
    """Serve requests until prices are learnt, then time retrieve() and search alone in turns."""
    plain, service = one_thread(catalog), served.service if isinstance(served, InService) else None
    warm = min(WARM, len(users) // 2)
    for start in range(0, warm, 64):
        served.retrieve(users[start : start + 64])
        served.pass_time(64)
        if service is not None:
            service.refresh()
    measured, at = [], warm
    for call in calls:
        before, spent, searched, plans, slowest = served.under_way(), [], [], [0.0], 0.0
        end = min(at + (MEASURED if call > 1 else MEASURED // 4), len(users))
        steps = range(at, end, call)
        planned = set(np.linspace(0, len(steps) - 1, PLANS, dtype=int).tolist())
        for number, start in enumerate(steps):
            some = users[start : start + call]
            began = time.perf_counter()
            served.retrieve(some)
            middle = time.perf_counter()
            for first in range(0, len(some), BATCH):
                plain.search(some[first : first + BATCH, None], None, K)
            spent.append(middle - began)
            searched.append(time.perf_counter() - middle)
            served.pass_time(call)
            if service is not None and number in planned:
                began = time.perf_counter()
                service.refresh()
                plans.append(time.perf_counter() - began)
        if isinstance(served, InService):
            slowest = served.slowest_call(users[at:end], call)
        search_ms, retrieve_ms = (1e3 * float(np.sum(some)) / (end - at) for some in (searched, spent))
        measured.append(
            Measurement(
                served.where, state, len(catalog), call, search_ms, retrieve_ms, before, served.under_way(),
                served.forced(), float(np.median(plans[1:] or plans)), 1e3 * slowest,
            )
        )  # fmt: skip
        at = end
        advance()
    return measured


def make_catalog(items: int, new: int, seed: int) -> tuple[Catalog, np.ndarray]:
    """Return items with clustered vectors, some of which are new, and users."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(200, DIM))
    vectors = (centres[rng.integers(200, size=items)] + rng.normal(size=(items, DIM))).astype(np.float32)
    is_new = np.zeros(items, dtype=bool)
    is_new[rng.permutation(items)[:new]] = True
    n_users = WARM + 2 * MEASURED
    users = centres[rng.integers(200, size=n_users)] + rng.normal(size=(n_users, DIM))
    return Catalog(vectors, {"category": rng.integers(50, size=items), "new": is_new}), users.astype(np.float32)


def check_claims(measured: Sequence[Measurement]) -> list[Claim]:
    """Return the claims, for catalogs that are as large as they say."""
    return [
        Claim(f"{one.where}: retrieve() ÷ search alone, {one.state}, calls of {one.call}", one.ratio, MOST)
        for one in measured
        if one.items >= ITEMS
    ]


def tables(measured: Sequence[Measurement]) -> list[Table]:
    """Return a table of the retriever, and one of the promise service."""
    columns: dict[str, Callable[[Measurement], str]] = {
        "promises": lambda one: one.state,
        "items": lambda one: f"{one.items:,}",
        "requests a call": lambda one: f"{one.call}",
        "search alone, ms": lambda one: f"{one.search_ms:.2f}",
        "retrieve(), ms": lambda one: f"{one.retrieve_ms:.2f}",
        "ratio": lambda one: f"{one.ratio:.2f}",
        "under way": lambda one: f"{one.before:,} → {one.after:,}",
        "forced": lambda one: f"{one.forced:,}",
    }
    planning: dict[str, Callable[[Measurement], str]] = {
        "a plan, s": lambda one: f"{one.plan_s:.2f}",
        "slowest call while planning, ms": lambda one: f"{one.slowest_ms:.0f}",
    }
    in_retriever, in_service = (
        [one for one in measured if one.where == kind.where] for kind in (InRetriever, InService)
    )
    title = f"One promise for each new item: d = {DIM}, K = {K}, B = {BATCH}, one thread"
    return [
        Table.of(title, in_retriever, columns),
        Table.of(f"The same in the promise service, within {DAYS} days", in_service, columns | planning),
    ]


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser(__doc__, quick="a smoke test on a small set")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(args)
    items, new = (20_000, 200) if given.quick else (ITEMS, NEW)
    screen, measured = make_screen(), list[Measurement]()
    catalog, users = make_catalog(items, new, given.seed)
    states = [("under way", 50, 60_000), ("ending", 2, WARM + 2 * MEASURED)]
    with progress(screen) as bar:
        task = bar.add_task("new items", total=4 * len(states))
        for state, at_least, horizon in states:
            for kind in (InRetriever, InService):
                served = kind(catalog, at_least, horizon)
                measured += measure(served, state, catalog, users, (64, 1), lambda: bar.advance(task))
    document = {"lines": [asdict(one) for one in measured]}
    return finish("new_items", tables(measured), check_claims(measured), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
