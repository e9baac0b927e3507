"""What explanations cost: retrieve(explain=True) beside retrieve().

    python -m benchmarks.explain                 # 3,000 and 300,000 items, one thread, some minutes
    python -m benchmarks.explain --quick         # small: a smoke test

Three retrievers with the same promise serve the same requests, call by call in turns, so that other load on the machine
affects them equally: one explains nothing, one records explanations, and one also makes every explanation, as somebody
who looks at them one after another would (`found.explain(i)`). Prices are calibrated, because without prices there is
nothing to explain. Times are CPU times of the one thread; each ratio is the median over rounds; only ratios are
meaningful.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.data import synthetic
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex

DIM, GROUPS, K = 64, 165, 50
REQUESTS_PER_FLOOR = 60
LIMIT = 2.0


@dataclass(frozen=True)
class ExplainTime:
    """One line of the table."""

    items: int
    batch: int
    ms_per_request: float
    times_recorded: float
    times_looked_at: float
    by_promise: float


def measure(
    catalog: Catalog,
    index: ExactIndex,
    users: npt.NDArray[np.float32],
    past: npt.NDArray[np.float32],
    batch: int,
    horizon: int,
) -> ExplainTime:
    """Serve the same requests without explanations, with them, and looking at them, in turns."""
    off, on, looked_at = (
        FairRetriever(
            catalog, k=K, floors=horizon // REQUESTS_PER_FLOOR, horizon=horizon, batch_size=batch, index=index
        ).calibrate(past)
        for _ in range(3)
    )
    seconds = dict.fromkeys((off, on, looked_at), 0.0)
    brought_in = 0
    for start in range(0, len(users), batch):
        for retriever in seconds:
            started = time.thread_time()
            found = retriever.retrieve(users[start : start + batch], explain=retriever is not off)
            seconds[retriever] += time.thread_time() - started
            for i in range(len(found)) if retriever is looked_at else ():
                started = time.thread_time()
                candidates = found.explain(i).candidates
                seconds[retriever] += time.thread_time() - started
                brought_in += sum(one.reason != "relevance" for one in candidates)
    return ExplainTime(
        len(catalog),
        batch,
        ms_per_request=seconds[off] / len(users) * 1e3,
        times_recorded=seconds[on] / seconds[off],
        times_looked_at=seconds[looked_at] / seconds[off],
        by_promise=brought_in / (len(users) * K),
    )


def median(figures: Sequence[ExplainTime]) -> ExplainTime:
    """Return the medians over rounds."""
    names = ("ms_per_request", "times_recorded", "times_looked_at", "by_promise")
    middle = {name: float(np.median([getattr(figure, name) for figure in figures])) for name in names}
    return ExplainTime(figures[0].items, figures[0].batch, **middle)


def check_claims(figures: Sequence[ExplainTime]) -> list[Claim]:
    """Return the claims that recording explanations, and reading them all, at most doubles the time."""
    recorded, looked_at = (max(getattr(one, name) for one in figures) for name in ("times_recorded", "times_looked_at"))
    return [
        Claim("time of retrieve(explain=True) ÷ retrieve()", recorded, LIMIT),
        Claim("the same, with every explanation made", looked_at, LIMIT),
    ]


def table(figures: Sequence[ExplainTime]) -> Table:
    return Table.of(
        f"Explanations: {GROUPS} groups, d = {DIM}, K = {K}, policy guaranteed, calibrated",
        figures,
        {
            "items": lambda one: f"{one.items:,}",
            "B": lambda one: str(one.batch),
            "ms/request": lambda one: f"{one.ms_per_request:.2f}",
            "explain=True ÷ off": lambda one: f"{one.times_recorded:.2f}",
            "and looked at ÷ off": lambda one: f"{one.times_looked_at:.2f}",
            "not by relevance": lambda one: f"{one.by_promise:.1%}",
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="one small catalog, one round")
    parser.add_argument("--items", type=int, nargs="+", default=[3_000, 300_000])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--requests", type=int, default=960, help="per round and retriever; a tenth of them at B = 1")
    parser.add_argument("--horizon", type=int, default=6_144)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.items, given.requests, given.rounds = [3_000], 320, 1
    figures: list[ExplainTime] = []
    with progress(screen) as bar, threadpool_limits(1):
        task = bar.add_task("", total=len(given.items) * given.rounds * len(given.batch_sizes))
        for n in given.items:
            bar.update(task, description=f"{n:,} items: generating")
            data = synthetic(n, GROUPS, given.requests, DIM, given.seed, n_past=400)
            catalog = Catalog(data.embeddings, data.groups)
            index = ExactIndex(catalog, threads=1)
            rounds: dict[int, list[ExplainTime]] = {batch: [] for batch in given.batch_sizes}
            for turn in range(given.rounds):
                for batch, found in rounds.items():
                    bar.update(task, description=f"{n:,} items, round {turn + 1}, B {batch}")
                    users = data.users[: len(data.users) // 10] if batch == 1 else data.users
                    found.append(measure(catalog, index, users, data.past_users, batch, given.horizon))
                    bar.advance(task)
            figures += [median(found) for found in rounds.values()]
    document = {"dim": DIM, "groups": GROUPS, "k": K, "figures": [asdict(figure) for figure in figures]}
    return finish("explain", [table(figures)], check_claims(figures), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
