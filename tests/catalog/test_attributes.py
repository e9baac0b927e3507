"""Attributes: kinds of columns, changes without vectors, files."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import LabelColumn, ListColumn, NumberColumn, make_column
from fairsync.catalog.changes import remove_items, upsert_items
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.errors import InvalidInputError
from fairsync.search import IvfIndex
from fairsync.search.overlay import follow

ATTRIBUTES: dict[str, Any] = {
    "price": [9.5, 3, 4.0],
    "category": ["toys", "books", "toys"],
    "tags": [["new", "sale"], [], ["new"]],
    "in_stock": [True, True, False],
    "year": [2020, 2021, 2020],
}


def make_catalog() -> Catalog:
    return Catalog(np.eye(3, dtype=np.float32), ATTRIBUTES, ids=["x", "y", "z"])


def values(catalog: Catalog) -> dict[str, list[Any]]:
    return {name: column.values() for name, column in catalog.attributes.items()}


def test_the_first_attribute_with_one_label_is_the_group() -> None:
    catalog = make_catalog()
    assert (catalog.group_attribute, catalog.labels, catalog.group_of.tolist()) == (
        "category",
        ["books", "toys"],
        [1, 0, 1],
    )
    assert [*catalog.attributes] == ["category", "price", "tags", "in_stock", "year"]
    assert values(catalog) == ATTRIBUTES
    kinds = [type(catalog.attributes[name]) for name in ATTRIBUTES]
    assert kinds == [NumberColumn, LabelColumn, ListColumn, LabelColumn, LabelColumn]


def test_a_list_of_labels_is_the_attribute_group() -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])
    assert values(catalog) == {"group": ["a", "b"]}
    assert catalog.select({"group": "b"}).rows.tolist() == [1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"new": [True, False, True], "group": [1.0, 2.0, 3.0]}, "one str or int"),
        ({"category": ["a", "b"]}, "must have 3 values"),
        ({"category": "abc"}, "must have 3 values"),
        ({"category": ["a", "b", 3]}, "mix str"),
        ({"category": ["a", "b", None]}, "'category' has no label in position 2.* group of an item"),
        ({"category": ["a", "b", None], "maker": ["x"] * 3}, "'category' has no label in position 2"),
        (
            {"category": ["a"] * 3, "price": [1.0, np.nan, 2.0]},
            "no number in position 1: give every item one, or leave",
        ),
        ({"category": ["a"] * 3, "price": np.array([1.0, np.nan, 2.0])}, "no number in position 1"),
        ({"category": ["a"] * 3, "price": [1, None, 2.5]}, "no number in position 1"),
        ({"category": ["a"] * 3, "price": [1.0, np.inf, 2.0]}, "finite"),
        ({"category": ["a"] * 3, "size": [None, "x", 1.5]}, r"got 1.5 \(float\) in position 2"),
        ({"category": ["a"] * 3, "size": [None, "x", 1]}, "mix str"),
        ({"category": ["a"] * 3, "tags": [None, ["x"], "y"]}, "in position 1: give every item one value"),
        ({"category": ["a"] * 3, "since": [date(2026, 1, 1)] * 3}, "in position 0: write dates and times as text"),
        ({"category": ["a"] * 3, "new": [True, 1, False]}, "bool"),
        ({"category": ["a"] * 3, "tags": [["a"], "b", ["c"]]}, "list"),
        ({"category": ["a"] * 3, 7: ["a"] * 3}, "word"),
        ({"category": ["a"] * 3, "tags": [["a"], [1], []]}, "mix str"),
        ({"category": ["a\n", "b", "c"]}, "control"),
    ],
)
def test_values_without_a_meaning_are_refused(given: dict[Any, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Catalog(np.eye(3), given)


def test_arrays_and_lists_give_the_same_columns() -> None:
    for name, given in ATTRIBUTES.items():
        if name != "tags":
            assert make_column(name, np.array(given), 3).values() == given


def test_attributes_change_without_vectors() -> None:
    catalog = make_catalog()
    change = upsert_items(
        catalog, None, {"in_stock": [False, True], "tags": [["old"], []], "price": [7, 8]}, ["x", "z"]
    )
    assert change.rows.tolist() == [0, 1, 2]
    assert change.catalog.embeddings is catalog.embeddings
    assert values(change.catalog) == {
        **ATTRIBUTES,
        "in_stock": [False, True, True],
        "tags": [["old"], [], []],
        "price": [7.0, 3.0, 8.0],
    }
    assert values(catalog) == ATTRIBUTES, "the catalog before the change is as it was"


def test_an_index_stays_as_it_is_when_only_attributes_change() -> None:
    catalog = make_catalog()
    index = IvfIndex(catalog)
    change = upsert_items(catalog, None, {"in_stock": [False]}, ["x"])
    assert follow(index, change, catalog) is index
    moved = upsert_items(catalog, None, {"category": ["games"]}, ["x"])
    assert moved.rows.tolist() == [-1, 1, 2]
    assert moved.catalog.labels == ["books", "toys", "games"]
    assert follow(index, moved, catalog) is not index


def test_selections_are_those_of_the_catalog_after_the_change() -> None:
    catalog = make_catalog()
    assert catalog.select({"in_stock": True}).rows.tolist() == [0, 1]  # type: ignore[union-attr]
    after = upsert_items(catalog, None, {"in_stock": [False]}, ["x"]).catalog
    assert after.select({"in_stock": True}).rows.tolist() == [1]  # type: ignore[union-attr]
    part = after.part(np.array([2, 1]))
    assert part.select({"in_stock": True}).rows.tolist() == [1]  # type: ignore[union-attr]


def test_items_are_added_and_removed_with_their_attributes() -> None:
    new: dict[str, Any] = {"price": [1.5], "category": ["games"], "tags": [["new"]], "in_stock": [True], "year": [1999]}
    catalog = upsert_items(make_catalog(), [[1.0, 2.0, 3.0]], new, ["w"]).catalog
    assert {name: column[3] for name, column in values(catalog).items()} == {name: one[0] for name, one in new.items()}
    left = remove_items(catalog, ["x", "y"]).catalog
    assert values(left)["tags"] == [["new"], ["new"]]
    assert (left.group_attribute, left.labels) == ("category", ["books", "toys", "games"])


@pytest.mark.parametrize(
    ("embeddings", "groups", "ids", "message"),
    [
        (None, {"in_stok": [True]}, ["x"], "did you mean 'in_stock'"),
        (None, {"in_stock": [True]}, ["q"], "no item 'q'|new item 'q'"),
        (None, {"in_stock": ["yes"]}, ["x"], "one bool per item, and these are str"),
        (None, {"tags": [7]}, ["x"], "lists of str"),
        (None, {"in_stock": [None, True]}, ["x", "y"], "has one bool per item, and the item 'x' has none"),
        (None, {"in_stock": [True, False]}, ["x"], "must have 1 values"),
        ([[1.0, 0.0, 0.0]], {"category": ["toys"]}, ["q"], "has no 'price'"),
        ([[1.0, 0.0, 0.0]], ["toys"], ["q"], "has no 'price'"),
        (None, {"in_stock": [True, False]}, ["x", "x"], "distinct"),
    ],
)
def test_changes_that_do_not_fit_are_refused(embeddings: Any, groups: Any, ids: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        upsert_items(make_catalog(), embeddings, groups, ids)


def test_a_known_item_keeps_what_is_not_given() -> None:
    change = upsert_items(make_catalog(), [[9.0, 0.0, 0.0]], ["books"], ["x"])
    assert values(change.catalog) == {**ATTRIBUTES, "category": ["books", "books", "toys"]}
    assert change.rows.tolist() == [-1, 1, 2]


def test_files_hold_attributes(tmp_path: Path) -> None:
    save_catalog(make_catalog(), tmp_path / "items")
    opened = open_catalog(tmp_path / "items")
    assert values(opened) == ATTRIBUTES
    assert (opened.group_attribute, opened.labels) == ("category", ["books", "toys"])
    assert values(opened.part(np.array([2])))["tags"] == [["new"]]
