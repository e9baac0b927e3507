"""Throughput of leases: how many one coordinator can grant and settle per second, in one process.

    python -m benchmarks.leases                  # up to 10,000 groups, a few minutes
    python -m benchmarks.leases --quick          # small: a smoke test

Front ends take turns as in `benchmarks.staleness`, with real search. Only the work of the coordinator is timed:
`lease`, `settle`, and the price steps in them. CPU time is measured, so that other load on the machine hardly matters.
The figure is the throughput of one coordinator if network and search are elsewhere. A ledger on disk adds its own time.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from benchmarks.output import Table, finish, make_parser, make_screen, shown
from rich.console import Console

from fairsync import Catalog, Coordinator, FrontEnd
from fairsync.coordination.lease import Lease, Settlement
from fairsync.data import synthetic
from fairsync.search import ExactIndex

DIM, K, FLOOR = 16, 20, 5
GROUPS = (165, 1_246, 10_000)
BATCHES = (16, 256)
CALLS = (1, 16)


@dataclass(frozen=True)
class Measurement:
    """Microseconds of a coordinator to grant and settle one lease, including price steps."""

    groups: int
    batch: int
    call: int
    out: int
    lease_us: float
    settle_us: float

    @property
    def leases_per_second(self) -> float:
        """Return the leases per second of one coordinator."""
        return 1e6 / (self.lease_us + self.settle_us)


class TimedCoordinator(Coordinator):
    """A coordinator that is timed, with a constant number of open leases. The first leases are not timed."""

    def __init__(self, catalog: Catalog, horizon: int, batch: int, out: int) -> None:
        # Leases must not expire, because the searches between them take time that is not measured.
        super().__init__(catalog, k=K, floors=FLOOR, horizon=horizon, batch_size=batch, lease_seconds=1e9)
        self.most_out = out
        self.out: deque[Callable[[], object]] = deque()
        self.leasing: list[float] = []
        self.settling: list[float] = []

    def lease(self, n: int, k: int | None = None) -> Lease:
        """Lease requests, and measure the time."""
        started = time.thread_time()
        lease = super().lease(n, k)
        if len(self.out) == self.most_out:
            self.leasing.append(time.thread_time() - started)
        return lease

    def settle(self, number: int, settlement: Settlement) -> None:
        """Settle the oldest lease instead of this one, and measure the time, if enough leases are open."""
        self.out.append(partial(super().settle, number, settlement))
        if len(self.out) > self.most_out:
            settle = self.out.popleft()
            started = time.thread_time()
            settle()
            self.settling.append(time.thread_time() - started)


def measure(groups: int, batch: int, call: int, out: int, leases: int, seed: int) -> Measurement:
    """Time leases early in a horizon that is long enough that no lease has to wait."""
    requests = (leases + out) * call
    data = synthetic(3 * groups + 10_000, groups, requests, DIM, seed, n_past=0, smallest_share=1e-9)
    catalog = Catalog(data.embeddings, data.groups)
    coordinator = TimedCoordinator(catalog, 2 * requests + FLOOR * groups, batch, out)
    front_end = FrontEnd(catalog, coordinator, index=ExactIndex(catalog))
    for start in range(0, requests, call):
        front_end.retrieve(data.users[start : start + call])
    lease, settle = (1e6 * float(np.mean(seconds)) for seconds in (coordinator.leasing, coordinator.settling))
    return Measurement(groups, batch, call, out, lease, settle)


def table(figures: Sequence[Measurement]) -> Table:
    return Table.of(
        f"One coordinator in one process, K = {K}",
        figures,
        {
            "groups": lambda one: f"{one.groups:,}",
            "B": lambda one: f"{one.batch:,}",
            "requests each": lambda one: f"{one.call:,}",
            "leases out": lambda one: f"{one.out:,}",
            "lease µs": lambda one: f"{one.lease_us:,.0f}",
            "settle µs": lambda one: f"{one.settle_us:,.0f}",
            "leases a second": lambda one: f"{one.leases_per_second:,.0f}",
            "requests a second": lambda one: f"{one.leases_per_second * one.call:,.0f}",
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="few groups, few requests")
    parser.add_argument("--groups", type=int, nargs="+", default=list(GROUPS))
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--calls", type=int, nargs="+", default=list(CALLS), help="requests per lease")
    parser.add_argument("--out-at-once", type=int, default=256, help="open leases at any time")
    parser.add_argument("--leases", type=int, default=1_024, help="number of leases to time")
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.groups, given.batch_sizes, given.leases = [165], [16], 256
    cells = [(groups, batch, call) for groups in given.groups for batch in given.batch_sizes for call in given.calls]

    def describe(cell: tuple[int, int, int]) -> str:
        return f"{cell[0]:,} groups, B {cell[1]:,}, leases of {cell[2]}"

    figures = [measure(*cell, given.out_at_once, given.leases, given.seed) for cell in shown(screen, cells, describe)]
    document = {"k": K, "figures": [asdict(figure) for figure in figures]}
    return finish("leases", [table(figures)], [], document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
