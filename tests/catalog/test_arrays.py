"""Arrays of other libraries are taken as they are: tensors, and columns of polars, pandas and pyarrow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairsync as fs
from fairsync.catalog.arrays import to_array, to_unit_length, to_values
from fairsync.errors import InvalidInputError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3) / 8 - 0.5  # exact in bfloat16, too
LABELS = ["a", "b", "a", "c"]
ARRAYS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.tensor(VALUES),
    "tensor that requires grad": lambda: torch.tensor(VALUES, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.tensor(VALUES)),
    "bfloat16": lambda: torch.tensor(VALUES, dtype=torch.bfloat16, requires_grad=True),
    "half": lambda: torch.tensor(VALUES).half(),
    "sparse": lambda: torch.tensor(VALUES).to_sparse(),
    "list of tensors": lambda: list(torch.tensor(VALUES, requires_grad=True)),
    "polars lists": lambda: pl.Series(VALUES.tolist()),
    "polars arrays": lambda: pl.Series(VALUES),
    "polars frame": lambda: pl.DataFrame(VALUES),
    "pandas lists": lambda: pd.Series(VALUES.tolist(), index=[7, 3, 5, 1]),
    "pandas arrays": lambda: pd.Series(list(VALUES)),
    "pandas frame": lambda: pd.DataFrame(VALUES),
    "pyarrow lists": lambda: pa.array(VALUES.tolist()),
    "pyarrow chunks": lambda: pa.chunked_array([VALUES[:2].tolist(), VALUES[2:].tolist()]),
    "lists": lambda: VALUES.tolist(),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_embeddings_and_users(name: str) -> None:
    catalog = fs.Catalog(ARRAYS[name](), LABELS)
    np.testing.assert_array_equal(catalog.embeddings, VALUES)
    retriever = fs.FairRetriever(catalog, k=2)
    expected = fs.FairRetriever(fs.Catalog(VALUES, LABELS), k=2).retrieve(VALUES)
    assert retriever.retrieve(ARRAYS[name]()).ids.tolist() == expected.ids.tolist()
    retriever.upsert(ARRAYS[name](), LABELS, [10, 11, 12, 13])
    np.testing.assert_array_equal(retriever.catalog.embeddings[4:], VALUES)


LISTS = [["new"], [], ["sale", "new"], ["sale"]]
CONVERTERS: dict[str, Callable[[list[Any]], Any]] = {
    "polars": pl.Series,
    "pandas": lambda values: pd.Series(values, index=range(9, 9 + len(values))),
    "pyarrow": pa.array,
    "numpy": lambda values: np.array(values, dtype=object),
}


@pytest.mark.parametrize("name", CONVERTERS)
def test_columns_as_labels_ids_attributes_and_exclusions(name: str) -> None:
    convert = CONVERTERS[name]
    attributes: dict[str, list[Any]] = {
        "group": LABELS,
        "tags": LISTS,
        "price": [1.5, 2.0, 3.5, 4.0],
        "new": [True, False, True, True],
    }
    catalog = fs.Catalog(VALUES, {key: convert(value) for key, value in attributes.items()}, convert([5, 6, 7, 8]))
    assert catalog.ids.tolist() == [5, 6, 7, 8]
    assert {key: column.values() for key, column in catalog.attributes.items()} == attributes
    exclude: list[Any] = [[5, 6], [7], [8, 5]]
    found = [fs.FairRetriever(catalog, k=2).retrieve(VALUES[:3], exclude=one) for one in (convert(exclude), exclude)]
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].ids[0].tolist() == [7, 8]


def test_tensors_as_labels_ids_attributes_and_exclusions() -> None:
    new, price = torch.tensor([True, False, True, True]), torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    groups = {"group": torch.tensor([1, 2, 1, 3]), "new": new, "price": price}
    catalog = fs.Catalog(VALUES, groups, torch.tensor([5, 6, 7, 8]))
    assert catalog.labels == [1, 2, 3]
    assert catalog.select({"new": True, "price": {"at_least": 2}}).rows.tolist() == [2, 3]  # type: ignore[union-attr]
    exclude = [torch.tensor([5, 6]), torch.tensor([7])]
    assert fs.FairRetriever(catalog, k=2).retrieve(VALUES[:2], exclude=exclude).ids.tolist() == [[7, 8], [5, 6]]
    assert fs.FairRetriever(catalog, k=2, cold=torch.tensor([8, 5])).retrieve(np.zeros(3)).ids.tolist() == [[8, 5]]
    cold = torch.ones(3, requires_grad=True)
    assert fs.FairRetriever(catalog, k=2, cold=cold).retrieve(np.zeros(3)).ids.tolist() == [[8, 7]]


def test_floors_of_a_series() -> None:
    catalog = fs.Catalog(VALUES, LABELS)
    counts = pd.Series(LABELS).value_counts()
    retriever = fs.FairRetriever(catalog, k=2, floors=counts, horizon=10)
    assert retriever.report().floors == {"a": 2, "b": 1, "c": 1}
    retriever.promise(pd.Series({"b": 3}))
    assert retriever.report().floors == {"a": 0, "b": 3, "c": 0}
    with pytest.raises(InvalidInputError, match="group 'b' twice"):
        retriever.promise(pd.Series([1, 2], index=["b", "b"]))
    with pytest.raises(InvalidInputError, match="whole number of exposures"):
        retriever.promise(pd.Series({"b": 0.5}))


def test_one_user_is_one_request() -> None:
    catalog = fs.Catalog(VALUES, LABELS)
    found = fs.FairRetriever(catalog, k=2).retrieve([1.0, 0.0, 0.5])
    assert found.ids.tolist() == fs.FairRetriever(catalog, k=2).retrieve([[1.0, 0.0, 0.5]]).ids.tolist()
    assert fs.hindsight(catalog, torch.ones(3), k=1, floors={"b": 1}).exposures == {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        (pl.Series([[1.0, 2.0], [3.0]]), "row 0 has 2 values, row 1 has 1"),
        (pd.Series([[1.0], [2.0, 3.0]]), "row 0 has 1 value, row 1 has 2"),
        (pl.Series([[1.0, 2.0], None]), "embeddings"),
        (pl.Series([[1.0, 2.0], [3.0, None]]), "embeddings hold nan"),
        (pl.Series([["a"], ["b"]]), "float32"),
        (pl.Series([], dtype=pl.List(pl.Float32)), "embeddings"),
        (pd.Series([1.0, 2.0]), r"\(n, d\)"),
        ([torch.ones(2), torch.ones(3)], "row 0 has 2 values, row 1 has 3"),
        (torch.ones(2, 2, device="meta"), "cannot be read"),
        (torch.ones(2, 2, dtype=torch.complex64), "float32"),
        (torch.ones(2, 2, dtype=torch.int64), "float32"),
        ([[1.0], [2.0, 3.0]], "equal rows"),
        ("words", r"\(n, d\)"),
        (None, r"\(n, d\)"),
        (object(), r"\(n, d\)"),
    ],
)
def test_what_is_no_array_is_refused(given_: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        fs.Catalog(given_, ["a", "b"])


def test_numpy_arrays_and_tensors_are_not_copied() -> None:
    tensor = torch.tensor(VALUES)
    assert to_array(VALUES, "users") is VALUES
    assert np.shares_memory(to_array(tensor, "users"), tensor.numpy())
    names = ["x"]
    assert to_values(names) is names


class TestCosine:
    users = np.random.default_rng(1).normal(size=(50, 3)) * np.geomspace(1e-200, 1e30, 50)[:, None]

    def test_relevance_is_the_cosine(self) -> None:
        catalog = fs.Catalog(VALUES, LABELS, normalize=True)
        found = fs.FairRetriever(catalog, k=4).retrieve(self.users)
        units = []
        for array in (self.users, VALUES):
            scaled = array / np.abs(array).max(axis=1, keepdims=True)
            units.append(scaled / np.linalg.norm(scaled, axis=1, keepdims=True))
        cosines = units[0] @ units[1].T
        np.testing.assert_allclose(found.relevance, -np.sort(-cosines, axis=1), atol=1e-6)
        several = fs.FairRetriever(catalog, k=4).retrieve(np.stack([self.users, self.users[::-1]], axis=1))
        np.testing.assert_allclose(several.relevance[:, 0], np.maximum(cosines, cosines[::-1]).max(axis=1), atol=1e-6)

    def test_it_survives_changes_and_files(self, tmp_path: Any) -> None:
        retriever = fs.FairRetriever(fs.Catalog(VALUES, LABELS, normalize=True), k=2)
        retriever.upsert([[0.0, 30.0, 40.0]], ["b"], [9])
        retriever.upsert(None, ["c"], [0])
        retriever.remove([1])
        retriever.save(tmp_path / "retriever")
        fs.save_catalog(retriever.catalog, tmp_path / "items")
        for catalog in (
            retriever.catalog,
            fs.open_catalog(tmp_path / "items"),
            fs.FairRetriever.load(tmp_path / "retriever").catalog,
            retriever.catalog.under(["z", *retriever.catalog.labels]),
            retriever.catalog.part(np.arange(4)),
            fs.open_catalog(tmp_path / "items").part(np.arange(4)),
        ):
            assert catalog.normalized
            assert repr(catalog).endswith("float32, cosine)")
            np.testing.assert_allclose(np.linalg.norm(catalog.embeddings, axis=1), 1, atol=1e-6)
        found = retriever.retrieve([0.0, 3e10, 4e10])
        assert (found.ids[0, 0], found.relevance[0, 0]) == (9, pytest.approx(1))

    def test_zero_vectors_stay(self) -> None:
        catalog = fs.Catalog([[0.0, 0.0], [3.0, 4.0]], ["a", "b"], normalize=True)
        assert catalog.embeddings.tolist() == [[0.0, 0.0], [0.6, 0.8]]
        assert fs.FairRetriever(catalog, k=1).retrieve(np.zeros((1, 2))).cold.tolist() == [True]

    @given(st.sampled_from([np.float16, np.float32, np.float64]), st.integers(1, 9), st.integers(0, 2**32))
    def test_twice_is_once(self, dtype: Any, dim: int, seed: int) -> None:
        vectors = np.random.default_rng(seed).normal(size=(20, 2, dim)).astype(dtype)
        once = to_unit_length(vectors)
        assert once.dtype == dtype
        np.testing.assert_array_equal(to_unit_length(once), once)


@pytest.mark.parametrize(
    "call",
    [
        lambda retriever: retriever.remove(10000),
        lambda retriever: retriever.remove([10000]),
        lambda retriever: retriever.remove(None),
        lambda retriever: retriever.replace(None),
        lambda retriever: retriever.retrieve(VALUES, explain=True).explain(4),
        lambda retriever: retriever.retrieve(VALUES, explain=True).explain("first"),
        lambda retriever: retriever.save("/dev/null/retriever"),
        lambda retriever: retriever.report().plot("/dev/null/report.png"),
        lambda retriever: fs.save_catalog(retriever.catalog, "/dev/null/items"),
        lambda retriever: fs.FairRetriever(VALUES, k=2),  # type: ignore[arg-type]
        lambda retriever: fs.FairRetriever(retriever.catalog, k=2, ledger=3),  # type: ignore[arg-type]
        lambda retriever: fs.hindsight(None, VALUES, k=2, floors=0),  # type: ignore[arg-type]
        lambda retriever: fs.each(None, "group", at_least=1),  # type: ignore[arg-type]
    ],
)
def test_every_error_is_one_of_fairsync(call: Callable[[Any], object]) -> None:
    retriever = fs.FairRetriever(fs.Catalog(VALUES, LABELS), k=2, horizon=10)
    with pytest.raises(fs.FairSyncError):
        call(retriever)
    assert retriever.retrieve(VALUES).ids.shape == (4, 2)
