"""Days of traffic replayed through the running service: the windows that were missed although they could be kept.

Promises per hour, day, week and campaign are kept by a promise service on a simulated clock, over visits of Complete
Journey and Ta-Feng and over made-up days. The traffic comes as it was, three times or a third of it in the middle, or
the service is away twice. Made-up days also have a collapse: from a random hour on, a tenth of the traffic comes.

What could be kept is computed afterwards from the requests that came: a linear program decides for each missed window
whether its floor could have been met without any other promise getting less than it got. Relevance given up is
relative to the candidates without promises. Beside it stands the least that hindsight would give up for windows that
get no less.
"""

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from benchmarks.output import Claim, Table, finish, make_parser, make_screen, progress
from benchmarks.replayed_days import (
    DAY,
    HOUR,
    Shop,
    Times,
    could_have_been_kept,
    least_given_up,
    outages,
    outcomes,
    spread,
    usual_traffic,
    with_trouble,
    without,
)

from fairsync.catalog.groups import Label
from fairsync.data import prepare, read_completejourney
from fairsync.data import replay as visits_of
from fairsync.errors import InvalidInputError
from fairsync.promises.promise import Promise
from fairsync.schedule import WORST_CASE_TRAFFIC, Forecast, ScheduledPromise, Window
from fairsync.service.promises.replay import replay

DATA = Path(os.environ.get("FAIRSYNC_DATA", Path(__file__).parents[2] / "shared" / "data"))
TROUBLES = ("none", "surge", "slump", "down")


@dataclass(frozen=True)
class Days:
    """Days to replay: a shop with promises, and the visits of these days."""

    shop: Shop
    times: Times
    start: datetime
    end: datetime
    every_hours: float = 1.0


@dataclass(frozen=True)
class Result:
    """How the windows of a replay ended."""

    days: str
    trouble: str
    seed: int
    shares: bool
    worst_case: float
    kept: int
    missed: int
    impossible: int
    exceeded: int
    relevance: float
    plain_relevance: float
    least: float
    which: tuple[str, ...] = ()

    @property
    def given_up(self) -> float:
        """The part of the relevance that was given up."""
        return 1 - self.relevance / self.plain_relevance


def made_up(seed: int, shares: bool, worst_case: float, per_day: int = 120) -> Days:
    """Return a Sunday on which clocks go forward, and the Monday after it."""
    zone = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 3, 29, tzinfo=zone), datetime(2026, 3, 31, tzinfo=zone)
    times = usual_traffic(start - 28 * DAY, 30, per_day=per_day, seed=seed)
    forecast = Forecast(rate=0.001, zone=zone.key, slot=1800).learn(times, start - 28 * DAY, start)
    shop = Shop([], forecast, seed=seed, plan_seconds=60, worst_case_traffic=worst_case)
    one, two, three, four = shop.large[:4]
    campaign = Window.campaign(start + 12 * HOUR, end - 12 * HOUR, zone.key)
    shop.promises = [
        floor(one, 60, 0.12, Window.day(zone.key), shares),
        ScheduledPromise.of_group(two, 25, Window.day(zone.key)),
        ScheduledPromise.of_group(two, 60, Window.week(zone.key)),
        floor(three, 80, 0.15, campaign, shares),
        ScheduledPromise.of_group(four, 2, Window.hour(zone.key)),
        ScheduledPromise.of_group("rare", 30, Window.day(zone.key)),
        *caps(one, three, zone.key, shares),
    ]
    return Days(shop, times, start, end)


def full(seed: int, shares: bool, worst_case: float) -> Days:
    """Return made-up days with fewer requests and more promised: about two thirds of all slots."""
    days = made_up(seed, shares, worst_case, per_day=80)
    zone = "Europe/Berlin"
    start = days.start - DAY
    one, two, three, four = days.shop.large[:4]
    times = usual_traffic(start - 28 * DAY, 31, per_day=80, seed=seed)
    days.shop.forecast = Forecast(rate=0.001, zone=zone, slot=1800).learn(times, start - 28 * DAY, start)
    campaign = Window.campaign(start + 12 * HOUR, days.end - 12 * HOUR, zone)
    days.shop.promises = [
        floor(one, 60, 0.15, Window.day(zone), shares),
        ScheduledPromise.of_group(two, 30, Window.day(zone)),
        ScheduledPromise.of_group(two, 90, Window.week(zone)),
        floor(three, 100, 0.2, campaign, shares),
        ScheduledPromise.of_group(four, 2, Window.hour(zone)),
        ScheduledPromise.of_group("rare", 30, Window.day(zone)),
        *caps(one, three, zone, shares),
    ]
    return replace(days, start=start, times=times)


