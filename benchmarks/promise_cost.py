"""The cost of promises that overlap: relevance given up, relative to the least possible cost in hindsight.

    python -m benchmarks.promise_cost                    # both real sets and a generated one, without and with caps
    python -m benchmarks.promise_cost --quick            # a small generated set, without caps: half a minute
    python -m benchmarks.promise_cost --seeds 0 1 2      # several orders of arrival

Items have their category, a made-up provider (60 labels, sizes by Zipf's law, independent of the embeddings), and one
in ten is "new". Every category is promised the median of what plain retrieval gives to a category, every provider that
of a provider, and new items a tenth of all slots. With caps, the three labels with the most exposures may have three
quarters of them at most.

`guaranteed` runs cold, calibrated on past requests, and cold with first batches of 16, 32, 64, ... requests (warm-up).
The cost is divided by the dual bound of hindsight, which no plan can beat. The *cold limit* is the least that a
cold start can cost: the first batch cannot be priced, so it is the best plan for the rest, given what the first batch
got. The *unknown future* is what a policy must expect to pay that knows the distribution of the requests, but not the
requests (:mod:`benchmarks.unknown_future`); calibrated runs are compared with it.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.cost import generate, median_floor
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from benchmarks.unknown_future import expected_cost
from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks import embeddings
from fairsync.catalog import Catalog
from fairsync.hindsight import Hindsight, hindsight
from fairsync.policies import Guaranteed
from fairsync.promises import Promise, each
from fairsync.retriever import FairRetriever
from fairsync.text import percent

GENERATED = "generated"
COLD, WARM_UP, CALIBRATED = "cold", "warm-up", "calibrated"
PROVIDERS, NEW, CAPPED, CAP = 60, 0.1, 3, 0.75
SMALL_BATCH = 64

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class World:
    """A catalog with three attributes, its requests and the promises."""

    name: str
    catalog: Catalog
    users: Vectors
    past: Vectors
    k: int
    promises: tuple[Promise, ...]
    unmet: int

    def retriever(self, batch: int, method: str = COLD) -> FairRetriever:
        """Return a retriever with these promises."""
        settings: dict[str, Any] = {"k": self.k, "horizon": len(self.users), "batch_size": batch}
        policy = Guaranteed(warm_up=method == WARM_UP)
        retriever = FairRetriever(self.catalog, promises=self.promises, policy=policy, **settings)
        return retriever.calibrate(self.past) if method == CALIBRATED else retriever

    def order(self, seed: int) -> Vectors:
        """Return the requests in one order of arrival."""
        users: Vectors = self.users[np.random.default_rng(seed).permutation(len(self.users))]
        return users


@dataclass(frozen=True)
class Row:
    """One way to start at one batch size, over one or several orders of arrival."""

    world: str
    batch: int
    method: str
    ratios: tuple[float, ...]
    limits: tuple[float, ...]
    kept: bool
    forced: int
    seconds: float

    @property
    def mean(self) -> float:
        """Cost ÷ hindsight, as an average over the orders."""
        return float(np.mean(self.ratios))

    @property
    def of_limit(self) -> float:
        """Cost ÷ cold limit, or for a calibrated start ÷ unknown future, as an average over the orders."""
        return float(np.mean(np.divide(self.ratios, self.limits)))


def with_attributes(items: Vectors, categories: npt.NDArray[Any], seed: int = 0) -> Catalog:
    """Return a catalog whose items have their category, a made-up provider, and whether they are new."""
    rng, n = np.random.default_rng(seed), len(items)
    weights = 1.0 / np.arange(1, PROVIDERS + 1)
    providers = rng.choice(PROVIDERS, size=n, p=weights / weights.sum())
    labels = np.array([f"provider {code:02}" for code in range(PROVIDERS)])[providers]
    return Catalog(
        items, {"category": np.asarray(categories).astype(str), "provider": labels, "new": rng.random(n) < NEW}
    )


def make_promises(catalog: Catalog, users: Vectors, k: int, *, caps: bool) -> tuple[tuple[Promise, ...], int]:
    """Return the promises, and how many of them plain retrieval would not keep."""
    asked = [*each(catalog, "category", at_least=0), *each(catalog, "provider", at_least=0)]
    plain = FairRetriever(
        catalog, k=k, horizon=len(users), policy="none", batch_size=256,
        promises=[*asked, Promise({"new": True}, at_least=NEW)],
    )  # fmt: skip
    plain.retrieve(users)
    got = plain.report().exposures
    largest = sorted(asked, key=lambda one: -got[one.name])[:CAPPED] if caps else []
    promises = []
    for attribute in ("category", "provider"):
        named = [one for one in asked if one.each == attribute]
        floor = median_floor([got[one.name] for one in named])
        for one in named:
            cap = int(CAP * got[one.name]) if one in largest else None
            promises.append(Promise(one.where, at_least=floor, at_most=cap))
    promises.append(Promise({"new": True}, at_least=NEW))
    slots = len(users) * k
    unmet = sum(not one.floor(slots) <= got[one.name] <= (one.cap(slots) or slots) for one in promises)
    return tuple(promises), unmet


def cold_limit(world: World, best: Hindsight, users: Vectors, batch: int) -> float:
    """Return the least cost ÷ hindsight if the first batch has no prices."""
    plain = FairRetriever(
        world.catalog, k=world.k, horizon=len(users), policy="none", batch_size=batch, promises=world.promises
    )
    plain.retrieve(users[:batch])
    got, slots = plain.report().exposures, len(users) * world.k
    rest = []
    for one in world.promises:
        cap = one.cap(slots)
        left = None if cap is None else max(cap - got[one.name], 0)
        rest.append(Promise(one.where, at_least=max(one.floor(slots) - got[one.name], 0), at_most=left))
    return hindsight(world.catalog, users[batch:], k=world.k, promises=rest).cost / best.cost


def measure(
    world: World,
    best: Hindsight,
    expected: float,
    batches: Sequence[int],
    orders: Sequence[int],
    bar: Progress,
    task: TaskID,
) -> list[Row]:
    """Return a row for each way to start and each batch size."""
    rows = []
    for batch in batches:
        bar.update(task, description=f"{world.name}, B {batch}: cold limit")
        limits = tuple(cold_limit(world, best, world.order(order), batch) for order in orders)
        methods = (COLD, CALIBRATED) if batch <= 16 else (COLD, WARM_UP, CALIBRATED)
        for method in methods:
            ratios, kept, forced, seconds = [], True, 0, 0.0
            for order in orders:
                bar.update(task, description=f"{world.name}, B {batch}: {method}")
                retriever = world.retriever(batch, method)
                started = time.perf_counter()
                retriever.retrieve(world.order(order))
                seconds += time.perf_counter() - started
                report = retriever.report()
                assert report.relevance is not None
                ratios.append((best.unconstrained_relevance - report.relevance) / best.cost)
                kept = kept and report.esp == 1
                forced = max(forced, report.forced)
            of = limits if method == COLD else (expected if method == CALIBRATED else 1.0,) * len(orders)
            rows.append(Row(world.name, batch, method, tuple(ratios), of, kept, forced, seconds / len(orders)))
            bar.advance(task)
    return rows


def check_claims(rows: Sequence[Row]) -> list[Claim]:
    """Compare the most expensive row of each kind with its limit."""
    cold = [row for row in rows if row.method == COLD]
    kinds = (
        ("cost ÷ hindsight, cold, B ≤ 64", [row for row in cold if row.batch <= SMALL_BATCH], 1.25),
        ("cost ÷ hindsight, cold, B > 64", [row for row in cold if row.batch > SMALL_BATCH], 1.6),
        ("cost ÷ hindsight, warm-up", [row for row in rows if row.method == WARM_UP], 1.25),
        ("cost ÷ hindsight, calibrated", [row for row in rows if row.method == CALIBRATED], 1.25),
    )
    claims = [Claim(what, max(row.mean for row in found), limit) for what, found, limit in kinds if found]
    calibrated = [row for row in rows if row.method == CALIBRATED and row.batch <= SMALL_BATCH]
    if calibrated:
        claims.append(Claim("cost ÷ unknown future, calibrated, B ≤ 64", max(row.of_limit for row in calibrated), 1.06))
    return [
        *claims,
        Claim("runs that kept every promise", float(np.mean([row.kept for row in rows])), 1.0, at_most=False),
    ]


def tables(worlds: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[Table]:
    return [
        Table.of(
            "Promises and their least possible cost (hindsight)",
            worlds,
            {
                "set": lambda world: str(world["name"]),
                "items": lambda world: f"{world['items']:,}",
                "atoms": lambda world: f"{world['atoms']:,}",
                "promises": lambda world: f"{world['promises']:,}",
                "unmet": lambda world: f"{world['unmet']:,}",
                "requests": lambda world: f"{world['requests']:,}",
                "K": lambda world: str(world["k"]),
                "cost": lambda world: percent(world["cost_share"]),
                "unknown future": lambda world: f"{world['unknown_future']:.3f}",
                "gap ÷ relevance": lambda world: f"{world['gap']:.1e}",
                "time": lambda world: f"{world['seconds']:.1f} s",
            },
        ),
        Table.of(
            "Cost ÷ hindsight",
            rows,
            {
                "set": lambda row: row.world,
                "B": lambda row: str(row.batch),
                "start": lambda row: row.method,
                "cost ÷ hindsight": lambda row: f"{row.mean:.3f}",
                "limit": lambda row: f"{np.mean(row.limits):.3f}" if row.method != WARM_UP else "",
                "cost ÷ limit": lambda row: f"{row.of_limit:.3f}" if row.method != WARM_UP else "",
                "kept": lambda row: "all" if row.kept else "NOT ALL",
                "forced": lambda row: f"{row.forced:,}",
                "time": lambda row: f"{row.seconds:.1f} s",
            },
        ),
    ]


def make_worlds(given: argparse.Namespace, data: Path, bar: Progress) -> list[World]:
    """Load, train or generate the requested sets."""
    worlds = []
    for name in given.sets:
        if name.startswith(GENERATED):
            seed, share = int(name[len(GENERATED) :] or 0), (1.0 + np.arange(given.groups)) ** -0.8
            sizes = np.maximum(share / share.sum() * given.items, 3).astype(np.int64)
            items, groups, users, past = generate(sizes, given.requests, 2_000, seed=100 + seed)
        else:
            found = embeddings.load(name, data, 0, bar)
            items, groups, users, past = found.items, found.groups, found.users, found.past
        catalog = with_attributes(items, groups)
        for caps in given.caps:
            promises, unmet = make_promises(catalog, users, given.k, caps=caps)
            worlds.append(World(name + " + caps" * caps, catalog, users, past, given.k, promises, unmet))
    return worlds


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, quick="a small generated set without caps")
    parser.add_argument("--data", type=Path, help="folder of the real sets (default: $FAIRSYNC_DATA)")
    parser.add_argument("--sets", nargs="+", help=f"of {', '.join(embeddings.SETS)} and {GENERATED}, {GENERATED}1, ...")
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument(
        "--caps", type=int, nargs="+", choices=[0, 1], default=[0, 1], help="without (0) or with caps (1)"
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 64, 512])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="orders of arrival")
    parser.add_argument("--items", type=int, default=8_000, help="of the generated sets")
    parser.add_argument("--groups", type=int, default=60, help="of the generated sets")
    parser.add_argument("--requests", type=int, default=2_500, help="of the generated sets")
    given = parser.parse_args(argv)
    if given.quick:
        given.sets, given.caps = given.sets or [GENERATED], [0]
        given.items, given.groups, given.requests, given.batch_sizes = 4_000, 30, 2_500, [16, 64]
    given.sets = given.sets or [*embeddings.SETS, GENERATED]
    return given


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    given, screen = parse(argv), screen or make_screen()
    data = embeddings.data_folder(given.data)
    missing = [name for name in given.sets if not name.startswith(GENERATED) and not (data / name).is_dir()]
    if missing:
        screen.print(f"No {' or '.join(missing)} in {data}: running on a generated set only.", soft_wrap=True)
        given.sets = [name for name in given.sets if name not in missing] or [GENERATED]
    worlds, rows = [], []
    with progress(screen) as bar:
        for world in make_worlds(given, data, bar):
            task = bar.add_task(f"{world.name}: hindsight", total=None)
            started = time.perf_counter()
            best = hindsight(world.catalog, world.users, k=world.k, promises=world.promises)
            seconds = time.perf_counter() - started
            expected = expected_cost(world.catalog, world.users, world.k, world.promises, best)
            worlds.append({
                "name": world.name, "items": len(world.catalog), "atoms": world.retriever(16).terms.n_atoms,
                "promises": len(world.promises), "unmet": world.unmet, "requests": len(world.users), "k": world.k,
                "cost_share": best.cost / best.unconstrained_relevance, "gap": best.gap,
                "seconds": seconds, "unknown_future": expected,
            })  # fmt: skip
            bar.update(task, total=sum(2 if batch <= 16 else 3 for batch in given.batch_sizes))
            rows += measure(world, best, expected, given.batch_sizes, given.seeds, bar, task)
            bar.remove_task(task)
    document = {"worlds": worlds, "rows": [asdict(row) for row in rows]}
    return finish("promise_cost", tables(worlds, rows), check_claims(rows), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
