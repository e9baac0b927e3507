"""Lines of the figure against runs of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.conftest import run_work
from fairsync import FairRetriever
from fairsync.experiments.batch_size import EXPERIMENT, batch_sizes
from fairsync.experiments.compared_methods import make_method
from fairsync.experiments.experiment import Lab
from fairsync.experiments.trials import Trial
from fairsync.metrics import recall

if TYPE_CHECKING:
    from fairsync.policies import Policy


def test_every_line_is_what_its_name_says(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab(tmp_path, floor=16, ks=(5,), batch_size=1, quick=False)
    run_work(EXPERIMENT, lab)
    exhibit = EXPERIMENT.show(lab)
    rows = {(row[2], row[3]): row for row in exhibit.table.rows}
    base = lab.trials.bases.get("svd", 0)
    targets = [base.catalog.ids[one] for one in base.test.targets]
    once = Trial("svd", 0, "fairsync", 5, 16, batch_size=1)
    assert len(rows) == 10 * 4
    for size in batch_sizes(lab.setting):
        each = Trial("svd", 0, "fairsync", 5, 16, batch_size=size)
        policies: dict[str, str | Policy] = {
            "no floors": "none",
            "fairsync, tuned at B = 1": make_method("fairsync", lab.trials.tuned(once), lab.trials.scale(once)),
            "fairsync, tuned at each B": make_method("fairsync", lab.trials.tuned(each), lab.trials.scale(each)),
            "guaranteed": "guaranteed",
        }
        for name, policy in policies.items():
            retriever = FairRetriever(base.catalog, k=5, floors=16, horizon=30, policy=policy, batch_size=size)
            found = retriever.retrieve(base.test.users)
            row = rows[size, name]
            assert row[:2] == [5, 16]
            assert row[4] == pytest.approx(100 * recall(found.ids, targets))
            assert row[8] == pytest.approx(100 * retriever.report().esp)
    lines = [{tuple(rows[size, name][4:]) for size in batch_sizes(lab.setting)} for name in policies]
    assert len(lines[0]) == 1 < len(lines[2]) < len(lines[1])  # tuned once and tuned for each B differ
    assert all(rows[size, "guaranteed"][8] == 100 for size in batch_sizes(lab.setting))


def test_a_floor_is_raised_to_half_of_what_is_possible(lab: Lab) -> None:
    assert [lab.binding_floor(k) for k in (5, 10)] == [14, round(30 * 10 // 8 / 2)]
