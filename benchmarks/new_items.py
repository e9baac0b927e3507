"""The time of retrieve() with one promise for each of 10,000 new items among a million, beside search alone.

Every new item is promised exposures, ``each(catalog, "id", at_least=…, where={"new": True})``, so that there are as
many promises as new items, and as many atoms. Two states are measured. Under way: 50 exposures each within 60,000
requests; none has had them yet. Ending: so few, within so few requests, that promises end in every batch. The peer is
the same index without prices, in the same batches of 16, asked for the candidates only. Times alternate within one run.

Then the same in the promise service, which keeps such promises by the clock: 50 exposures in the first seven
days of each new item, and 2 where they end. Between calls it plans, as it does every five seconds; then planning goes
on in a second thread, and the slowest call meanwhile shows for how long a request waits.
"""

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress

from fairsync import Catalog, Coordinator, FairRetriever, FrontEnd, Promise, each
from fairsync.schedule import Forecast, ScheduledPromise
from fairsync.search import ExactIndex
from fairsync.service.promises.first_days import first_days
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
    """Milliseconds of a request, the promises under way before and after, and the forced slots."""

    state: str
    items: int
    call: int
    search_ms: float
    retrieve_ms: float
    before: int
    after: int
    forced: int

    @property
    def ratio(self) -> float:
        """The time of retrieve() divided by that of search alone."""
        return self.retrieve_ms / self.search_ms


