"""Speed and recall of approximate search under prices, compared with exact search.

    python -m benchmarks.approximate                    # 1,000,000 items; graphs at 50,000 (five minutes)
    python -m benchmarks.approximate --items 300000 --graph-items 0
    python -m benchmarks.approximate --quick            # small: a smoke test

Recall is the fraction of the true best 50 under the same prices, for all items and for those of subsidised groups. The
paper's construction, vectors extended by a one-hot code of their group, is measured too, with stock faiss indexes: its
IVF reads as many items as ours, and its graph has the same search width. `exact` is several times as fast as the flat
index of faiss in batches, so ratios to both are given; faiss flat is timed without prices. All contenders take
turns call by call, so that other load on the machine affects them equally; only ratios are meaningful.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from benchmarks.search import make_prices, measure
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic
from fairsync.search import ExactIndex, HnswIndex, IvfIndex, ShardedIndex

DIM, K, GROUPS, BATCH = 64, 50, 165, 64
CLAIMED_ITEMS = 1_000_000
EXACT, SHARDS, IVF, HNSW, FLAT = "exact", "exact, 4 shards at once", "ivf", "hnsw", "faiss flat"
ONE_HOT_IVF, ONE_HOT_HNSW = "one-hot ivf (paper)", "one-hot hnsw (paper)"
# Graphs are slow and stand beside the others for orientation.
GRAPH_ROUNDS = 2
BARE, PRICED, STEEP = "none", "prices", "prices × 10"
_faiss: Any = faiss

Floats = npt.NDArray[np.float32]
Prices = npt.NDArray[np.float64]
Search = Callable[[Floats, Prices | None], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Measurement:
    """One line of the table.

    Ratios are to `exact` under the same prices, to faiss flat, which takes none, and to the same search without any.
    """

    items: int
    search: str
    prices: str
    recall: float
    recall_subsidised: float | None
    ms_batch: float
    ms_single: float
    times_exact_batch: float
    times_exact_single: float
    times_flat_batch: float
    times_flat_single: float
    times_without_prices: float | None


class World:
    """A generated catalog, past requests to tune on, requests to measure, and prices."""

    def __init__(self, items: int, requests: int, seed: int) -> None:
        data = synthetic(items, GROUPS, requests, DIM, seed, n_past=1024)
        self.catalog = Catalog(data.embeddings, data.groups)
        self.users, self.past = data.users, data.past_users
        rng = np.random.default_rng(seed)
        scale = float((self.users[:32] @ data.embeddings[:4096].T).std())
        some = make_prices(GROUPS, scale, rng)
        self.prices: dict[str, Prices | None] = {BARE: None, PRICED: some, STEEP: 10 * some}


class OneHot:
    """The paper's construction on an approximate index of faiss: h = item ‖ one-hot(group), q = user ‖ -price."""

    def __init__(self, catalog: Catalog, graph: bool, parameters: Any, lists: int = 0) -> None:
        n = len(catalog)
        wide = np.zeros((n, DIM + catalog.n_groups), dtype=np.float32)
        wide[:, :DIM] = catalog.embeddings
        wide[np.arange(n), DIM + catalog.group_of] = 1.0
        width, metric = wide.shape[1], _faiss.METRIC_INNER_PRODUCT
        self._parameters = parameters
        if graph:
            self._index = _faiss.IndexHNSWFlat(width, 32, metric)
            self._index.hnsw.efConstruction = 80
        else:
            self._coarse = _faiss.IndexFlatIP(width)
            self._index = _faiss.IndexIVFFlat(self._coarse, width, lists, metric)
            self._index.cp.max_points_per_centroid, self._index.cp.niter = 64, 8
            self._index.train(wide)
        self._index.add(wide)

    def search(self, users: Floats, prices: Prices | None) -> npt.NDArray[np.int64]:
        """Return the rows found."""
        price = np.zeros(GROUPS) if prices is None else prices
        queries = np.hstack([users, np.tile(-price, (len(users), 1)).astype(np.float32)])
        rows: npt.NDArray[np.int64] = self._index.search(queries, K, params=self._parameters)[1]
        return rows


