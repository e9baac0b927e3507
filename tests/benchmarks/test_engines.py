import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import engines
from fairsync.catalog import Catalog
from fairsync.data.synthetic import synthetic
from postgres_server import PostgresServer


def test_prices_subsidise_small_groups_and_not_the_largest() -> None:
    data = synthetic(2000, 5, 16, 16, n_past=200)
    prices = engines.learn_prices(Catalog(data.embeddings, data.groups), data.past_users)
    assert prices.argmax() == np.bincount(data.groups).argmax()
    assert prices.min() < 0


def test_it_runs_from_end_to_end(tmp_path: Path, postgres: PostgresServer) -> None:
    pytest.importorskip("qdrant_edge")
    pytest.importorskip("milvus_lite")
    postgres.execute("CREATE EXTENSION IF NOT EXISTS vector")
    size = {"--items": 400, "--requests": 4, "--rounds": 1, "--calls": 1, "--out": tmp_path}
    arguments = [str(part) for pair in size.items() for part in pair]
    milvus, screen = ["--milvus", str(tmp_path / "items.db")], Console(file=io.StringIO(), width=160)
    # One engine at a time: the lines of the first run are kept.
    assert engines.main(["--engine", "embedded", *arguments], screen) == 0
    others = ["--engine", "pgvector", "--engine", "qdrant", "--engine", "milvus"]
    assert engines.main(["--postgres", postgres.url, *milvus, *others, *arguments], screen) == 0
    figures = json.loads((tmp_path / "engines.json").read_text())["figures"]
    assert [one["way"] for one in figures] == engines.ORDER
    assert all(one["ms"] > 0 and one["recall"] == 1.0 for one in figures)
    by_way = {one["way"]: one for one in figures}
    # A bias, and a formula over a prefetch.
    assert by_way["pgvector, exact"]["fetched_priced"] < 1.5 < by_way["qdrant, exact"]["fetched_priced"]
    assert all(one[name]["kept"] == one[name]["promises"] for one in figures for name in ("floors", "overlapping"))
    postgres.execute("DROP TABLE bench_exact, bench_hnsw")
