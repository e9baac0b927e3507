"""Candidates: their rows, parts and frames."""

import sys
from typing import Any

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.errors import MissingPackageError

CATALOG = Catalog(np.eye(4), ["x", "x", "y", "y"], ids=["d", "c", "b", "a"])


def found(*searched: float) -> Candidates:
    n = len(searched)
    rows, relevance = np.tile([[2, 0, 1]], (n, 1)), np.tile([[0.25, 0.5, 0.5]], (n, 1))
    return Candidates.of(CATALOG, rows, relevance, np.array(searched))


def test_they_are_sorted_by_relevance_and_id_and_keep_their_rows() -> None:
    one = found(1.0)
    assert one.ids.tolist() == [["c", "d", "b"]]
    assert one.groups.tolist() == [["x", "x", "y"]]
    assert one.rows.tolist() == [[1, 0, 2]]
    assert CATALOG.ids_of(one.rows).tolist() == one.ids.tolist()


def test_parts_are_taken_and_joined() -> None:
    three = found(1.0, 0.5, 1.0)
    parts = [three.take(slice(0, 1)), three.take(np.array([1, 2]))]
    joined = Candidates.join(parts)
    assert joined.searched.tolist() == [1.0, 0.5, 1.0]
    assert joined.rows.tolist() == [[1, 0, 2]] * 3
    assert (len(joined), joined.degraded, parts[0].degraded) == (3, True, False)


def test_an_answer_that_was_saved_has_no_rows() -> None:
    """They belong to a catalog that may have changed since."""
    two = found(1.0, 0.5)
    loaded = Candidates.load(two.dump(1))
    assert loaded.rows.tolist() == [[-1, -1, -1]]
    assert loaded.take(slice(0, 1)).rows.tolist() == [[-1, -1, -1]]
    assert Candidates.join([two, loaded]).rows.tolist() == [[1, 0, 2], [1, 0, 2], [-1, -1, -1]]
    for part in ("ids", "groups", "relevance", "searched"):
        assert getattr(loaded, part).tolist() == getattr(two, part)[1:].tolist()


def test_repr_says_what_is_in_them() -> None:
    assert repr(found(1.0)) == "Candidates(1 request, k = 3, relevance 0.25 to 0.5)"
    assert repr(found(1.0, 0.5)).endswith("2 requests, k = 3, relevance 0.25 to 0.5, 75% of the catalog searched)")
    assert repr(found()) == "Candidates(0 requests, k = 3)"


ROWS = [(0, 1, "c", "x", 0.5), (0, 2, "d", "x", 0.5), (0, 3, "b", "y", 0.25)]


def test_a_frame_has_one_row_per_candidate() -> None:
    frame = found(1.0, 1.0).to_polars()
    assert frame.columns == ["request", "rank", "id", "group", "relevance"]
    assert frame.rows() == [*ROWS, *((1, *row[1:]) for row in ROWS)]
    assert found().to_polars().shape == (0, 5)


def test_a_pandas_frame_is_the_same() -> None:
    pytest.importorskip("pandas")
    frame: Any = found(1.0).to_pandas()
    assert list(frame.columns) == ["request", "rank", "id", "group", "relevance"]
    assert list(frame.itertuples(index=False, name=None)) == ROWS


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        found(1.0).to_pandas()
