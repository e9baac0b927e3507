"""Find the wanted columns of a table in parquet or CSV, and read them in blocks."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from fairsync.data.encodings import UTF_8, TextEncoding
from fairsync.data.files import Block, check_is_file, read_blocks
from fairsync.data.lines import FAULT, LINE, read_csv, split_lines
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_ROWS = 1 << 20  # rows of a parquet file per block
_SEPARATORS = ",\t;|"
_WORDS = (pl.String, pl.Categorical, pl.Enum, pl.Binary)  # some programs write text as bytes
_DATES = (pl.Date, pl.Datetime)
# Recognised column names, in any case. If a table has several of them, the first one is used.
_SYNONYMS = {
    "user": ("user", "user_id", "userid", "uid", "reviewerid", "customer", "customer_id", "household_id"),
    "item": (
        *("item", "item_id", "itemid", "iid", "asin", "parent_asin", "product", "product_id", "article_id"),
        *("movieid", "movie_id", "track_id", "song_id", "book_id", "isbn", "sku"),
    ),
    "time": ("time", "timestamp", "unixreviewtime", "unix_time", "ts", "datetime", "date"),
    "group": ("group", "group_id", "category", "category_id", "provider", "seller", "brand", "genre"),
}
_ID_OF_ITEMS = "id"  # the item, in a table of items
_OPTIONS = {"time": "--time-column; --no-time if the rows are in order of time"}
ATTRIBUTE = "attribute "
"""What the names of further columns begin with in a block."""


class ColumnReader:
    """Reads the wanted columns of a table in blocks, under our names.

    Ids, groups and text are without spaces around them, and an id such as 1.0 is 1. Times and further columns of
    parquet keep their type. Empty text is null.

    Parameters
    ----------
    path
        A parquet or CSV file.
    wanted
        The names of the columns of ``user``, ``item``, ``time`` and ``group``, as far as they are wanted. None means to
        search for a common name.
    further
        The names of further columns, which are called :data:`ATTRIBUTE` and the name.
    encoding
        Name of the encoding of CSV. By default it is detected.

    Attributes
    ----------
    names : dict
        {our name: name in the table}, once the first block is read.
    unread : list of str
        Names of the other columns of the table.
    notes : list of str
        What was read otherwise than it is written.
    """

    def __init__(
        self,
        path: Path,
        wanted: Mapping[str, str | None],
        further: Sequence[str] = (),
        encoding: str | None = None,
    ) -> None:
        self.path, self.names, self.notes = path, dict[str, str](), list[str]()
        self.unread = list[str]()
        self._wanted: dict[str, str | None] = {**wanted, **{ATTRIBUTE + name: name for name in further}}
        self._encoding, self._is_given = TextEncoding(encoding), encoding is not None

    def blocks(self, advance: Callable[[int], object] | None = None) -> Iterator[pl.DataFrame]:
        """Yield tables with the columns ``line``, ``fault`` and the wanted ones."""
        path = self.path
        check_is_file(path)
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        for table in self._read_parquet(advance) if is_parquet else self._read_text(advance):
            yield table.with_columns(self._clean(table[name]) for name in ("user", "item") if name in self.names)
        if not is_parquet and self._encoding.name not in (None, UTF_8) and not self._is_given:
            self.notes.append(f"{path.name} was read as {self._encoding.label}")

    def _read_parquet(self, advance: Callable[[int], object] | None) -> Iterator[pl.DataFrame]:
        path = self.path
        try:
            source = pl.scan_parquet(path)
            schema = source.collect_schema()
            self._find(list(schema))
            for ours, theirs in self.names.items():
                _check_kind(ours, theirs, schema[theirs], path)
            rows = source.select(pl.len()).collect().item()
            for start in range(0, max(rows, 1), _ROWS):  # an empty table yields one empty block with its columns
                table = source.select(**self.names).slice(start, _ROWS).collect()
                lines = pl.int_range(start + 1, start + 1 + pl.len(), dtype=pl.Int64).alias(LINE)
                yield table.select(lines, pl.lit(None, pl.String).alias(FAULT), *map(_plain, table))
                if advance:
                    advance(path.stat().st_size * len(table) // max(rows, 1))
        except pl.exceptions.PolarsError as error:
            why = str(error).strip().split("\n")[0]
            raise InvalidInputError(f"{path}: cannot be read as parquet ({why}). Fetch or write it again.") from error

    def _read_text(self, advance: Callable[[int], object] | None) -> Iterator[pl.DataFrame]:
        titles: list[str] = []
        for block in read_blocks(self.path, advance, encoding=self._encoding):
            if not titles:
                first, _, rest = block.lines.partition(b"\n")
                title = split_lines(Block(first, 1), self.path)[0].removesuffix("\r")
                separator = max(_SEPARATORS, key=title.count)
                header = [name.strip() for name in next(csv.reader([title], delimiter=separator), [])]
                self._find(header)
                ours = {theirs: name for name, theirs in self.names.items()}
                titles = [ours.get(name, f"column {place}") for place, name in enumerate(header)]
                block = Block(rest, 2)
            table = read_csv(block, titles, separator).select(LINE, FAULT, *self.names)
            yield table.with_columns(_strip(pl.col(name)) for name in self.names) if b" " in block.lines else table

    def _find(self, header: list[str]) -> None:
        """Find the column of the table for each of our names."""
        path = self.path
        if len(set(header)) < len(header):
            raise InvalidInputError(f"{path}: two columns have the same name ({', '.join(header)}): rename one.")
        known = {name.casefold(): name for name in reversed(header)}
        found = {}
        for ours, given in self._wanted.items():
            synonyms = _SYNONYMS.get(ours, ())
            if ours == "item" and "user" not in self._wanted:
                synonyms = (*synonyms, _ID_OF_ITEMS)
            usual = [known[name] for name in synonyms if name in known]
            if given in header or (given is None and usual):
                found[ours] = given or usual[0]
                continue
            option = _OPTIONS.get(ours, f"--{ours}-column")
            advice = "check the name." if ours.startswith(ATTRIBUTE) else f"say which one holds the {ours} ({option})."
            raise InvalidInputError(f"{path} has no column {given or ours!r}, only {', '.join(header)}: {advice}")
        if len(set(found.values())) < len(found):
            raise InvalidInputError(
                f"{path}: one column cannot hold two of"
                f" {', '.join(name.removeprefix(ATTRIBUTE) for name in found)}: name another."
            )
        self.names = found
        self.unread = [name for name in header if name and name not in set(found.values())]

    def _clean(self, ids: pl.Series) -> pl.Series:
        """Return ids that read the same in any table: whole numbers without a fraction."""
        is_whole = ids.str.ends_with(".0")
        if not is_whole.any():
            return ids
        changed = ids.str.replace(r"^(-?[0-9]+)\.0+$", "$1")
        example = int((changed != ids).arg_max() or 0)
        note = f"{ids.name} ids with .0 in {self.path.name} were read as whole numbers"
        if changed[example] != ids[example] and note not in self.notes:
            self.notes.append(note)
        return changed


def _strip(column: pl.Expr) -> pl.Expr:
    return column.str.strip_chars().replace("", None)


def _plain(column: pl.Series) -> pl.Expr:
    """Return an expression for a column of parquet: text where it is text or an id, else as it is."""
    name, kind = column.name, column.dtype
    if isinstance(kind, _WORDS):
        return _strip(pl.col(name).cast(pl.String))
    if name == "time" or name.startswith(ATTRIBUTE):
        return pl.col(name)
    if name != "group" and kind.is_float():
        # Floats of 16 digits would be written with an exponent.
        whole = (pl.col(name) == pl.col(name).floor()) & (pl.col(name).abs() < 2**63)
        return pl.when(whole).then(pl.col(name).cast(pl.Int64, strict=False).cast(pl.String) + ".0").otherwise(
            pl.col(name).cast(pl.String)
        ).alias(name)  # fmt: skip
    return pl.col(name).cast(pl.String)


def _check_kind(ours: str, theirs: str, kind: pl.DataType, path: Path) -> None:
    """Refuse a column whose type can be neither text nor a number, or not a time."""
    if ours.startswith(ATTRIBUTE):
        return
    if ours == "time":
        good, meant = kind.is_numeric() or isinstance(kind, (*_WORDS, *_DATES)), "dates, Unix seconds or positions"
    else:
        good, meant = not kind.is_nested() and not isinstance(kind, pl.Duration), "text or numbers"
    if not good and kind != pl.Null:
        raise InvalidInputError(
            f"{path}: the column {theirs!r} holds {kind}: give {meant}, or name another column (--{ours}-column)."
        )
