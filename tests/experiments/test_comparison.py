"""Table 2: numbers are means over seeds, marks follow from them, p-values are those of a plain paired test."""

import csv
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import ttest_rel

from experiments.conftest import run_work
from experiments.uneven import uneven_lab
from fairsync.experiments.compared_methods import BASELINES, METHODS
from fairsync.experiments.comparison import EXPERIMENT, OURS, RIVALS
from fairsync.experiments.exhibit import Exhibit
from fairsync.experiments.experiment import Lab
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.trials import Trial

MEASURES = ("recall", "ndcg", "ndcg_of_hits", "hit_rate")


@pytest.fixture(scope="module")
def lab(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = uneven_lab(setting, tmp_path_factory.mktemp("comparison"), floor=70, seeds=(0, 1))
    run_work(EXPERIMENT, lab)
    return lab


@pytest.fixture(scope="module")
def shown(lab: Lab) -> Exhibit:
    return EXPERIMENT.show(lab)


def pooled(lab: Lab, method: str, k: int, name: str) -> npt.NDArray[np.float64]:
    """Return a measure of each request, one seed after the other."""
    each = [lab.trials.outcome(Trial("svd", seed, method, k, 70, batch_size=4)).each[name] for seed in (0, 1)]
    return np.concatenate([np.array(one) for one in each])


def test_every_method_on_every_model_at_every_k_with_every_seed(lab: Lab) -> None:
    trials = EXPERIMENT.trials(lab)
    assert len(set(trials)) == len(trials) == len(METHODS) * 2 * 2
    assert {(one.batch_size, one.floor, one.spread, one.order) for one in trials} == {(4, 70, False, "dealt")}


def test_numbers_are_percent_and_means_over_seeds(lab: Lab, shown: Exhibit) -> None:
    assert [row[:2] for row in shown.table.rows] == [["svd", method] for method in METHODS]
    for row in shown.table.rows:
        for k, start in ((5, 2), (10, 7)):
            assert shown.table.columns[start] == f"Recall@{k} %"
            outcomes = [lab.trials.outcome(Trial("svd", seed, str(row[1]), k, 70, batch_size=4)) for seed in (0, 1)]
            expected = [50 * sum(getattr(one, name) for one in outcomes) for name in (*MEASURES, "esp")]
            assert row[start : start + 5] == pytest.approx(expected)


def test_floors_bind_and_guaranteed_keeps_them(shown: Exhibit) -> None:
    esp = {row[1]: row[6] for row in shown.table.rows}
    assert float(str(esp["none"])) < 100
    assert esp["guaranteed"] == 100


def test_bold_and_stars_follow_from_the_numbers(lab: Lab, shown: Exhibit) -> None:
    rows = shown.table.rows
    value = {(row[1], column): float(str(row[column])) for row in rows for column in range(2, 12)}
    bold, starred = set(), set()
    for at, row in enumerate(rows):
        for column in range(2, 12):
            name, k = (*MEASURES, "esp")[(column - 2) % 5], (5, 10)[(column - 2) // 5]
            if str(row[1]) not in OURS or name == "esp":
                continue
            if all(value[row[1], column] > value[one, column] for one in BASELINES):
                bold.add((at, column))
            mine = pooled(lab, str(row[1]), k, name)
            tests = [ttest_rel(mine, pooled(lab, rival, k, name)) for rival in RIVALS]
            if all(test.statistic > 0 and test.pvalue < 0.05 for test in tests):
                starred.add((at, column))
    assert (set(shown.table.bold), set(shown.table.starred)) == (bold, starred)
    assert bold
    assert starred


def test_p_values_are_those_of_a_plain_paired_test(lab: Lab, shown: Exhibit, tmp_path: Path) -> None:
    shown.write(tmp_path)
    with (tmp_path / "table-2-p-values.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(OURS) * 2 * len(MEASURES) * len(RIVALS)
    for row in rows:
        mine, theirs = (pooled(lab, row[name], int(row["K"]), row["Measure"]) for name in ("Method", "Against"))
        assert float(row["Difference, percentage points"]) == pytest.approx(100 * (mine.mean() - theirs.mean()))
        # Where nothing differs the test divides by zero; nothing is what chance would give.
        expected = 1.0 if np.array_equal(mine, theirs) else ttest_rel(mine, theirs).pvalue
        assert float(row["p"]) == pytest.approx(expected)


def test_marks_are_for_people_and_plain_numbers_for_programs(shown: Exhibit, tmp_path: Path) -> None:
    shown.write(tmp_path)
    row, column = min(set(shown.table.bold) & set(shown.table.starred))
    number = float(str(shown.table.rows[row][column]))
    assert f"| **{number:.2f}**\\* |" in (tmp_path / "table-2.md").read_text(encoding="utf-8")
    with (tmp_path / "table-2.csv").open(encoding="utf-8") as file:
        assert float(list(csv.reader(file))[1 + row][column]) == number


def test_the_figure_shows_recall_beside_that_without_floors_and_esp(shown: Exhibit) -> None:
    assert shown.figure is not None
    assert [axes.get_title(loc="left") for axes in shown.figure.axes] == ["K = 5", "K = 10"]
    for axes, column in zip(shown.figure.axes, (2, 7), strict=True):
        base = float(str(shown.table.rows[0][column]))
        drawn = [(float(np.asarray(line.get_xdata())[0]), line.get_markerfacecolor() == "none") for line in axes.lines]
        for (x, hollow), row, text in zip(drawn, shown.table.rows, axes.texts, strict=False):
            esp = float(str(row[column + 4]))
            assert x == pytest.approx(100 * float(str(row[column])) / base)
            assert hollow == (esp < 100)
            assert text.get_text() == f"{math.floor(10 * esp) / 10:g}"
        assert len(drawn) == len(METHODS)
