"""Every method in every order, against direct runs with the requests put in that order by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.conftest import run_work
from experiments.directly import run_directly
from fairsync.experiments.arrival_order import EXPERIMENT, ArrivalOrderRow
from fairsync.experiments.compared_methods import METHODS, make_method
from fairsync.experiments.experiment import Lab
from fairsync.experiments.trials import Trial

FLOOR = 14  # the setting's, which is above half of what is feasible


@pytest.fixture(scope="module")
def rows(lab: Lab) -> dict[tuple[str, str], ArrivalOrderRow]:
    run_work(EXPERIMENT, lab)
    shown = [ArrivalOrderRow(*row) for row in EXPERIMENT.show(lab).table.rows]  # type: ignore[arg-type]
    return {(row.order, row.method): row for row in shown}


def test_rows_are_what_direct_runs_give(lab: Lab, rows: dict[tuple[str, str], ArrivalOrderRow]) -> None:
    base = lab.trials.bases.get("svd", 0)
    favourites = (base.test.users.reshape(30, -1) @ base.catalog.embeddings.T).argmax(axis=1)
    orders = {
        "at random": np.arange(30),
        "sorted by taste": np.argsort(base.catalog.group_of[favourites], kind="stable"),
        "in order of time": np.argsort(base.test.times, kind="stable"),
    }
    assert set(rows) == {(order, method) for order in orders for method in METHODS}
    for (order, method), row in rows.items():
        trial = Trial("svd", 0, method, 5, FLOOR, batch_size=4)
        # Tuned once, in random order, whatever the order of the test.
        policy = make_method(method, lab.trials.tuned(trial), lab.trials.scale(trial))
        direct = run_directly(base, 5, FLOOR, policy, 4, orders[order])
        assert (row.esp, row.missing, row.recall) == pytest.approx((direct.esp, direct.missing, direct.recall))
        assert row.cost_ratio == pytest.approx(direct.cost_ratio, abs=1e-9)
        assert (row.esp == 100) == (row.missing == 0)


def test_the_promise_holds_in_every_order(rows: dict[tuple[str, str], ArrivalOrderRow]) -> None:
    kept = [row for row in rows.values() if row.method == "guaranteed"]
    assert [row.esp for row in kept] == [100, 100, 100]
    assert all(row.cost_ratio is not None and row.cost_ratio >= 1 - 1e-9 for row in kept)


def test_without_a_clock_there_is_no_order_of_time(
    lab: Lab, rows: dict[tuple[str, str], ArrivalOrderRow], tmp_path: Path
) -> None:
    facts = replace(lab.dataset.facts, has_clock=False)
    exhibit = EXPERIMENT.show(replace(lab, dataset=replace(lab.dataset, facts=facts)))
    assert [ArrivalOrderRow(*row) for row in exhibit.table.rows] == [  # type: ignore[arg-type]
        row for row in rows.values() if row.order != "in order of time"
    ]
    assert "these data have no clock" in exhibit.words
    assert len(exhibit.write(tmp_path)) == 4
    assert "no clock" not in EXPERIMENT.show(lab).words
