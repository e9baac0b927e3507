"""A run: in an order that loads each model once, gone on with after a kill, and honest about what is not possible."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fairsync.data.dataset import Dataset
from fairsync.errors import FairSyncError, InfeasibleFloorsError, InvalidInputError
from fairsync.experiments.base_models import BaseModels
from fairsync.experiments.claims import CLAIMS
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.experiment import Experiment, Lab, WorkStep
from fairsync.experiments.reproduction import RunProgress
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.run import EXPERIMENTS, choose, reproduce
from fairsync.experiments.store import Store
from fairsync.experiments.trials import Trial, Trials

METHODS = ("none", "guaranteed")


def fake(name: str, k: int, trials: Callable[[Lab], list[Trial]], **parts: object) -> Experiment:
    """Return an experiment that shows the exposures of its trials."""

    def show(lab: Lab) -> Exhibit:
        tried = trials(lab)
        rows: list[list[str | int]] = [[one.method, one.seed, *lab.trials.outcome(one).exposures] for one in tried]
        columns = ["method", "seed", *(f"group {number}" for number in range(8))]
        return Exhibit(name, f"Exposures at K = {k}", "What groups got.", ExhibitTable(columns, rows))

    return Experiment(name, f"Exposures at K = {k}", show, trials, **parts)  # type: ignore[arg-type]


def at(k: int) -> Callable[[Lab], list[Trial]]:
    return lambda lab: [trial for method in METHODS for trial in lab.of_each_seed(method, k, lab.setting.floor)]


FIVE, TEN = fake("five", 5, at(5)), fake("ten", 10, lambda lab: [*at(10)(lab), *at(5)(lab)])


class Spy:
    """Counts what is computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run: Counter[Trial] = Counter()
        self.loaded: list[tuple[str, int]] = []
        run, make = Trials.compute, BaseModels.make

        def counting_run(trials: Trials, trial: Trial) -> object:
            self.run[trial] += 1
            return run(trials, trial)

        def counting_make(bases: BaseModels, name: str, seed: int) -> object:
            self.loaded.append((name, seed))
            return make(bases, name, seed)

        monkeypatch.setattr(Trials, "compute", counting_run)
        monkeypatch.setattr(BaseModels, "make", counting_make)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_each_trial_runs_once_and_each_model_is_loaded_once(
    dataset: Dataset, setting: Setting, tmp_path: Path, spy: Spy
) -> None:
    terms = replace(setting, seeds=(0, 1))
    seen: list[RunProgress] = []
    found = reproduce([FIVE, TEN], dataset, terms, tmp_path, seen.append)
    assert len(spy.run) == 8
    assert set(spy.run.values()) == {1}
    assert spy.loaded == [("svd", 0), ("svd", 1)]
    assert [one.name for one in found.exhibits] == ["five", "ten"]
    lab = Lab(terms, dataset, Trials(terms, BaseModels(dataset, tmp_path / "models", True), Store(tmp_path / "cells")))
    for row in found.exhibits[0].table.rows:
        [trial] = [one for one in at(5)(lab) if (one.method, one.seed) == (row[0], row[1])]
        assert list(row[2:]) == lab.trials.outcome(trial).exposures
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total - 1
    assert "guaranteed on svd (seed 1), K = 5, floor 14, B = 4" in [one.label for one in seen]


def test_what_is_written(dataset: Dataset, setting: Setting, tmp_path: Path) -> None:
    found = reproduce([*choose(["table-1"]), FIVE], dataset, setting, tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"report.html", "report.json", "exhibits/table-1.svg", "exhibits/five.csv", "exhibits/five.md"} <= files
    words = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Exposures at K = 5\n" in words
    assert "](exhibits/table-1.svg)" in words
    assert all(one.sentence in words for one in CLAIMS)
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert document == found.to_dict()
    assert document["setting"]["floor"] == setting.floor
    [_, five] = document["exhibits"]
    assert five["rows"] == [list(row) for row in found.exhibits[1].table.rows]
    assert len(document["claims"]) == len(found.claims)


def test_gone_on_with_after_any_stop(dataset: Dataset, setting: Setting, tmp_path: Path, spy: Spy) -> None:
    """Stopped at each piece of work in turn, the run computes each trial once in all, and ends with the same files."""
    whole = tmp_path / "whole"
    reproduce([*choose(["table-1"]), FIVE, TEN], dataset, setting, whole)
    once = dict(spy.run)
    spy.run.clear()

    class StopError(Exception):
        pass

    broken = tmp_path / "broken"
    for pieces in range(7):  # four trials, three shows

        def stop(stand: RunProgress, pieces: int = pieces) -> None:
            if stand.done == pieces:
                raise StopError

        with pytest.raises(StopError):
            reproduce([*choose(["table-1"]), FIVE, TEN], dataset, setting, broken, stop)
    reproduce([*choose(["table-1"]), FIVE, TEN], dataset, setting, broken)
    assert dict(spy.run) == once
    assert contents(broken) == contents(whole)


