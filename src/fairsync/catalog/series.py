"""Attributes as columns of polars, in which files hold them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.attributes import LabelColumn, ListColumn, NumberColumn, make_column
from fairsync.catalog.names import check_names, is_name
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

    from fairsync.catalog.attributes import Column

_log = logging.getLogger(__name__)
_TEXT = (pl.String, pl.Categorical, pl.Enum)
_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"
# Whole numbers of many digits are codes, which a float would round.
_NUMBER = r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|0|[1-9][0-9]{0,14})([eE][-+]?[0-9]{1,2})?$"


def column_of(name: str, series: pl.Series) -> Column:
    """Return a column of polars as an attribute, or raise an error that says why it cannot be one.

    Text, whole numbers and bools are labels, floats are numbers, and lists are several labels per item. An item without
    a value has no label: if there are such items, the attribute has a list of labels for each item.

    Examples
    --------
    >>> column_of("brand", pl.Series(["acme", None, "best"])).values()
    [['acme'], [], ['best']]
    >>> column_of("price", pl.Series([9.5, 3.0])).values()
    [9.5, 3.0]
    """
    what = f"attribute {name!r}"
    if isinstance(series.dtype, pl.Array):
        series = series.arr.to_list()
    if isinstance(series.dtype, pl.List):
        kept = series.list.drop_nulls()
        lengths = kept.list.len().fill_null(0).to_numpy()
        return _lists(what, kept.explode().drop_nulls(), lengths)
    if series.dtype.is_float() or isinstance(series.dtype, pl.Decimal):
        if series.null_count():
            row = int(series.is_null().arg_max() or 0)
            raise InvalidInputError(f"{what} has no number in row {row}: give every item one, or leave the column out.")
        return make_column(name, series.cast(pl.Float64).to_numpy(), len(series))
    if series.null_count():
        return _lists(what, series.drop_nulls(), series.is_not_null().to_numpy().astype(np.int64))
    return _labels(what, series)


def columns_of(table: pl.DataFrame, path: Path, needed: str = "") -> dict[str, Column]:
    """Return the attributes of a table. A column that cannot be one, such as dates, is left out with a warning.

    Parameters
    ----------
    table
        A table with a row for each item.
    path
        The file that it comes from, for messages.
    needed
        A column that may not be left out.
    """
    columns: dict[str, Column] = {}
    for name in table.columns:
        try:
            if not name or not is_name(name):
                raise InvalidInputError(f"the name of an attribute must be a word, got {name!r:.80}.")
            columns[name] = column_of(name, table[name])
        except InvalidInputError as error:
            if name == needed:
                raise
            _log.warning("%s: the column %r is left out: %s", path, name, error)
    return columns


def series_of(column: Column) -> pl.Series:
    """Return an attribute as a column of polars; the inverse of `column_of`.

    Examples
    --------
    >>> series_of(column_of("tags", pl.Series([["new"], []]))).to_list()
    [['new'], []]
    """
    if isinstance(column, NumberColumn):
        return pl.Series(column.numbers)
    kind = {"str": pl.String, "int": pl.Int64, "bool": pl.Boolean, "": pl.String}[column.kind]
    if isinstance(column, LabelColumn):
        return pl.Series(column.labels, dtype=kind).gather(column.codes)
    return pl.Series(column.values(), dtype=pl.List(kind))


def typed(texts: pl.Series) -> pl.Series:
    """Return a column of text as what it means: bools, whole numbers, numbers or lists (as JSON), if all of it does.

    Whole numbers with leading zeros stay text.

    Examples
    --------
    >>> [typed(pl.Series(texts)).to_list() for texts in (["true", "False"], ["7", None], ["1.5", "2"], ["07", "8"])]
    [[True, False], [7, None], [1.5, 2.0], ['07', '8']]
    """
    known = texts.drop_nulls()
    if known.is_empty():
        return texts
    words = known.str.to_lowercase()
    if words.is_in(["true", "false"]).all():
        return texts.str.to_lowercase() == "true"
    if known.str.contains(_WHOLE).all():
        return texts.cast(pl.Int64)
    if known.str.contains(_NUMBER).all():
        return texts.cast(pl.Float64)
    if known.str.contains(r"^\[.*\]$").all():
        for inner in (pl.Int64, pl.Float64, pl.String):
            try:
                return texts.str.json_decode(pl.List(inner))
            except pl.exceptions.PolarsError:
                continue
    return texts


def _lists(what: str, flat: pl.Series, lengths: np.ndarray[tuple[int], np.dtype[np.integer]]) -> ListColumn:
    labels = _labels(what, flat)
    codes = labels.codes.astype(np.int32)  # without labels, their type is not known
    return ListColumn(codes, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), labels.labels)


def _labels(what: str, series: pl.Series) -> LabelColumn:
    kind = series.dtype
    if kind == pl.Boolean:
        return LabelColumn(series.cast(pl.Int32).to_numpy(), [False, True])
    if kind == pl.Null:
        return LabelColumn(np.empty(0, dtype=np.int32), [])
    if not kind.is_integer() and kind not in _TEXT:
        raise InvalidInputError(f"{what} holds {kind}: give text, whole numbers, true and false, or lists of these.")
    plain = series.cast(pl.String) if kind in _TEXT else series
    distinct = plain.unique().sort()
    labels = check_names(distinct.to_list(), None, f"values of {what}", "value").tolist()
    codes = pl.Series(range(len(distinct)), dtype=pl.Int32)
    return LabelColumn(plain.replace_strict(distinct, codes, return_dtype=pl.Int32).to_numpy(), labels)
