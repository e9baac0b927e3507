"""Catalogs on disk: what comes back is what was saved, and what is damaged is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog import files as catalog_files
from fairsync.catalog.changes import upsert_items
from fairsync.catalog.files import Fingerprint, open_catalog, read_part, save_catalog
from fairsync.errors import InvalidInputError
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex


def make_catalog(dtype: str = "float32", words: bool = True, n: int = 90, dim: int = 6) -> Catalog:
    rng = np.random.default_rng(n)
    ids: Any = rng.permutation(n) * 3
    groups: Any = rng.integers(0, 4, n)
    if words:
        ids, groups = [f"item {i} é" for i in ids], [f"g{g}" for g in groups]
    return Catalog(rng.normal(size=(n, dim)).astype(dtype), groups, ids)


def write_parquet(catalog: Catalog, path: Path, **other: Any) -> Path:
    columns = {
        "id": catalog.ids.tolist(),
        "group": catalog.labels_of(catalog.group_of).tolist(),
        "embedding": pl.Series(catalog.embeddings.tolist(), dtype=pl.List(pl.Float32)),
    }
    pl.DataFrame(columns | other).write_parquet(path, row_group_size=32)
    return path


def assert_same(one: Catalog, other: Catalog) -> None:
    assert one.embeddings.dtype == other.embeddings.dtype
    assert (one.embeddings == other.embeddings).all()
    assert one.labels == other.labels
    assert one.group_of.tolist() == other.group_of.tolist()
    assert one.ids.tolist() == other.ids.tolist()
    assert (one.rank is None) == (other.rank is None)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_files, "BLOCK_BYTES", 400)


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_saved_catalog_comes_back_and_stays_on_disk(tmp_path: Path, dtype: str, words: bool) -> None:
    catalog = make_catalog(dtype, words)
    save_catalog(catalog, tmp_path / "a" / "items")
    opened = open_catalog(tmp_path / "a" / "items")
    assert_same(opened, catalog)
    base: Any = opened.embeddings
    while not isinstance(base, np.memmap):
        base = base.base
        assert base is not None, "the embeddings are in memory"
    assert opened.fingerprint == Fingerprint.of(catalog)
    assert {one.name for one in (tmp_path / "a").iterdir()} == {"items"}


def test_labels_keep_their_codes_and_ids_that_are_row_numbers_stay_so(tmp_path: Path) -> None:
    changed = upsert_items(make_catalog(), np.ones((1, 6)), ["aaa: sorted first, added last"], ["new"]).catalog
    for catalog in (changed, Catalog(np.eye(3), [1, 2, 1])):
        save_catalog(catalog, tmp_path / "items")  # the second replaces the first
        assert_same(open_catalog(tmp_path / "items"), catalog)


def test_a_parquet_file_is_a_catalog_too(tmp_path: Path) -> None:
    catalog = make_catalog()
    opened = open_catalog(write_parquet(catalog, tmp_path / "items.parquet"))
    assert_same(opened, catalog)
    assert opened.fingerprint == Fingerprint.of(catalog)


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_a_part_is_read_block_by_block_and_checked(tmp_path: Path, kind: str) -> None:
    catalog, seen = make_catalog(), list[tuple[int, int]]()
    path = tmp_path / "items.parquet"
    if kind == "folder":
        save_catalog(catalog, path)
    else:
        write_parquet(catalog, path)
    wanted = np.array([0, 1, 40, 88])
    part, rows = read_part(path, Fingerprint.of(catalog), lambda _: wanted, lambda *so_far: seen.append(so_far))
    assert rows is wanted
    assert_same(part, catalog.part(wanted))
    assert seen == [(2, 4), (3, 4), (4, 4)]
    other = Catalog(catalog.embeddings * 2, catalog.labels_of(catalog.group_of), catalog.ids)
    with pytest.raises(InvalidInputError, match="rows 0 to 15 are not those that were saved"):
        read_part(path, Fingerprint.of(other), lambda _: wanted)
    with pytest.raises(InvalidInputError, match="ids and groups are not those"):
        read_part(path, Fingerprint.of(catalog.part(wanted)), lambda _: wanted)


def test_a_fingerprint_sees_every_difference() -> None:
    base = make_catalog(n=40)
    values, groups, ids = base.embeddings.copy(), base.labels_of(base.group_of), base.ids
    values[-1, -1] += 1e-6
    others = [
        Catalog(values, groups, ids),
        Catalog(base.embeddings, np.roll(groups, 1), ids),
        Catalog(base.embeddings, groups, np.roll(ids, 1)),
        Catalog(base.embeddings, np.char.add(groups, "x"), ids),
        Catalog(base.embeddings.astype(np.float64), groups, ids),
    ]
    prints = {str(Fingerprint.of(one)) for one in [base, Catalog(base.embeddings.copy(), groups, ids), *others]}
    assert len(prints) == 1 + len(others)


def test_a_copy_for_another_process_opens_the_files(tmp_path: Path) -> None:
    catalog = make_catalog(n=3000)
    save_catalog(catalog, tmp_path / "items")
    packed = pickle.dumps(open_catalog(tmp_path / "items"))
    assert len(packed) < 20_000 < catalog.embeddings.nbytes
    assert_same(pickle.loads(packed), catalog)
    save_catalog(make_catalog(n=20), tmp_path / "items")
    with pytest.raises(InvalidInputError, match="another catalog than it did"):
        pickle.loads(packed)


def test_it_can_be_retrieved_from_and_changed(tmp_path: Path) -> None:
    catalog = make_catalog()
    save_catalog(catalog, tmp_path / "items")
    opened = open_catalog(tmp_path / "items")
    users = np.random.default_rng(0).normal(size=(20, 6))
    ids = []
    for one in (catalog, opened):
        retriever = FairRetriever(one, k=3, floors=5, horizon=40, index=ExactIndex(one))
        ids.append(retriever.retrieve(users).ids.tolist())
        retriever.remove([catalog.ids[7].item()])
        ids[-1] += retriever.retrieve(users).ids.tolist()
    assert ids[0] == ids[1]
    assert type(opened.part(np.arange(3))) is Catalog
    assert opened.under(catalog.labels) is opened
    assert opened.under(catalog.labels[::-1]).labels == catalog.labels[::-1]


def damage(path: Path, how: str) -> None:
    words = json.loads((path / "catalog.json").read_text())
    match how:
        case "no embeddings":
            (path / "embeddings.npy").unlink()
        case "cut embeddings":
            (path / "embeddings.npy").write_bytes((path / "embeddings.npy").read_bytes()[:-4])
        case "other embeddings":
            np.save(path / "embeddings.npy", np.ones((3, 2)))
        case "no header":
            (path / "embeddings.npy").write_bytes(b"nothing")
        case "cut items":
            (path / "items.parquet").write_bytes((path / "items.parquet").read_bytes()[:-20])
        case "other items":
            pl.DataFrame({"id": ["a"], "group": [0]}).write_parquet(path / "items.parquet")
        case "other groups":
            items = pl.read_parquet(path / "items.parquet")
            items.with_columns(pl.col("group").reverse()).write_parquet(path / "items.parquet")
        case "no json":
            (path / "catalog.json").write_text("{")
        case "version":
            (path / "catalog.json").write_text(json.dumps(words | {"version": 9}))
        case "lacking words":
            (path / "catalog.json").write_text(json.dumps({"version": 1}))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no embeddings", "no embeddings.npy"),
        ("cut embeddings", "cannot be read"),
        ("other embeddings", "save the catalog again"),
        ("no header", "cannot be read"),
        ("cut items", "cannot be read"),
        ("other items", "cannot be read"),
        ("other groups", "ids and groups are not those"),
        ("no json", "cannot be read"),
        ("version", "version 9"),
        ("lacking words", "cannot be read"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, how: str, said: str) -> None:
    save_catalog(make_catalog(), tmp_path / "items")
    damage(tmp_path / "items", how)
    with pytest.raises(InvalidInputError, match=said):
        open_catalog(tmp_path / "items")


def test_paths_that_are_no_catalogs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("something")
    with pytest.raises(InvalidInputError, match="does not exist"):
        open_catalog(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match="is no catalog"):
        open_catalog(tmp_path / "list.txt")
    with pytest.raises(InvalidInputError, match=r"no catalog\.json"):
        open_catalog(tmp_path)
    with pytest.raises(InvalidInputError, match="choose another folder"):
        save_catalog(make_catalog(), tmp_path)
    assert (tmp_path / "list.txt").read_text() == "something"


def test_parquet_that_is_no_catalog_is_refused(tmp_path: Path) -> None:
    catalog, path = make_catalog(n=10, dim=2), tmp_path / "items.parquet"
    vectors = catalog.embeddings.tolist()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"id": ["twice"] * 10}, "must be distinct"),
        ({"id": [None, *range(9)]}, "ids must be"),
        ({"group": [1.5] * 10}, "groups must be"),
        ({"embedding": [1.0] * 10}, "must hold lists"),
        ({"embedding": [["a"]] * 10}, "must hold lists"),
        ({"embedding": [*vectors[:9], [1.0]]}, "row 9"),
        ({"embedding": [*vectors[:9], None]}, "row 9"),
        ({"embedding": [[]] * 10}, "must hold lists|row 0"),
        ({"embedding": [*vectors[:9], [1.0, float("nan")]]}, "row 9, column 1"),
        ({"embedding": [*vectors[:9], [1.0, None]]}, "row 9, column 1"),
    ]
    for other, said in cases:
        write_parquet(catalog, path, **other)
        with pytest.raises(InvalidInputError, match=said):
            open_catalog(path)
    pl.DataFrame({"id": [1], "embedding": [[1.0]]}).write_parquet(path)
    with pytest.raises(InvalidInputError, match="no column 'group'"):
        open_catalog(path)
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        open_catalog(path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 89])
def test_a_value_that_was_damaged_is_found_before_the_first_search(tmp_path: Path, value: float, row: int) -> None:
    save_catalog(make_catalog(), tmp_path / "saved")
    values = np.lib.format.open_memmap(tmp_path / "saved" / "embeddings.npy", mode="r+")
    values[row, 3] = value
    values.flush()
    opened = open_catalog(tmp_path / "saved")
    for index in ("exact", "ivf", "hnsw", "one-hot"):
        with pytest.raises(InvalidInputError, match=f"{value} in row {row}, column 3"):
            FairRetriever(opened, k=2, index=index)


def test_a_stored_catalog_with_other_attributes_is_no_longer_tied_to_its_files(tmp_path: Path) -> None:
    """It shares the embeddings, and a process that receives it gets the attributes as they are now."""
    save_catalog(Catalog(np.eye(2), {"category": ["a", "b"], "in_stock": [True, True]}), tmp_path / "items")
    stored = open_catalog(tmp_path / "items")
    changed = upsert_items(stored, None, {"in_stock": [False]}, [1]).catalog
    assert changed.embeddings is stored.embeddings
    assert changed.group_of is stored.group_of
    received = pickle.loads(pickle.dumps(changed))
    assert received.attributes["in_stock"].values() == [True, False]
    assert Fingerprint.of(changed) == Fingerprint.of(received)
