"""The rows of ids against a dictionary."""

from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.row_lookup import RowLookup


@pytest.mark.parametrize("kind", ["rows", "numbers", "words", "long words", "sorted words"])
def test_rows_are_those_of_a_dictionary(kind: str) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(3000)[:1000]
    ids: Any = {
        "rows": None,
        "numbers": numbers,
        "words": [f"item {one}" for one in numbers],
        "sorted words": sorted(f"item {one}" for one in numbers),
        "long words": [f"item {one}" * (20_000 if one % 500 == 0 else 1) for one in numbers],
    }[kind]
    catalog = Catalog(np.ones((1000, 1)), np.zeros(1000, dtype=int), ids)
    names = catalog.ids.tolist()
    row_of = {name: row for row, name in enumerate(names)}
    wanted = [names[at] for at in rng.integers(1000, size=300)]
    strangers: list[Any] = ["", "item", "item 7 and more", "z" * 100] if isinstance(names[0], str) else [-1, 10**12]
    asked = [*wanted, *strangers]
    found = catalog.rows_of(np.array(asked))
    assert found.tolist() == [row_of.get(name, -1) for name in asked]
    assert catalog.rows_of(np.array(asked).reshape(2, -1)).shape == (2, len(asked) // 2)


def test_ids_of_the_other_type_are_unknown() -> None:
    assert Catalog(np.eye(2), ["a", "b"]).rows_of(np.array(["0", "1"])).tolist() == [-1, -1]
    assert RowLookup(np.array(["1", "2"])).find(np.array([1, 2])).tolist() == [-1, -1]
