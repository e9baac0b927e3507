"""The cost of floors: relevance given up, relative to the least possible cost in hindsight.

    python -m benchmarks.cost                      # both real sets, K 20 and 50, and the long horizon: 15 minutes
    python -m benchmarks.cost --quick              # one set, two batch sizes: a minute, once the model is trained
    python -m benchmarks.cost --seeds 0 1 2        # several orders of arrival (fairsync: the first)

The floor is the median exposure of a group without floors, so that half of the groups need support. `guaranteed` has no
parameters; it runs without and with calibration on past requests. `fairsync` (the paper's) gets the best learning rate
of a grid for each batch size, chosen on the same requests that it is evaluated on. Without the data folder (--data, or
FAIRSYNC_DATA) only the generated set is run.
"""

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks import embeddings
from fairsync.catalog import Catalog
from fairsync.data.synthetic import group_sizes
from fairsync.hindsight import Hindsight, hindsight
from fairsync.policies import FairSync, Policy
from fairsync.retriever import FairRetriever
from fairsync.text import percent

GENERATED = "generated"
COLD, CALIBRATED, FAIRSYNC = "guaranteed, cold", "guaranteed, calibrated", "fairsync, tuned"
# Learning rates in units of a candidate's mean relevance.
GRID = tuple(np.geomspace(1e-3, 1.0, 13).tolist())
SHORT_GRID = tuple(np.geomspace(1e-3, 10**-1.5, 7).tolist())
LONG = 30_000  # minimum number of requests of a long horizon
SMALL_BATCH = 64

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class World:
    """A catalog, its requests and the floors."""

    name: str
    catalog: Catalog
    users: Vectors
    past: Vectors
    k: int
    floor: int

    @property
    def long(self) -> bool:
        """Whether the claim for long horizons applies."""
        return len(self.users) >= LONG

    def retriever(self, policy: str | Policy, batch: int) -> FairRetriever:
        """Return a retriever with these floors."""
        horizon = len(self.users)
        return FairRetriever(
            self.catalog, k=self.k, floors=self.floor, horizon=horizon, policy=policy, batch_size=batch
        )


@dataclass(frozen=True)
class Outcome:
    """One run over the whole horizon."""

    order: int
    ratio: float
    esp: float
    forced: int
    seconds: float
    rate: float | None = None


@dataclass(frozen=True)
class Row:
    """One method at one batch size, over one or several orders of arrival."""

    world: str
    k: int
    long: bool
    batch: int
    method: str
    outcomes: tuple[Outcome, ...]

    @property
    def mean(self) -> float:
        """The average ratio over the orders."""
        return float(np.mean([outcome.ratio for outcome in self.outcomes]))

    @property
    def worst(self) -> float:
        """The highest ratio of all orders."""
        return float(np.max([outcome.ratio for outcome in self.outcomes]))  # NaN if any ratio is NaN

    @property
    def esp(self) -> float:
        """The lowest ESP of all orders."""
        return min(outcome.esp for outcome in self.outcomes)

    def cells(self) -> list[str]:
        """Return cost ÷ hindsight, ESP, and the slots forced, or the rate for what was tuned."""
        cost = f"{self.mean:.2f}" + (f" ({self.worst:.2f})" if len(self.outcomes) > 1 else "")
        last = (
            f"{max(outcome.forced for outcome in self.outcomes):,}"
            if self.outcomes[0].rate is None
            else f"{self.outcomes[0].rate:.2g}"
        )
        # Missed floors cost nothing, so the ratio would be too low.
        return [cost if self.esp == 1 else "not comparable", esp_text(self.esp), last]


def esp_text(esp: float) -> str:
    """Return an ESP as text, rounded down, so that a missed floor never shows 100 %."""
    return f"{math.floor(esp * 1000) / 10:g} %"


def median_floor(exposures: Sequence[int]) -> int:
    """Return the median exposures of a group without floors."""
    return int(np.median(exposures))


def tune(trials: Sequence[Outcome]) -> Outcome:
    """Return the cheapest run that kept every floor or, if none did, the run that kept most."""
    kept = [trial for trial in trials if trial.esp == 1]
    if kept:
        return min(kept, key=lambda trial: trial.ratio)
    return max(trials, key=lambda trial: (trial.esp, -trial.ratio))


def plain_exposures(catalog: Catalog, users: Vectors, k: int) -> list[int]:
    plain = FairRetriever(catalog, k=k, horizon=len(users), policy="none", batch_size=256)
    plain.retrieve(users)
    return list(plain.report().exposures.values())


def run(world: World, best: Hindsight, method: str, batch: int, order: int, rate: float | None = None) -> Outcome:
    """Serve all requests in one order of arrival."""
    retriever = world.retriever("guaranteed" if rate is None else FairSync(rate), batch)
    if method == CALIBRATED:
        retriever.calibrate(world.past)
    users = world.users[np.random.default_rng(order).permutation(len(world.users))]
    started = time.perf_counter()
    retriever.retrieve(users)
    seconds = time.perf_counter() - started
    report = retriever.report(best)
    assert report.cost_ratio is not None
    return Outcome(order, report.cost_ratio, report.esp, report.forced, seconds, rate)


