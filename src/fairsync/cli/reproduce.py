"""``fairsync reproduce``: the paper's tables and figures on your data, with a report."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairsync.data import Dataset, prepare, read_completejourney, split_by_users
from fairsync.data.completejourney import completejourney_files
from fairsync.experiments.reproduction import RunProgress
from fairsync.experiments.reproduction_setting import PAPER_MODELS, Setting, fingerprint_of, paper_floor
from fairsync.models import MODELS, make_settings
from fairsync.report.table import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairsync.experiments.claims import Judged
    from fairsync.experiments.experiment import Experiment

_JOURNEY = "completejourney"
_STYLES = {"holds": "green", "does not hold": "yellow"}


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Names of experiments (see --list), or all.", show_default="all"),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help=f"Folder of a prepared data set, from 'fairsync prepare'; or {_JOURNEY}.")
    ] = _JOURNEY,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Base model, one of {', '.join(MODELS)}; can be given again. The first is that of the single figures."
            " Left out: the paper's five, with figures of comirec-dr.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train each model so many times, and average.")] = 1,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", min=1, help="Candidates per request; can be given again.", show_default="20 and 50"),
    ] = None,
    floor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Exposures promised to every group. Left out: the share of all slots that the paper's 200 claim.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Short training, few points: to see that everything runs, not to quote."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Where report, tables, figures and models go. Left out: out/reproduce/DATA.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what report.json holds, and nothing else.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Show what can be reproduced, and exit.")] = False,
) -> None:
    """Compute the paper's tables and figures, and what it leaves out, on any data set.

    Everything, in a few minutes, to see that it works:

        fairsync reproduce --quick

    On your own data, with a light model that needs no torch:

        fairsync reproduce --dataset data/shop --model svd

    One table, each model trained three times:

        fairsync reproduce table-2 --dataset data/beauty --seeds 3

    Models are trained, methods are tuned on validation requests and tried on test requests. What is done is kept: stop
    it whenever you like, and the same command goes on where it was. The report (report.html, and report.json for
    programs) ends with the paper's claims and whether they hold on these data.
    """
    # Loaded here: what experiments need would slow down the start of every other command.
    from fairsync.experiments import run

    if show_list:
        Console(highlight=False).print(_list(run.EXPERIMENTS))
        return
    experiments = run.choose(what or ["all"])
    for name in model or ():
        make_settings(name)  # told before data are read
    if dataset == _JOURNEY:
        completejourney_files()
    folder = out or Path("out/reproduce") / (Path(dataset).resolve().name + ("-quick" if quick else ""))
    screen = Console(quiet=as_json, highlight=False)
    with _progress(as_json) as watch:
        data = _data(dataset, folder, watch)
        setting = Setting(
            data=data.facts.name,
            fingerprint=fingerprint_of(data),
            models=tuple(dict.fromkeys(model or PAPER_MODELS)),
            analysed=model[0] if model else "comirec-dr",
            seeds=tuple(range(seeds)),
            floor=floor or paper_floor(data.facts, len(split_by_users(data).test), data.facts.groups),
            ks=tuple(sorted(set(k))) if k else tuple(sorted({min(one, data.n_items) for one in (20, 50)})),
            batch_size=batch_size,
            quick=quick,
        )
        found = run.reproduce(experiments, data, setting, folder, watch)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    for name, why in found.impossible.items():
        screen.print(f"Not possible here: {name}: {why}", style="yellow", markup=False)
    screen.print(_verdicts(found.claims))
    screen.print(
        f"{count(len(found.exhibits), 'exhibit')}. Open {folder / 'report.html'}", soft_wrap=True, markup=False
    )


def _list(experiments: Sequence[Experiment]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for one in experiments:
        grid.add_row(one.name, escape(one.title))
    return grid


def _data(dataset: str, folder: Path, watch: Callable[[RunProgress], None]) -> Dataset:
    """Read the data set; that of the package is prepared the first time."""
    if dataset != _JOURNEY:
        return Dataset.load(Path(dataset))
    prepared = folder / "data"
    if not prepared.is_dir():
        watch(RunProgress(0, 1, f"preparing {_JOURNEY}"))
        prepare(read_completejourney(), _JOURNEY).save(prepared)
    return Dataset.load(prepared)


@contextmanager
def _progress(hidden: bool) -> Iterator[Callable[[RunProgress], None]]:
    """Show a bar for all work, and a second one while a model is trained."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=hidden, transient=True) as bar:
        whole = bar.add_task("reading", total=None)
        training = bar.add_task("", total=None, visible=False)

        def show(now: RunProgress) -> None:
            bar.update(whole, completed=now.done, total=now.total, description=escape(now.label))
            moment = now.training
            bar.update(training, visible=moment is not None)
            if moment:
                words = f"  training, epoch {len(moment.epochs) + 1}, loss {moment.loss:.3f}"
                bar.update(training, completed=moment.done, total=moment.total, description=words)

        yield show


def _verdicts(claims: Sequence[Judged]) -> Table:
    table = Table(title="What became of the claims", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", ratio=4)
    table.add_column("here", no_wrap=True)
    table.add_column("figures", ratio=5, style="dim")
    for one in claims:
        if one.verdict.ruling != "not run":
            style = _STYLES.get(one.verdict.ruling, "dim")
            ours = "(ours) " if one.claim.ours else ""
            ruling = f"[{style}]{one.verdict.ruling}[/{style}]"
            table.add_row(ours + escape(one.claim.sentence), ruling, escape(one.verdict.figures))
    return table
