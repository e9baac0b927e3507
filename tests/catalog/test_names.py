"""Names: control characters are refused, and a long id does not make all others large."""

import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.changes import remove_items, upsert_items
from fairsync.catalog.files import open_catalog, save_catalog
from fairsync.catalog.names import check_names, is_name, join_names
from fairsync.errors import InvalidInputError
from fairsync.retriever import FairRetriever

CONTROL = ["a\0", "a\0b", "a\n", "\ta", "a\x7f", "a\x85b", "a\ud800"]


@pytest.mark.parametrize("bad", CONTROL)
@pytest.mark.parametrize("make", [list, lambda names: np.array(names, dtype=object)])
def test_control_characters_are_refused_everywhere(bad: str, make: Callable[[list[str]], list[str]]) -> None:
    for groups, ids in [(["x", bad], ["a", "b"]), (["x", "y"], ["b", bad])]:
        with pytest.raises(InvalidInputError, match="in position 1, with a control character"):
            Catalog(np.eye(2), make(groups), make(ids))
    retriever = FairRetriever(Catalog(np.eye(2), ["x", "y"], ids=["a", "b"]), k=1)
    changes: list[Callable[[], None]] = [
        lambda: retriever.upsert(np.ones((1, 2)), ["x"], make([bad])),
        lambda: retriever.upsert(np.ones((1, 2)), make([bad]), ["a"]),
        lambda: retriever.remove(make([bad])),
    ]
    for change in changes:
        with pytest.raises(InvalidInputError, match="control character"):
            change()
    assert retriever.catalog.embeddings.tolist() == np.eye(2).tolist()
    assert not is_name(bad)


def test_an_array_of_words_is_searched_too() -> None:
    with pytest.raises(InvalidInputError, match="in position 1, with a control character"):
        check_names(np.array(["a", "b\nc"]), 2, "ids", "id")
    with pytest.raises(InvalidInputError, match="in position 0, with a control character"):
        check_names(np.array(["a\0"], dtype=np.dtypes.StringDType()), 1, "ids", "id")
    assert check_names(np.array(["a", "é 🎈"], dtype=np.dtypes.StringDType()), 2, "ids", "id").tolist() == ["a", "é 🎈"]


@pytest.mark.parametrize("bad", ["a\0", "a\nb"])
def test_control_characters_in_files_are_refused(tmp_path: Path, bad: str) -> None:
    columns = {"id": ["b", bad], "group": ["x", "y"], "embedding": [[1.0], [2.0]]}
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="control character"):
        open_catalog(tmp_path / "a.parquet")
    save_catalog(Catalog(np.eye(2), ["x", "y"], ids=["a", "b"]), tmp_path / "saved")
    pl.DataFrame({"id": ["b", bad], "group": [0, 1]}).write_parquet(tmp_path / "saved" / "items.parquet")
    with pytest.raises(InvalidInputError, match="control character"):
        open_catalog(tmp_path / "saved")


def test_one_long_id_does_not_make_all_others_long(tmp_path: Path) -> None:
    n = 100_000
    ids = [f"item-{i:06d}" for i in range(n)]
    embeddings = np.zeros((n, 1), dtype=np.float32)
    plain = Catalog(embeddings, np.zeros(n, dtype=int), ids)
    assert plain.ids.dtype == "<U11"
    tracemalloc.start()
    catalog = Catalog(embeddings, np.zeros(n, dtype=int), ["x" * 500, *ids[1:]])
    change = upsert_items(plain, [[1.0]], [0], ["x" * 500])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6, "500 characters of 4 bytes each for every id would be 200 MB"
    assert change.catalog.ids.tolist() == [*ids, "x" * 500]
    assert change.catalog.ids_of([1, n]).tolist() == [ids[1], "x" * 500]
    assert change.catalog.ids_of([1, 2]).dtype == "<U11", "as callers know it"
    assert change.catalog.rows_of(np.array(["x" * 500, ids[7], "none"])).tolist() == [n, 7, -1]
    assert remove_items(change.catalog, ["x" * 500]).catalog.ids.tolist() == ids
    save_catalog(catalog, tmp_path / "saved")
    assert open_catalog(tmp_path / "saved").ids.tolist() == catalog.ids.tolist()


def test_one_long_label_does_not_make_all_others_long() -> None:
    n = 20_000
    labels = ["y" * 500, *(f"provider-{i:06d}" for i in range(n - 1))]
    catalog = Catalog(np.zeros((n, 1), dtype=np.float32), labels)
    assert sum(catalog.group_sizes) == n
    assert catalog.labels_of(catalog.group_of[[0, 5]]).tolist() == [labels[0], labels[5]]
    assert catalog.labels_of([3]).dtype.kind == "U"
    assert catalog.under(catalog.labels).labels == catalog.labels


def test_names_of_any_kind_are_joined() -> None:
    long = np.array(["x" * 5000])
    many = np.array([str(i) for i in range(9000)])
    assert join_names([many, long]).dtype == object
    assert join_names([many, long]).tolist() == [*many.tolist(), *long.tolist()]
    assert join_names([many[:3], many[3:5]]).dtype == many.dtype


def test_the_value_that_is_shown_is_the_one_in_that_position() -> None:
    with pytest.raises(InvalidInputError, match=r"got UUID\('0{8}-0{4}-0{4}-0{4}-0{11}1'\) .* in position 0: convert"):
        check_names([uuid.UUID(int=1), uuid.UUID(int=2)], 2, "ids", "id")
    with pytest.raises(InvalidInputError, match=r"got 1.5 \(float\) in position 1: .*convert it to int or str"):
        check_names(["a", 1.5, 2.5], 3, "groups", "label")
    with pytest.raises(InvalidInputError, match=r"mix str \('a'\) and int \(1\)"):
        check_names(["a", 1, "b", 2], 4, "groups", "label")