def test_killed_outright(dataset: Dataset, tmp_path: Path) -> None:
    dataset.save(tmp_path / "data")

    def command(out: str) -> list[str]:
        words = ["reproduce", "table-2", "--dataset", "data", "--model", "svd", "--k", "5", "--floor", "10", "--quick"]
        return [sys.executable, "-c", "from fairsync.cli import app; app()", *words, "--out", out, "--json"]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command("broken"), cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    patience = time.monotonic() + 240
    while not (tmp_path / "broken" / "cells").exists() and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "broken" / "report.html").exists()
    reports = []
    for out in ("broken", "whole"):
        found = subprocess.run(command(out), cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
        reports.append({one["name"]: one["rows"] for one in json.loads(found.stdout)["exhibits"]})
    reports = [{name: rows for name, rows in one.items() if name != "inference-time"} for one in reports]
    assert reports[0] == reports[1]


def test_what_is_not_possible_is_told_and_the_rest_goes_on(
    dataset: Dataset, setting: Setting, tmp_path: Path, spy: Spy
) -> None:
    def no_clock(lab: Lab) -> list[WorkStep]:
        raise InvalidInputError("these data have no clock")

    def raises(lab: Lab) -> Exhibit:
        raise InvalidInputError("nothing to show")

    wide = fake("wide", 97, at(97))  # one more than there are items
    both = fake("both", 97, lambda lab: [*at(97)(lab), *at(6)(lab)])
    high = fake("high", 5, lambda lab: [replace(one, floor=1_000) for one in at(5)(lab)])
    dated, empty = fake("dated", 5, at(5), steps=no_clock), replace(FIVE, name="empty", show=raises)
    found = reproduce([wide, both, high, dated, empty, FIVE], dataset, setting, tmp_path)
    assert [one.name for one in found.exhibits] == ["five"]
    assert list(found.impossible) == ["wide", "both", "high", "dated", "empty"]
    assert found.impossible["wide"] == found.impossible["both"]
    assert "K = 97 is above those of the setting" in found.impossible["wide"]
    assert "largest feasible" in found.impossible["high"]
    assert found.impossible["dated"] == "these data have no clock"
    assert not [one for one in spy.run if one.k == 6]  # nobody waits for those any more
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not possible here" in page
    assert "nothing to show" in page


def test_an_error_of_our_own_is_not_hidden(dataset: Dataset, setting: Setting, tmp_path: Path) -> None:
    def broken(lab: Lab) -> Exhibit:
        raise KeyError("a slip")

    with pytest.raises(KeyError, match="a slip"):
        reproduce([replace(FIVE, show=broken)], dataset, setting, tmp_path)


def test_steps_come_before_the_show_and_are_counted(dataset: Dataset, setting: Setting, tmp_path: Path) -> None:
    did: list[str] = []
    more = Trial("svd", 0, "guaranteed", 5, 3, batch_size=4)

    def steps(lab: Lab) -> list[WorkStep]:
        return [
            WorkStep("first step", lambda: did.append("first")),
            WorkStep("second step", lambda: lab.trials.outcome(more)),
        ]

    seen: list[RunProgress] = []
    found = reproduce([fake("stepping", 5, at(5), steps=steps)], dataset, setting, tmp_path, seen.append)
    assert did == ["first"]
    labels = [one.label for one in seen]
    assert labels[-3:] == ["first step", "second step", "Exposures at K = 5"]
    assert (seen[-1].done, seen[-1].total) == (4, 5)  # two trials, two steps, one show
    [one] = [one for one in found.claims if one.claim.experiment is None]
    assert one.verdict.figures.startswith("all floors met in 2 of 2 trials")  # the one of the step too


def test_trials_of_steps_are_not_counted_again(dataset: Dataset, setting: Setting, tmp_path: Path) -> None:
    """An experiment of steps alone is shown before any trial is run. The trials of its steps are done by then."""

    def steps(lab: Lab) -> list[WorkStep]:
        return [WorkStep(one.method, partial(lab.trials.outcome, one)) for one in at(6)(lab)]

    seen: list[RunProgress] = []
    reproduce([fake("steps", 6, lambda lab: [], steps=steps), FIVE], dataset, setting, tmp_path, seen.append)
    assert (seen[-1].done, seen[-1].total) == (5, 6)  # two steps, two trials, two shows
    assert all(one.done < one.total for one in seen)


def test_training_can_be_watched(dataset: Dataset, setting: Setting, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    seen: list[RunProgress] = []
    reproduce([FIVE], dataset, replace(setting, models=("youtube-dnn",), analysed="youtube-dnn"), tmp_path, seen.append)
    training = [one.training for one in seen if one.training]
    assert training[-1].done == training[-1].total
    assert {len(moment.epochs) for moment in training} == {0, 1}  # quick: two epochs
    seen.clear()
    reproduce([FIVE], dataset, replace(setting, models=("youtube-dnn",), analysed="youtube-dnn"), tmp_path, seen.append)
    assert not [one for one in seen if one.training]


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"ks": (5, 97)}, InvalidInputError, "K = 97 of 96 items"),
        ({"floor": 1_000}, InfeasibleFloorsError, "largest feasible"),
        ({"analysed": "sdv", "models": ("sdv",)}, InvalidInputError, "Did you mean 'svd'"),
    ],
)
def test_bad_terms_are_told_before_anything_is_done(
    changes: dict[str, object], error: type[FairSyncError], why: str, dataset: Dataset, setting: Setting, tmp_path: Path
) -> None:
    with pytest.raises(error, match=why):
        reproduce([FIVE], dataset, replace(setting, **changes), tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_without_torch_it_says_what_to_do(
    dataset: Dataset, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    terms = replace(setting, models=("mind",), analysed="mind")
    with pytest.raises(
        FairSyncError, match=r"mind: torch is not installed. pip install 'fairsync\[models\]'.*--model svd"
    ):
        reproduce([FIVE], dataset, terms, tmp_path / "out")
    reproduce(choose(["table-1"]), dataset, terms, tmp_path / "out")  # needs no model


def test_choosing() -> None:
    assert choose(["all"]) == list(EXPERIMENTS)
    assert [one.name for one in choose(["table-1", "table-1"])] == ["table-1"]
    with pytest.raises(InvalidInputError, match="There is no experiment 'table-9': choose all, or some of table-1"):
        choose(["table-9"])
    assert len({one.name for one in EXPERIMENTS}) == len(EXPERIMENTS)
