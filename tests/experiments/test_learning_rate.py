"""Every rate and batch size against a direct run of the policy with that rate."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.conftest import run_work
from experiments.directly import run_directly
from fairsync.experiments.compared_methods import GRIDS, QUICK_GRIDS
from fairsync.experiments.experiment import Lab
from fairsync.experiments.learning_rate import EXPERIMENT, LearningRateRow, _plot
from fairsync.models import load_model
from fairsync.policies import FairSync


@pytest.fixture(scope="module")
def rows(lab: Lab) -> list[LearningRateRow]:
    run_work(EXPERIMENT, lab)
    return [LearningRateRow(*row) for row in EXPERIMENT.show(lab).table.rows]  # type: ignore[arg-type]


def test_rows_are_what_direct_runs_give(lab: Lab, rows: list[LearningRateRow]) -> None:
    base = lab.trials.bases.get("svd", 0)
    asked = lab.trials.bases.split.validation.histories
    scores = load_model(lab.trials.bases.folder / "svd-0-quick").user_vectors(asked) @ base.catalog.embeddings.T
    unit = float(np.sort(scores, axis=1)[:, -5:].mean())  # mean relevance of a candidate
    rates = [f"{rate:g}" for rate in QUICK_GRIDS["fairsync"]]
    assert [row[:3] for row in rows] == [
        *(("fairsync", size, rate) for size in (16, 256) for rate in rates),
        *(("guaranteed", size, None) for size in (16, 256)),
    ]
    for row in rows:
        policy = FairSync(float(row.rate) * unit) if row.rate else "guaranteed"
        direct = run_directly(base, 5, 14, policy, row.batch_size)
        assert (row.esp, row.missing, row.recall) == pytest.approx((direct.esp, direct.missing, direct.recall))
        assert row.cost_ratio == pytest.approx(direct.cost_ratio, abs=1e-9)


def test_all_of_it_where_there_is_time(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    trials = EXPERIMENT.trials(make_lab(tmp_path, quick=False))
    rates = GRIDS["fairsync"]
    assert [(one.method, one.batch_size, one.coefficient) for one in trials] == [
        *(("fairsync", size, rate) for size in (1, 16, 256) for rate in rates),
        *(("guaranteed", size, None) for size in (1, 16, 256)),
    ]


@pytest.mark.parametrize("ratio", [None, 0.0, -1e-12, 3.0])
def test_a_figure_also_where_nothing_was_paid(ratio: float | None, tmp_path: Path) -> None:
    rows = [
        LearningRateRow("fairsync", 16, "0.01", 100.0, 0, 5.0, ratio),
        LearningRateRow("guaranteed", 16, None, 100.0, 0, 5.0, ratio),
    ]
    _plot(rows, 5).savefig(tmp_path / "it.png")
    assert (tmp_path / "it.png").exists()