def complete_journey(seed: int, shares: bool, worst_case: float) -> Days:
    """Return a week of Complete Journey."""
    times = visits_of(prepare(read_completejourney(), "completejourney"), start=0).times.astype(np.float64)
    zone = ZoneInfo("America/New_York")
    end = datetime(2017, 3, 13, tzinfo=zone)  # a week ends, and clocks have just gone forward
    start = end - 7 * DAY
    forecast = Forecast(rate=0.005, zone=zone.key, slot=3600).learn(times, start - 50 * DAY, start)
    shop = Shop([], forecast, seed=seed, plan_seconds=60, worst_case_traffic=worst_case)
    one, two, three, four = shop.large[:4]
    campaign = Window.campaign(date(2017, 3, 10), date(2017, 3, 12), zone.key)
    shop.promises = [
        floor(one, 200, 0.1, Window.day(zone.key), shares),
        ScheduledPromise.of_group(two, 100, Window.day(zone.key)),
        ScheduledPromise.of_group(two, 900, Window.week(zone.key)),
        floor(three, 300, 0.05, campaign, shares),
        ScheduledPromise.of_group(four, 3, Window.hour(zone.key)),
        ScheduledPromise.of_group("rare", 380, Window.day(zone.key)),  # nearly as many as there are requests
        *caps(one, three, zone.key, shares),
    ]
    return Days(shop, times, start, end, every_hours=0.5)


def tafeng(seed: int, shares: bool, worst_case: float) -> Days:
    """Return a week of Ta-Feng: from its second day on a tenth of the usual visits come, unannounced."""
    visits = pl.read_parquet(DATA / "tafeng" / "interactions.parquet").select("user", "timestamp").unique()
    later = visits.filter(pl.col("timestamp") > pl.col("timestamp").min().over("user"))
    times = spread(np.sort(later["timestamp"].to_numpy().astype(np.int64)))
    start = datetime(2000, 12, 18, tzinfo=UTC)
    forecast = Forecast(rate=0.01, slot=3600).learn(times, datetime(2000, 11, 1, tzinfo=UTC), start)
    shop = Shop([], forecast, seed=seed, plan_seconds=60, worst_case_traffic=worst_case)
    one, two, three, four = shop.large[:4]
    campaign = Window.campaign(date(2000, 12, 18), date(2000, 12, 20), "UTC")
    shop.promises = [
        floor(one, 450, 0.12, Window.day("UTC"), shares),
        ScheduledPromise.of_group(two, 2_000, Window.week("UTC")),
        floor(three, 1_500, 0.12, campaign, shares),
        ScheduledPromise.of_group(four, 6, Window.hour("UTC")),
        ScheduledPromise.of_group("rare", 500, Window.day("UTC")),
        *caps(one, three, "UTC", shares),
    ]
    return Days(shop, times, start, start + 7 * DAY)


SETS: dict[str, Callable[[int, bool, float], Days]] = {
    "made-up": made_up,
    "full": full,
    "Complete Journey": complete_journey,
    "Ta-Feng": tafeng,
}
REAL = {"Complete Journey": 0, "Ta-Feng": 0}
"""The most windows that are missed on each real log, of all troubles together, with and without shares."""


def floor(group: Label, exposures: int, share: float, window: Window, is_share: bool) -> ScheduledPromise:
    """Return a promise of exposures, or of a share of all slots."""
    if is_share:
        return ScheduledPromise(Promise({"group": group}, at_least=share), window)
    return ScheduledPromise.of_group(group, exposures, window)


def caps(one: Label, three: Label, zone: str, is_share: bool) -> list[ScheduledPromise]:
    """Return a cap as a share for each of two groups, per day and per hour."""
    if not is_share:
        return []
    return [
        ScheduledPromise(Promise({"group": one}, at_most=0.4), Window.day(zone)),
        ScheduledPromise(Promise({"group": three}, at_most=0.5), Window.hour(zone)),
    ]


