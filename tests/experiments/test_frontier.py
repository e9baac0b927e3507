"""The frontier's points against direct runs, and that they are shown again without any work."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.conftest import run_work
from experiments.directly import run_directly
from fairsync import hindsight
from fairsync.experiments.compared_methods import make_method
from fairsync.experiments.experiment import Lab
from fairsync.experiments.frontier import BEST, EXPERIMENT, METHODS, FrontierPoint
from fairsync.experiments.trials import Trial, Trials
from fairsync.metrics.accuracy import accuracy_of_each


@pytest.fixture(scope="module")
def points(lab: Lab) -> list[FrontierPoint]:
    run_work(EXPERIMENT, lab)
    return [FrontierPoint(*row) for row in EXPERIMENT.show(lab).table.rows]  # type: ignore[arg-type]


def test_points_are_what_direct_runs_give(lab: Lab, points: list[FrontierPoint]) -> None:
    base = lab.trials.bases.get("svd", 0)
    assert [(point.k, point.floor) for point in points[::6]] == [(5, 4), (5, 14)]  # of 30 · 5 slots for 8 groups
    for point in points:
        assert point.share == pytest.approx(100 * point.floor * 8 / 150)
        best = hindsight(base.catalog, base.test.users, k=5, floors=point.floor)
        whole = best.unconstrained_relevance
        if point.method == BEST:
            recall = 100 * accuracy_of_each(best.rows, base.test.targets).recall.mean()
            assert point.kept == pytest.approx(100 * best.relevance / whole)
            assert (point.recall, point.esp) == pytest.approx((recall, 100))
            continue
        tuned = None if point.coefficient is None else float(point.coefficient)
        policy = make_method(point.method, tuned, lab.trials.scale(Trial("svd", 0, point.method, 5, point.floor)))
        direct = run_directly(base, 5, point.floor, policy, batch_size=4)
        assert (point.esp, point.recall) == pytest.approx((direct.esp, direct.recall))
        assert point.kept == pytest.approx(100 * direct.relevance / whole)


def test_no_promise_kept_is_above_the_bound(points: list[FrontierPoint]) -> None:
    bounds = {(point.k, point.floor): point.kept for point in points if point.method == BEST}
    assert {point.method for point in points} == {*METHODS, BEST}
    kept = [point for point in points if point.esp == 100]
    assert {"guaranteed"} < {point.method for point in kept}
    for point in kept:
        assert point.kept is not None
        assert point.kept <= bounds[point.k, point.floor] + 1e-9  # type: ignore[operator]
    assert any(point.esp < 100 for point in points if point.method == "none")  # or there is nothing to see


def test_all_of_it_where_there_is_time(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    trials = EXPERIMENT.trials(make_lab(tmp_path, quick=False))
    # 1, 10, 25, 50, 75 and 95 % of 18 at K = 5, of 37 at K = 10
    floors = {5: [1, 2, 4, 9, 14, 17], 10: [1, 4, 9, 18, 28, 35]}
    expected = [(name, k, floor) for k in floors for floor in floors[k] for name in METHODS]
    assert [(one.method, one.k, one.floor) for one in trials] == expected


def test_it_is_shown_again_without_work(
    lab: Lab, points: list[FrontierPoint], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Trials, "base", None)  # computing needs it
    exhibit = EXPERIMENT.show(lab)
    assert [FrontierPoint(*row) for row in exhibit.table.rows] == points  # type: ignore[arg-type]
    assert {path.suffix for path in exhibit.write(tmp_path)} == {".csv", ".md", ".svg", ".png"}
