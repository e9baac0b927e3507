"""Data frames as attributes, and items without a value, from polars, pandas and pyarrow."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.errors import InvalidInputError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

ATTRIBUTES: dict[str, Any] = {
    "price": [9.5, 3.0, 4.0],
    "category": ["toys", "books", "toys"],
    "tags": [["new", "sale"], [], ["new"]],
    "in_stock": [True, True, False],
}
FRAMES = {
    "pandas": pd.DataFrame(ATTRIBUTES),
    "polars": pl.DataFrame(ATTRIBUTES),
    "lazy": pl.LazyFrame(ATTRIBUTES),
    "pyarrow": pa.table(ATTRIBUTES),
}


def values(catalog: Catalog) -> dict[str, list[Any]]:
    return {name: column.values() for name, column in catalog.attributes.items()}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_data_frame_is_a_dict_of_its_columns(frame: Any) -> None:
    catalog = Catalog(np.eye(3), frame, ids=["x", "y", "z"])
    assert catalog.group_attribute == "category"
    assert values(catalog) == ATTRIBUTES
    changed = upsert_items(catalog, None, frame, ["z", "y", "x"]).catalog
    assert values(changed) == {name: one[::-1] for name, one in ATTRIBUTES.items()}
    with pytest.raises(InvalidInputError, match="'price' must have 4 values, one per item, got 3"):
        Catalog(np.eye(4), frame)


def test_two_columns_of_a_data_frame_with_one_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two columns 'a'"):
        Catalog(np.eye(2), pd.DataFrame([["x", "y"], ["x", "y"]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([None, "x", "y"], [[], ["x"], ["y"]]),
        ([True, None, False], [[True], [], [False]]),
        ([7, 8, None], [[7], [8], []]),
        ([float("nan"), "x", "x"], [[], ["x"], ["x"]]),
        ([None, ["x"], []], [[], ["x"], []]),
        ([None, None, None], [[], [], []]),
        (np.array([None, "x", np.nan], dtype=object), [[], ["x"], []]),
        (pd.Series([None, True, False], dtype="boolean"), [[], [True], [False]]),
        (pd.Series([None, 7, 8], dtype="Int64"), [[], [7], [8]]),
        (pd.Series([None, "x", "y"]), [[], ["x"], ["y"]]),
        (pd.Series([None, "x", "y"], dtype="category"), [[], ["x"], ["y"]]),
        (pl.Series([None, "x", "y"]), [[], ["x"], ["y"]]),
        (pa.array([None, 7, 8]), [[], [7], [8]]),
    ],
)
def test_an_item_without_a_value_has_no_label(given: Any, expected: list[Any]) -> None:
    catalog = Catalog(np.eye(3), {"category": ["a", "b", "b"], "more": given}, ids=["x", "y", "z"])
    assert catalog.attributes["more"].values() == expected
    label = next((one[0] for one in expected if one), None)
    if label is not None:
        found = catalog.select({"more": {"not": label}})
        assert found is not None
        assert found.rows.tolist() == [row for row, one in enumerate(expected) if label not in one]
        # An item gets its label later.
        row = expected.index([])
        changed = upsert_items(catalog, None, {"more": [label]}, [catalog.ids[row]]).catalog
        assert changed.attributes["more"].values()[row] == [label]
