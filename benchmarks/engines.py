"""Compare engines: time per request, recall, items fetched, promises kept, with this library's own indexes beside them.

    python -m benchmarks.engines                                   # all engines, one after another
    python -m benchmarks.engines --items 300000 --engine pgvector  # one engine; its lines are added to the tables
    python -m benchmarks.engines --postgres postgresql://me@localhost/bench --qdrant http://localhost:6333

By default, Postgres and Milvus are servers of PyPI's packages that are started for the run, and Qdrant is its own
engine in this process. Prices are those of a running policy: `guaranteed` with floors of 30 % of all slots, after 512
requests. The indexes of an engine take turns, call by call, with exact search in this process; only ratios mean
anything. Recall is against exact search under the same prices. Fetched ÷ K is what an engine ranks without prices (or,
if it ranks all items under prices, returns) for each request, in all attempts. Requests that no number of fetched items
decides are searched here; their time is included.

Then two retrievers serve the requests with the engine, and their promises are counted: floors of all groups, and
promises that overlap (floors of all groups, a share of new items, a cap on the largest group).
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen
from benchmarks.search import measure
from benchmarks.servers import running_milvus, running_postgres
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.data.synthetic import Synthetic, synthetic
from fairsync.promises import Promise, each
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, Index, IvfIndex
from fairsync.search.engines import EngineIndex, make_engine_index
from fairsync.search.engines.engine import EngineQuery, Ranking

K, DIM, GROUPS = 50, 64, 65
HORIZON, FLOOR_SHARE, NEW_SHARE, CAP = 10_000, 0.3, 0.2, 0.6
NEW_ITEMS, PAST = 0.1, 1024
HERE = "here"
# The indexes of each engine: what they are called in the table, and their settings.
WAYS: dict[str, dict[str, dict[str, str]]] = {
    "embedded": {"exact": {}, "ivf": {}},
    "pgvector": {"exact": {"index": "exact"}, "hnsw": {"index": "hnsw"}},
    "qdrant": {"exact": {"index": "exact"}, "hnsw": {"index": "hnsw"}},
    "milvus": {"exact": {"index": "exact"}, "hnsw": {"index": "hnsw"}},
}
ORDER = [f"{engine}, {way}" for engine, ways in WAYS.items() for way in ways]
# An engine that is exact finds all. How much an approximate one finds is up to its settings; prices may cost no more.
MOST_RECALL_LOST = 0.02
Prices = npt.NDArray[np.float64]
Users = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Served:
    """Requests served under promises: how many were kept, milliseconds a request, items fetched for each candidate."""

    kept: int
    promises: int
    ms: float
    fetched: float


@dataclass(frozen=True)
class EngineFigures:
    """One line of the tables.

    Attributes
    ----------
    items : int
        The number of items.
    way : str
        The engine and its index.
    ms, ms_priced : float
        Milliseconds per request, without and with prices.
    times_embedded : float
        Time per request with prices, in multiples of exact search in this process.
    recall, recall_priced : float
        The share of the true best K that was found.
    fetched, fetched_priced : float
        Items fetched for each of the K candidates.
    searched_here : float
        The share of requests with prices that were searched in this process.
    build_seconds : float
        Seconds to write all items, with their index.
    floors, overlapping : Served
        Requests under floors of all groups, and under promises that overlap.
    """

    items: int
    way: str
    ms: float
    ms_priced: float
    times_embedded: float
    recall: float
    recall_priced: float
    fetched: float
    fetched_priced: float
    searched_here: float
    build_seconds: float
    floors: Served
    overlapping: Served


class Counting:
    """The client's own exact index, which counts its requests."""

    applies_prices = "bias"

    def __init__(self, exact: Index) -> None:
        self._exact, self.requests = exact, 0

    def search(self, users: npt.NDArray[np.floating], prices: Prices | None, k: int) -> Hits:
        """Search, and count the requests; see `Index.search`."""
        self.requests += len(users)
        return self._exact.search(users, prices, k)


class Fetching:
    """Counts the items that an engine fetches; K for each request if the index is none of an engine."""

    def __init__(self, index: Index) -> None:
        self.items, self._is_engine = 0, isinstance(index, EngineIndex)
        if isinstance(index, EngineIndex):
            self._formula = index.engine.abilities.prices == "formula"
            self._ask = index.engine.search
            index.engine.search = self  # type: ignore[method-assign]

    def __call__(self, query: EngineQuery) -> list[Ranking]:
        """Ask the engine, and count."""
        depth = query.depth if query.bonus is not None and self._formula else query.count
        self.items += depth * len(query.vectors)
        return self._ask(query)

    def of_each(self, requests: int) -> float:
        """Return the items fetched for each candidate, and begin to count again."""
        items, self.items = self.items, 0
        return items / requests / K if self._is_engine else 1.0


