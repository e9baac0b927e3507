"""Speed of search under prices, compared with faiss without prices.

    python -m benchmarks.search                  # 300,000 and 1,700,000 items, 1 and 2 threads
    python -m benchmarks.search --sizes atoms    # overlapping promises only: 1,700,000 items in 690,000 atoms
    python -m benchmarks.search --quick          # small: a smoke test

All contenders take turns call by call, so that other load on the machine affects them equally. The time of each is that
of its fastest round, which other load disturbed least; with one thread it is its CPU time. Only ratios are meaningful.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from benchmarks.search_atoms import AtomContest, AtomFigure, atom_table, check_atom_claims
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, OneHotIndex

DIM = 64
K = 50
# The one-hot index is built only where its wide vectors stay below this.
ONE_HOT_BYTES = 1 << 29
ONE_HOT_ROUNDS = 2
FULL = ((300_000, 165), (1_700_000, 1_246))
QUICK = ((12_000, 65),)
# Items, categories and providers of the catalog with overlapping promises.
ATOMS, QUICK_ATOMS = (1_700_000, 1_246, 5_000), (12_000, 65, 300)
CLAIMED_ITEMS = 300_000
SPECTRUM = (1 + np.arange(DIM, dtype=np.float32)) ** np.float32(-0.5)
FAISS, BARE, PRICED, ONE_HOT = "faiss flat, no prices", "exact, no prices", "exact, prices", "one-hot, prices"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Measurement:
    """One line of the table."""

    items: int
    groups: int
    threads: int
    batch: int
    contender: str
    ms_per_request: float
    times_faster_than_faiss: float
    times_without_prices: float | None


def make_catalog(n: int, groups: int, rng: np.random.Generator) -> Catalog:
    """Return embeddings with a decaying spectrum, and groups: one with 78 % of the items, the others smaller."""
    embeddings = rng.standard_normal((n, DIM), dtype=np.float32) * SPECTRUM
    share = (1.0 + np.arange(groups - 1)) ** -0.8
    share = np.concatenate([[0.78], 0.22 * share / share.sum()])
    group_of = rng.choice(groups, size=n, p=share)
    # Groups differ in their centre and in their popularity.
    embeddings += (0.3 * rng.standard_normal((groups, DIM), dtype=np.float32) * SPECTRUM)[group_of]
    return Catalog(embeddings, group_of)


def make_prices(groups: int, scale: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return prices like those of a policy: 0 for the largest group, a subsidy for two groups in three."""
    subsidy = rng.exponential(0.3 * scale, size=groups) * (rng.random(groups) < 2 / 3)
    subsidy[0] = 0.0
    return -subsidy


