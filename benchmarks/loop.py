"""Overhead of the loop: the share of the time of retrieve() that is not index.search().

    python -m benchmarks.loop                    # 30,000 and 300,000 items, some minutes
    python -m benchmarks.loop --quick            # small: a smoke test

Requests are served in calls of one batch over a whole horizon, the warm-up included. `guaranteed` and `none` take
turns call by call on the same index, so that other load on the machine affects them equally. Each figure is the
median over rounds; only shares and ratios are meaningful.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.data import Synthetic, synthetic
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index

DIM, GROUPS, K = 64, 165, 50
CLAIMED_ITEMS, CLAIMED_BATCH = 300_000, 16  # the claim is about large catalogs and batches of 16
REQUESTS_PER_FLOOR = 60  # the floor grows with the horizon: 100 exposures in 6,000 requests


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
    return [Claim(what, max(one.outside_share for one in claimed), 0.05)]


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
    parser.add_argument("--quick", action="store_true", help="one small catalog, one round")
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.items, given.requests, given.rounds = [10_000], 1_536, 1
    figures: list[Measurement] = []
    with progress(screen) as bar:
        task = bar.add_task("", total=len(given.items) * given.rounds * len(given.batch_sizes))
        for n in given.items:
            bar.update(task, description=f"{n:,} items: generating")
            data: Synthetic = synthetic(n, GROUPS, given.requests, DIM, given.seed, n_past=0)
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
    document = {"dim": DIM, "groups": GROUPS, "k": K, "figures": [asdict(figure) for figure in figures]}
    return finish("loop", [table(figures)], check_claims(figures), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
