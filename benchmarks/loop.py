"""Overhead of the loop: time of retrieve() under floors beside plain retrieval, and the share that is not search.

    python -m benchmarks.loop                    # up to 300,000 items, some minutes
    python -m benchmarks.loop --only promises    # the third table alone
    python -m benchmarks.loop --quick            # small: a smoke test

The first table has the whole time: of the first requests of a horizon, while the policy learns from every list, and
of requests after a calibration, when it samples few of them. Batches are calls of 64 requests with prices that change
every 16; single requests are compared with faiss, which searches only. All run on one thread, whose CPU time counts.

For the second table, requests are served in calls of one batch over a whole horizon, the warm-up included. The third is
for thousands of promises that overlap, over 1,700,000 items (`benchmarks.loop_promises`; 4 GB of memory).

`guaranteed` and `none` (and faiss) take turns call by call on the same index, so that other load on the machine affects
them equally. Each figure is the median over rounds; only shares and ratios are meaningful.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from benchmarks.loop_promises import CALLS, check_promises, measure_promises, table_of_promises
from benchmarks.loop_promises import CLAIMED_ITEMS as CLAIMED_PROMISE_ITEMS
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.data import Synthetic, synthetic
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index

DIM, GROUPS, K = 64, 165, 50
CLAIMED_ITEMS, CLAIMED_BATCH = 300_000, 16  # the claim is about large catalogs and batches of 16
REQUESTS_PER_FLOOR = 60  # the floor grows with the horizon: 100 exposures in 6,000 requests
FIRST, PAST = 576, 2_048  # requests that are timed, and past ones to learn from before
WHOLE_BATCH = 16  # requests between two price changes
# The most time of `guaranteed`, as a multiple of that of `none`, by items: while the policy learns, and calibrated. The
# aim is 1.15 and 1.4, learning or not.
MOST_OF_NONE = {300_000: (1.3, 1.2), 12_000: (2.5, 1.8)}
MOST_OF_FAISS = (5.0, 8.3)  # time of `none` and `guaranteed` for one request, as multiples of that of faiss
_faiss: Any = faiss


class TimedIndex:
    """An index that measures the total time of its searches."""

    def __init__(self, index: Index) -> None:
        self.index, self.seconds = index, 0.0
        self.applies_prices = index.applies_prices

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Search, and add the time."""
        started = time.perf_counter()
        hits = self.index.search(users, prices, k)
        self.seconds += time.perf_counter() - started
        return hits


@dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    items: int
    batch: int
    requests: int
    ms_per_request: float
    outside_us: float
    outside_share: float
    times_none: float
    esp: float


def measure(catalog: Catalog, index: Index, users: npt.NDArray[np.float32], batch: int) -> Measurement:
    """Serve a horizon with and without a policy, in turns."""
    timed, requests = TimedIndex(index), len(users)
    fair = FairRetriever(
        catalog, k=K, floors=requests // REQUESTS_PER_FLOOR, horizon=requests, batch_size=batch, index=timed
    )
    plain = FairRetriever(catalog, k=K, floors=0, horizon=requests, policy="none", batch_size=batch, index=index)
    plain.retrieve(users[:batch])  # work that happens once per process is not measured
    seconds = {fair: 0.0, plain: 0.0}
    for start in range(0, requests, batch):
        for retriever in seconds:
            started = time.perf_counter()
            retriever.retrieve(users[start : start + batch])
            seconds[retriever] += time.perf_counter() - started
    whole, outside = seconds[fair], seconds[fair] - timed.seconds
    return Measurement(
        len(catalog),
        batch,
        requests,
        ms_per_request=whole / requests * 1e3,
        outside_us=outside / requests * 1e6,
        outside_share=outside / whole,
        times_none=whole / seconds[plain],
        esp=fair.report().esp,
    )


@dataclass(frozen=True)
class World:
    """A catalog, and how its requests arrive."""

    items: int
    groups: int
    k: int
    call: int
    floor: int


WORLDS = (World(300_000, 1_246, 50, 64, 2), World(12_000, 1_246, 50, 64, 2), World(3_000, 40, 20, 1, 60))


