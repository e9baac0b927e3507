"""Vectors in every form that libraries write them, and what is said of those that cannot be used."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairsync import Catalog, FairRetriever, InvalidInputError
from fairsync.data import read_vectors
from fairsync.data.vectors import read_ids

MATRIX = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
INTERESTS = np.random.default_rng(1).normal(size=(4, 2, 3)).astype(np.float32)
NAMES = ["tea", "jam", "milk", "nut"]


def write(path: Path, array: np.ndarray[Any, Any]) -> Path:
    """Save an array as its suffix says."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, vectors=array, ids=np.array(NAMES))
    elif path.suffix == ".parquet":
        pl.DataFrame({"item": NAMES, "vector": array.tolist()}).write_parquet(path)
    else:
        torch = pytest.importorskip("torch")
        torch.save(torch.from_numpy(array.copy()), path)
    return path


@pytest.mark.parametrize("array", [MATRIX, INTERESTS], ids=["one", "interests"])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".pt"])
def test_every_form_gives_the_same_vectors(suffix: str, array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    path = write(tmp_path / f"it{suffix}", array)
    np.testing.assert_array_equal(read_vectors(path), array)
    assert read_ids(path) == (NAMES if suffix in (".npz", ".parquet") else None)


def test_they_go_straight_into_retrieval(tmp_path: Path) -> None:
    items, users = write(tmp_path / "items.npy", MATRIX), write(tmp_path / "users.parquet", INTERESTS)
    retriever = FairRetriever(Catalog(read_vectors(items), ["a", "a", "b", "b"]), k=1, horizon=4, policy="none")
    best = (INTERESTS @ MATRIX.T).max(axis=1).argmax(axis=1)
    assert retriever.retrieve(read_vectors(users)).ids[:, 0].tolist() == best.tolist()


def test_more_shapes_of_tables(tmp_path: Path) -> None:
    columns = {f"d{place}": MATRIX[:, place] for place in range(3)}
    pl.DataFrame({"id": [7, 5, 6, 4], **columns}).write_parquet(tmp_path / "wide.parquet")
    np.testing.assert_allclose(read_vectors(tmp_path / "wide.parquet"), MATRIX)
    assert read_ids(tmp_path / "wide.parquet") == [7, 5, 6, 4]
    fixed = pl.Series("embedding", MATRIX.tolist(), dtype=pl.Array(pl.Float32, 3))
    fixed.to_frame().write_parquet(tmp_path / "fixed.parquet")
    np.testing.assert_array_equal(read_vectors(tmp_path / "fixed.parquet"), MATRIX)
    np.savez(tmp_path / "other.npz", weights=MATRIX, bias=np.zeros(3))
    np.testing.assert_array_equal(read_vectors(tmp_path / "other.npz"), MATRIX)
    np.save(tmp_path / "whole.npy", np.arange(6).reshape(2, 3))
    assert read_vectors(tmp_path / "whole.npy").dtype == np.float32


def test_the_state_of_an_embedding(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Embedding.from_pretrained(torch.from_numpy(MATRIX.copy()))
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    np.testing.assert_array_equal(read_vectors(tmp_path / "state.pt"), MATRIX)
    torch.save(torch.from_numpy(MATRIX.copy()).to(torch.bfloat16), tmp_path / "short.pt")
    np.testing.assert_allclose(read_vectors(tmp_path / "short.pt"), MATRIX, rtol=0.01)


def test_tensors_that_are_not_plain(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    plain = torch.from_numpy(MATRIX.copy())
    odd = [plain.to_sparse(), {"weight": plain.to_sparse()}, plain.to(torch.float8_e4m3fn), plain.to("meta")]
    for tensor in odd:
        torch.save(tensor, tmp_path / "it.pt")
        with pytest.raises(InvalidInputError, match=r"numpy cannot hold .*: save a plain one, tensor\.to_dense"):
            read_vectors(tmp_path / "it.pt")
    torch.save({"weight": plain, "mask": torch.ones(3).to_sparse()}, tmp_path / "it.pt")  # not what is meant
    np.testing.assert_array_equal(read_vectors(tmp_path / "it.pt"), MATRIX)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(layer := torch.nn.Linear(2, 2), tmp_path / "code.pt")
    assert layer is not None
    np.save(tmp_path / "pickle.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    for name in ("code.pt", "pickle.npy"):
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_vectors(tmp_path / name)


def nan(folder: Path) -> Path:
    spoilt = MATRIX.copy()
    spoilt[2, 1] = np.nan
    return write(folder / "it.npy", spoilt)


def cut(folder: Path, suffix: str) -> Path:
    path = write(folder / f"it{suffix}", MATRIX)
    path.write_bytes(path.read_bytes()[:-20])
    return path


def table(folder: Path, **columns: Any) -> Path:
    pl.DataFrame(columns).write_parquet(folder / "it.parquet")
    return folder / "it.parquet"


def arrays(folder: Path, **given: Any) -> Path:
    np.savez(folder / "it.npz", **given)
    return folder / "it.npz"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (nan, r"it\.npy has a NaN or an infinite value in row 2: remove"),
        (lambda folder: table(folder, vector=[[1.0, None], [2.0, 3.0]]), "NaN or an infinite value in row 0"),
        (lambda folder: cut(folder, ".npy"), "cannot be read"),
        (lambda folder: cut(folder, ".npz"), "cannot be read"),
        (lambda folder: cut(folder, ".parquet"), "cannot be read"),
        (lambda folder: cut(folder, ".pt"), "cannot be read"),
        (lambda folder: write(folder / "it.npy", MATRIX[0]), r"has shape \(3,\): vectors are"),
        (lambda folder: write(folder / "it.npy", MATRIX[:0]), "is empty"),
        (lambda folder: write(folder / "it.npy", np.array([["a"]])), "convert it to float32"),
        (lambda folder: table(folder, vector=[[1.0, 2.0], [3.0]]), "the vector in row 1 differs in length"),
        (lambda folder: table(folder, vector=[[[1.0], [1.0]], [[3.0], [1.0, 2.0]]]), "the vector in row 1 differs"),
        (lambda folder: table(folder, vector=[["a"]]), "not numbers"),
        (lambda folder: table(folder, a=[[1.0]], b=[[1.0]]), r"2 columns of lists \(a, b\)"),
        (lambda folder: table(folder, name=["x"], d0=[1.0]), "the column 'name' holds no numbers"),
        (lambda folder: table(folder, item=["x"]), "there is no column of numbers"),
        (lambda folder: arrays(folder, a=MATRIX, b=MATRIX), r"holds a \(4, 3\), b \(4, 3\): call the array"),
        (lambda folder: folder / "none.npy", "does not exist"),
        (lambda folder: folder / "it.pkl", r"vectors are read from \.npy"),
    ],
)
def test_what_cannot_be_used(make: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=why):
        read_vectors(make(tmp_path))


@pytest.mark.parametrize(
    ("ids", "why"), [(["a", "b", "a"], "the id 'a' is in rows 0 and 2"), (["a", None, "b"], "row 1 is None")]
)
def test_ids_that_cannot_be_used(ids: list[Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=why):
        read_ids(table(tmp_path, id=ids, d0=[1.0, 2.0, 3.0]))
