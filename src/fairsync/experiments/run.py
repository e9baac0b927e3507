"""Run experiments. Each model is loaded once, and stored results are not computed again."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.experiments import (
    accuracy_curve,
    arrival_order,
    batch_size,
    comparison,
    cost,
    data_sets,
    embedding_map,
    extreme_case,
    frontier,
    inference_time,
    learning_rate,
    random_floors,
    two_stages,
)
from fairsync.experiments.base_models import BaseModels
from fairsync.experiments.claims import judge_all
from fairsync.experiments.experiment import Experiment, Lab, nothing
from fairsync.experiments.page import render_page
from fairsync.experiments.reproduction import Reproduction, RunProgress
from fairsync.experiments.reproduction_setting import check_setting
from fairsync.experiments.store import Store
from fairsync.experiments.trials import Trials
from fairsync.experiments.verdicts import TrialResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from fairsync.data.dataset import Dataset
    from fairsync.experiments.exhibit import Exhibit
    from fairsync.experiments.reproduction_setting import Setting
    from fairsync.experiments.trials import Trial
    from fairsync.models import TrainingProgress

# In the order of the paper; then what it leaves out.
EXPERIMENTS: tuple[Experiment, ...] = (
    data_sets.EXPERIMENT,
    comparison.EXPERIMENT,
    comparison.TENSE,
    two_stages.EXPERIMENT,
    accuracy_curve.EXPERIMENT,
    embedding_map.EXPERIMENT,
    inference_time.EXPERIMENT,
    batch_size.EXPERIMENT,
    extreme_case.EXPERIMENT,
    random_floors.EXPERIMENT,
    cost.EXPERIMENT,
    frontier.EXPERIMENT,
    arrival_order.EXPERIMENT,
    learning_rate.EXPERIMENT,
)


def choose(names: Sequence[str]) -> list[Experiment]:
    """Return experiments by name, in the order of the paper. The name ``all`` selects all of them.

    Examples
    --------
    >>> [one.title for one in choose(["table-1"])]
    ['Table 1: the data']
    """
    known = [one.name for one in EXPERIMENTS]
    for name in names:
        if name not in (*known, "all"):
            raise InvalidInputError(f"There is no experiment {name!r}: choose all, or some of {', '.join(known)}.")
    return [one for one in EXPERIMENTS if "all" in names or one.name in names]


def reproduce(
    experiments: Sequence[Experiment],
    dataset: Dataset,
    setting: Setting,
    out: Path,
    watch: Callable[[RunProgress], None] | None = None,
) -> Reproduction:
    """Run experiments and write the report.

    After an interruption at any moment, a new run continues and writes the same files. An experiment that the data do
    not allow is listed in the report with the reason, and the others are run.

    Parameters
    ----------
    experiments
        Experiments from :func:`choose`.
    dataset
        The data.
    setting
        The setting. It is checked before anything is computed.
    out
        Folder for ``report.html``, ``report.md`` and ``report.json``. Tables and figures are in its folder
        ``exhibits``, trained models in ``models`` and finished work in ``cells``.
    watch
        A callback that gets the progress when a unit of work begins, and after each training step.
    """
    run = _Run(experiments, dataset, setting, out, watch)
    run.work()
    result = run.result()
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    (out / "report.json").write_text(text + "\n", encoding="utf-8")
    (out / "report.html").write_text(render_page(result, out), encoding="utf-8")
    (out / "report.md").write_text(result.to_markdown(), encoding="utf-8")
    return result


class _Run:
    """The state of a run, with the pending trials of each experiment."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        dataset: Dataset,
        setting: Setting,
        out: Path,
        watch: Callable[[RunProgress], None] | None,
    ) -> None:
        bases = BaseModels(dataset, out / "models", setting.quick, lambda _, __, moment: self._tell(moment))
        self.lab = Lab(setting, dataset, Trials(setting, bases, Store(out / "cells")))
        self.experiments, self.out, self.watch = experiments, out, watch
        self.shown: dict[str, Exhibit] = {}
        self.impossible: dict[str, str] = {}
        self.trials: dict[str, tuple[Trial, ...]] = {}
        for one in experiments:
            with self._if_possible(one):
                self.trials[one.name] = tuple(one.trials(self.lab))
        check_setting(setting, dataset, bases.split, self._models())
        self.waiting = {name: set(trials) for name, trials in self.trials.items()}
        self.queue = self._queue()
        self.done, self.total, self.label = 0, len(self.queue) + len(self.trials), ""

    def work(self) -> None:
        """Run all trials that are not stored, and write each exhibit as soon as its trials are done."""
        self._show_complete()
        for trial in self.queue:
            needing = [one for one in self.experiments if self._is_open(one) and trial in self.waiting[one.name]]
            if needing:
                self._begin(_label(trial))
                with self._if_possible(*needing):
                    self.lab.trials.outcome(trial)
                for one in needing:
                    self.waiting[one.name].discard(trial)
            self.done += 1
            self._show_complete()

    def result(self) -> Reproduction:
        """Return the exhibits and the verdicts on the claims."""
        exhibits = {one.name: self.shown[one.name] for one in self.experiments if one.name in self.shown}
        claims = judge_all(exhibits, self._results, self.impossible)
        return Reproduction(self.lab.setting, self.lab.dataset.facts, list(exhibits.values()), self.impossible, claims)

    def _results(self, name: str) -> Iterator[TrialResult]:
        """Yield the outcomes of an experiment one by one, because all of them may not fit into memory."""
        return (TrialResult(trial, self.lab.trials.outcome(trial)) for trial in self.trials[name])

    def _show_complete(self) -> None:
        for one in self.experiments:
            if self._is_open(one) and not self.waiting[one.name]:
                with self._if_possible(one):
                    self._show(one)
                self.done += 1

    def _show(self, one: Experiment) -> None:
        asked = self.lab.trials.asked
        asked.clear()
        steps = one.steps(self.lab)
        self.total += len(steps)
        for step in steps:
            self._begin(step.label)
            step.run()
            self.done += 1
        self._begin(one.title)
        exhibit = one.show(self.lab)
        exhibit.write(self.out / "exhibits")
        self.shown[one.name] = exhibit
        self.trials[one.name] = tuple(dict.fromkeys((*self.trials[one.name], *asked)))  # including those of its steps

    def _is_open(self, one: Experiment) -> bool:
        return one.name not in self.shown and one.name not in self.impossible

    @contextmanager
    def _if_possible(self, *experiments: Experiment) -> Iterator[None]:
        """Record the reason if the data do not allow the experiments. Other errors are raised."""
        try:
            yield
        except (InvalidInputError, InfeasibleFloorsError) as error:
            self.impossible.update({one.name: str(error) for one in experiments})

    def _models(self) -> set[str]:
        """Return the required base models. The models of steps are not known yet, so all are included for them."""
        stepping = any(one.steps is not nothing for one in self.experiments)
        models = {trial.model for trials in self.trials.values() for trial in trials}
        return models | ({self.lab.setting.analysed, *self.lab.setting.models} if stepping else set())

    def _queue(self) -> list[Trial]:
        """Return all trials sorted by model. The analysed model is first, because most figures need it."""
        setting = self.lab.setting
        order = dict.fromkeys([setting.analysed, *setting.models])
        places = {model: place for place, model in enumerate(order)}
        union = dict.fromkeys(trial for trials in self.trials.values() for trial in trials)
        return sorted(union, key=lambda trial: (places.get(trial.model, len(places)), trial.model, trial.seed))

    def _begin(self, label: str) -> None:
        self.label = label
        self._tell()

    def _tell(self, training: TrainingProgress | None = None) -> None:
        if self.watch:
            self.watch(RunProgress(self.done, self.total, self.label, training))


def _label(trial: Trial) -> str:
    order = "" if trial.order == "dealt" else f", {trial.order}"
    floor = f"1 to {trial.floor}" if trial.spread else str(trial.floor)
    coefficient = "" if trial.coefficient is None else f", coefficient {trial.coefficient:g}"
    return (
        f"{trial.method} on {trial.model} (seed {trial.seed}), K = {trial.k}, floor {floor}, B = {trial.batch_size}"
        f"{order}{coefficient}"
    )