def measure(
    world: World,
    best: Hindsight,
    batches: Sequence[int],
    orders: Sequence[int],
    grid: Sequence[float],
    bar: Progress,
    task: TaskID,
) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return a row for each method and batch size, and all trials of the tuning."""
    rows: list[Row] = []
    tuning: list[dict[str, Any]] = []
    unit = abs(best.unconstrained_relevance) / best.rows.size

    def one(method: str, batch: int, order: int, rate: float | None = None) -> Outcome:
        bar.update(task, description=f"{world.name}, K {world.k}, B {batch}: {method}")
        outcome = run(world, best, method, batch, order, rate)
        bar.advance(task)
        return outcome

    def row(method: str, batch: int, outcomes: Sequence[Outcome]) -> Row:
        return Row(world.name, world.k, world.long, batch, method, tuple(outcomes))

    for batch in batches:
        rows += [row(method, batch, [one(method, batch, order) for order in orders]) for method in (COLD, CALIBRATED)]
        trials = [one(FAIRSYNC, batch, orders[0], rate * unit) for rate in grid]
        rows.append(row(FAIRSYNC, batch, [tune(trials)]))
        tuning += [{"world": world.name, "k": world.k, "batch": batch, **asdict(trial)} for trial in trials]
    return rows, tuning


def check_claims(rows: Sequence[Row]) -> list[Claim]:
    """Compare the most expensive row of each kind, as a mean over the orders of arrival, with its limit."""
    guaranteed = [row for row in rows if row.method != FAIRSYNC]
    short = [row for row in guaranteed if not row.long]
    cold = [row for row in short if row.method == COLD]
    kinds = (
        ("cost ÷ hindsight, cold, B ≤ 64", [row for row in cold if row.batch <= SMALL_BATCH], 1.25),
        ("cost ÷ hindsight, cold, B > 64", [row for row in cold if row.batch > SMALL_BATCH], 1.5),
        ("cost ÷ hindsight, calibrated", [row for row in short if row.method == CALIBRATED], 1.25),
        ("cost ÷ hindsight, long horizon", [row for row in guaranteed if row.long], 1.05),
    )
    claims = [
        Claim(what, float(np.max([row.mean for row in of_kind])), limit) for what, of_kind, limit in kinds if of_kind
    ]
    if guaranteed:
        claims.append(Claim("ESP of guaranteed", min(row.esp for row in guaranteed), 1.0, at_most=False))
    return claims


def generate(sizes: npt.NDArray[np.int64], requests: int, past: int, seed: int, dim: int = 32) -> tuple[Any, ...]:
    """Return generated embeddings, groups, requests and past requests, with users near items that they liked."""
    rng = np.random.default_rng(seed)
    spectrum = (1.0 + np.arange(dim)) ** -0.5
    groups = np.repeat(np.arange(len(sizes)), sizes)
    centres = rng.normal(size=(len(sizes), dim)) * spectrum
    items = 0.6 * centres[groups] + rng.normal(size=(len(groups), dim)) * spectrum
    liked = items[rng.integers(len(items), size=(requests + past, 8))]
    users = 0.5 * liked[:, 0] + 0.5 * liked.mean(1) + 0.3 * rng.normal(size=(requests + past, dim)) * spectrum
    users = users.astype(np.float32)
    return items.astype(np.float32), groups, users[past:], users[:past]


def skewed_sizes(n_items: int, n_groups: int, data: Path) -> npt.NDArray[np.int64]:
    """Return group sizes in the proportions of a real catalog if it is available, else similar ones."""
    file = data / "amazon-book" / "items.parquet"
    if not file.exists() or n_groups != 165:
        return group_sizes(n_items, n_groups)
    real = np.sort(embeddings.read_group_sizes(file))[::-1]
    sizes: npt.NDArray[np.int64] = np.maximum(np.floor(real / real.sum() * n_items), 1).astype(np.int64)
    sizes[0] += n_items - sizes.sum()
    return sizes


def make_worlds(given: argparse.Namespace, data: Path, bar: Progress) -> list[World]:
    """Load, train or generate the requested sets."""
    worlds = []
    for name in given.sets:
        if name == GENERATED:
            sizes = skewed_sizes(given.items, given.groups, data)
            items, groups, users, past = generate(sizes, given.requests, given.past, seed=5)
            worlds.append(World(name, Catalog(items, groups), users, past, 20, given.floor))
            continue
        found = embeddings.load(name, data, 0, bar)
        catalog = Catalog(found.items, found.groups)
        for k in given.k:
            floor = median_floor(plain_exposures(catalog, found.users, k))
            worlds.append(World(name, catalog, found.users, found.past, k, floor))
    return worlds


def describe(world: World, best: Hindsight, seconds: float) -> dict[str, Any]:
    """Return the facts of a world, which do not depend on a policy."""
    plain = np.array(plain_exposures(world.catalog, world.users, world.k))
    return {
        "name": world.name,
        "k": world.k,
        "items": len(world.catalog),
        "groups": world.catalog.n_groups,
        "requests": len(world.users),
        "past": len(world.past),
        "floor": world.floor,
        "plain_esp": float((plain >= world.floor).mean()),
        "hindsight_cost_share": best.cost / best.unconstrained_relevance,
        # The gap between the bounds, relative to the least cost.
        "hindsight_gap_of_cost": (best.relevance - best.feasible_relevance) / best.cost if best.cost else 0.0,
        "hindsight_seconds": seconds,
    }


def tables(worlds: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[Table]:
    about = [
        [
            world["name"],
            *(f"{world[key]:,}" for key in ("items", "groups", "requests", "k", "floor")),
            esp_text(world["plain_esp"]),
            percent(world["hindsight_cost_share"]),
            f"{world['hindsight_gap_of_cost']:.1e}",
            f"{world['hindsight_seconds']:.1f} s",
        ]
        for world in worlds
    ]
    by_place: dict[tuple[str, int, int], dict[str, Row]] = {}
    for row in rows:
        by_place.setdefault((row.world, row.k, row.batch), {})[row.method] = row
    several = any(len(row.outcomes) > 1 for row in rows)
    return [
        Table(
            "Floors and their least possible cost (hindsight)",
            ["set", "items", "groups", "requests", "K", "floor", "ESP without", "cost", "gap ÷ cost", "time"],
            about,
        ),
        Table(
            "Cost ÷ hindsight" + (", mean (worst) over orders of arrival" if several else ""),
            ["set", "K", "B", COLD, "ESP", "forced", CALIBRATED, "ESP", "forced", FAIRSYNC, "ESP", "rate"],
            [
                [name, str(k), str(batch), *(cell for method in methods.values() for cell in method.cells())]
                for (name, k, batch), methods in by_place.items()
            ],
        ),
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = make_parser(__doc__, quick="amazon-beauty, K 20, B 16 and 256, a small grid")
    parser.add_argument("--data", type=Path, help="folder of the real sets (default: $FAIRSYNC_DATA)")
    parser.add_argument("--sets", nargs="+", choices=[*embeddings.SETS, GENERATED])
    parser.add_argument("--k", type=int, nargs="+", default=[20, 50], help="for the real sets; generated has 20")
    parser.add_argument("--batch-sizes", type=int, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="orders of arrival")
    parser.add_argument("--items", type=int, help="of the generated set")
    parser.add_argument("--groups", type=int, default=165, help="of the generated set")
    parser.add_argument("--requests", type=int, help="of the generated set")
    parser.add_argument("--past", type=int, default=2_000, help="past requests of the generated set")
    parser.add_argument("--floor", type=int, help="of the generated set")
    parser.add_argument("--full", action="store_true", help="all batch sizes and orders on the generated set, too")
    given = parser.parse_args(argv)
    if given.quick:
        given.sets, given.k = given.sets or [embeddings.SETS[0]], [20]
        given.batch_sizes = given.batch_sizes or [16, 256]
    given.sets = given.sets or [*embeddings.SETS, GENERATED]
    given.items = given.items or (10_000 if given.quick else 40_000)
    given.requests = given.requests or (6_000 if given.quick else 60_000)
    given.floor = (20 if given.quick else 200) if given.floor is None else given.floor
    return given


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    given, screen = parse(argv), screen or make_screen()
    data = embeddings.data_folder(given.data)
    missing = [name for name in given.sets if name != GENERATED and not (data / name).is_dir()]
    if missing:
        screen.print(f"No {' or '.join(missing)} in {data}: running on the generated set only.", soft_wrap=True)
        given.sets = [name for name in given.sets if name not in missing] or [GENERATED]
    worlds, rows, tuning = [], [], []
    with progress(screen) as bar:
        for world in make_worlds(given, data, bar):
            generated = world.name == GENERATED
            grid = SHORT_GRID if generated or given.quick else GRID
            batches = given.batch_sizes or ([16, 512] if generated and not given.full else [1, 16, 64, 256, 512])
            orders = given.seeds[:1] if world.long and not given.full else given.seeds
            task = bar.add_task(f"{world.name}, K {world.k}: hindsight", total=None)
            started = time.perf_counter()
            best = hindsight(world.catalog, world.users, k=world.k, floors=world.floor)
            worlds.append(describe(world, best, time.perf_counter() - started))
            bar.update(task, total=len(batches) * (2 * len(orders) + len(grid)))
            found, trials = measure(world, best, batches, orders, grid, bar, task)
            bar.remove_task(task)
            rows += found
            tuning += trials
    document = {"worlds": worlds, "rows": [{**asdict(row), "esp": row.esp} for row in rows], "tuning": tuning}
    return finish("cost", tables(worlds, rows), check_claims(rows), document, given.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
