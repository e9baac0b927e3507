"""What floors cost, against a direct sum over outcomes."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.conftest import MakeLab, run_work
from fairsync.experiments.compared_methods import METHODS
from fairsync.experiments.comparison import TENSE, tense_floors
from fairsync.experiments.cost import EXPERIMENT, Cost, cost_of, least_cost
from fairsync.experiments.experiment import Lab
from fairsync.experiments.trials import Trial, TrialMeasures


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = make_lab(tmp_path_factory.mktemp("cost"), seeds=(0, 1))
    run_work(EXPERIMENT, lab)
    return lab


def outcome(**values: float) -> TrialMeasures:
    nothing = dict.fromkeys(("recall", "ndcg", "ndcg_of_hits", "hit_rate"), 0.0)
    given = {"esp": 1.0, "relevance": 90.0, "cost": 10.0, "least_cost": 4.0} | values
    return TrialMeasures(**nothing, **given, exposures=[], missing=0, coefficient=None, each={})


def test_it_needs_nothing_beyond_table_2_where_floors_are_felt(lab: Lab) -> None:
    asked = dict(lab.trials.asked)
    TENSE.show(lab)
    EXPERIMENT.show(lab)
    assert lab.trials.asked == asked


def test_costs_are_sums_over_seeds_beside_hindsight(lab: Lab) -> None:
    table = EXPERIMENT.show(lab).table
    assert [row[1] for row in table.rows] == [*METHODS[1:], "hindsight"]
    for row in table.rows:
        for k, start in ((5, 2), (10, 5)):
            floor = tense_floors(lab)[k]
            method = "ipw" if row[1] == "hindsight" else str(row[1])
            outcomes = [lab.trials.outcome(Trial("svd", seed, method, k, floor, batch_size=4)) for seed in (0, 1)]
            plain = [
                lab.trials.outcome(Trial("svd", seed, "none", k, floor, batch_size=4)).relevance for seed in (0, 1)
            ]
            paid, least = sum(plain) - sum(one.relevance for one in outcomes), sum(one.least_cost for one in outcomes)
            esp = 50 * sum(one.esp for one in outcomes)
            if row[1] == "hindsight":
                paid, esp = least, 100
            assert row[start : start + 3] == pytest.approx([paid / least, 100 * paid / sum(plain), esp])


def test_whoever_meets_the_floors_pays_at_least_what_hindsight_pays(lab: Lab) -> None:
    for row in EXPERIMENT.show(lab).table.rows:
        for start in (2, 5):
            ratio, _, esp = (float(str(value)) for value in row[start : start + 3])
            assert esp < 100 or ratio >= 1 - 1e-9
    assert row[2] == 1  # hindsight's own


def test_where_floors_cost_nothing_there_is_no_ratio() -> None:
    free = outcome(relevance=100.0, cost=-1e-12, least_cost=1e-12)
    assert cost_of([free]) == Cost(None, 0.0, 100.0)
    assert least_cost([free]) == Cost(None, 0.0, 100.0)
    both = cost_of([free, outcome()])
    assert [both.ratio, both.percent] == pytest.approx([2.5, 5.0])


def test_percent_needs_something_positive() -> None:
    assert cost_of([outcome(relevance=-110.0)]) == Cost(2.5, None, 100.0)


def test_marks_are_hollow_where_floors_were_missed(lab: Lab) -> None:
    shown = EXPERIMENT.show(lab)
    assert shown.figure is not None
    drawn = [
        (float(np.asarray(line.get_xdata())[0]), line.get_markerfacecolor() == "none")
        for axes in shown.figure.axes
        for line in axes.lines
    ]
    assert drawn == [(row[at + 1], row[at + 2] != 100) for at in (2, 5) for row in shown.table.rows]
    assert {hollow for _, hollow in drawn} == {True, False}


def test_costs_of_nothing_can_be_drawn(lab: Lab) -> None:
    free = replace(lab, setting=replace(lab.setting, floor=1, seeds=(0,)))
    run_work(EXPERIMENT, free)
    shown = EXPERIMENT.show(free)
    assert shown.figure is not None
    shown.figure.draw_without_rendering()
