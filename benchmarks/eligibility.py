"""What eligibility costs: excluded ids and conditions beside the same search without them, and beside faiss.

    python -m benchmarks.eligibility             # 300,000 items, batches of 1 and 64, one thread; a Milvus of its own
    python -m benchmarks.eligibility --quick     # small: a smoke test, without Milvus
    python -m benchmarks.eligibility --milvus http://localhost:19530    # beside another Milvus server

All contenders take turns call by call, and the time of each is the CPU time of its fastest round (see
`benchmarks.search`). Only ratios are meaningful. "from ids" includes the lookup of 20 or 1,000 ids (words) per request,
"from where" the evaluation of conditions that were never asked before. faiss filters with an IDSelector; it takes one
per call, so that requests with different rules are searched one by one. Milvus filters with an expression, also one per
call; its time is that of the clock, with the way to the server. The server is that of PyPI's `milvus`; where it is not
installed, its columns are empty.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from benchmarks.engines import own_milvus
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from benchmarks.search import DIM, SPECTRUM, make_catalog, make_prices, measure
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog, Selection
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible

Floats = npt.NDArray[np.float32]
# The type stubs of faiss leave out most of what is used here.
_faiss: Any = faiss

K = 50
FULL, QUICK = (300_000, 165), (30_000, 65)
SHARES = (0.5, 0.1, 0.01, 0.001)
PLAIN, FEW, MANY = "no rules", "20 excluded", "1,000 excluded"
HALF, HUNDREDTH, OWN = "half eligible", "1 % eligible", "own half each"
IDS_FEW, IDS_MANY, OWN_NEW = "20 excluded, from ids", "1,000 excluded, from ids", "own condition each, from where"
ENGINE_COLUMNS = ("faiss ms/request", "faiss ÷ without", "Milvus ms/request", "Milvus ÷ without")
MILVUS_NAME, MILVUS_ROWS = "bench_eligibility", 10_000
LIMITS = {FEW: 1.05, IDS_FEW: 1.05, MANY: 1.15, IDS_MANY: 1.15, HALF: 1.10, OWN: 1.30, OWN_NEW: 1.30}


@dataclass(frozen=True)
class EligibilityTime:
    """One line of the table of times."""

    batch: int
    prices: bool
    rules: str
    ms_per_request: float
    times_without_rules: float
    faiss_ms_per_request: float | None
    faiss_times_without_rules: float | None
    milvus_ms_per_request: float | None
    milvus_times_without_rules: float | None


@dataclass(frozen=True)
class EligibleRecall:
    """One line of the table of approximate indexes."""

    index: str
    share: float
    recall: float
    times_exact: float


class EligibilityContest:
    """A catalog with users, prices, and rules for them."""

    def __init__(self, n: int, groups: int, batch: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        made = make_catalog(n, groups, rng)
        number = rng.random(n)
        attributes = {"group": made.group_of, "number": number}
        self.catalog = Catalog(made.embeddings, attributes, [f"item-{row:09d}" for row in rng.permutation(n)])
        self.exact = ExactIndex(self.catalog, threads=1)
        self.flat = faiss.IndexFlatIP(DIM)
        self.flat.add(np.asarray(made.embeddings))
        self.users = rng.standard_normal((max(batch, 64), DIM), dtype=np.float32) * SPECTRUM
        scale = float((self.users[:32] @ made.embeddings[:4096].T).std())
        self.prices = make_prices(groups, scale, rng)
        # What is excluded is half history-like, among the best items of the request, and half anything.
        best = self.exact.search(self.users[:, None], None, 500).rows
        self.excluded = {
            count: [np.append(row[: count // 2], rng.integers(n, size=count - count // 2)) for row in best]
            for count in (20, 1000)
        }
        self.ids = {
            count: [self.catalog.ids[rows].tolist() for rows in lists] for count, lists in self.excluded.items()
        }
        self.half, self.hundredth = (Selection(rng.random(n) < share) for share in (0.5, 0.01))
        self.own = [Selection(rng.random(n) < 0.5) for _ in range(64)]
        self.rng = rng

    def eligibility(self, rules: str, batch: int) -> Eligibility | None:
        """Return the rules of the first requests, ready for the index."""
        n, nobody = len(self.catalog), [None] * batch
        if rules == PLAIN:
            return None
        if rules in (FEW, MANY):
            return Eligibility.of(n, nobody, self.excluded[20 if rules == FEW else 1000][:batch])
        if rules == OWN:
            return Eligibility.of(n, self.own[:batch])
        return Eligibility.of(n, [self.half if rules == HALF else self.hundredth] * batch)

    def contenders(self, batch: int, prices: npt.NDArray[np.float64] | None) -> dict[str, Callable[[int], object]]:
        """Return the functions to time, by their rules."""
        users, exact, catalog = self.users[:batch, None], self.exact, self.catalog

        def ready(rules: str) -> Callable[[int], object]:
            eligible = self.eligibility(rules, batch)
            return lambda call: exact.search(users, prices, K, eligible)

        def from_ids(count: int) -> Callable[[int], object]:
            lists = self.ids[count][:batch]
            return lambda call: exact.search(users, prices, K, make_eligibility(lists, None, catalog, batch)[0])

        def from_where(call: int) -> object:
            where = [{"number": {"at_most": 0.5 + 0.1 * limit}} for limit in self.rng.random(batch)]
            return exact.search(users, prices, K, make_eligibility(None, where, catalog, batch)[0])

        named = {rules: ready(rules) for rules in (PLAIN, FEW, MANY, HALF, HUNDREDTH, OWN)}
        return named | {IDS_FEW: from_ids(20), IDS_MANY: from_ids(1000), OWN_NEW: from_where}

    def faiss_contenders(self, batch: int) -> dict[str, Callable[[int], object]]:
        """Return the same for faiss, where it can."""
        users, n = self.users[:batch], len(self.catalog)

        def bitmap(mask: npt.NDArray[np.bool_]) -> Any:
            bits = np.packbits(mask, bitorder="little")
            return _faiss.SearchParameters(sel=_faiss.IDSelectorBitmap(bits))

        def each(params: Sequence[Any]) -> Callable[[int], object]:
            return lambda call: [self.flat.search(users[i : i + 1], K, params=one) for i, one in enumerate(params)]

        def excluding(count: int) -> Callable[[int], object]:
            masks = [np.ones(n, dtype=bool) for _ in range(batch)]
            for mask, rows in zip(masks, self.excluded[count], strict=False):
                mask[rows] = False
            return each([bitmap(mask) for mask in masks])

        half, hundredth = bitmap(self.half.mask), bitmap(self.hundredth.mask)
        return {
            PLAIN: lambda call: self.flat.search(users, K),
            FEW: excluding(20),
            MANY: excluding(1000),
            HALF: lambda call: self.flat.search(users, K, params=half),
            HUNDREDTH: lambda call: self.flat.search(users, K, params=hundredth),
            OWN: each([bitmap(chosen.mask) for chosen in self.own[:batch]]),
        }

    def milvus_contenders(self, batch: int, uri: str) -> dict[str, Callable[[int], object]]:
        """Return the same for a Milvus server, to which the items are written first."""
        from pymilvus import DataType, MilvusClient

        client, users = MilvusClient(uri, timeout=300), [*self.users[:batch]]
        if not client.has_collection(MILVUS_NAME):
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("row", DataType.INT64, is_primary=True)
            schema.add_field("half", DataType.BOOL)
            schema.add_field("hundredth", DataType.BOOL)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
            client.create_collection(MILVUS_NAME, schema=schema)
            columns = (self.half.mask.tolist(), self.hundredth.mask.tolist(), [*self.catalog.embeddings])
            names = ("row", "half", "hundredth", "vector")
            rows = [dict(zip(names, row, strict=True)) for row in zip(range(len(self.catalog)), *columns, strict=True)]
            for start in range(0, len(rows), MILVUS_ROWS):
                client.insert(MILVUS_NAME, rows[start : start + MILVUS_ROWS])
            client.flush(MILVUS_NAME)
            index = client.prepare_index_params()
            index.add_index("vector", index_type="FLAT", metric_type="IP")
            client.create_index(MILVUS_NAME, index)
            client.load_collection(MILVUS_NAME)

        def ask(vectors: Sequence[Floats], condition: str) -> object:
            return client.search(
                MILVUS_NAME, data=vectors, limit=K, filter=condition, anns_field="vector",
                search_params={"metric_type": "IP"}, consistency_level="Bounded",
            )  # fmt: skip

        def excluding(count: int) -> Callable[[int], object]:
            conditions = [f"row not in {rows.tolist()}" for rows in self.excluded[count][:batch]]
            return lambda call: [ask([user], one) for user, one in zip(users, conditions, strict=True)]

        return {
            PLAIN: lambda call: ask(users, ""),
            FEW: excluding(20),
            MANY: excluding(1000),
            HALF: lambda call: ask(users, "half == true"),
            HUNDREDTH: lambda call: ask(users, "hundredth == true"),
        }

    def times(self, batch: int, rounds: int, milvus: str | None) -> list[EligibilityTime]:
        """Measure all rules, without and with prices, and the other engines."""
        calls = 8 if batch == 1 else 1
        figures = []
        with threadpool_limits(1):
            other = measure(self.faiss_contenders(batch), max(2, rounds // 4), calls, time.thread_time)
            server = measure(self.milvus_contenders(batch, milvus), max(2, rounds // 4), calls) if milvus else {}
            for prices in (None, self.prices):
                seconds = measure(self.contenders(batch, prices), rounds, calls, time.thread_time)
                for rules, each in seconds.items():
                    beside = [_beside(engine, rules, batch) for engine in (other, server) if prices is None]
                    engines = [value for pair in beside or [(None, None)] * 2 for value in pair]
                    ratio = each / seconds[PLAIN]
                    figures.append(
                        EligibilityTime(batch, prices is not None, rules, each / batch * 1e3, ratio, *engines)
                    )
        return figures

    def recalls(self, graph: bool) -> list[EligibleRecall]:
        """Measure the recall of approximate indexes among eligible items, and their time beside exact search."""
        users, n = self.users[:, None], len(self.catalog)
        indexes: dict[str, IvfIndex | HnswIndex] = {"ivf": IvfIndex(self.catalog)}
        if graph:
            indexes["hnsw"] = HnswIndex(self.catalog)
        contenders: dict[str, Callable[[int], object]]
        figures = []
        for share in SHARES:
            eligible = Eligibility.of(n, [Selection(self.rng.random(n) < share)] * len(users))
            truth = self.exact.search(users, self.prices, K, eligible).rows
            singles = [eligible.take(np.array([i])) for i in range(len(users))]
            contenders = {name: partial(self._single, index, singles) for name, index in indexes.items()}
            contenders["exact"] = partial(self._single, self.exact, singles)
            seconds = measure(contenders, 3, 32, time.thread_time)
            for name, index in indexes.items():
                found = index.search(users, self.prices, K, eligible).rows
                hit = [np.isin(t[t >= 0], f).mean() for t, f in zip(truth, found, strict=True)]
                figures.append(EligibleRecall(name, share, float(np.mean(hit)), seconds["exact"] / seconds[name]))
        return figures

    def _single(self, index: Index, eligible: Sequence[Eligibility], call: int) -> object:
        at = call % len(eligible)
        return search_eligible(index, self.users[at : at + 1, None], self.prices, K, eligible[at])


def _beside(seconds: dict[str, float], rules: str, batch: int) -> tuple[float | None, float | None]:
    """Return the time of another engine per request, and as a multiple of its time without rules."""
    if rules not in seconds:
        return None, None
    return seconds[rules] / batch * 1e3, seconds[rules] / seconds[PLAIN]


def check_claims(times: Sequence[EligibilityTime], recalls: Sequence[EligibleRecall]) -> list[Claim]:
    """Compare the worst of each kind with its limit."""
    claims = []
    for rules, limit in LIMITS.items():
        worst = [one.times_without_rules for one in times if one.rules == rules]
        if worst:
            claims.append(Claim(f"time with {rules} ÷ without rules", max(worst), limit))
    few = [one.times_without_rules for one in times if one.rules == HUNDREDTH]
    if few:
        claims.append(Claim(f"times as fast with {HUNDREDTH}", 1 / max(few), 5.0, at_most=False))
    found = [one.recall for one in recalls]
    if found:
        claims.append(Claim("recall@50 among eligible items", min(found), 0.99, at_most=False))
    return claims


def tables(n: int, times: Sequence[EligibilityTime], recalls: Sequence[EligibleRecall]) -> list[Table]:
    def text(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    return [
        Table(
            f"Eligibility, {n:,} items, d = {DIM}, K = {K}, one thread",
            ["batch", "prices", "rules", "ms/request", "÷ without rules", *ENGINE_COLUMNS],
            [
                [
                    str(one.batch),
                    "yes" if one.prices else "no",
                    one.rules,
                    f"{one.ms_per_request:.3f}",
                    f"{one.times_without_rules:.2f}",
                    text(one.faiss_ms_per_request, 3),
                    text(one.faiss_times_without_rules, 2),
                    text(one.milvus_ms_per_request, 3),
                    text(one.milvus_times_without_rules, 2),
                ]
                for one in times
            ],
        ),
        Table(
            f"Approximate indexes under prices and a condition, {n:,} items, K = {K}",
            ["index", "eligible", "recall", "times exact, one request"],
            [[one.index, f"{one.share:.1%}", f"{one.recall:.4f}", f"{one.times_exact:.2f}"] for one in recalls],
        ),
    ]


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small catalog")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--skip-recall", action="store_true", help="leave out the approximate indexes")
    parser.add_argument("--graph", action="store_true", help="measure hnsw as well, which takes minutes to build")
    parser.add_argument("--milvus", help="the address of a Milvus server. Default: a server of its own.")
    parser.add_argument("--skip-milvus", action="store_true", help="leave out Milvus")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    n, groups = QUICK if given.quick else FULL
    faiss.omp_set_num_threads(1)
    times: list[EligibilityTime] = []
    with ExitStack() as stack, progress(screen) as bar:
        task = bar.add_task("generating", total=len(given.batches) + 1)
        contest = EligibilityContest(n, groups, max(given.batches), given.seed)
        milvus = given.milvus
        if milvus is None and not (given.quick or given.skip_milvus) and find_spec("milvus") is not None:
            milvus = own_milvus(Path(stack.enter_context(TemporaryDirectory())), stack)
        for batch in given.batches:
            bar.update(task, description=f"batch {batch}")
            times += contest.times(batch, given.rounds, milvus)
            bar.advance(task)
        bar.update(task, description="approximate indexes")
        recalls = [] if given.skip_recall else contest.recalls(given.graph or given.quick)
    claims = check_claims(times if n >= FULL[0] else [], recalls)
    document = {"items": n, "times": [asdict(one) for one in times], "recalls": [asdict(one) for one in recalls]}
    return finish("eligibility", tables(n, times, recalls), claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