def measure(
    contenders: dict[str, Callable[[int], object]],
    rounds: int,
    calls: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the seconds per call of each contender in its fastest round. They take turns call by call.

    Where all contenders run on the calling thread alone, its CPU time (``time.thread_time``) is disturbed less by other
    load.
    """
    fastest = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        # The slowest contender by far is measured for reference only.
        taking_part = [name for name in contenders if name != ONE_HOT or turn <= ONE_HOT_ROUNDS]
        spent = dict.fromkeys(taking_part, 0.0)
        for call in range(turn * calls, (turn + 1) * calls):
            # The order rotates, because threads that still spin for one contender slow down the next.
            at = call % len(taking_part)
            for name in taking_part[at:] + taking_part[:at]:
                started = clock()
                contenders[name](call)
                spent[name] += clock() - started
        if turn:  # the first turn is a warm-up
            for name in taking_part:
                fastest[name] = min(fastest[name], spent[name] / calls)
    return fastest


class Contest:
    """A catalog with all indexes, users and prices."""

    def __init__(self, n: int, groups: int, most: int, seed: int, with_one_hot: bool) -> None:
        rng = np.random.default_rng(seed)
        catalog = make_catalog(n, groups, rng)
        self.n, self.groups = n, groups
        embeddings, labels = np.asarray(catalog.embeddings), catalog.group_of.copy()
        tracemalloc.start()
        self.exact = ExactIndex(Catalog(embeddings, labels))
        self.memory = 1 + tracemalloc.get_traced_memory()[0] / embeddings.nbytes
        tracemalloc.stop()
        self.flat = faiss.IndexFlatIP(DIM)
        self.flat.add(embeddings)
        fits = 4 * n * (DIM + groups) <= ONE_HOT_BYTES
        self.one_hot = OneHotIndex(catalog) if with_one_hot and fits else None
        self.users = rng.standard_normal((max(most, 32), DIM), dtype=np.float32) * SPECTRUM
        scale = float((self.users[:32] @ embeddings[:4096].T).std())
        self.prices = [make_prices(groups, scale, rng) for _ in range(8)]

    def contenders(self, batch: int) -> dict[str, Callable[[int], object]]:
        """Return the functions to time. Each searches for the users of the call with a given number."""

        def users(call: int) -> Floats:
            start = call % (len(self.users) // batch) * batch
            return self.users[start : start + batch]

        def prices(call: int) -> npt.NDArray[np.float64]:
            # New prices every 16 requests; a larger batch has one price vector, and the next batch another.
            return self.prices[call // max(1, 16 // batch) % len(self.prices)]

        named: dict[str, Callable[[int], object]] = {
            FAISS: lambda call: self.flat.search(users(call), K),
            BARE: lambda call: self.exact.search(users(call)[:, None], None, K),
            PRICED: lambda call: self.exact.search(users(call)[:, None], prices(call), K),
        }
        one_hot = self.one_hot
        if one_hot is not None:
            named[ONE_HOT] = lambda call: one_hot.search(users(call)[:, None], prices(call), K)
        return named

    def figures(self, threads: int, batch: int, rounds: int) -> list[Measurement]:
        """Measure all contenders, with the same number of threads for each."""
        faiss.omp_set_num_threads(threads)
        self.exact.threads = threads
        clock = time.thread_time if threads == 1 else time.perf_counter
        with threadpool_limits(threads):
            seconds = measure(self.contenders(batch), rounds, 32 if batch == 1 else 1, clock)
        return [
            Measurement(
                self.n,
                self.groups,
                threads,
                batch,
                name,
                ms_per_request=each / batch * 1e3,
                times_faster_than_faiss=seconds[FAISS] / each,
                times_without_prices=each / seconds[BARE] if name == PRICED else None,
            )
            for name, each in seconds.items()
        ]


def check_claims(figures: Sequence[Measurement], memory: dict[int, float]) -> list[Claim]:
    """Compare the slowest measurement of each kind with its limit. Small catalogs are ignored."""
    figures = [one for one in figures if one.items >= CLAIMED_ITEMS]
    exact = [one for one in figures if one.contender in (BARE, PRICED)]
    batches = [one.times_faster_than_faiss for one in exact if one.batch >= 16]
    single = [one.times_faster_than_faiss for one in exact if one.batch == 1]
    one_thread = [one.times_without_prices for one in figures if one.threads == 1]  # in CPU time, not by the clock
    added = [times for times in one_thread if times is not None]
    claims = []
    if batches:
        claims.append(Claim("times as fast as faiss flat, batch ≥ 16", min(batches), 2.0, at_most=False))
    if single:
        claims.append(Claim("times as fast as faiss flat, one request", min(single), 0.8, at_most=False))
    if added:
        claims.append(Claim("time with prices ÷ without, one thread", max(added), 1.10))
    large = [ratio for items, ratio in memory.items() if items >= CLAIMED_ITEMS]
    if large:
        claims.append(Claim("memory of catalog and index ÷ embeddings", max(large), 1.15))
    return claims


def table(figures: Sequence[Measurement]) -> Table:
    return Table(
        f"Exact search, d = {DIM}, K = {K}",
        ["items", "groups", "threads", "batch", "search", "ms/request", "× faiss", "÷ without prices"],
        [
            [
                f"{one.items:,}",
                f"{one.groups:,}",
                str(one.threads),
                str(one.batch),
                one.contender,
                f"{one.ms_per_request:.3f}",
                f"{one.times_faster_than_faiss:.2f}",
                "" if one.times_without_prices is None else f"{one.times_without_prices:.2f}",
            ]
            for one in figures
        ],
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small catalog")
    parser.add_argument("--sizes", nargs="+", choices=["300k", "1.7m", "atoms"], help="only these catalogs")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64, 512])
    parser.add_argument("--skip-one-hot", action="store_true", help="leave out the slowest contender")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    sizes: tuple[tuple[int, int], ...] = QUICK if given.quick else FULL
    if given.sizes:
        sizes = tuple(FULL[["300k", "1.7m"].index(size)] for size in given.sizes if size != "atoms")
    with_atoms = not given.sizes or "atoms" in given.sizes
    figures: list[Measurement] = []
    memory: dict[int, float] = {}
    atoms: list[AtomFigure] = []
    tables: list[Table] = []
    with progress(screen) as bar:
        task = bar.add_task("", total=len(sizes) * len(given.threads) * len(given.batches) + with_atoms)
        for n, groups in sizes:
            bar.update(task, description=f"{n:,} items: generating")
            contest = Contest(n, groups, max(given.batches), given.seed, not given.skip_one_hot)
            memory[n] = contest.memory
            for threads in given.threads:
                for batch in given.batches:
                    bar.update(task, description=f"{n:,} items, {threads} thread(s), batch {batch}")
                    figures += contest.figures(threads, batch, given.rounds)
                    bar.advance(task)
        if figures:
            tables.append(table(figures))
        if with_atoms:
            bar.update(task, description="atoms: generating and building")
            overlapping = AtomContest(*(QUICK_ATOMS if given.quick else ATOMS), given.seed)
            bar.update(task, description="atoms: measuring")
            atoms = overlapping.figures(partial(measure, clock=time.thread_time), given.rounds)
            tables.append(atom_table(atoms, overlapping.build_seconds))
            bar.advance(task)
    claims = check_claims(figures, memory) + check_atom_claims([one for one in atoms if one.items >= CLAIMED_ITEMS])
    document = {
        "dim": DIM,
        "k": K,
        "memory_ratio": memory,
        "figures": [asdict(figure) for figure in figures],
        "atoms": [asdict(figure) for figure in atoms],
    }
    return finish("search", tables, claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