@dataclass(frozen=True)
class WholeLoop:
    """Milliseconds per request of the whole of retrieve(), and of faiss for single requests."""

    world: World
    learns: bool
    none_ms: float
    guaranteed_ms: float
    faiss_ms: float | None

    @property
    def ratio(self) -> float:
        """The time under floors, as a multiple of plain retrieval."""
        return self.guaranteed_ms / self.none_ms


def measure_whole(world: World, data: Synthetic, learns: bool, rounds: int) -> WholeLoop:
    """Time the first requests of a horizon with and without floors, in turns; the median over rounds."""
    catalog, users, call = Catalog(data.embeddings, data.groups), np.asarray(data.users, dtype=np.float32), world.call
    index, flat = ExactIndex(catalog, threads=1), _faiss.IndexFlatIP(DIM)
    single = call == 1
    if single:
        flat.add(np.asarray(data.embeddings, dtype=np.float32))
    found: dict[str, list[float]] = {"none": [], "guaranteed": [], "faiss": []}
    for _ in range(rounds):
        settings: dict[str, Any] = {"k": world.k, "horizon": 60 * len(users), "batch_size": WHOLE_BATCH, "index": index}
        fair = FairRetriever(catalog, floors=60 * world.floor, **settings)
        plain = FairRetriever(catalog, policy="none", **settings)
        if not learns:
            fair.calibrate(data.past_users)
        plain.retrieve(users[:call])  # work that happens once per process is not measured
        contenders: dict[str, Callable[[npt.NDArray[np.float32]], object]]
        contenders = {"none": plain.retrieve, "guaranteed": fair.retrieve}
        if single:
            contenders["faiss"] = lambda part: flat.search(part, world.k)
        seconds = dict.fromkeys(contenders, 0.0)
        for start in range(0, len(users), call):
            for name, serve in contenders.items():
                started = time.thread_time()
                serve(users[start : start + call])
                seconds[name] += time.thread_time() - started
        for name, total in seconds.items():
            found[name].append(total / len(users) * 1e3)
    middle = {name: float(np.median(times)) for name, times in found.items() if times}
    return WholeLoop(world, learns, middle["none"], middle["guaranteed"], middle.get("faiss"))


def table_of_whole(figures: Sequence[WholeLoop]) -> Table:
    return Table(
        f"The whole of retrieve(): d = {DIM}, prices change every {WHOLE_BATCH} requests, one thread",
        ["items", "groups", "K", "requests a call", "policy", "none", "guaranteed", "÷ none", "faiss", "÷ faiss"],
        [
            [
                f"{one.world.items:,}",
                f"{one.world.groups:,}",
                str(one.world.k),
                str(one.world.call),
                f"learns from the first {FIRST:,}" if one.learns else "calibrated",
                f"{one.none_ms:.3f} ms",
                f"{one.guaranteed_ms:.3f} ms",
                f"{one.ratio:.2f}",
                "" if one.faiss_ms is None else f"{one.faiss_ms:.3f} ms",
                "" if one.faiss_ms is None else f"{one.guaranteed_ms / one.faiss_ms:.1f}",
            ]
            for one in figures
        ],
    )


def median(figures: Sequence[Measurement]) -> Measurement:
    """Return the medians over rounds, and the lowest ESP."""
    first = figures[0]
    names = ("ms_per_request", "outside_us", "outside_share", "times_none")
    middle = {name: float(np.median([getattr(figure, name) for figure in figures])) for name in names}
    return Measurement(first.items, first.batch, first.requests, **middle, esp=min(figure.esp for figure in figures))


def check_claims(figures: Sequence[Measurement]) -> list[Claim]:
    claimed = [one for one in figures if one.items >= CLAIMED_ITEMS and one.batch >= CLAIMED_BATCH]
    if not claimed:
        return []
    what = f"share of retrieve() outside the search, {CLAIMED_ITEMS:,} items, B ≥ {CLAIMED_BATCH}"
    return [Claim(what, max(one.outside_share for one in claimed), 0.08)]


