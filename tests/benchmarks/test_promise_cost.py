"""The cost benchmark of promises that overlap."""

import io
import json
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.promise_cost import CALIBRATED, COLD, GENERATED, WARM_UP, Row

from benchmarks import promise_cost


def row(method: str, batch: int, ratio: float, limit: float = 1.0, *, kept: bool = True) -> Row:
    return Row("set", batch, method, (ratio,), (limit,), kept, 0, 0.0)


def test_attributes_are_made_up_independently_of_the_items() -> None:
    items = np.random.default_rng(0).normal(size=(3_000, 4)).astype(np.float32)
    catalog = promise_cost.with_attributes(items, np.log2(np.arange(3_000) + 1).astype(int))
    assert list(catalog.attributes) == ["category", "provider", "new"]
    rows, unmet = promise_cost.make_promises(catalog, items[:50], k=5, caps=True)
    assert len(rows) == 12 + promise_cost.PROVIDERS + 1
    assert sum(one.at_most is not None for one in rows) == promise_cost.CAPPED
    assert unmet >= promise_cost.CAPPED


def test_claims_are_about_the_most_expensive_rows() -> None:
    rows = [
        row(COLD, 16, 1.1),
        row(COLD, 64, 1.2),
        row(COLD, 512, 1.7),
        row(CALIBRATED, 512, 1.1),
        row(WARM_UP, 512, 1.2),
    ]
    claims = promise_cost.check_claims(rows)
    assert [claim.value for claim in claims] == [1.2, 1.7, 1.2, 1.1, 1.0]
    assert [claim.met for claim in claims] == [True, False, True, True, True]
    assert not promise_cost.check_claims([row(COLD, 16, 1.1, kept=False)])[-1].met


def test_a_small_run_keeps_all_promises_and_writes_its_results(tmp_path: Path) -> None:
    arguments = f"--sets {GENERATED} --items 600 --groups 8 --requests 200 --batch-sizes 64 --k 10 --out {tmp_path}"
    promise_cost.main(arguments.split(), Console(file=io.StringIO(), width=160))
    found = json.loads((tmp_path / "promise_cost.json").read_text())
    assert [world["name"] for world in found["worlds"]] == [GENERATED, f"{GENERATED} + caps"]
    assert [row["method"] for row in found["rows"]] == 2 * [COLD, WARM_UP, CALIBRATED]
    assert all(row["kept"] and row["ratios"][0] > 0.999 for row in found["rows"])
    assert all(row["limits"][0] >= 1 - 1e-6 for row in found["rows"])