def play(task: tuple[str, str, int, bool, float]) -> Result:
    """Replay days, and compare every window with what could have been."""
    logging.disable(logging.WARNING)  # every floor that cannot be kept is logged
    name, trouble, seed, shares, worst_case = task
    days = SETS[name](seed, shares, worst_case)
    shop, start, end = days.shop, days.start.astimezone(UTC), days.end.astimezone(UTC)
    times = days.times[(days.times >= start.timestamp()) & (days.times < end.timestamp())]
    times = with_trouble(times, start, end, trouble, seed)
    down = outages(start, end) if trouble == "down" else []
    replay(shop.open, times, shop.serve, start, end, every=days.every_hours * HOUR, down=down)
    every = outcomes(shop, start, end, without(times, down))
    missed = [one for one in every if one.missing]
    possible = [one for one in missed if could_have_been_kept(shop.capacities, one, every, without(times, down))]
    return Result(
        name, trouble, seed, shares, worst_case, len(every) - len(missed), len(possible), len(missed) - len(possible),
        sum(one.is_exceeded for one in every), shop.relevance, shop.plain_relevance, least_given_up(shop, every),
        tuple(f"{one.promise}: {one.exposures} of {one.floor}, {one.span.start:%d %H:%M}" for one in possible),
    )  # fmt: skip


def rows_of(results: Sequence[Result]) -> list[list[str]]:
    """Return one row for each set of days, with the troubles side by side and seeds summed up."""
    keys = dict.fromkeys((one.days, one.shares, one.worst_case) for one in results)
    rows = []
    for key in keys:
        here = [one for one in results if (one.days, one.shares, one.worst_case) == key]
        troubles = list(dict.fromkeys(one.trouble for one in here))
        of = {trouble: [one for one in here if one.trouble == trouble] for trouble in troubles}

        def joined(text: Callable[[list[Result]], str], of: dict[str, list[Result]] = of) -> str:
            return " / ".join(text(some) for some in of.values())

        rows.append(
            [
                f"{key[0]}{', shares' if key[1] else ''}",
                f"{key[2]:.2g}",
                " / ".join(troubles),
                joined(lambda some: str(sum(one.kept for one in some))),
                joined(lambda some: str(sum(one.missed for one in some))),
                joined(lambda some: str(sum(one.impossible for one in some))),
                joined(lambda some: f"{100 * float(np.mean([one.given_up for one in some])):.1f}"),
                joined(lambda some: f"{100 * float(np.mean([one.least for one in some])):.1f}"),
            ]
        )
    return rows


def main() -> int:
    """Replay, print and write the results."""
    parser = make_parser(__doc__, quick="made-up days with one seed only")
    parser.add_argument("--days", nargs="+", choices=[*SETS], default=[*SETS], help="which days to replay")
    parser.add_argument("--troubles", nargs="+", default=None, help="none, surge, slump, down, collapse")
    parser.add_argument("--seeds", type=int, default=8, help="seeds of made-up days; real logs are replayed once")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--worst-case", nargs="+", type=float, default=[WORST_CASE_TRAFFIC], help="traffic.worst_case")
    parser.add_argument("--without-shares", action="store_true", help="only promises of whole numbers")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.quick:
        options.days, options.seeds = ["made-up"], 1
    screen = make_screen()
    tasks = [
        (name, trouble, options.first_seed + seed, shares, worst_case)
        for name in options.days
        for shares in ([False] if options.without_shares else [False, True])
        for worst_case in options.worst_case
        for seed in range(1 if name in REAL else options.seeds)
        for trouble in options.troubles or (TROUBLES if name in REAL else (*TROUBLES, "collapse"))
    ]
    results = []
    with ProcessPoolExecutor(options.processes) as pool, progress(screen) as bar:
        task = bar.add_task("replays", total=len(tasks))
        try:
            for result in pool.map(play, tasks):
                results.append(result)
                bar.update(task, advance=1)
        except (InvalidInputError, FileNotFoundError) as error:
            raise SystemExit(f"{error} Leave such days out: --days made-up full.") from error
    table = Table(
        "Windows of replayed days",
        ["days", "worst case", "trouble", "kept", "missed", "impossible", "% given up", "% at least"],
        rows_of(results),
    )
    real = [one for one in results if one.days in REAL and one.worst_case == WORST_CASE_TRAFFIC]
    claims = [
        Claim(f"windows missed on {name} that could be kept", sum(one.missed for one in real if one.days == name), most)
        for name, most in REAL.items()
        if any(one.days == name for one in real)
    ]
    claims.append(Claim("caps exceeded", sum(one.exceeded for one in results), 0))
    document = {"results": [{**asdict(one), "given_up": one.given_up} for one in results]}
    for one in results:
        for which in one.which:
            screen.print(f"missed, {one.days}, {one.trouble}, seed {one.seed}: {which}", markup=False)
    return finish("windows", [table], claims, document, options.out, screen)


if __name__ == "__main__":
    raise SystemExit(main())