def flat(catalog: Catalog) -> Search:
    """Return the flat index of faiss, which ignores prices."""
    index = _faiss.IndexFlatIP(DIM)
    index.add(np.asarray(catalog.embeddings, dtype=np.float32))
    return lambda users, prices: index.search(users, K)[1]


def ours(index: ExactIndex | ShardedIndex | IvfIndex | HnswIndex) -> Search:
    return lambda users, prices: index.search(users[:, None], prices, K).rows


def lists_world(world: World, threads: int) -> dict[str, Search]:
    """Return the ways to search a large catalog."""
    ivf = IvfIndex(world.catalog, exact_below=0).tune(world.past)
    lists = max(1, len(world.catalog) // 1000)
    assert ivf.lists is not None
    centred = world.past @ ivf.lists.centres.T
    read = (ivf.tuning.choose(ivf.lists, world.past, centred, K) @ ivf.lists.sizes).mean()
    probes = _faiss.SearchParametersIVF(nprobe=max(1, round(float(read) / len(world.catalog) * lists)))
    return {
        EXACT: ours(ExactIndex(world.catalog, threads)),
        SHARDS: ours(ShardedIndex(world.catalog, 4, lambda part: ExactIndex(part, threads))),
        IVF: ours(ivf),
        FLAT: flat(world.catalog),
        ONE_HOT_IVF: OneHot(world.catalog, False, probes, lists).search,
    }


def graph_world(world: World, threads: int) -> dict[str, Search]:
    """Return the ways to search a catalog that is small enough to build graphs in a minute."""
    hnsw = HnswIndex(world.catalog, exact_below=0).tune(world.past)
    broad = _faiss.SearchParametersHNSW(efSearch=hnsw.breadth)
    return {
        EXACT: ours(ExactIndex(world.catalog, threads)),
        IVF: ours(IvfIndex(world.catalog, exact_below=0).tune(world.past)),
        HNSW: ours(hnsw),
        FLAT: flat(world.catalog),
        ONE_HOT_HNSW: OneHot(world.catalog, True, broad).search,
    }


def shares_found(
    truth: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], subsidised: npt.NDArray[np.bool_]
) -> tuple[float, float | None]:
    """Return the recall of all items, and of the subsidised ones."""
    found = np.array([np.isin(wanted, got) for wanted, got in zip(truth, rows, strict=True)])
    special = subsidised[truth]
    return float(found.mean()), float(found[special].mean()) if special.any() else None


def caller(search: Search, users: Floats, prices: Prices | None, size: int) -> Callable[[int], object]:
    """Return the function to time, which searches for a batch of users, different ones in every call."""

    def call(number: int) -> object:
        start = number * size % (len(users) - size + 1)
        return search(users[start : start + size], prices)

    return call


def compare(world: World, searches: dict[str, Search], rounds: int) -> list[Measurement]:
    """Measure all searches under all kinds of prices, in turns."""

    def timed(size: int, calls: int) -> dict[tuple[str, str], float]:
        pairs = [(name, kind) for kind in world.prices for name in searches if name != FLAT or kind == BARE]
        named = {str(i): caller(searches[n], world.users, world.prices[p], size) for i, (n, p) in enumerate(pairs)}
        seconds = measure(named, rounds, calls)
        return {pair: seconds[str(i)] for i, pair in enumerate(pairs)}

    batch, single = timed(BATCH, calls=2), timed(1, calls=8)
    figures: list[Measurement] = []
    for kind, prices in world.prices.items():
        truth = searches[EXACT](world.users, prices)
        cheap = np.zeros(GROUPS, dtype=bool) if prices is None else prices < 0
        for name, search in searches.items():
            if (name, kind) not in batch:
                continue
            recall, special = shares_found(truth, search(world.users, prices), cheap[world.catalog.group_of])
            here, bare = (name, kind), (name, BARE)
            added = max(each[here] / each[bare] for each in (batch, single))
            figures.append(
                Measurement(
                    len(world.catalog),
                    name,
                    kind,
                    recall,
                    special,
                    ms_batch=batch[here] / BATCH * 1e3,
                    ms_single=single[here] * 1e3,
                    times_exact_batch=batch[EXACT, kind] / batch[here],
                    times_exact_single=single[EXACT, kind] / single[here],
                    times_flat_batch=batch[FLAT, BARE] / batch[here],
                    times_flat_single=single[FLAT, BARE] / single[here],
                    times_without_prices=None if prices is None else added,
                )
            )
    return figures


