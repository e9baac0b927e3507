"""The cost benchmark: floors, tuning and claims."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fairsync.catalog import Catalog

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.cost import Outcome, Row

from benchmarks import cost


def screen() -> Console:
    return Console(file=io.StringIO(), width=160)


def outcome(ratio: float, esp: float = 1.0, rate: float | None = None, order: int = 0) -> Outcome:
    return Outcome(order, ratio, esp, forced=0, seconds=0.0, rate=rate)


def row(method: str, batch: int, *outcomes: Outcome, long: bool = False) -> Row:
    return Row("set", 20, long, batch, method, outcomes)


def test_the_floor_is_what_the_middle_group_gets() -> None:
    assert cost.median_floor([0, 900, 7]) == 7
    assert cost.median_floor([1, 2, 5, 100]) == 3  # between two: rounded down


def test_the_floor_leaves_half_of_the_groups_in_need() -> None:
    items, groups, users, _ = cost.generate(np.array([300, 40, 30, 20, 10]), 200, 0, seed=1)
    exposures = cost.plain_exposures(Catalog(items, groups), users, k=5)
    assert sum(exposures) == 200 * 5
    assert sum(count < cost.median_floor(exposures) for count in exposures) == 2


def test_tuning_takes_the_cheapest_that_keeps_every_floor() -> None:
    trials = [outcome(0.9, esp=0.99, rate=1.0), outcome(3.0, rate=2.0), outcome(2.0, rate=3.0), outcome(9.0, rate=4.0)]
    assert cost.tune(trials).rate == 3.0


def test_tuning_takes_the_highest_esp_if_no_rate_keeps_every_floor() -> None:
    trials = [outcome(0.1, esp=0.5, rate=1.0), outcome(5.0, esp=0.98, rate=2.0), outcome(4.0, esp=0.98, rate=3.0)]
    best = cost.tune(trials)
    assert best.rate == 3.0
    assert row(cost.FAIRSYNC, 16, best).cells() == ["not comparable", "98 %", "3"]


def test_a_missed_floor_never_reads_as_all() -> None:
    assert cost.esp_text(1999 / 2000) == "99.9 %"
    assert cost.esp_text(1.0) == "100 %"


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (row(cost.COLD, 64, outcome(1.2), outcome(1.32, order=1)), "cold, B ≤ 64"),
        (row(cost.COLD, 256, outcome(1.51)), "cold, B > 64"),
        (row(cost.CALIBRATED, 512, outcome(1.26)), "calibrated"),
        (row(cost.COLD, 16, outcome(1.06), long=True), "long horizon"),
        (row(cost.COLD, 16, outcome(1.0, esp=0.999)), "ESP"),
        (row(cost.COLD, 16, outcome(float("nan"))), "cold, B ≤ 64"),
    ],
)
def test_each_claim_can_be_broken(broken: Row, what: str) -> None:
    fine = [
        row(cost.COLD, 16, outcome(1.25)),
        row(cost.COLD, 512, outcome(1.5)),
        row(cost.CALIBRATED, 512, outcome(1.25)),
        row(cost.COLD, 512, outcome(1.05), long=True),
        row(cost.FAIRSYNC, 16, outcome(40.0, esp=0.5)),  # no claim is about it
    ]
    assert [claim.met for claim in cost.check_claims(fine)] == [True] * 5
    assert [claim.what for claim in cost.check_claims([broken, *fine]) if not claim.met and what in claim.what]
    assert sum(not claim.met for claim in cost.check_claims([*fine, broken])) == 1


def test_cost_runs_from_end_to_end_without_the_data_folder(tmp_path: Path) -> None:
    size = ["--items", "600", "--groups", "8", "--requests", "240", "--past", "60", "--floor", "40"]
    runs = ["--batch-sizes", "16", "64", "--seeds", "0", "1"]
    places = ["--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    shown = screen()
    code = cost.main(["--quick", *size, *runs, *places], shown)
    assert isinstance(shown.file, io.StringIO)
    assert "running on the generated set only" in shown.file.getvalue()
    result = json.loads((tmp_path / "out" / "cost.json").read_text())
    assert code == (0 if all(claim["met"] for claim in result["claims"]) else 1)
    assert [(row["batch"], row["method"]) for row in result["rows"]] == [
        (batch, method) for batch in (16, 64) for method in (cost.COLD, cost.CALIBRATED, cost.FAIRSYNC)
    ]
    assert result["worlds"][0]["plain_esp"] < 1
    for row in result["rows"]:
        if row["method"] != cost.FAIRSYNC:
            assert row["esp"] == 1
            assert len(row["outcomes"]) == 2
            assert min(outcome["ratio"] for outcome in row["outcomes"]) >= 1 - 1e-9  # no method beats hindsight
    assert len(result["tuning"]) == 2 * len(cost.SHORT_GRID)
    assert "| generated | 20 | 16 |" in (tmp_path / "out" / "cost.md").read_text()
