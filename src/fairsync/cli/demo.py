"""``fairsync demo``: the same requests under several policies, on generated data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fairsync.catalog import Catalog
from fairsync.cli.demo_words import read
from fairsync.data import synthetic
from fairsync.hindsight import Hindsight, hindsight
from fairsync.report.table import count, percent
from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Label
    from fairsync.data import Synthetic
    from fairsync.report import Report

_DIM = 32
_CALL = 50  # requests per call of the retriever, as if they came in small bundles
_PANELS = 6  # groups whose exposures are drawn over time


@dataclass(frozen=True)
class Run:
    """One policy's way through the requests.

    ``times`` are numbers of requests, ``course`` is (times, groups): the exposures by then.
    """

    name: str
    report: Report
    times: NDArray[np.int64]
    course: NDArray[np.int64]


def demo(
    items: Annotated[int, typer.Option(min=2, help="Items in the catalog.")] = 20_000,
    groups: Annotated[int, typer.Option(min=2, help="Groups that the items belong to.")] = 165,
    requests: Annotated[int, typer.Option(min=1, help="Requests, which are also the horizon.")] = 6_000,
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
    seed: Annotated[int, typer.Option(min=0, help="Another seed makes other data.")] = 0,
    out: Annotated[Path, typer.Option(file_okay=False, help="Where plots and report.json go.")] = Path("out/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what report.json holds, and nothing else.")] = False,
) -> None:
    """See what floors do, on generated data: about a minute.

    A catalog is generated in which one group holds most items, and small groups are rarely found. The same
    requests are answered without floors (none), by the method of the paper (fairsync), and by the default
    policy (guaranteed), which is tried without and with past requests to learn from. All are compared with
    the best plan that could have been made had every request been known beforehand (hindsight).
    """
    screen = Console(quiet=as_json, highlight=False)
    data = synthetic(items, groups, requests, _DIM, seed, n_past=max(requests // 6, 1))
    catalog = Catalog(data.embeddings, data.groups)
    promise = _typical_exposures(catalog, data, k) if floor is None else floor
    terms: dict[str, Any] = {"k": k, "floors": promise, "horizon": requests, "batch_size": batch_size}

    def retriever(policy: str) -> FairRetriever:
        return FairRetriever(catalog, policy=policy, **terms)

    contenders = {
        "none": retriever("none"),
        "fairsync": retriever("fairsync"),
        "guaranteed": retriever("guaranteed"),
        "guaranteed, calibrated": retriever("guaranteed"),
    }
    out.mkdir(parents=True, exist_ok=True)  # only now, when nothing that was asked for is impossible
    largest = int(catalog.group_sizes.max()) / items
    screen.print(
        f"{count(items, 'item')} in {count(groups, 'group')}, of which the largest holds {percent(largest)};"
        f" {count(requests, 'request')} for {k} candidates each."
        f" Every group is promised {count(promise, 'exposure')}.\n"
    )
    with _progress(as_json) as progress:
        contenders["guaranteed, calibrated"].calibrate(data.past_users)
        courses = {name: _follow(name, one, data, progress) for name, one in contenders.items()}
        task = progress.add_task("hindsight", total=None, reached="")
        best = hindsight(catalog, data.users, k=k, floors=promise)
        progress.update(task, total=1, completed=1)
    times = np.minimum(np.arange(0, requests + _CALL, _CALL), requests)
    runs = [Run(name, contenders[name].report(best), times, course) for name, course in courses.items()]
    words = read({run.name: run.report for run in runs}, best, promise)

    files = _draw(runs, out)
    settings = {"items": items, "groups": groups, "dim": _DIM, "seed": seed, **terms}
    document = _document(settings, runs, best, words)
    path = out / "report.json"
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    screen.print(_comparison(runs, best))
    screen.print(runs[-1].report)
    bullets = Table.grid(padding=(0, 1))
    for sentence in words:
        bullets.add_row("•", sentence)
    screen.print("\n[bold]What happened[/bold]", bullets, sep="\n")
    screen.print(f"\nWritten: {', '.join(str(file) for file in [*files, path])}", soft_wrap=True, markup=False)


def _typical_exposures(catalog: Catalog, data: Synthetic, k: int) -> int:
    """Return what a group in the middle gets without floors, judged by past requests, in round figures."""
    past, horizon = len(data.past_users), len(data.users)
    plain = FairRetriever(catalog, k=k, horizon=past, policy="none")
    plain.retrieve(data.past_users)
    exposures = list(plain.report().exposures.values())
    middle = float(np.median(exposures)) * horizon / past
    # Never more than half of what could be promised to everyone.
    possible = min(horizon * k // catalog.n_groups, horizon * min(k, int(catalog.group_sizes.min())))
    return int(min(max(float(f"{middle:.1g}"), 1.0), possible // 2))


def _follow(name: str, retriever: FairRetriever, data: Synthetic, progress: Progress) -> NDArray[np.int64]:
    """Feed the requests in small calls; return the exposures before the first and after each."""
    course = [np.zeros(retriever.catalog.n_groups, dtype=np.int64)]
    task = progress.add_task(name, total=len(data.users), reached="")
    for start in range(0, len(data.users), _CALL):
        users = data.users[start : start + _CALL]
        retriever.retrieve(users)
        report = retriever.report()
        course.append(np.array(list(report.exposures.values())))
        reached = f"{sum(report.satisfied.values()):>3} of {len(report.satisfied)} floors reached"
        progress.update(task, advance=len(users), reached=reached)
    return np.array(course)


def _progress(hidden: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[reached]}"),
    )
    return Progress(*columns, console=Console(stderr=True), disable=hidden)


def _comparison(runs: list[Run], best: Hindsight) -> Table:
    table = Table(
        title="The same requests under each policy", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("policy")
    for column in ("ESP", "relevance kept", "cost ÷ hindsight", "forced"):
        table.add_column(column, justify="right")
    for run in runs:
        report = run.report
        ratio = "–" if report.cost_ratio is None or report.esp < 1 else f"{report.cost_ratio:.2f}"
        table.add_row(
            run.name,
            Text(f"{report.esp:.1%}", style="red" if report.esp < 1 else "green"),
            f"{report.relevance / best.unconstrained_relevance:.3%}",
            ratio,
            f"{report.forced:,}",
        )
    table.add_section()
    kept = best.feasible_relevance / best.unconstrained_relevance
    table.add_row("hindsight", f"{1:.1%}", f"{kept:.3%}", f"{1:.2f}", "", style="dim")
    if any(run.report.esp < 1 for run in runs):
        table.caption = "–  it missed floors: what it gave up is not the price of the whole promise"
        table.caption_justify = "left"
    return table


def _neediest(plain: Report) -> list[Label]:
    """Return the groups that miss most without floors, spread over all that miss anything."""
    needy = sorted((label for label, gap in plain.missing.items() if gap), key=lambda label: -plain.missing[label])
    chosen = needy or list(plain.floors)
    places = np.unique(np.linspace(0, len(chosen) - 1, min(_PANELS, len(chosen))).astype(int))
    return [chosen[place] for place in places]


def _draw(runs: list[Run], out: Path) -> list[Path]:
    """Draw the guaranteed report, the change it made, and the pace of some groups."""
    from fairsync.report.plot import plot_change, plot_pace, save

    plain, last = runs[0], runs[-1]
    names = _neediest(plain.report)
    order = list(plain.report.floors)
    places = [order.index(name) for name in names]
    pace = plot_pace(
        last.times,
        {run.name: run.course[:, places] for run in runs},
        names,
        [plain.report.floors[name] for name in names],
    )
    last.report.plot(out / "report.png")
    return [
        out / "report.png",
        save(plot_change(plain.report, last.report), out / "before-after.png"),
        save(pace, out / "pace.png"),
    ]


def _document(settings: dict[str, Any], runs: list[Run], best: Hindsight, words: list[str]) -> dict[str, Any]:
    """Return everything that was measured, as JSON can hold it."""
    return {
        "settings": settings,
        "hindsight": {
            "relevance": best.relevance,
            "feasible_relevance": best.feasible_relevance,
            "unconstrained_relevance": best.unconstrained_relevance,
            "cost": best.cost,
            "gap": best.gap,
        },
        "runs": [{"name": run.name, **run.report.to_dict()} for run in runs],
        "reading": words,
    }
