"""The demo on tiny data: what it prints, what it writes, and whether its numbers agree with each other."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fairsync
from fairsync.cli import app
from fairsync.cli.demo_words import read
from fairsync.hindsight import Hindsight
from fairsync.report import Report

TINY = ["demo", "--items", "400", "--groups", "12", "--requests", "130", "--k", "5", "--floor", "12", "--seed", "3"]
NAMES = ["none", "fairsync", "guaranteed", "guaranteed, calibrated"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "NO_COLOR": "1"})


def test_it_prints_and_writes(tmp_path: Path) -> None:
    result = run(*TINY, "--out", str(tmp_path / "new" / "demo"))
    assert result.exit_code == 0, result.output
    for word in ("cost ÷ hindsight", "share of floor", "What happened", *NAMES):
        assert word in result.stdout
    written = {path.name for path in (tmp_path / "new" / "demo").iterdir()}
    assert written == {"report.json", "report.png", "before-after.png", "pace.png"}


def test_json_and_nothing_else(tmp_path: Path) -> None:
    result = run(*TINY, "--json", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert document["settings"]["floors"] == 12

    runs, best = document["runs"], document["hindsight"]
    assert [one["name"] for one in runs] == NAMES
    for one in runs:
        rows = one["groups"]
        assert sum(row["exposures"] for row in rows) == 130 * 5
        assert one["esp"] == sum(row["exposures"] >= 12 for row in rows) / 12
        assert all(row["missing"] == max(0, 12 - row["exposures"]) for row in rows)
        assert one["cost"] == pytest.approx(best["unconstrained_relevance"] - one["relevance"], abs=1e-6)
        assert one["cost_ratio"] == pytest.approx(one["cost"] / best["cost"])
    plain, _, cold, calibrated = runs
    assert (plain["cost"], plain["forced"]) == (0, 0)
    assert plain["esp"] < 1  # or there is nothing to see
    for promised in (cold, calibrated):
        assert promised["esp"] == 1
        assert promised["cost_ratio"] >= 1 - 1e-9


def test_the_same_seed_gives_the_same_demo(tmp_path: Path) -> None:
    first, second = (run(*TINY, "--json", "--out", str(tmp_path)).stdout for _ in range(2))
    other = run(*TINY, "--json", "--out", str(tmp_path), "--seed", "4").stdout
    assert first == second != other


def test_left_to_itself_it_promises_what_half_of_the_groups_get(tmp_path: Path) -> None:
    result = run(*TINY[:5], "--requests", "900", "--k", "5", "--json", "--out", str(tmp_path))
    document = json.loads(result.stdout)
    assert 1 <= document["settings"]["floors"] <= 900 * 5 / 12
    assert 0.3 <= document["runs"][0]["esp"] <= 0.7


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (["--floor", "1000"], "The largest feasible floor is"),
        (["--k", "401"], "hoose a smaller k"),
        (["--items", "5"], "n_items must be a whole number, 12 or more"),
    ],
)
def test_errors_are_one_line(wrong: list[str], why: str, tmp_path: Path) -> None:
    result = run(*TINY, *wrong, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert why in result.stderr
    assert "Traceback" not in result.stderr


def test_help_and_version() -> None:
    assert "demo" in run("--help").stdout
    assert "--batch-size" in run("demo", "--help").stdout
    assert run("--version").stdout == f"fairsync {fairsync.__version__}\n"


def make(exposures: list[int], cost: float, ratio: float, forced: int = 0) -> Report:
    given = dict(enumerate(exposures))
    floors, prices = dict.fromkeys(given, 10), dict.fromkeys(given, 0.0)
    return Report("p", 5, 1, 8, 8, floors, given, prices, 200 - cost, cost, ratio, forced, 0, 0)  # type: ignore[arg-type]


def test_the_reading_follows_the_numbers() -> None:
    best = Hindsight(199.0, 199.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    reports = {
        "none": make([30, 10, 0], 0, 0),
        "fairsync": make([20, 12, 8], 3.0, 3.0),
        "guaranteed": make([20, 10, 10], 2.0, 2.0, forced=4),
        "guaranteed, calibrated": make([20, 10, 10], 1.5, 1.5),
    }
    text = "\n".join(read(reports, best, 10))
    assert "1 of 3 groups got less than 10 exposures, the worst served 0; one group took 75% of all slots" in text
    assert "at least 0.50% of the relevance" in text
    assert "missed 1 floor by 2 exposures and gave up 1.5% of the relevance." in text
    assert "1.0% of the relevance, 2.00 times the least possible; the guard had to force 4 slots." in text
    assert "Calibration saved 25% of the cost." in text

    reports["guaranteed, calibrated"] = make([20, 10, 10], 3.0, 3.0)
    assert "Calibration did not pay here: it cost 50% more" in "\n".join(read(reports, best, 10))

    idle = {name: make([20, 10, 10], 0.0, 1.0) for name in reports}
    nothing = Hindsight(200.0, 200.0, 200.0, {}, {}, {}, None)  # type: ignore[arg-type]
    text = "\n".join(read(idle, nothing, 10))
    assert "floors change nothing here" in text
    assert "times the least possible" not in text
    assert "Calibration" not in text


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["demo", "--items", "60", "--groups", "3", "--requests", "12", "--k", "3"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