def measure(
    state: str,
    catalog: Catalog,
    users: np.ndarray,
    at_least: int,
    horizon: int,
    calls: Sequence[int],
    advance: Callable[[], object],
) -> list[Measurement]:
    """Serve requests until prices are learnt, then time retrieve() and search alone in turns."""
    promises = each(catalog, "id", at_least=at_least, where={"new": True})
    retriever = FairRetriever(
        catalog, k=K, horizon=horizon, promises=promises, batch_size=BATCH,
        index=lambda searched: ExactIndex(searched, threads=1),
    )  # fmt: skip
    plain = ExactIndex(catalog, threads=1)
    warm = min(WARM, len(users) // 2)
    for start in range(0, warm, 64):
        retriever.retrieve(users[start : start + 64])
    measured, at = [], warm
    for call in calls:
        before, spent, searched = _under_way(retriever), [], []
        end = min(at + (MEASURED if call > 1 else MEASURED // 4), len(users))
        for start in range(at, end, call):
            some = users[start : start + call]
            began = time.perf_counter()
            retriever.retrieve(some)
            middle = time.perf_counter()
            for first in range(0, len(some), BATCH):
                plain.search(some[first : first + BATCH, None], None, K)
            spent.append(middle - began)
            searched.append(time.perf_counter() - middle)
        times = [1e3 * float(np.sum(some)) / (end - at) for some in (searched, spent)]
        forced = retriever.report().forced
        measured.append(
            Measurement(state, len(catalog), call, times[0], times[1], before, _under_way(retriever), forced)
        )
        at = end
        advance()
    return measured


@dataclass(frozen=True)
class ServiceMeasurement:
    """Milliseconds of a request in the promise service, seconds of a plan, and the slowest call while it plans."""

    state: str
    items: int
    call: int
    search_ms: float
    retrieve_ms: float
    plan_s: float
    slowest_ms: float
    before: int
    after: int

    @property
    def ratio(self) -> float:
        """The time of retrieve() divided by that of search alone."""
        return self.retrieve_ms / self.search_ms


def measure_service(
    state: str,
    catalog: Catalog,
    users: np.ndarray,
    at_least: int,
    requests: int,
    calls: Sequence[int],
    advance: Callable[[], object],
) -> list[ServiceMeasurement]:
    """Serve requests by the clock, of which `requests` are expected in the first days, and time them."""
    clock, seconds = [1.8e9], 86_400 * DAYS / requests
    coordinator = Coordinator(catalog, k=K, floors=0, horizon=1, batch_size=BATCH, auto_restart=False)
    front = FrontEnd(catalog, coordinator, index=lambda searched: ExactIndex(searched, threads=1))
    promise = ScheduledPromise(Promise({"new": True}, at_least=at_least, each="id"), first_days(DAYS))
    service = PromiseService(
        front, coordinator, [promise], Forecast(1 / seconds), clock=lambda: clock[0], plan_seconds=PLAN
    )
    service.cost_monitor.every = float("inf")  # it has times of its own
    plain = ExactIndex(catalog, threads=1)
    warm = min(WARM, len(users) // 2)
    for start in range(0, warm, 64):
        service.retrieve(users[start : start + 64])
        clock[0] += 64 * seconds
        service.refresh()
    measured, at = [], warm
    for call in calls:
        before, spent, searched, plans = _not_kept(service), [], [], []
        end = min(at + (MEASURED if call > 1 else MEASURED // 4), len(users))
        steps = range(at, end, call)
        planned = set(np.linspace(0, len(steps) - 1, PLANS, dtype=int).tolist())
        for number, start in enumerate(steps):
            some = users[start : start + call]
            began = time.perf_counter()
            service.retrieve(some)
            middle = time.perf_counter()
            for first in range(0, len(some), BATCH):
                plain.search(some[first : first + BATCH, None], None, K)
            spent.append(middle - began)
            searched.append(time.perf_counter() - middle)
            clock[0] += call * seconds
            if number in planned:
                began = time.perf_counter()
                service.refresh()
                plans.append(time.perf_counter() - began)
        times = [1e3 * float(np.sum(some)) / (end - at) for some in (searched, spent)]
        slowest = _slowest_call(service, users[at:end], call, clock)
        measured.append(
            ServiceMeasurement(
                state, len(catalog), call, times[0], times[1], float(np.median(plans)), 1e3 * slowest, before,
                _not_kept(service),
            )
        )  # fmt: skip
        at = end
        advance()
    return measured


def _slowest_call(service: PromiseService, users: np.ndarray, call: int, clock: list[float]) -> float:
    """Return the seconds of the slowest call while another thread plans several times in a row."""
    done, slowest = threading.Event(), 0.0

    def plan() -> None:
        for _ in range(PLANS):
            clock[0] += PLAN
            service.refresh()
        done.set()

    thread = threading.Thread(target=plan)
    thread.start()
    start = 0
    while not done.is_set():
        began = time.perf_counter()
        service.retrieve(users[start : start + call])
        slowest = max(slowest, time.perf_counter() - began)
        start = (start + call) % (len(users) - call)
    thread.join()
    return slowest


def _not_kept(service: PromiseService) -> int:
    """Return the promises that are not kept yet."""
    return sum(one.state != "kept" for one in service.promises())


def _under_way(retriever: FairRetriever) -> int:
    """Return the promises that are not kept yet."""
    return sum(not kept for kept in retriever.report().satisfied.values())


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


def check_claims(measured: Sequence[Measurement | ServiceMeasurement]) -> list[Claim]:
    """Return the claims, for catalogs that are as large as they say."""
    where = {Measurement: "retriever", ServiceMeasurement: "promise service"}
    return [
        Claim(f"{where[type(one)]}: retrieve() ÷ search alone, {one.state}, calls of {one.call}", one.ratio, MOST)
        for one in measured
        if one.items >= ITEMS
    ]


def table(measured: Sequence[Measurement]) -> Table:
    """Return the table."""
    return Table(
        f"One promise for each new item: d = {DIM}, K = {K}, B = {BATCH}, one thread",
        ["promises", "items", "requests a call", "search alone, ms", "retrieve(), ms", "ratio", "under way", "forced"],
        [
            [
                one.state,
                f"{one.items:,}",
                f"{one.call}",
                f"{one.search_ms:.2f}",
                f"{one.retrieve_ms:.2f}",
                f"{one.ratio:.2f}",
                f"{one.before:,} → {one.after:,}",
                f"{one.forced:,}",
            ]
            for one in measured
        ],
    )


def service_table(measured: Sequence[ServiceMeasurement]) -> Table:
    """Return the table of the promise service."""
    return Table(
        f"The same in the promise service, within {DAYS} days",
        [
            "promises", "items", "requests a call", "search alone, ms", "retrieve(), ms", "ratio", "a plan, s",
            "slowest call while planning, ms", "under way",
        ],
        [
            [
                one.state,
                f"{one.items:,}",
                f"{one.call}",
                f"{one.search_ms:.2f}",
                f"{one.retrieve_ms:.2f}",
                f"{one.ratio:.2f}",
                f"{one.plan_s:.2f}",
                f"{one.slowest_ms:.0f}",
                f"{one.before:,} → {one.after:,}",
            ]
            for one in measured
        ],
    )  # fmt: skip


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test on a small set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(args)
    items, new = (20_000, 200) if given.quick else (ITEMS, NEW)
    screen, measured, served = make_screen(), list[Measurement](), list[ServiceMeasurement]()
    catalog, users = make_catalog(items, new, given.seed)
    states = [("under way", 50, 60_000), ("ending", 2, WARM + 2 * MEASURED)]
    with progress(screen) as bar:
        task = bar.add_task("new items", total=4 * len(states))
        for state, at_least, horizon in states:
            options = (state, catalog, users, at_least, horizon, (64, 1), lambda: bar.advance(task))
            measured += measure(*options)
            served += measure_service(*options)
    document = {"lines": [asdict(one) for one in measured], "service": [asdict(one) for one in served]}
    tables = [table(measured), service_table(served)]
    return finish("new_items", tables, check_claims([*measured, *served]), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
