"""A small laboratory: users with tastes, a light model, and floors that plain retrieval does not meet."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairsync.data.dataset import Dataset
from fairsync.experiments.base_models import BaseModels
from fairsync.experiments.experiment import Experiment, Lab
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.store import Store
from fairsync.experiments.trials import Trials
from tastes import tasteful

MakeLab = Callable[..., Lab]


def run_work(experiment: Experiment, lab: Lab) -> None:
    """Do all that an experiment needs before it is shown."""
    for trial in experiment.trials(lab):
        lab.trials.outcome(trial)
    for step in experiment.steps(lab):
        step.run()


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """Return 300 users, 96 items in 8 groups; 30 test requests."""
    return tasteful(300)


@pytest.fixture(scope="session")
def setting(dataset: Dataset) -> Setting:
    """Return quick terms with the model svd; floors of 14 out of 30 · 5 / 8 exposures per group on average."""
    return Setting(
        data=dataset.facts.name,
        fingerprint=dataset.fingerprint(),
        models=("svd",),
        analysed="svd",
        floor=14,
        ks=(5, 10),
        batch_size=4,
        quick=True,
    )


@pytest.fixture(scope="session")
def make_lab(dataset: Dataset, setting: Setting) -> MakeLab:
    """Return a function that sets up a laboratory in a folder, on changed terms if wanted."""

    def make(folder: Path, **changes: Any) -> Lab:
        terms = replace(setting, **changes)
        bases = BaseModels(dataset, folder / "models", terms.quick)
        return Lab(terms, dataset, Trials(terms, bases, Store(folder / "cells")))

    return make


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return a laboratory that the tests of a file share: what one computed, the next finds."""
    return make_lab(tmp_path_factory.mktemp("lab"))
