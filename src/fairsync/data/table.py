"""Read your own data: a table of interactions and a table of items, as parquet or CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fairsync.data.files import Block, read_blocks
from fairsync.data.lines import FAULT, LINE, read_csv, split_lines
from fairsync.data.log import IdEncoder, LogBuilder
from fairsync.data.majority_vote import MajorityVote
from fairsync.data.times import TimeReader
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fairsync.data.log import Log

_ROWS = 1 << 20  # rows of a parquet file per block
_SEPARATORS = ",\t;|"
_WORDS = (pl.String, pl.Categorical, pl.Enum, pl.Binary)  # some programs write text as bytes
_DATES = (pl.Date, pl.Datetime)
_NO_TIME = "time is neither a number nor a date"
# Recognised column names, in any case. If a table has several of them, the first one is used.
_SYNONYMS = {
    "user": ["user", "user_id", "userid", "uid", "reviewerid", "customer", "customer_id", "household_id"],
    "item": ["item", "item_id", "itemid", "iid", "asin", "parent_asin", "product", "product_id", "article_id"],
    "time": ["time", "timestamp", "unixreviewtime", "unix_time", "ts", "datetime", "date"],
    "group": ["group", "group_id", "category", "category_id", "provider", "seller", "brand", "genre"],
}


@dataclass(frozen=True)
class Columns:
    """Names of the columns. None means to search for a common name."""

    user: str | None = None
    item: str | None = None
    time: str | None = None
    group: str | None = None


def read_table(
    interactions: Path,
    items: Path,
    columns: Columns = Columns(),
    *,
    has_clock: bool | None = None,
    advance: Callable[[int], object] | None = None,
) -> Log:
    r"""Read two tables, each parquet or CSV.

    Parameters
    ----------
    interactions
        Table with a row per interaction: user, item and time. Rows with equal times keep their order.
    items
        Table with a row per item and its group. If an item has several rows, the most frequent group is used, and the
        first one of a tie.
    columns
        Names of the columns. ``item`` is the name in both tables.
    has_clock
        Whether times are clock times. By default, dates are, and numbers are if they are large
        (:class:`fairsync.data.times.TimeReader`).
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
    >>> _ = (folder / "items.csv").write_text("item_id;category\ntea;drinks\njam;spreads\n")
    >>> log = read_table(folder / "log.csv", folder / "items.csv")
    >>> log.user_ids.to_list(), log.item_ids.to_list(), log.item_groups.to_list(), log.bad_rows, log.first_bad
    (['ann'], ['tea'], ['drinks'], {'no time': 1}, {'no time': 'log.csv:3'})
    """
    builder = LogBuilder(interactions, "Every row must have a user, an item and a time: unix seconds, or a date.")
    users, ids, clock = IdEncoder(), IdEncoder(), TimeReader(has_clock)
    for table in _read(interactions, {"user": columns.user, "item": columns.item, "time": columns.time}, advance):
        times = clock.read(table["time"])
        unreadable = pl.when(pl.col("time").is_not_null() & times.is_null()).then(pl.lit(_NO_TIME))
        good = builder.check(table.with_columns(pl.coalesce(FAULT, unreadable).alias(FAULT), times))
        builder.add(good.with_columns(users.encode(good["user"]), ids.encode(good["item"])))
    item_ids = ids.ids
    votes = MajorityVote()
    for table in _read(items, {"item": columns.item, "group": columns.group}, advance):
        for line, why in table.filter(pl.col(FAULT).is_not_null()).select(LINE, FAULT).head(1).iter_rows():
            raise InvalidInputError(f"{items}:{line}: cannot be read ({why}). Repair the line.")
        votes.add(table)
    named = item_ids.to_frame("item").join(votes.winners(), on="item", how="left", maintain_order="left")
    return builder.finish(
        users.ids,
        item_ids,
        named["group"],
        has_clock=clock.has_clock,
        units_per_second=clock.units_per_second,
    )


def _read(path: Path, wanted: dict[str, str | None], advance: Callable[[int], object] | None) -> Iterator[pl.DataFrame]:
    """Read the wanted columns in blocks, under our names. All but times are strings."""
    if not path.is_file():
        raise InvalidInputError(f"{path} {'is not a file' if path.exists() else 'does not exist'}: check the path.")
    with path.open("rb") as file:
        parquet = file.read(4) == b"PAR1"
    return _read_parquet(path, wanted, advance) if parquet else _read_text(path, wanted, advance)


def _read_parquet(
    path: Path, wanted: dict[str, str | None], advance: Callable[[int], object] | None
) -> Iterator[pl.DataFrame]:
    try:
        source = pl.scan_parquet(path)
        schema = source.collect_schema()
        names = _find(list(schema), wanted, path)
        for ours, theirs in names.items():
            _check_kind(ours, theirs, schema[theirs], path)
        rows = source.select(pl.len()).collect().item()
        for start in range(0, max(rows, 1), _ROWS):  # an empty table yields one empty block with its columns
            table = source.select(**names).slice(start, _ROWS).collect()
            texts = [pl.col(name).cast(pl.String).replace("", None) for name in names if name != "time"]
            if "time" in names and isinstance(table.schema["time"], _WORDS):
                table = table.with_columns(pl.col("time").cast(pl.String))
            lines = pl.int_range(start + 1, start + 1 + pl.len(), dtype=pl.Int64).alias(LINE)
            yield table.select(lines, pl.lit(None, pl.String).alias(FAULT), *texts, pl.col("^time$"))
            if advance:
                advance(path.stat().st_size * len(table) // max(rows, 1))
    except pl.exceptions.PolarsError as error:
        why = str(error).strip().split("\n")[0]
        raise InvalidInputError(f"{path}: cannot be read as parquet ({why}). Fetch or write it again.") from error


def _check_kind(ours: str, theirs: str, kind: pl.DataType, path: Path) -> None:
    """Refuse a column whose type can be neither text nor a number, or not a time."""
    if ours == "time":
        good, meant = kind.is_numeric() or isinstance(kind, (*_WORDS, *_DATES)), "dates, Unix seconds or positions"
    else:
        good, meant = not kind.is_nested() and not isinstance(kind, pl.Duration), "text or numbers"
    if not good and kind != pl.Null:
        raise InvalidInputError(
            f"{path}: the column {theirs!r} holds {kind}: give {meant}, or name another column (--{ours}-column)."
        )


def _read_text(
    path: Path, wanted: dict[str, str | None], advance: Callable[[int], object] | None
) -> Iterator[pl.DataFrame]:
    header: list[str] = []
    for block in read_blocks(path, advance):
        if not header:
            first, _, rest = block.lines.partition(b"\n")
            title = split_lines(Block(first, 1), path)[0].removesuffix("\r")
            separator = max(_SEPARATORS, key=title.count)
            header = [name.strip() for name in next(csv.reader([title], delimiter=separator), [])]
            names = _find(header, wanted, path)
            ours = {theirs: name for name, theirs in names.items()}
            titles = [ours.get(name, f"column {place}") for place, name in enumerate(header)]
            block = Block(rest, 2)
        yield read_csv(block, titles, path, separator).select(LINE, FAULT, *names)


def _find(header: list[str], wanted: dict[str, str | None], path: Path) -> dict[str, str]:
    """Return the column of the table for each of our names."""
    if len(set(header)) < len(header):
        raise InvalidInputError(f"{path}: two columns have the same name ({', '.join(header)}): rename one.")
    known = {name.casefold(): name for name in reversed(header)}
    found = {}
    for ours, given in wanted.items():
        usual = [known[name] for name in _SYNONYMS[ours] if name in known]
        if given in header or (given is None and usual):
            found[ours] = given or usual[0]
        else:
            raise InvalidInputError(
                f"{path} has no column {given or ours!r}, only {', '.join(header)}:"
                f" say which one holds the {ours} (--{ours}-column)."
            )
    if len(set(found.values())) < len(found):
        raise InvalidInputError(f"{path}: one column cannot hold two of {', '.join(found)}: name another.")
    return found