def learn_prices(catalog: Catalog, past: Users) -> Prices:
    """Return the prices of `guaranteed` while it runs; floors are equal, or lower if a group has too few items."""
    most = HORIZON * np.minimum(catalog.group_sizes, K)
    floors = np.minimum(FLOOR_SHARE * HORIZON * K / catalog.n_groups, most).astype(int).tolist()
    by_label = dict(zip(catalog.labels, floors, strict=True))
    calibrated = len(past) // 2
    retriever = FairRetriever(catalog, k=K, floors=by_label, horizon=HORIZON).calibrate(past[:calibrated])
    retriever.retrieve(past[calibrated:])
    prices = retriever.report().prices
    return np.array([prices[label] for label in catalog.labels])


def promised(catalog: Catalog, requests: int) -> tuple[list[Promise], list[Promise]]:
    """Return floors of all groups for so many requests, and promises that overlap."""
    floor = max(1, int(FLOOR_SHARE * requests * K / catalog.n_groups))
    floors = each(catalog, "group", at_least=floor)
    largest = catalog.labels[int(catalog.group_sizes.argmax())]
    more = [Promise({"new": True}, at_least=NEW_SHARE), Promise({"group": largest}, at_most=CAP)]
    return floors, [*floors, *more]


def serve(catalog: Catalog, promises: list[Promise], users: Users, make: Callable[[Catalog], Index]) -> Served:
    """Serve requests under promises with a new index."""
    retriever = FairRetriever(catalog, k=K, horizon=len(users), promises=promises, index=make)
    fetching = Fetching(retriever.index)
    started = time.perf_counter()
    retriever.retrieve(users)
    took = time.perf_counter() - started
    rows = retriever.report().promises
    return Served(sum(row.kept for row in rows), len(rows), took / len(users) * 1e3, fetching.of_each(len(users)))


def make_way(engine: str, way: str, catalog: Catalog, url: str) -> Index:
    """Return an index of an engine over the catalog; items that are missing there are written."""
    if engine == "embedded":
        return ExactIndex(catalog, threads=1) if way == "exact" else IvfIndex(catalog)
    settings = WAYS[engine][way]
    given = {"table" if engine == "pgvector" else "collection": f"bench_{settings['index']}", **settings}
    return make_engine_index(engine, catalog, upload=True, url=url, timeout=900.0, **given)


def compare(
    engine: str, url: str, catalog: Catalog, data: Synthetic, rounds: int, calls: int, say: Callable[[str], object]
) -> list[EngineFigures]:
    """Write the catalog to an engine, and compare its indexes with exact search in this process."""
    learnt, exact = learn_prices(catalog, data.past_users), ExactIndex(catalog, threads=1)
    say("prices learnt")
    made, took = dict[str, Index](), dict[str, float]()
    for way in WAYS[engine]:
        started = time.perf_counter()
        made[way] = make_way(engine, way, catalog, url)
        took[way] = time.perf_counter() - started
        say(f"{engine}, {way}: {len(catalog):,} items written")
    requests, both = data.users[:, None], (None, learnt)

    def caller(index: Index, prices: Prices | None) -> Callable[[int], object]:
        return lambda call: index.search(requests[call % len(requests)][None], prices, K)

    seconds = []
    for prices in both:
        contenders = {HERE: caller(exact, prices)} | {way: caller(index, prices) for way, index in made.items()}
        seconds.append(measure(contenders, rounds, calls))
        say(f"{engine}: timed {'without' if prices is None else 'with'} prices")
    truth = [exact.search(requests, prices, K).rows for prices in both]
    figures = []
    for way, index in made.items():
        fetching, here = Fetching(index), Counting(exact)
        if isinstance(index, EngineIndex):
            index.certified.exact = here
        recalls, fetched = [], []
        for prices, true in zip(both, truth, strict=True):
            here.requests = 0
            recalls.append(_recall(index.search(requests, prices, K).rows, true))
            fetched.append(fetching.of_each(len(requests)))
        ms = [one[way] * 1e3 for one in seconds]
        make, promises = partial(make_way, engine, way, url=url), promised(catalog, len(requests))
        floors, overlapping = (serve(catalog, some, data.users, make) for some in promises)
        say(f"{engine}, {way}: promises served")
        figures.append(EngineFigures(
            items=len(catalog), way=f"{engine}, {way}", ms=ms[0], ms_priced=ms[1],
            times_embedded=ms[1] / (seconds[1][HERE] * 1e3), recall=recalls[0], recall_priced=recalls[1],
            fetched=fetched[0], fetched_priced=fetched[1], searched_here=here.requests / len(requests),
            build_seconds=took[way], floors=floors, overlapping=overlapping,
        ))  # fmt: skip
    return figures


def _recall(found: npt.NDArray[np.int64], true: npt.NDArray[np.int64]) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, true, strict=True)]))


