"""The paper's toy: what it reports, recounted."""

from functools import partial

import pytest

from experiments.conftest import MakeLab, run_work
from fairsync.experiments import extreme_case
from fairsync.experiments.experiment import Lab
from fairsync.experiments.extreme_case import EXPERIMENT, users_of
from fairsync.policies import FairSync


@pytest.fixture(scope="module")
def lab(make_lab: MakeLab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make_lab(tmp_path_factory.mktemp("extreme"), batch_size=64)


def test_users_are_near_one_group_and_far_from_the_other() -> None:
    distances = -users_of(seed=0)
    assert distances.shape == (10_000, 10)
    assert 0 <= distances[:, :5].min() < distances[:, :5].max() <= 0.4
    assert 0.4 <= distances[:, 5:].min() < distances[:, 5:].max() <= 1.0


def test_the_table_has_the_numbers_of_the_paper(lab: Lab) -> None:
    rows = {row[0]: row[1:] for row in EXPERIMENT.show(lab).table.rows}
    assert rows["none"] == [100, 50, 50_000, 0, None]
    assert rows["guaranteed"] == [pytest.approx(96), 100, 48_000, 2_000, None]
    recall, esp, liked, disliked, _ = rows["fairsync"]
    assert recall == pytest.approx(100 * int(str(liked)) / 50_000)  # only the liked group is among the five nearest
    assert int(str(liked)) + int(str(disliked)) == 50_000
    assert esp == (100 if int(str(disliked)) >= 2_000 else 50)


def test_the_learning_rate_is_the_best_of_the_grid_on_other_users(lab: Lab) -> None:
    grid, tried = (1e-3, 1e-2, 1e-1), {}
    for rate in grid:
        found = extreme_case.try_policy(FairSync(rate), users_of(seed=1), 64)
        tried[found["esp"], found["recall"]] = rate
    [row] = [row for row in EXPERIMENT.show(lab).table.rows if row[0] == "fairsync"]
    assert row[5] == f"{tried[max(tried)]:g}"


def test_it_is_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    run_work(EXPERIMENT, lab)
    monkeypatch.setattr(extreme_case, "try_policy", partial(pytest.fail, "computed again"))
    assert EXPERIMENT.show(lab).table.rows[0][0] == "none"
