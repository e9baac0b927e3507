"""Floors of their own: drawn once for each seed, the same for every method."""

from statistics import fmean

import numpy as np
import pytest

from experiments.uneven import uneven_lab
from fairsync.experiments.experiment import Lab
from fairsync.experiments.random_floors import EXPERIMENT
from fairsync.experiments.reproduction_setting import Setting

METHODS = ("none", "k-neighbor", "uncalibrated", "fairsync", "guaranteed")


@pytest.fixture(scope="module")
def lab(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return uneven_lab(setting, tmp_path_factory.mktemp("floors"), floor=70, seeds=(0, 1, 2))


def test_numbers_are_means_over_seeds_and_esp_is_about_the_drawn_floors(lab: Lab) -> None:
    trials = EXPERIMENT.trials(lab)
    assert [(one.method, one.seed) for one in trials] == [(method, seed) for method in METHODS for seed in (0, 1, 2)]
    assert {(one.k, one.spread, one.floor, one.batch_size) for one in trials} == {(5, True, 70, 4)}
    outcomes = {(one.method, one.seed): lab.trials.outcome(one) for one in trials}
    table = EXPERIMENT.show(lab).table
    for method, row in zip(METHODS, table.rows, strict=True):
        mine = [outcomes[method, seed] for seed in (0, 1, 2)]
        floors = [np.random.default_rng(seed).integers(1, 71, size=13) for seed in (0, 1, 2)]
        kept = [np.mean(np.array(one.exposures) >= due) for one, due in zip(mine, floors, strict=True)]
        expected = [
            100 * fmean(getattr(one, name) for one in mine) for name in ("recall", "ndcg", "ndcg_of_hits", "hit_rate")
        ]
        assert row[0] == method
        assert row[1:] == pytest.approx([*expected, 100 * np.mean(kept)])
    assert table.rows[0][5] != 100
    assert table.rows[4][5] == 100


def test_bold_is_better_than_both_baselines(lab: Lab) -> None:
    table = EXPERIMENT.show(lab).table
    values = np.array([row[1:5] for row in table.rows], dtype=float)
    better = (values[3:] > values[1]) & (values[3:] > values[2])
    assert set(table.bold) == {(3 + row, 1 + column) for row, column in zip(*np.nonzero(better), strict=True)}
    assert table.bold
