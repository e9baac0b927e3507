"""What many front ends cost: prices and counts that are behind by all requests in flight.

    python -m benchmarks.staleness               # up to 4,096 requests in flight, some ten minutes
    python -m benchmarks.staleness --quick       # small, to see that it runs

A simulation with the real coordinator, search and guard; only the clock is simulated. Requests come in calls of eight
to any of many front ends. A call leases its requests and searches under the prices of that moment. Its counts reach
the coordinator after as many other requests have come as there are in flight. Where the coordinator makes a call wait,
the oldest call in flight is settled first, and the call counts as held up.
"""

import argparse
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cost import median_floor
from benchmarks.output import OUT, Claim, Table, finish, make_screen, progress
from rich.console import Console

from fairsync.catalog import Catalog
from fairsync.coordinator import Coordinator
from fairsync.data import synthetic
from fairsync.hindsight import hindsight
from fairsync.inputs import check_users
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from fairsync.serving import Served, serve

GROUPS, DIM, K, CALL = 165, 32, 20, 8
IN_FLIGHT = (0, 16, 64, 256, 1_024, 4_096)
BATCHES = (16, 64, 256, 1_024)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    ``cost_ratio`` is in multiples of hindsight; ``held_up`` the share of calls that had to wait, and ``forced`` the
    share of slots that the guard filled.
    """

    in_flight: int
    batch: int
    esp: float
    cost_ratio: float
    held_up: float
    forced: float


class World:
    """Generated items and requests, floors that half of the groups would miss, and what they cost at least."""

    def __init__(self, items: int, requests: int, seed: int) -> None:
        data = synthetic(items, GROUPS, requests, DIM, seed, n_past=0)
        self.catalog = Catalog(data.embeddings, data.groups)
        self.index, self.users = ExactIndex(self.catalog), data.users
        plain = FairRetriever(self.catalog, K, 0, requests, "none", index=self.index)
        plain.retrieve(self.users)
        self.floor = median_floor(list(plain.report().exposures.values()))
        self.plain = plain.report().relevance
        self.least = hindsight(self.catalog, self.users, k=K, floors=self.floor, index=self.index).cost


def simulate(world: World, batch: int, in_flight: int) -> Figure:
    """Serve all requests with so many in flight at any time."""
    coordinator = Coordinator(world.catalog, K, world.floor, len(world.users), batch_size=batch)
    vectors = check_users(world.users, world.catalog)
    out: deque[tuple[int, Served]] = deque()
    waiting = held = calls = start = 0

    def settle_oldest() -> None:
        nonlocal waiting
        number, served = out.popleft()
        waiting -= served.entry.requests
        coordinator.settle(number, served.entry, served.sample)

    while start < len(vectors):
        size = min(CALL, len(vectors) - start)
        calls += 1
        held += bool(out) and _must_wait(coordinator, size)
        while out and _must_wait(coordinator, size):
            settle_oldest()
        lease = coordinator.lease(size)
        here = slice(start, start + lease.requests)
        served = serve(world.catalog, world.index, coordinator.terms, coordinator.policy, lease, vectors[here])
        out.append((lease.number, served))
        waiting, start = waiting + lease.requests, start + lease.requests
        while waiting > in_flight:
            settle_oldest()
    while out:
        settle_oldest()
    report = coordinator.report()
    return Figure(
        in_flight,
        batch,
        report.esp,
        (world.plain - report.relevance) / world.least,
        held / calls,
        report.forced / (len(vectors) * K),
    )


def _must_wait(coordinator: Coordinator, size: int) -> bool:
    """Return whether a lease would block, without asking for it."""
    return coordinator._books.lease(coordinator.terms, coordinator.policy, size) is None


def table(figures: Sequence[Figure], world: World) -> Table:
    title = (
        f"Requests in flight: {len(world.catalog):,} items, {GROUPS} groups, {len(world.users):,} requests, K = {K},"
        f" floor {world.floor}"
    )
    return Table(
        title,
        ["in flight", "B", "ESP", "cost ÷ hindsight", "calls held up", "slots forced"],
        [
            [
                f"{one.in_flight:,}",
                f"{one.batch:,}",
                f"{one.esp:.0%}",
                f"{one.cost_ratio:.2f}",
                f"{one.held_up:.2%}",
                f"{one.forced:.3%}",
            ]
            for one in figures
        ],
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=30_000)
    parser.add_argument("--in-flight", type=int, nargs="+", default=list(IN_FLIGHT))
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small catalog, few requests")
    parser.add_argument("--out", type=Path, default=OUT)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.items, given.requests, given.in_flight, given.batch_sizes = 5_000, 1_500, [0, 256], [16]
    figures: list[Figure] = []
    with progress(screen) as bar:
        task = bar.add_task("generating, and hindsight", total=len(given.in_flight) * len(given.batch_sizes))
        world = World(given.items, given.requests, given.seed)
        for batch in given.batch_sizes:
            for in_flight in given.in_flight:
                bar.update(task, description=f"{in_flight:,} in flight, B {batch:,}")
                figures.append(simulate(world, batch, in_flight))
                bar.advance(task)
    claims = [Claim("ESP, at any number in flight", min(one.esp for one in figures), 1.0, at_most=False)]
    document = {"floor": world.floor, "k": K, "figures": [asdict(figure) for figure in figures]}
    return finish("staleness", [table(figures, world)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
