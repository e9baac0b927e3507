"""``fairsync bench``: measure how the time and memory of search scale on this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fairsync.bench import MeasurementPoint, make_points, run
from fairsync.bench.measurement_points import GROWING, INDEX_NAMES, USUAL
from fairsync.bench.table import growth_table, reasons
from fairsync.cli.progress import progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.bench import Measurement


def bench(
    growing: Annotated[
        list[str] | None,
        typer.Argument(help=f"Variables to scale: some of {', '.join(GROWING)}. Default: all.", show_default=False),
    ] = None,
    index: Annotated[
        list[str] | None,
        typer.Option(
            help=f"One of {', '.join(INDEX_NAMES)}. Repeatable. Default: exact, ivf, one-hot.",
            show_default=False,
        ),
    ] = None,
    most_items: Annotated[int, typer.Option(min=10, help="Items of the largest catalog.")] = 1_000_000,
    items: Annotated[int, typer.Option(min=10, help="Items while another variable is scaled.")] = 100_000,
    groups: Annotated[int, typer.Option(min=1, help="Groups while another variable is scaled.")] = 165,
    k: Annotated[int, typer.Option("--k", min=1, help="Candidates while another variable is scaled.")] = 50,
    threads: Annotated[int, typer.Option(min=1, help="Threads per search.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the generated catalogs.")] = 0,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for bench.json and growth.png.")] = Path(
        "out/growth"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the contents of bench.json only.")] = False,
) -> None:
    """Measure how the time and memory of search scale with items, groups, candidates, interests and shards.

    Catalogs are generated, with realistic group sizes and spectrum. Requests carry prices. Each point runs in a process
    of its own, so that its memory is measured alone. Each index is timed in turns with exact search: times depend on
    the machine and its load, ratios hardly do.

        fairsync bench                                  # everything: takes a few minutes
        fairsync bench items --most-items 5000000       # takes a quarter of an hour and 5 GB of memory
        fairsync bench items --index exact --index hnsw

    Engines are asked at FAIRSYNC_SEARCH_URL, in a table or collection that is made for it and dropped after it. Qdrant
    and Milvus run in the process without it, and Ray in two shards on this machine:

        FAIRSYNC_SEARCH_URL=postgresql://me@db/shop fairsync bench items --most-items 100000 --index pgvector
        fairsync bench items --most-items 100000 --index exact --index qdrant --index milvus
    """
    base = replace(MeasurementPoint("exact"), items=items, groups=groups, k=k)
    points = make_points(index or USUAL, growing or tuple(GROWING), most_items, base)
    screen = Console(quiet=as_json, highlight=False)
    if not screen.is_terminal:
        screen.width = 160  # a file has no width of its own
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar(hidden=as_json, counts=True) as bar:
        total = sum(not point.left_out for series in points.values() for point in series)
        task = bar.add_task("", total=total)
        started: list[str] = []

        def show(growing: str, point: MeasurementPoint) -> None:
            what = f"{point.index}, {growing} {getattr(point, growing):,}"
            bar.update(task, description=what, completed=len(started))
            started.append(what)

        figures = run(points, seed, threads, show)
    left_out = [
        {"growing": thing, "point": point.to_dict(), "reason": point.left_out}
        for thing, series in points.items()
        for point in series
        if point.left_out
    ]
    measured = [one.to_dict() for one in figures]
    document = {"threads": threads, "seed": seed, "figures": measured, "left_out": left_out}
    text = json.dumps(document, indent=2, allow_nan=False)
    (out / "bench.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    for thing, series in points.items():
        screen.print(growth_table(thing, series, figures))
    for reason in reasons([point for series in points.values() for point in series]):
        screen.print(f"Default: {reason}.", style="yellow")
    screen.print(f"Written: {out / 'bench.json'}, {_draw(figures, out)}", soft_wrap=True, markup=False)


def _draw(figures: Sequence[Measurement], out: Path) -> Path:
    from fairsync.bench.plot import plot_growth
    from fairsync.report.plot import save

    return save(plot_growth(figures), out / "growth.png")
