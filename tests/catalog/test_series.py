"""Attributes come back from columns of polars as they were, and as `make_column` would make them of lists."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from fairsync.catalog.attributes import Column, LabelColumn, ListColumn, make_column
from fairsync.catalog.series import column_of, series_of, typed
from fairsync.errors import InvalidInputError

VALUES: dict[str, list[Any]] = {
    "str": ["b", "a", "é", "b"],
    "int": [3, -1, 3, 2**60],
    "bool": [True, True, False, True],
    "float": [1.5, 0.0, -2.0, 1e9],
    "lists": [["b", "a"], [], ["a"], ["a", "c"]],
    "whole lists": [[1], [2, 3], [], []],
    "bool lists": [[True], [], [False, True], []],
}


def same(one: Column, other: Column) -> bool:
    parts = [(vars(one)[name], vars(other)[name]) for name in ("codes", "offsets", "numbers") if name in vars(one)]
    return (
        type(one) is type(other)
        and all(np.array_equal(*both) and both[0].dtype == both[1].dtype for both in parts)
        and getattr(one, "labels", None) == getattr(other, "labels", None)
    )


@pytest.mark.parametrize("name", VALUES)
def test_the_same_as_from_lists_and_back(name: str) -> None:
    expected = make_column(name, VALUES[name], 4)
    assert same(column_of(name, pl.Series(VALUES[name])), expected)
    assert same(column_of(name, series_of(expected)), expected)
    assert series_of(expected).to_list() == VALUES[name]


def test_other_types_of_text_and_lists() -> None:
    for kind in (pl.Categorical, pl.Enum(["b", "a", "é"])):
        assert column_of("x", pl.Series(VALUES["str"], dtype=kind)).values() == VALUES["str"]
    pairs = pl.Series([["a", "b"], ["b", None], None], dtype=pl.Array(pl.String, 2))
    assert column_of("x", pairs).values() == [["a", "b"], ["b"], []]


def test_an_item_without_a_value_has_no_label() -> None:
    for values in (["a", None], [1, None], [True, None], [["a"], None]):
        column = column_of("x", pl.Series(values))
        first = values[0] if isinstance(values[0], list) else [values[0]]
        assert isinstance(column, ListColumn)
        assert column.values() == [first, []]
    empty = column_of("x", pl.Series([None, None], dtype=pl.String))
    assert empty.values() == column_of("x", pl.Series([None, None])).values() == [[], []]
    assert series_of(empty).dtype == pl.List(pl.String)
    assert column_of("x", pl.Series([[], []])).values() == [[], []]


@pytest.mark.parametrize(
    ("series", "why"),
    [
        (pl.Series([1.5, None]), "has no number in row 1"),
        (pl.Series([1.5, float("nan")]), "no number in position 1"),
        (pl.Series([[1.5]]), "holds Float64"),
        (pl.Series([{"a": 1}]), "holds Struct"),
        (pl.Series(["2020-01-01"]).str.to_date(), "holds Date"),
        (pl.Series(["a\tb"]), "control character"),
    ],
)
def test_what_is_no_attribute(series: pl.Series, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        column_of("x", series)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["TRUE", "false", None], [True, False, None]),
        (["1", "-5", None], [1, -5, None]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["1", "x"], ["1", "x"]),
        (["1" * 30, "2"], ["1" * 30, "2"]),
        (["nan", "1"], ["nan", "1"]),
        ([None, None], [None, None]),
        (['["a", "b"]', "[]"], [["a", "b"], []]),
        (["[1, 2]", "[3]"], [[1, 2], [3]]),
        (["[a]", "[b]"], ["[a]", "[b]"]),
    ],
)
def test_text_is_read_as_what_all_of_it_means(texts: list[str | None], values: list[Any]) -> None:
    assert typed(pl.Series(texts, dtype=pl.String)).to_list() == values


def test_labels_need_no_list_of_values() -> None:
    column = column_of("x", pl.Series(["b", "a"] * 50_000))
    assert isinstance(column, LabelColumn)
    assert column.labels == ["a", "b"]
    assert column.codes[:3].tolist() == [1, 0, 1]
