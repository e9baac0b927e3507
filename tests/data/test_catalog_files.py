"""Catalogs and targets from files: matched by ids, or in order."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairsync import InvalidInputError
from fairsync.data import read_catalog, read_targets

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "plain.npy", VECTORS)
    pl.DataFrame({"item": [30, 10, 20, 40], "vector": VECTORS.tolist()}).write_parquet(tmp_path / "named.parquet")
    np.savez(tmp_path / "people.npz", vectors=VECTORS, ids=np.array(["ann", "bob", "cy", "di"]))
    pl.DataFrame({"item": [10, 20, 30, 40, 50], "group": ["a", "b", "c", "a", "z"]}).write_parquet(
        tmp_path / "groups.parquet"
    )
    return tmp_path


def csv(folder: Path, text: str) -> Path:
    (folder / "it.csv").write_text(text)
    return folder / "it.csv"


def test_groups_are_matched_by_ids(folder: Path) -> None:
    catalog = read_catalog(folder / "named.parquet", folder / "groups.parquet")
    assert catalog.ids.tolist() == [30, 10, 20, 40]
    assert catalog.labels_of(catalog.group_of).tolist() == ["c", "a", "b", "a"]
    np.testing.assert_array_equal(catalog.embeddings, VECTORS)


def test_without_ids_the_order_counts(folder: Path) -> None:
    catalog = read_catalog(folder / "plain.npy", csv(folder, "group\nx\ny\ny\nx\n"))
    assert catalog.ids.tolist() == [0, 1, 2, 3]
    assert catalog.labels_of(catalog.group_of).tolist() == ["x", "y", "y", "x"]
    named = read_catalog(folder / "plain.npy", csv(folder, "item_id,category\nd,x\nc,y\nb,y\na,x\n"))
    assert named.ids.tolist() == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("items", "text", "why"),
    [
        ("plain.npy", "group\nx\ny\n", "has 2 rows and .*plain.npy 4 vectors"),
        ("plain.npy", 'group\nx\n""\ny\nx\n', "the item in row 1 has no group"),
        ("plain.npy", "item,colour\n1,x\n", "has no column 'group', only item, colour"),
        ("plain.npy", "item,group\n1,x\n2,x\n1,y\n4,x\n", "the id '1' is in rows 0 and 2"),
        ("named.parquet", "item,group\n10,x\n30,x\n20,y\n", "has no group for 1 of the 4 items, such as 40"),
        ("named.parquet", "group\nx\nx\nx\nx\n", "has ids and .*it.csv has none"),
        ("named.parquet", "", "cannot be read as parquet or CSV"),
    ],
)
def test_groups_that_do_not_fit(items: str, text: str, why: str, folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=why):
        read_catalog(folder / items, csv(folder, text))


def test_items_have_one_vector(folder: Path) -> None:
    np.save(folder / "many.npy", np.ones((4, 2, 3)))
    with pytest.raises(InvalidInputError, match="an item has one vector"):
        read_catalog(folder / "many.npy", folder / "groups.parquet")


def test_targets_row_by_row(folder: Path) -> None:
    text = "user,item\ncy,10\nann,20\ncy,30\n"
    assert read_targets(csv(folder, text), folder / "people.npz") == [["20"], [], ["10", "30"], []]
    assert read_targets(csv(folder, "request,item\n2,10\n0,20\n2,30\n"), folder / "plain.npy") == [
        ["20"],
        [],
        ["10", "30"],
        [],
    ]


def test_targets_as_lists(folder: Path) -> None:
    path = folder / "lists.parquet"
    pl.DataFrame({"item": [["x"], [], ["y", "z"], None]}).write_parquet(path)
    assert read_targets(path, folder / "people.npz") == [["x"], [], ["y", "z"], []]
    pl.DataFrame({"user": ["di", "bob"], "item": [["x"], ["y", "z"]]}).write_parquet(path)
    assert read_targets(path, folder / "people.npz") == [[], ["y", "z"], [], ["x"]]
    pl.DataFrame({"item": [["x"]]}).write_parquet(path)
    with pytest.raises(InvalidInputError, match=r"has 1 rows and .* 4 requests"):
        read_targets(path, folder / "people.npz")


def test_targets_as_arrays(folder: Path) -> None:
    path = folder / "arrays.parquet"
    items = pl.Series("item", [["x", "y"], ["y", None], None, ["z", "x"]], dtype=pl.Array(pl.String, 2))
    items.to_frame().write_parquet(path)
    assert read_targets(path, folder / "people.npz") == [["x", "y"], ["y"], [], ["z", "x"]]
    pl.DataFrame({"user": ["di", "bob"], "item": items.head(2)}).write_parquet(path)
    assert read_targets(path, folder / "people.npz") == [[], ["y"], [], ["x", "y"]]


@pytest.mark.parametrize(
    "odd",
    [[{"a": 1}], [[{"a": 1}]], [[["x"]]], [1.5], [True], [b"x"]],
    ids=["dicts", "lists of dicts", "lists of lists", "floats", "booleans", "bytes"],
)
def test_what_is_no_id_and_no_label(odd: list[object], folder: Path) -> None:
    path, column = folder / "odd.parquet", pl.Series(odd * 4)
    pl.DataFrame({"user": ["ann", "bob", "cy", "di"], "item": column}).write_parquet(path)
    with pytest.raises(InvalidInputError, match=r"the column 'item' holds .*: give text or whole numbers"):
        read_targets(path, folder / "people.npz")
    pl.DataFrame({"group": column}).write_parquet(path)
    with pytest.raises(InvalidInputError, match=r"the column 'group' holds .*: give text or whole numbers"):
        read_catalog(folder / "plain.npy", path)


@pytest.mark.parametrize(
    ("users", "text", "why"),
    [
        ("people.npz", "user,item\nann,1\nzoe,1\n", "row 1 names the user 'zoe', which is not an id"),
        ("plain.npy", "user,item\n4,1\n", "the user '4', which is not a row from 0 to 3"),
        ("plain.npy", "item\n1\n", "has no column 'user'"),
    ],
)
def test_targets_that_do_not_fit(users: str, text: str, why: str, folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=why):
        read_targets(csv(folder, text), folder / users)


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"none\.csv does not exist"):
        read_catalog(folder / "plain.npy", folder / "none.csv")
    with pytest.raises(InvalidInputError, match=r"none\.npy does not exist"):
        read_catalog(folder / "none.npy")
