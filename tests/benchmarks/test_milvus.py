import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.milvus import learn_prices

from benchmarks import milvus
from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic


def test_prices_subsidise_small_groups_and_not_the_largest() -> None:
    data = synthetic(2000, 5, 16, 16, n_past=200)
    prices = learn_prices(Catalog(data.embeddings, data.groups), data.past_users)
    assert prices.argmax() == np.bincount(data.groups).argmax()
    assert prices.min() < 0


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    size = [
        "--items",
        "400",
        "--groups",
        "4",
        "--requests",
        "16",
        "--rounds",
        "1",
        "--calls",
        "1",
        "--out",
        str(tmp_path),
    ]
    milvus.main(["--uri", str(tmp_path / "lite.db"), *size], Console(file=io.StringIO(), width=160))
    figures = json.loads((tmp_path / "milvus.json").read_text())["figures"]
    assert [(one["way"], one["prices"]) for one in figures] == [
        (way, prices) for prices in (False, True) for way in ("exact, here", "one-hot", "over-fetch")
    ]
    assert all(one["ms_batch"] > 0 and one["wrong"] == 0 for one in figures)
    assert [one["update_seconds"] > 0 for one in figures[:3]] == [False, True, True]
    assert [one["times_as_wide"] for one in figures[:3]] == [1.0, 1.0625, 1.0]