def tables(figures: Sequence[EngineFigures]) -> list[Table]:
    """Return two tables for each number of items: searches, and promises."""
    found = []
    for items in sorted({one.items for one in figures}):
        mine = [one for one in figures if one.items == items]
        title = f"{items:,} items, d {DIM}, {GROUPS} groups, K {K}"
        searches = [
            [
                one.way, f"{one.ms:.2f}", f"{one.ms_priced:.2f}", f"{one.times_embedded:.1f}", f"{one.recall:.3f}",
                f"{one.recall_priced:.3f}", f"{one.fetched:.1f}", f"{one.fetched_priced:.1f}",
                f"{one.searched_here:.0%}", f"{one.build_seconds:.0f}",
            ]
            for one in mine
        ]  # fmt: skip
        columns = ["engine", "ms", "ms, prices", "× embedded", "recall", "recall, prices", "fetched ÷ K"]
        columns += ["fetched ÷ K, prices", "here", "write s"]
        found.append(Table(f"Searches: {title}, one request at a time", columns, searches))
        promises = [
            [one.way] + [
                cell for served in (one.floors, one.overlapping)
                for cell in (f"{served.kept} / {served.promises}", f"{served.ms:.1f}", f"{served.fetched:.1f}")
            ]
            for one in mine
        ]  # fmt: skip
        columns = ["engine", "floors kept", "ms", "fetched ÷ K", "overlapping promises kept", "ms", "fetched ÷ K"]
        found.append(Table(f"Promises: {title}, 16 requests at a time", columns, promises))
    return found


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--engine", action="append", choices=WAYS, help="Measure this engine only. May be repeated.")
    parser.add_argument("--postgres", help="URL of a database with pgvector. Default: a server of its own.")
    parser.add_argument("--qdrant", help="URL of a server, or a folder. Default: a folder of its own.")
    parser.add_argument("--milvus", help="URL of a server, or a file of Milvus Lite. Default: a server of its own.")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    data = synthetic(given.items, GROUPS, given.requests, DIM, given.seed, n_past=PAST)
    new = np.random.default_rng(given.seed).random(given.items) < NEW_ITEMS
    catalog = Catalog(data.embeddings, {"group": data.groups, "new": new})
    figures, started = _earlier(given.out), time.perf_counter()

    def say(what: str) -> None:
        screen.print(f"{time.perf_counter() - started:6.0f} s  {what}", markup=False)

    for engine in given.engine or WAYS:
        with ExitStack() as stack, threadpool_limits(1, user_api="blas"):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            url = _url(engine, given, folder, stack)
            for one in compare(engine, url, catalog, data, given.rounds, given.calls, say):
                figures[one.items, one.way] = one
    lines = sorted(figures.values(), key=lambda one: (one.items, ORDER.index(one.way)))
    lowest = min(min(one.recall, one.recall_priced) for one in lines if "exact" in one.way)
    kept = min(served.kept / served.promises for one in lines for served in (one.floors, one.overlapping))
    claims = [
        Claim("recall of exact engines", lowest, 1.0, at_most=False),
        Claim("share of promises kept", kept, 1.0, at_most=False),
    ]
    lost = [one.recall - one.recall_priced for one in lines if "exact" not in one.way]
    if lost:
        claims.append(Claim("recall that prices cost approximate indexes", max(lost), MOST_RECALL_LOST))
    document = {"dim": DIM, "groups": GROUPS, "k": K, "figures": [asdict(one) for one in lines]}
    return finish("engines", tables(lines), claims, document, given.out, screen)


def _earlier(out: Path) -> dict[tuple[int, str], EngineFigures]:
    """Return the figures of earlier runs with the same output folder."""
    path = out / "engines.json"
    if not path.exists():
        return {}
    found = []
    for one in json.loads(path.read_text(encoding="utf-8"))["figures"]:
        served = {name: Served(**one[name]) for name in ("floors", "overlapping")}
        found.append(EngineFigures(**(one | served)))
    return {(one.items, one.way): one for one in found}


def _url(engine: str, given: argparse.Namespace, folder: Path, stack: ExitStack) -> str:
    """Return the address of an engine, which is started if none is given."""
    if engine == "pgvector":
        # An HNSW graph that does not fit is built many times slower; the table is read from memory.
        settings = {"maintenance_work_mem": "1GB", "max_wal_size": "4GB"}
        return given.postgres or stack.enter_context(running_postgres(folder, **settings))
    if engine == "milvus":
        return given.milvus or own_milvus(folder, stack)
    return given.qdrant or str(folder)


def own_milvus(folder: Path, stack: ExitStack) -> str:
    """Start the Milvus of PyPI's milvus, and return its URL."""
    return stack.enter_context(running_milvus(folder))


if __name__ == "__main__":
    raise SystemExit(main())