def check_whole(figures: Sequence[WholeLoop]) -> list[Claim]:
    claims = []
    for one in figures:
        phase = "while the policy learns" if one.learns else "calibrated"
        if one.faiss_ms is not None:
            what = f"{{}} ÷ faiss, one request, {one.world.items:,} items, {phase}"
            claims.append(Claim(what.format("none"), one.none_ms / one.faiss_ms, MOST_OF_FAISS[0]))
            claims.append(Claim(what.format("guaranteed"), one.guaranteed_ms / one.faiss_ms, MOST_OF_FAISS[1]))
        else:
            what = f"guaranteed ÷ none, {one.world.items:,} items, {phase}"
            claims.append(Claim(what, one.ratio, MOST_OF_NONE[one.world.items][0 if one.learns else 1]))
    return claims


def table(figures: Sequence[Measurement]) -> Table:
    return Table(
        f"The loop around the search: {GROUPS} groups, d = {DIM}, K = {K}, policy guaranteed",
        ["items", "B", "requests", "ms/request", "outside the search", "share", "time ÷ none", "ESP"],
        [
            [
                f"{one.items:,}",
                str(one.batch),
                f"{one.requests:,}",
                f"{one.ms_per_request:.2f}",
                f"{one.outside_us:.0f} µs/request",
                f"{one.outside_share:.1%}",
                f"{one.times_none:.2f}",
                f"{one.esp:.0%}",
            ]
            for one in figures
        ],
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[30_000, CLAIMED_ITEMS])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--requests", type=int, default=6_144, help="horizon; a third of it at B = 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--promise-items", type=int, default=CLAIMED_PROMISE_ITEMS)
    parser.add_argument("--only", choices=["promises"], help="the table of promises that overlap, and no other")
    parser.add_argument("--quick", action="store_true", help="one small catalog, one round")
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    worlds: Sequence[World] = WORLDS
    if given.quick:
        given.items, given.requests, given.rounds, worlds = [10_000], 1_536, 1, WORLDS[1:]
        given.promise_items = 20_000
    if given.only:
        given.items, worlds = [], ()
    figures: list[Measurement] = []
    whole: list[WholeLoop] = []
    _faiss.omp_set_num_threads(1)
    with progress(screen) as bar:
        task = bar.add_task("", total=2 * len(worlds))
        for world in worlds:
            bar.update(task, description=f"{world.items:,} items: the whole loop")
            data = synthetic(world.items, world.groups, FIRST, DIM, given.seed, n_past=PAST)
            for learns in (True, False):
                whole.append(measure_whole(world, data, learns, given.rounds))
                bar.advance(task)
        task = bar.add_task("", total=len(given.items) * given.rounds * len(given.batch_sizes))
        for n in given.items:
            bar.update(task, description=f"{n:,} items: generating")
            data = synthetic(n, GROUPS, given.requests, DIM, given.seed, n_past=0)
            catalog = Catalog(data.embeddings, data.groups)
            index = ExactIndex(catalog)
            rounds: dict[int, list[Measurement]] = {batch: [] for batch in given.batch_sizes}
            for turn in range(given.rounds):
                for batch, found in rounds.items():
                    bar.update(task, description=f"{n:,} items, round {turn + 1}, B {batch}")
                    users = data.users[: len(data.users) // 3] if batch == 1 else data.users
                    found.append(measure(catalog, index, users, batch))
                    bar.advance(task)
            figures += [median(found) for found in rounds.values()]
        task = bar.add_task(f"{given.promise_items:,} items: promises that overlap", total=CALLS)
        overlapping = measure_promises(given.promise_items, given.seed, lambda: bar.advance(task))
    document = {
        "dim": DIM,
        "groups": GROUPS,
        "k": K,
        "whole": [{**asdict(one), "ratio": one.ratio} for one in whole],
        "figures": [asdict(figure) for figure in figures],
        "promises": {**asdict(overlapping), "share": overlapping.share},
    }
    claims = [*check_whole(whole), *check_claims(figures), *check_promises(overlapping)]
    tables = [table_of_whole(whole), table(figures)] if not given.only else []
    return finish("loop", [*tables, table_of_promises(overlapping)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
