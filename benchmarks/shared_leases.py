"""How many leases coordinators can take and settle that share a promise in one Postgres.

    python -m benchmarks.shared_leases                                  # a server of its own, in a temporary folder
    python -m benchmarks.shared_leases --url postgresql://host/database # a server that runs
    python -m benchmarks.shared_leases --quick                          # small: a smoke test

Each replica is a process with a coordinator that leases and settles as fast as it can. It does not search, so that all
of the time is the coordinator's and the server's. The server flushes what it acknowledges (`fsync = on`). Replicas and
server share the processors of this machine.
"""

from __future__ import annotations

import multiprocessing
import secrets
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, shown
from benchmarks.servers import running_postgres

from fairsync.catalog.groups import Groups
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.lease import Settlement
from fairsync.ledger import Entry, SqlLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

K, FLOOR, CALL, BATCH = 20, 5, 16, 16
GROUPS = (165, 1_246)
REPLICAS = (1, 2, 4)


@dataclass(frozen=True)
class Measurement:
    """Leases per second of several replicas, and the milliseconds of one lease and its settlement.

    ``miscounted`` is the difference between the requests in the ledger and those that were leased.
    """

    groups: int
    replicas: int
    leases_per_second: float
    median_ms: float
    p99_ms: float
    miscounted: int


def replica(url: str, n_groups: int, begin: float, seconds: float) -> list[float]:
    """Lease and settle from a moment on for some seconds; return the seconds of each turn."""
    rng, turns = np.random.default_rng(), []
    groups = Groups(list(range(n_groups)), np.full(n_groups, 100))
    with Coordinator(groups, k=K, floors=FLOOR, horizon=2**40, batch_size=BATCH, ledger=url) as coordinator:
        time.sleep(max(begin - time.time(), 0))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.perf_counter()
            lease = coordinator.lease(CALL)
            counts = np.bincount(rng.integers(n_groups, size=K * lease.batch.requests), minlength=n_groups)
            coordinator.settle(lease.number, Settlement(Entry(counts, lease.batch.requests, 1.0, 0.0)))
            turns.append(time.perf_counter() - started)
    return turns


def measure(url: str, groups: int, replicas: int, seconds: float) -> Measurement:
    """Run replicas side by side."""
    context = multiprocessing.get_context("spawn")
    ledger = f"{url}{'&' if '?' in url else '?'}schema=benchmark_{secrets.token_hex(4)}"
    begin = time.time() + 3.0 + replicas  # when all have started
    with context.Pool(replicas) as pool:
        done = pool.starmap(replica, [(ledger, groups, begin, seconds)] * replicas, chunksize=1)
    turns = np.concatenate(done)
    median, p99 = 1e3 * np.quantile(turns, [0.5, 0.99])
    with SqlLedger(ledger, None) as record:
        miscounted = abs(record.totals().requests - CALL * len(turns))
    return Measurement(groups, replicas, len(turns) / seconds, float(median), float(p99), miscounted)


def table(figures: Sequence[Measurement]) -> Table:
    return Table.of(
        f"Replicas over one server, leases of {CALL} requests",
        figures,
        {
            "groups": lambda one: f"{one.groups:,}",
            "replicas": lambda one: f"{one.replicas}",
            "leases a second": lambda one: f"{one.leases_per_second:,.0f}",
            "requests a second": lambda one: f"{one.leases_per_second * CALL:,.0f}",
            "lease and settle ms": lambda one: f"{one.median_ms:.1f}",
            "p99 ms": lambda one: f"{one.p99_ms:.1f}",
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="one replica, half a second")
    parser.add_argument("--url", help="URL of a server (default: a server of its own)")
    parser.add_argument("--folder", type=Path, help="folder of its own server (default: a temporary one)")
    parser.add_argument("--groups", type=int, nargs="+", default=list(GROUPS))
    parser.add_argument("--replicas", type=int, nargs="+", default=list(REPLICAS))
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of each measurement")
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.groups, given.replicas, given.seconds = [165], [1], 0.5
    cells = [(groups, replicas) for groups in given.groups for replicas in given.replicas]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=given.folder)))
        url = given.url or stack.enter_context(running_postgres(folder))
        figures = [
            measure(url, groups, replicas, given.seconds)
            for groups, replicas in shown(screen, cells, lambda cell: f"{cell[0]:,} groups, {cell[1]} replicas")
        ]
    document = {"k": K, "call": CALL, "figures": [asdict(figure) for figure in figures]}
    claims = [Claim("requests miscounted", sum(one.miscounted for one in figures), 0)]
    return finish("shared_leases", [table(figures)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
