"""The cost of stale prices and counts, which lag by all requests in flight at many front ends.

    python -m benchmarks.staleness               # up to 1,024 front ends, some minutes
    python -m benchmarks.staleness --quick       # small: a smoke test

This is a simulation with the real coordinator, search and guard; only the clock is simulated. Front ends take turns.
Each leases the requests of one call and searches under the prices of that moment. Its counts reach the coordinator at
its next turn, or later if counts are delayed. So the coordinator lags by

    in flight = (front ends - 1) x requests of a call + delay

requests at any time. If a call has to wait, the oldest call in flight is settled first, and the call counts as blocked.
Everything is simulated twice: without and with calibration on past requests.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle

from benchmarks.cost import median_floor
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, shown
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.console import Console

from fairsync import Catalog, Coordinator, FairRetriever, FrontEnd, hindsight
from fairsync.coordination.lease import Lease, Settlement
from fairsync.data import synthetic
from fairsync.report.plot import save, tidy
from fairsync.search import ExactIndex

GROUPS, DIM, K, PAST = 165, 32, 20, 1_000
FRONT_ENDS = (1, 16, 64, 256, 1_024)
DELAYS = (0,)
BATCHES = (16, 256, 1_024)
_STYLES = (("#0072B2", "o"), ("#D55E00", "D"), ("#009E73", "^"), ("#CC79A7", "s"), ("#E69F00", "v"))


@dataclass(frozen=True)
class Setting:
    """The terms of a simulation: number of front ends, requests per call, and delay of counts in requests."""

    front_ends: int
    call: int
    delay: int
    batch: int
    calibrated: bool

    @property
    def in_flight(self) -> int:
        """Requests whose counts the coordinator does not have yet."""
        return (self.front_ends - 1) * self.call + self.delay


@dataclass(frozen=True)
class Measurement:
    """The result of a simulation.

    ``cost_ratio`` is in multiples of hindsight; ``held_up`` the share of calls that had to wait, and ``forced`` the
    share of slots that the guard filled.
    """

    setting: Setting
    esp: float
    cost_ratio: float
    held_up: float
    forced: float


class World:
    """Generated items and requests, floors that half of the groups would miss, and their least possible cost."""

    def __init__(self, items: int, requests: int, seed: int) -> None:
        data = synthetic(items, GROUPS, requests, DIM, seed, n_past=PAST)
        self.catalog = Catalog(data.embeddings, data.groups)
        self.index, self.users, self.past = ExactIndex(self.catalog), data.users, data.past_users
        plain = FairRetriever(self.catalog, k=K, floors=0, horizon=requests, policy="none", index=self.index)
        plain.retrieve(self.users)
        self.floor = median_floor(list(plain.report().exposures.values()))
        self.plain = plain.report().relevance
        self.least = hindsight(self.catalog, self.users, k=K, floors=self.floor, index=self.index).cost


class LateCoordinator(Coordinator):
    """A coordinator that gets counts after a number of other requests have been leased."""

    def __init__(self, world: World, batch: int, in_flight: int) -> None:
        # Leases must not expire, because their clock is not the simulated one.
        super().__init__(
            world.catalog, k=K, floors=world.floor, horizon=len(world.users), batch_size=batch, lease_seconds=1e9
        )
        self.in_flight = in_flight
        self.out: deque[tuple[int, Callable[[], object]]] = deque()
        self.waiting = self.calls = self.held_up = 0

    def lease(self, n: int, k: int | None = None) -> Lease:
        """Lease requests, after enough leases are settled."""
        self.calls += 1
        lease = self.try_lease(n, k=k)
        self.held_up += lease is None
        while lease is None:
            self.hear()
            lease = self.try_lease(n, k=k)
        self.waiting += lease.batch.requests
        return lease

    def settle(self, number: int, settlement: Settlement) -> None:
        """Accept counts, to be settled later."""
        self.out.append(
            (
                settlement.entry.requests,
                partial(super().settle, number, settlement),
            )
        )
        while self.waiting > self.in_flight:
            self.hear()

    def hear(self) -> None:
        """Settle the oldest open lease."""
        requests, settle = self.out.popleft()
        self.waiting -= requests
        settle()


def simulate(world: World, setting: Setting) -> Measurement:
    """Serve all requests."""
    coordinator = LateCoordinator(world, setting.batch, setting.in_flight)
    if setting.calibrated:
        coordinator.calibrate(world.past, world.catalog, world.index)
    front_end = FrontEnd(world.catalog, coordinator, index=world.index)  # stateless, so one stands for all
    for start in range(0, len(world.users), setting.call):
        front_end.retrieve(world.users[start : start + setting.call])
    while coordinator.out:
        coordinator.hear()
    report = coordinator.report()
    cost = (world.plain - report.relevance) / world.least
    slots = len(world.users) * K
    return Measurement(setting, report.esp, cost, coordinator.held_up / coordinator.calls, report.forced / slots)


def table(figures: Sequence[Measurement], world: World) -> Table:
    title = (
        f"Requests in flight: {len(world.catalog):,} items, {GROUPS} groups, {len(world.users):,} requests, K = {K},"
        f" floor {world.floor}"
    )
    return Table.of(
        title,
        figures,
        {
            "in flight": lambda one: f"{one.setting.in_flight:,}",
            "of the horizon": lambda one: f"{one.setting.in_flight / len(world.users):.2%}",
            "front ends": lambda one: f"{one.setting.front_ends:,}",
            "delay": lambda one: f"{one.setting.delay:,}",
            "B": lambda one: f"{one.setting.batch:,}",
            "start": lambda one: "calibrated" if one.setting.calibrated else "cold",
            "ESP": lambda one: f"{one.esp:.0%}",
            "cost ÷ hindsight": lambda one: f"{one.cost_ratio:.2f}",
            "calls held up": lambda one: f"{one.held_up:.2%}",
            "slots forced": lambda one: f"{one.forced:.3%}",
        },
    )


def plot(figures: Sequence[Measurement], world: World) -> Picture:
    """Plot the cost by the requests in flight, a line for each B: uncalibrated left, calibrated right."""
    picture = Picture(figsize=(9.6, 4.2), layout="constrained", dpi=150)
    panels = picture.subplots(1, 2, sharey=True)
    for axes, calibrated in zip(panels, (False, True), strict=True):
        chosen = [one for one in figures if one.setting.calibrated == calibrated]
        batches = dict.fromkeys(one.setting.batch for one in chosen)
        for batch, (colour, marker) in zip(batches, cycle(_STYLES), strict=False):
            line = sorted((one.setting.in_flight, one.cost_ratio) for one in chosen if one.setting.batch == batch)
            axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=5, label=f"B = {batch:,}")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xscale("symlog", linthresh=64, linscale=0.5)
        values = sorted({one.setting.in_flight for one in chosen})
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(-12, 1.3 * max(values[-1], 64))
        axes.axhline(1, color="black", linewidth=1)
        axes.set_xlabel(f"requests in flight, of a horizon of {len(world.users):,}")
        axes.set_title("calibrated on past requests" if calibrated else "cold start", loc="left", weight="bold")
        tidy(axes)
    panels[0].set_ylabel("cost, in multiples of hindsight")
    panels[0].legend(frameon=False)
    return picture


def main(argv: Sequence[str] | None = None, screen: Console | None = None) -> int:
    parser = make_parser(__doc__, quick="a small catalog, few requests")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=30_000, help="horizon")
    parser.add_argument("--front-ends", type=int, nargs="+", default=list(FRONT_ENDS))
    parser.add_argument("--call", type=int, default=8, help="requests per call, in flight at each front end")
    parser.add_argument("--delays", type=int, nargs="+", default=list(DELAYS), help="further delay, in requests")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--seed", type=int, default=0)
    given, screen = parser.parse_args(argv), screen or make_screen()
    if given.quick:
        given.items, given.requests, given.front_ends, given.batch_sizes = 5_000, 1_500, [1, 32], [16]
    settings = [
        Setting(front_ends, given.call, delay, batch, calibrated)
        for calibrated in (False, True)
        for batch in given.batch_sizes
        for delay in given.delays
        for front_ends in given.front_ends
    ]
    world = World(given.items, given.requests, given.seed)
    figures = [
        simulate(world, setting)
        for setting in shown(screen, settings, lambda one: f"{one.in_flight:,} in flight, B {one.batch:,}")
    ]
    claims = [Claim("ESP, at any number in flight", min(one.esp for one in figures), 1.0, at_most=False)]
    document = {"floor": world.floor, "k": K, "figures": [asdict(figure) for figure in figures]}
    code = finish("staleness", [table(figures, world)], claims, document, given.out, screen)
    save(plot(figures, world), given.out / "staleness.png")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
