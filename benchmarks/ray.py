"""Time of a search in shards on a Ray cluster, compared with the same search in one process.

    python -m benchmarks.ray                            # a cluster of its own on this machine
    python -m benchmarks.ray --address auto             # the cluster that this machine is a node of
    python -m benchmarks.ray --quick                    # a smoke test

All contenders take turns call by call, under the same prices; only ratios are meaningful. On one machine shards share
its processors, so this shows the overhead of communication and not the gain of more machines.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, shown
from benchmarks.search import measure
from rich.console import Console
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

# A cluster of its own gets a token of its own, and leaves none behind; Ray looks for it when it is imported.
if "RAY_AUTH_MODE" not in os.environ:
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

import ray

from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic
from fairsync.search import ExactIndex, Index, ShardedIndex
from fairsync.search.ray import RayIndex

DIM, GROUPS, K, SHARDS = 64, 50, 50, 4
BATCHES = (1, 16, 64)
EXACT, SHARDED, RAY = "exact", "sharded", "ray"


@dataclass(frozen=True)
class Measurement:
    """One line of the table: milliseconds per call."""

    items: int
    batch: int
    exact: float
    sharded: float
    ray: float
    wrong: int

    @property
    def ratio(self) -> float:
        """Time on the cluster divided by that of exact search in this process."""
        return self.ray / self.exact


def compare(
    catalog: Catalog, index: RayIndex, users: npt.NDArray[np.float32], rounds: int, calls: int
) -> list[Measurement]:
    """Measure each search at each batch size."""
    prices = np.random.default_rng(1).normal(scale=0.1, size=catalog.n_groups)
    ways: dict[str, Index] = {EXACT: ExactIndex(catalog), SHARDED: ShardedIndex(catalog, SHARDS), RAY: index}
    figures = []
    for size in BATCHES:

        def caller(way: Index, size: int = size) -> Callable[[int], object]:
            return lambda call: way.search(users[call * size % (len(users) - size + 1) :][:size], prices, K)

        took = measure({name: caller(way) for name, way in ways.items()}, rounds, calls)
        truth, found = (ways[name].search(users[:size], prices, K) for name in (EXACT, RAY))
        wrong = int(((found.rows != truth.rows) | (found.relevance != truth.relevance)).any(axis=1).sum())
        exact, sharded, on_ray = (took[name] * 1e3 for name in (EXACT, SHARDED, RAY))
        figures.append(Measurement(len(catalog), size, exact, sharded, on_ray, wrong))
    return figures


def table(figures: Sequence[Measurement]) -> Table:
    return Table.of(
        f"Milliseconds per call, d = {DIM}, K = {K}, {GROUPS} groups, {SHARDS} shards",
        figures,
        {
            "items": lambda one: f"{one.items:,}",
            "batch": lambda one: str(one.batch),
            "exact": lambda one: f"{one.exact:.2f}",
            "sharded": lambda one: f"{one.sharded:.2f}",
            "ray": lambda one: f"{one.ray:.2f}",
            "ray / exact": lambda one: f"× {one.ratio:.2f}",
            "ray / sharded": lambda one: f"× {one.ray / one.sharded:.2f}",
        },
    )


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="one small catalog, few calls")
    parser.add_argument("--address", default="local", help="address of a cluster; by default, one is started")
    parser.add_argument("--items", type=int, nargs="+", default=[100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    sizes, rounds, calls = ([2_000], 1, 2) if given.quick else (given.items, given.rounds, given.calls)
    mine = not ray.is_initialized()
    if mine:
        cpus = SHARDS if given.address == "local" else None
        ray.init(given.address, num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    figures: list[Measurement] = []
    try:
        with threadpool_limits(1, user_api="blas"):
            for items in shown(screen, sizes, lambda items: f"{items:,} items"):
                data = synthetic(items, GROUPS, 512, DIM, given.seed)
                catalog = Catalog(data.embeddings, data.groups)
                with RayIndex(catalog, SHARDS) as index:
                    figures += compare(catalog, index, data.users[:, None], rounds, calls)
    finally:
        if mine:
            ray.shutdown()
    document = {"dim": DIM, "k": K, "shards": SHARDS, "figures": [asdict(one) for one in figures]}
    claims = [Claim("answers that differ from those of exact search", sum(one.wrong for one in figures), 0)]
    return finish("ray", [table(figures)], claims, document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
