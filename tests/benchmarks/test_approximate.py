import io
import json
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.approximate import IVF, Measurement, check_claims, shares_found

from benchmarks import approximate


def test_the_share_found_counts_each_wanted_item() -> None:
    truth, rows = np.array([[0, 1], [2, 3]]), np.array([[1, 0], [3, 7]])
    assert shares_found(truth, rows, np.array([True, False, True, False])) == (0.75, 0.5)
    assert shares_found(truth, rows, np.zeros(4, dtype=bool)) == (0.75, None)


def test_claims_take_the_worst_of_large_catalogs() -> None:
    good = Measurement(1_000_000, IVF, "prices", 0.995, 0.992, 0.1, 1.0, 12.0, 20.0, 40.0, 25.0, 1.01)
    steep = Measurement(1_000_000, IVF, "prices × 10", 0.999, 0.999, 0.1, 1.0, 9.0, 21.0, 41.0, 26.0, 0.8)
    bare = Measurement(1_000_000, IVF, "none", 0.98, None, 0.1, 1.0, 3.0, 5.0, 2.0, 2.0, None)
    small = Measurement(10_000, IVF, "none", 0.5, None, 0.1, 1.0, 0.1, 0.1, 0.1, 0.1, None)
    assert [claim.value for claim in check_claims([good, steep, bare, small])] == [0.98, 0.992, 20.0, 9.0, 40.0, 1.01]
    assert check_claims([small]) == []


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    size = ["--items", "4000", "--graph-items", "1500", "--requests", "64", "--rounds", "1", "--threads", "1"]
    approximate.main([*size, "--out", str(tmp_path)], Console(file=io.StringIO(), width=160))
    figures = json.loads((tmp_path / "approximate.json").read_text())["figures"]
    assert {one["search"] for one in figures if one["items"] == 1500} == {
        "exact",
        "ivf",
        "hnsw",
        "faiss flat",
        "one-hot hnsw (paper)",
    }
    for one in figures:
        assert one["recall"] == 1 if one["search"].startswith("exact") else one["recall"] > 0.5