def check_claims(figures: Sequence[Measurement]) -> list[Claim]:
    """Compare `ivf` on the large catalog with its claims."""
    large = [one for one in figures if one.search == IVF and one.items >= CLAIMED_ITEMS]
    if not large:
        return []
    priced = [one for one in large if one.prices != BARE]
    special = [one.recall_subsidised for one in priced if one.recall_subsidised is not None]
    added = [one.times_without_prices for one in priced if one.times_without_prices is not None]
    single, batch = min(one.times_exact_single for one in priced), min(one.times_exact_batch for one in priced)
    flat_batch = min(one.times_flat_batch for one in priced)
    return [
        Claim("ivf: recall@50, prices or none", min(one.recall for one in large), 0.99, at_most=False),
        Claim("ivf: recall@50 of subsidised groups", min(special), 0.99, at_most=False),
        Claim("ivf: times as fast as exact under prices, one request", single, 10, at_most=False),
        Claim("ivf: times as fast as exact under prices, batch of 64", batch, 5, at_most=False),
        Claim("ivf under prices: times as fast as faiss flat without, batch of 64", flat_batch, 10, at_most=False),
        Claim("ivf: time with prices ÷ without", max(added), 1.05),
    ]


def table(figures: Sequence[Measurement]) -> Table:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return Table.of(
        f"Approximate search, d = {DIM}, {GROUPS} groups, K = {K}, batches of {BATCH}",
        figures,
        {
            "items": lambda one: f"{one.items:,}",
            "search": lambda one: one.search,
            "prices": lambda one: one.prices,
            "recall@50": lambda one: f"{one.recall:.4f}",
            "of subsidised": lambda one: text(one.recall_subsidised, ".4f"),
            "ms, batch": lambda one: f"{one.ms_batch:.3f}",
            "ms, one": lambda one: f"{one.ms_single:.2f}",
            "× exact, batch": lambda one: f"{one.times_exact_batch:.1f}",
            "× exact, one": lambda one: f"{one.times_exact_single:.1f}",
            "× flat, batch": lambda one: f"{one.times_flat_batch:.1f}",
            "× flat, one": lambda one: f"{one.times_flat_single:.1f}",
            "÷ without prices": lambda one: text(one.times_without_prices, ".2f"),
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="two small catalogs")
    parser.add_argument("--items", type=int, default=CLAIMED_ITEMS, help="size of the large catalog")
    parser.add_argument("--graph-items", type=int, default=50_000, help="size of the catalog for graphs; 0: none")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1, help="threads per search; building uses all cores")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    items, graph_items = (20_000, 5_000) if given.quick else (given.items, given.graph_items)
    requests = max(BATCH, 128 if given.quick else given.requests)
    figures: list[Measurement] = []
    with progress(screen) as bar:
        task = bar.add_task("", total=2)
        graph_rounds = min(GRAPH_ROUNDS, given.rounds)
        for size, ways, rounds in ((items, lists_world, given.rounds), (graph_items, graph_world, graph_rounds)):
            if size:
                bar.update(task, description=f"{size:,} items: building")
                world = World(size, requests, given.seed)
                faiss.omp_set_num_threads(os.cpu_count() or 1)
                searches = ways(world, given.threads)
                bar.update(task, description=f"{size:,} items: measuring")
                faiss.omp_set_num_threads(given.threads)
                with threadpool_limits(given.threads, user_api="blas"):
                    figures += compare(world, searches, rounds)
            bar.advance(task)
    document = {"dim": DIM, "k": K, "groups": GROUPS, "threads": given.threads, "figures": [asdict(f) for f in figures]}
    return finish("approximate", [table(figures)], check_claims(figures), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
