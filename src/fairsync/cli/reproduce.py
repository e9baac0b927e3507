"""``fairsync reproduce``: compute the paper's tables and figures on a data set, with a report."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairsync.cli.progress import progress_bar
from fairsync.data import Dataset, prepare, read_completejourney, split_by_users
from fairsync.data.completejourney import completejourney_files
from fairsync.experiments.reproduction import RunProgress
from fairsync.experiments.reproduction_setting import PAPER_MODELS, Setting, fingerprint_of, paper_floor
from fairsync.models import MODELS, make_settings
from fairsync.text import count

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
        str, typer.Option(help=f"Folder of a data set from 'fairsync prepare', or {_JOURNEY}.")
    ] = _JOURNEY,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Base model, one of {', '.join(MODELS)}. Repeatable. Single figures use the first one. Default: the"
            " paper's five, with comirec-dr for single figures.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random seeds to average over.")] = 1,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", min=1, help="Candidates per request. Repeatable.", show_default="20 and 50"),
    ] = None,
    floor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Exposures promised to every group. Default: the same share of all slots as the paper's 200.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Requests between two price changes.")] = 16,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Train briefly and compute few points: a smoke test, not to be quoted."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Folder for report, tables, figures and models. Default: out/reproduce/DATA.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the contents of report.json only.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments and exit.")] = False,
) -> None:
    """Compute the paper's tables and figures, and further ones, on any data set.

    Run everything briefly, in a few minutes:

        fairsync reproduce --quick

    Use your own data, and a light model that needs no torch:

        fairsync reproduce --dataset data/shop --model svd

    Compute one table, with each model trained three times:

        fairsync reproduce table-2 --dataset data/beauty --seeds 3

    Models are trained, methods are tuned on validation requests and evaluated on test requests. Finished work is saved:
    after an interruption, the same command continues. The report (report.html, and report.json for programs) ends with
    the paper's claims and whether they hold on these data.
    """
    # Imported here, because the imports of experiments would slow down the start of every other command.
    from fairsync.experiments import run

    if show_list:
        Console(highlight=False).print(_list(run.EXPERIMENTS))
        return
    experiments = run.choose(what or ["all"])
    for name in model or ():
        make_settings(name)  # raises before data are read if the name is unknown
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
    """Read the data set. The Complete Journey is prepared on first use."""
    if dataset != _JOURNEY:
        return Dataset.load(Path(dataset))
    prepared = folder / "data"
    if not prepared.is_dir():
        watch(RunProgress(0, 1, f"preparing {_JOURNEY}"))
        prepare(read_completejourney(), _JOURNEY).save(prepared)
    return Dataset.load(prepared)


@contextmanager
def _progress(hidden: bool) -> Iterator[Callable[[RunProgress], None]]:
    """Show a progress bar for all work, and a second one while a model is trained."""
    with progress_bar(hidden=hidden, counts=True) as bar:
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
    table = Table(title="Claims of the paper", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
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
