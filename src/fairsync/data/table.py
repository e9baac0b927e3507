"""Read your own data: a table of interactions and a table of items, as parquet or CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.data.columns import ColumnReader
from fairsync.data.item_table import ItemTable
from fairsync.data.lines import FAULT
from fairsync.data.log import IdEncoder, LogBuilder, first_fault
from fairsync.data.times import OUT_OF_RANGE, TimeReader
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fairsync.data.log import Log


@dataclass(frozen=True)
class Columns:
    """Names of the columns. None means to search for a common name.

    Attributes
    ----------
    user, item, time
        Columns of the log.
    group
        The column of the table of items that is the group.
    items_item
        The column of the item in the table of items. Defaults to ``item``.
    attributes
        Further columns of the table of items, which become attributes.
    lists
        Those of them whose text has several labels.
    list_separator
        Separator of these labels.
    """

    user: str | None = None
    item: str | None = None
    time: str | None = None
    group: str | None = None
    items_item: str | None = None
    attributes: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    list_separator: str = "|"


def read_table(
    interactions: Path,
    items: Path | None = None,
    columns: Columns = Columns(),
    *,
    has_clock: bool | None = None,
    has_time: bool = True,
    encoding: str | None = None,
    strict: bool = False,
    advance: Callable[[int], object] | None = None,
) -> Log:
    r"""Read a log and a table of items, each parquet or CSV.

    Parameters
    ----------
    interactions
        Table with a row per interaction: user, item and time. Rows with equal times keep their order.
    items
        Table with a row per item, its group and further attributes. If an item has several rows, the most frequent
        group is used, and the first one of a tie. Defaults to the log itself, whose rows then have the group.
    columns
        Names of the columns.
    has_clock
        Whether times are clock times. By default, dates are, and numbers are if they are large
        (:class:`fairsync.data.times.TimeReader`).
    has_time
        Whether there is a time. If not, the rows are in order of time.
    encoding
        Name of the encoding of CSV files. By default it is detected: UTF-8, UTF-16 or Windows-1252 (Latin-1).
    strict
        Whether a row that cannot be used is an error, in either table. By default such rows are counted and left out.
    advance
        A callback that regularly gets the number of bytes read.

    Returns
    -------
    Log
        The interactions. Those with items that have no group are bad rows.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "log.csv").write_text("user_id,item_id,rating,timestamp\nann,tea,5,1400000000\nbob,jam,4,\n")
    >>> _ = (folder / "items.csv").write_text("item_id;category;tags\ntea;drinks;hot|new\njam;spreads;\n")
    >>> log = read_table(folder / "log.csv", folder / "items.csv", Columns(lists=("tags",)))
    >>> log.user_ids.to_list(), log.item_ids.to_list(), log.item_groups.to_list(), log.bad_rows, log.first_bad
    (['ann'], ['tea'], ['drinks'], {'no time': 1}, {'no time': 'log.csv:3'})
    >>> log.group_attribute, log.attributes["tags"].to_list()
    ('category', [['hot', 'new']])
    """
    if not has_time and (has_clock or columns.time):
        raise InvalidInputError("a log without times has no clock and no column of times: leave out one of the two.")
    wanted = {"user": columns.user, "item": columns.item, **({"time": columns.time} if has_time else {})}
    log_reader = ColumnReader(interactions, wanted, encoding=encoding)
    further = tuple(dict.fromkeys((*columns.attributes, *columns.lists)))
    item_columns = {"item": columns.items_item or columns.item, "group": columns.group}
    item_reader = ColumnReader(items or interactions, item_columns, further, encoding)
    builder = LogBuilder(interactions, "Every row must have a user, an item and a time: unix seconds, or a date.")
    users, ids, clock, rows = IdEncoder(), IdEncoder(), TimeReader(has_clock), 0
    for table in log_reader.blocks(advance):
        if has_time:
            table = _read_times(table, clock)
        else:
            table = table.with_columns(pl.int_range(rows, rows + table.height, dtype=pl.Int64).alias("time"))
        rows += table.height
        good = builder.check(table)
        builder.add(good.with_columns(users.encode(good["user"]), ids.encode(good["item"])))
    if clock.other_units:
        log_reader.notes.append(f"{clock.other_units:,} times in another unit than most were read by their size")
    described = ItemTable(item_reader, columns.lists, columns.list_separator, strict=strict, advance=advance)
    item_ids = ids.ids
    log = builder.finish(
        users.ids,
        item_ids,
        described.groups_of(item_ids),
        has_clock=clock.has_clock and has_time,
        units_per_second=clock.units_per_second,
    )
    log.group_attribute, log.attributes = item_reader.names["group"], described.attributes_of(item_ids)
    log.notes = log_reader.notes
    if items is not None:
        log.bad_items, log.first_bad_items = dict(described.bad), described.first_bad
        log.notes += item_reader.notes
        log.unread = item_reader.unread
    if strict and log.bad_rows:
        why = next(iter(log.bad_rows))
        raise InvalidInputError(f"{interactions}: {why} (first at {log.first_bad[why]}). Repair it, or be less strict.")
    return log


def _read_times(table: pl.DataFrame, clock: TimeReader) -> pl.DataFrame:
    """Return a table with times as integers, and the fault of those that cannot be used."""
    times = clock.read(table["time"])
    fault = first_fault(
        (pl.col("time").is_not_null() & times.is_null(), "time is neither a number nor a date"),
        (pl.lit(times == OUT_OF_RANGE), "time out of range (after the year 2100)"),
    )
    return table.with_columns(pl.coalesce(FAULT, fault).alias(FAULT), times)
