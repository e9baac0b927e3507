"""The benchmark of prepare on a small log: its format, its figures and its claims."""

import io
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import prepare


def test_a_generated_log_looks_real() -> None:
    log = pl.concat(prepare.generate(50_000, seed=1))
    assert log.columns == ["user", "item", "category", "behaviour", "time"]
    assert log.height == 50_000
    counts = Counter(log["behaviour"].to_list())
    assert abs(counts["pv"] / 50_000 - 0.896) < 0.01
    assert log.group_by("item").agg(pl.col("category").n_unique())["category"].max() == 1
    sizes = np.sort(log["item"].value_counts()["count"].to_numpy())[::-1]
    assert sizes[: len(sizes) // 100].sum() > 0.3 * 50_000  # one item in a hundred takes a good part
    assert log.equals(pl.concat(prepare.generate(50_000, seed=1)))


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), width=160)
    assert prepare.main(["--rows", "30000", "--out", str(tmp_path)], screen) == 0
    result = json.loads((tmp_path / "prepare.json").read_text())
    (figure,) = result["figures"]
    assert figure["rows"] == 30_000
    assert 15_000 < figure["interactions"] < 30_000
    assert 0.05 < figure["peak_gigabytes"] < 4


@pytest.mark.parametrize(
    ("rows", "peak", "met"),
    [(20_000_000, 3.9, [True]), (20_000_000, 4.1, [False]), (50_000_000, 7.0, [True]), (100_000_001, 99.0, [])],
)
def test_claims(rows: int, peak: float, met: list[bool]) -> None:
    figure = prepare.Measurement(rows, 1.0, 1.0, peak, 1, 1, 1, 1)
    assert [claim.met for claim in prepare.check_claims([figure])] == met
