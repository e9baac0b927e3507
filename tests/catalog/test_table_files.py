"""A catalog in a single file: id, attributes, embedding, as parquet, CSV or numpy arrays."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.files import Fingerprint, open_catalog, save_catalog
from fairsync.errors import InvalidInputError

VECTORS = np.arange(8, dtype=np.float32).reshape(4, 2) / 4
ATTRIBUTES: dict[str, list[Any]] = {
    "category": ["toys", "books", "toys", "art"],
    "provider": [7, 7, 9, 8],
    "new": [True, False, False, True],
    "price": [1.5, 2.0, 3.25, 4.0],
    "tags": [["a", "b"], [], ["b"], ["c"]],
}
CATALOG = Catalog(VECTORS, ATTRIBUTES, ["w", "x", "y", "z"])


def values(catalog: Catalog) -> dict[str, list[Any]]:
    return {name: column.values() for name, column in catalog.attributes.items()}


@pytest.mark.parametrize("name", ["items", "items.parquet"])
def test_attributes_of_every_kind_come_back(name: str, tmp_path: Path) -> None:
    save_catalog(CATALOG, tmp_path / name)
    assert (tmp_path / name).is_file() == (name == "items.parquet")
    opened = open_catalog(tmp_path / name)
    assert values(opened) == ATTRIBUTES
    assert (opened.group_attribute, opened.labels) == ("category", CATALOG.labels)
    assert opened.fingerprint == Fingerprint.of(CATALOG)
    assert opened.select({"tags": "b", "price": {"at_most": 2}}).rows.tolist() == [0]  # type: ignore[union-attr]
    save_catalog(opened, tmp_path / name)  # over itself
    assert values(open_catalog(tmp_path / name)) == ATTRIBUTES


@pytest.mark.parametrize("name", ["items.csv", "items.npz", "items.NPY"])
def test_no_folder_gets_the_name_of_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"folder or a \.parquet file.* items or items\.parquet, not items\."):
        save_catalog(CATALOG, tmp_path / name)
    assert not list(tmp_path.iterdir())
    save_catalog(CATALOG, tmp_path / "items.v2")
    assert (tmp_path / "items.v2").is_dir()


def test_a_table_of_another_program(tmp_path: Path) -> None:
    """The group is the column of that name, wherever it is, and columns that are no attributes are left out."""
    frame = pl.DataFrame(
        {
            "shop": ["s", "t", None, "s"],
            "item_id": [4, 2, 3, 1],
            "day": pl.Series(["2020-01-01"] * 4).str.to_date(),
            "vector": VECTORS.tolist(),
            "group": ["b", "a", "b", "b"],
        }
    )
    frame.write_parquet(tmp_path / "items.parquet")
    opened = open_catalog(tmp_path / "items.parquet")
    assert opened.ids.tolist() == [4, 2, 3, 1]
    assert values(opened) == {"group": ["b", "a", "b", "b"], "shop": [["s"], ["t"], [], ["s"]]}
    assert opened.embeddings.tolist() == VECTORS.tolist()


def test_what_is_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pl.DataFrame({"id": ["x"], "group": ["a"], "height": [None], "embedding": [[1.0]]})
    frame.with_columns(pl.col("height").cast(pl.Float64)).write_parquet(tmp_path / "items.parquet")
    with caplog.at_level(logging.WARNING):
        assert values(open_catalog(tmp_path / "items.parquet")) == {"group": ["a"]}
    assert "the column 'height' is left out" in caplog.text


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text(
        "id,category,provider,new,price,tags,embedding\n"
        'w,toys,7,true,1.5,"[""a"", ""b""]","[0.0, 0.25]"\n'
        "x,books,7,false,2,[],0.5 0.75\n"
        'y,toys,9,false,3.25,"[""b""]",1.0;1.25\n'
        'z,art,8,true,4,"[""c""]","[1.5 1.75]"\n'
    )
    opened = open_catalog(path)
    assert values(opened) == ATTRIBUTES
    assert opened.ids.tolist() == ["w", "x", "y", "z"]
    assert opened.embeddings.tolist() == VECTORS.tolist()
    path.write_text("id,group,embedding\n1,2,0.5 ... 1\n")
    with pytest.raises(InvalidInputError, match="holds something else than numbers"):
        open_catalog(path)


def test_numpy_arrays(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {name: np.array(given) for name, given in ATTRIBUTES.items() if name != "tags"}
    np.savez(tmp_path / "items.npz", ids=np.array(["w", "x", "y", "z"]), vectors=VECTORS, **arrays)
    opened = open_catalog(tmp_path / "items.npz")
    assert values(opened) == {name: given for name, given in ATTRIBUTES.items() if name != "tags"}
    assert opened.embeddings.tolist() == VECTORS.tolist()
    np.savez(tmp_path / "items.npz", vectors=VECTORS)
    with pytest.raises(InvalidInputError, match="has no column 'id'"):
        open_catalog(tmp_path / "items.npz")


def test_a_name_that_a_file_cannot_hold(tmp_path: Path) -> None:
    for name in ("embedding", "group"):
        catalog = Catalog(VECTORS, {"category": ["a"] * 4, name: [1, 2, 3, 4]})
        with pytest.raises(InvalidInputError, match=f"the attribute '{name}' has the name of another column"):
            save_catalog(catalog, tmp_path / "items.parquet")
        save_catalog(catalog, tmp_path / "items")
        assert values(open_catalog(tmp_path / "items"))[name] == [1, 2, 3, 4]
    save_catalog(Catalog(VECTORS.astype(np.float16), ["a"] * 4), tmp_path / "half.parquet")
    assert open_catalog(tmp_path / "half.parquet").embeddings.dtype == np.float32


def test_a_table_without_a_group(tmp_path: Path) -> None:
    columns = {"id": [1, 2], "new": [True, False], "tags": [["a"], []], "embedding": [[1.0], [2.0]]}
    pl.DataFrame(columns).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(InvalidInputError, match="no column 'group', and no other with one text or whole number"):
        open_catalog(tmp_path / "items.parquet")


def test_a_column_without_some_labels_is_not_passed_over_as_the_group(tmp_path: Path) -> None:
    columns = {"id": [1, 2], "category": ["a", None], "maker": ["x", "y"], "embedding": [[1.0], [2.0]]}
    pl.DataFrame(columns).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(InvalidInputError, match="attribute 'category' has no label in position 1"):
        open_catalog(tmp_path / "items.parquet")
    later = pl.DataFrame(columns).select("id", "maker", "category", "embedding")
    later.write_parquet(tmp_path / "items.parquet")
    assert open_catalog(tmp_path / "items.parquet").group_attribute == "maker"
    assert values(open_catalog(tmp_path / "items.parquet"))["category"] == [["a"], []]
