"""Parse blocks of CSV and JSON lines into tables of strings, with the reason for each line that cannot be read.

A block is first parsed at once, which is fast. If that fails or is ambiguous, it is parsed again line by line, which
finds the fault of each line.
"""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fairsync.data.files import Block

LINE, FAULT = "line", "fault"
"""Columns of every table: the number of the line, and why it could not be read (null if it could)."""

_ESCAPED = '\\"'
_TOO_MANY, _UNENDED = "too many fields", "quotes that do not end"

# OSError: polars tries to decompress a block whose first bytes look like a compressed file.
_PARSE_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def read_csv(block: Block, names: Sequence[str], separator: str = ",", *, quoted: bool = True) -> pl.DataFrame:
    r"""Parse lines of CSV.

    Parameters
    ----------
    block
        Whole lines without a header.
    names
        Names of the columns. Missing fields at the end of a line are null; a line with too many fields is a fault.
    separator
        Separator of the fields.
    quoted
        Whether fields may be in double quotes. A quoted field must end on its line. A quote in it is doubled, or has a
        backslash before it.

    Returns
    -------
    polars.DataFrame
        ``line``, ``fault`` and the columns, all as strings. Empty fields are null, and empty lines are left out.

    Examples
    --------
    >>> from fairsync.data.files import Block
    >>> read_csv(Block(b"1,a\n2,b,c\n3\n", first=5), ["user", "item"]).rows()
    [(5, None, '1', 'a'), (6, 'too many fields', None, None), (7, None, '3', None)]
    """
    quote = '"' if quoted else None
    columns = dict.fromkeys(names, pl.String)
    gap = f'{separator} "'  # a space before a quoted field
    table = None
    # polars would take the backslashes and spaces of such fields as part of them.
    if not quoted or not (_ESCAPED.encode() in block.lines or gap.encode() in block.lines):
        with suppress(*_PARSE_ERRORS):
            table = pl.read_csv(block.lines, has_header=False, schema=columns, separator=separator, quote_char=quote)
    if table is not None and table.height == _count_lines(block.lines) and not _has_empty_rows(table):
        return _number(table, block.first)

    def fields(line: str) -> list[str] | str:
        # Each line is parsed alone, because unterminated quotes would include the lines that follow.
        if not quoted:
            read: list[str] | str = line.split(separator)
            return read if len(read) <= len(names) else _TOO_MANY
        read = _UNENDED
        # Quotes in a quoted field are doubled; if that cannot be so, they may have a backslash.
        for escape in (None, "\\") if _ESCAPED in line else (None,):
            with suppress(csv.Error):
                made = next(csv.reader([line], delimiter=separator, strict=True, escapechar=escape,
                                       skipinitialspace=gap in line))  # fmt: skip
                if len(made) <= len(names):
                    return made
                read = _TOO_MANY
        return read

    return _read_slowly(block, names, fields)


def read_json(block: Block, names: Sequence[str]) -> pl.DataFrame:
    r"""Parse lines with one JSON object each.

    Parameters
    ----------
    block
        Whole lines.
    names
        Names of the fields to read. Other fields are ignored.

    Returns
    -------
    polars.DataFrame
        As for :func:`read_csv`. A missing field is null, and a field that is not a string is its JSON text.

    Examples
    --------
    >>> from fairsync.data.files import Block
    >>> lines = b'{"asin": "B1", "unixReviewTime": 5, "helpful": [0, 1]}\n{"asin"\n'
    >>> read_json(Block(lines, first=1), ["asin", "unixReviewTime"]).rows()
    [(1, None, 'B1', '5'), (2, 'not a JSON object', None, None)]
    """
    try:
        table = pl.read_ndjson(block.lines, schema=dict.fromkeys(names, pl.String))
    except _PARSE_ERRORS:
        table = None
    if table is not None and table.height == _count_lines(block.lines):
        return _number(table, block.first)

    def fields(line: str) -> list[str | None] | str:
        try:
            read = json.loads(line)
        except ValueError:
            return "not a JSON object"
        if not isinstance(read, dict):
            return "not a JSON object"
        values = [read.get(name) for name in names]
        return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]

    return _read_slowly(block, names, fields)


def split_lines(block: Block, path: Path) -> list[str]:
    """Return the lines as text, or raise an error that names the line that is not UTF-8."""
    try:
        return block.lines.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = block.first + block.lines.count(b"\n", 0, error.start)
        raise InvalidInputError(
            f"{path}:{line}: not UTF-8 text ({error.reason}). Convert the file to UTF-8."
        ) from error


def _read_slowly(
    block: Block, names: Sequence[str], fields: Callable[[str], Sequence[str | None] | str]
) -> pl.DataFrame:
    """Parse line by line. ``fields`` returns the fields of a line, or its fault as text."""
    rows: list[tuple[int | str | None, ...]] = []
    for number, line in enumerate(block.lines.removesuffix(b"\n").split(b"\n"), block.first):
        try:
            text = line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            read: Sequence[str | None] | str = "not UTF-8 text"
        else:
            if not text:
                continue
            read = fields(text)
        fault, values = (read, []) if isinstance(read, str) else (None, [value or None for value in read])
        rows.append((number, fault, *values, *[None] * (len(names) - len(values))))
    schema = {LINE: pl.Int64, FAULT: pl.String, **dict.fromkeys(names, pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _number(table: pl.DataFrame, first: int) -> pl.DataFrame:
    lines = pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(LINE)
    return table.select(lines, pl.lit(None, pl.String).alias(FAULT), pl.col(pl.String).replace("", None))


def _count_lines(lines: bytes) -> int:
    return lines.count(b"\n") + (not lines.endswith(b"\n"))


def _has_empty_rows(table: pl.DataFrame) -> bool:
    return (
        any(column.null_count() for column in table)
        and not table.filter(pl.all_horizontal(pl.all().is_null())).is_empty()
    )
