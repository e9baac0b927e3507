"""Compare the two ways to apply prices in Milvus, by the numbers of groups and items, and time an update.

    milvus-server --data DIR                            # from PyPI's `milvus`, or any server of your own
    python -m benchmarks.milvus --uri http://localhost:19530
    python -m benchmarks.milvus --uri small.db --quick  # Milvus Lite: a smoke test

Prices are those that `guaranteed` learns for floors of 30 % of all slots. All contenders take turns call by call; only
ratios mean anything. The requests that over-fetching passes to the client's own exact search are shown; their time
is included. An update replaces the embeddings of 1,000 items, and is done when a search returns them.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from benchmarks.search import measure
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.data.synthetic import synthetic
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index
from fairsync.search.milvus import MilvusIndex

K, BATCH, UPDATE = 50, 16, 1000
PAST, HORIZON, FLOOR_SHARE = 1024, 10_000, 0.3
EXACT, ONE_HOT, OVER_FETCH = "exact, here", "one-hot", "over-fetch"
Prices = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    items: int
    dim: int
    groups: int
    way: str
    prices: bool
    ms_single: float
    ms_batch: float
    searched_here: float
    wrong: int
    upload_seconds: float
    update_seconds: float
    times_as_wide: float


class Counting:
    """The client's own exact index, which counts its requests."""

    applies_prices = "bias"

    def __init__(self, exact: Index) -> None:
        self._exact, self.requests = exact, 0

    def search(self, users: npt.NDArray[np.floating], prices: Prices | None, k: int) -> Hits:
        """Search, and count the requests; see `Index.search`."""
        self.requests += len(users)
        return self._exact.search(users, prices, k)


def learn_prices(catalog: Catalog, past: npt.NDArray[np.float32]) -> Prices:
    """Return the prices of `guaranteed` for equal floors, which are lower if a group has too few items."""
    most = HORIZON * np.minimum(catalog.group_sizes, K)
    floors = np.minimum(FLOOR_SHARE * HORIZON * K / catalog.n_groups, most).astype(int).tolist()
    by_label = dict(zip(catalog.labels, floors, strict=True))
    retriever = FairRetriever(catalog, k=K, floors=by_label, horizon=HORIZON).calibrate(past)
    prices = retriever.report().prices
    return np.array([prices[label] for label in catalog.labels])


def update(index: MilvusIndex, user: npt.NDArray[np.float32], seed: int) -> float:
    """Return the seconds until a search returns new embeddings of some items."""
    catalog, rng = index.catalog, np.random.default_rng(seed)
    rows = rng.choice(len(catalog), min(UPDATE, len(catalog) - 1), replace=False)
    moved = catalog.embeddings[rows] + 0.1 * rng.normal(size=(len(rows), catalog.dim))
    change = upsert_items(catalog, moved, catalog.labels_of(catalog.group_of[rows]), catalog.ids[rows])
    started = time.perf_counter()
    index.follow(change).search(user, None, K)
    return time.perf_counter() - started


def compare(
    uri: str, items: int, dim: int, groups: int, requests: int, rounds: int, calls: int, seed: int
) -> list[Measurement]:
    """Upload one catalog in both ways, and compare both with exact search in this process."""
    data = synthetic(items, groups, requests, dim, seed, n_past=PAST)
    catalog = Catalog(data.embeddings, data.groups)
    learnt, exact = learn_prices(catalog, data.past_users), ExactIndex(catalog, threads=1)
    contenders: dict[str, Index] = {EXACT: exact}
    took, left, uploads = {EXACT: 0.0}, {EXACT: Counting(exact)}, dict[str, MilvusIndex]()
    for way in (ONE_HOT, OVER_FETCH):
        started = time.perf_counter()
        uploaded = MilvusIndex(catalog, uri, f"bench_{way[:3]}", prices=way, timeout=60, upload=True)
        took[way] = time.perf_counter() - started
        uploaded.drop_others()  # collections of earlier measurements
        left[way] = Counting(exact)
        uploaded.over_fetch.exact = left[way]
        contenders[way] = uploads[way] = uploaded
    users = data.users[:, None]

    def caller(index: Index, prices: Prices | None, size: int) -> Callable[[int], object]:
        return lambda call: index.search(users[call * size % (len(users) - size + 1) :][:size], prices, K)

    measured = []
    for prices in (None, learnt):
        single, batch = (
            measure({way: caller(index, prices, size) for way, index in contenders.items()}, rounds, calls)
            for size in (1, BATCH)
        )
        for way, index in contenders.items():
            before = left[way].requests
            found, truth = index.search(users, prices, K), exact.search(users, prices, K)
            wrong = int((found.rows != truth.rows).any(axis=1).sum())
            share = (left[way].requests - before) / len(users)
            measured.append((way, prices is not None, single[way], batch[way] / BATCH, share, wrong))
    updates = {way: update(index, users[:1], seed) for way, index in uploads.items()}
    return [
        Measurement(
            items,
            dim,
            groups,
            way,
            priced,
            ms_single=single * 1e3,
            ms_batch=batch * 1e3,
            searched_here=share,
            wrong=wrong,
            upload_seconds=took[way],
            update_seconds=updates.get(way, 0.0),
            times_as_wide=1 + groups / dim if way == ONE_HOT else 1.0,
        )
        for way, priced, single, batch, share, wrong in measured
    ]


def table(figures: Sequence[Measurement]) -> Table:
    return Table(
        f"Milvus under prices, K = {K}, batches of {BATCH}",
        [
            "items",
            "d",
            "groups",
            "way",
            "prices",
            "ms, one",
            "ms, batch",
            "searched here",
            "upload s",
            "update s",
            "width",
        ],
        [
            [
                f"{one.items:,}",
                f"{one.dim}",
                f"{one.groups:,}",
                one.way,
                "yes" if one.prices else "no",
                f"{one.ms_single:.2f}",
                f"{one.ms_batch:.2f}",
                f"{one.searched_here:.0%}",
                f"{one.upload_seconds:.0f}",
                f"{one.update_seconds:.2f}",
                f"× {one.times_as_wide:.1f}",
            ]
            for one in figures
        ],
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uri", required=True, help="address of the server, or a path that ends in .db")
    parser.add_argument("--quick", action="store_true", help="one small catalog")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--groups", type=int, nargs="+", default=[5, 65, 165, 300, 500])
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    items, counts = (2_000, [5]) if given.quick else (given.items, given.groups)
    requests, figures = max(BATCH, given.requests), list[Measurement]()
    with progress(screen) as bar, threadpool_limits(1, user_api="blas"):
        task = bar.add_task("", total=len(counts))
        for groups in counts:
            bar.update(task, description=f"{groups:,} groups", advance=0)
            figures += compare(given.uri, items, given.dim, groups, requests, given.rounds, given.calls, given.seed)
            bar.advance(task)
    document = {"dim": given.dim, "k": K, "figures": [asdict(one) for one in figures]}
    claims = [Claim("answers that differ from those of exact search", sum(one.wrong for one in figures), 0)]
    return finish("milvus", [table(figures)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
