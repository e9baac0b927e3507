"""Points of the curve against runs of their own."""

from collections.abc import Callable

import numpy as np
import pytest

from experiments.conftest import run_work
from fairsync import FairRetriever, InfeasibleFloorsError
from fairsync.experiments.accuracy_curve import EXPERIMENT, floors_above, floors_below
from fairsync.experiments.experiment import Lab, SeedMean
from fairsync.experiments.reproduction_setting import Setting
from fairsync.experiments.trials import Trial
from fairsync.metrics import hit_rate, ndcg, ndcg_of_hits, recall


@pytest.fixture(scope="module")
def curve(make_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return a laboratory in which floors can be raised fourfold at K = 10, and not at K = 5."""
    return make_lab(tmp_path_factory.mktemp("curve"), floor=8, seeds=(0, 1))


def direct(lab: Lab, method: str, k: int, floor: int, seed: int) -> list[float]:
    base = lab.trials.bases.get("svd", seed)
    retriever = FairRetriever(
        base.catalog, k=k, floors=floor, horizon=30, policy=method, batch_size=lab.setting.batch_size
    )
    found = retriever.retrieve(base.test.users)
    targets = [base.catalog.ids[rows] for rows in base.test.targets]
    return [100 * metric(found.ids, targets) for metric in (recall, ndcg, ndcg_of_hits, hit_rate)] + [
        100 * retriever.report().esp
    ]


def test_every_point_is_the_mean_of_runs_of_its_own(curve: Lab) -> None:
    run_work(EXPERIMENT, curve)
    exhibit = EXPERIMENT.show(curve)
    assert exhibit.table.columns == ["K", "floor", "method", *SeedMean.HEADINGS]
    assert [row[1] for row in exhibit.table.rows if row[0] == 5 and row[2] == "none"] == [4, 8]
    assert [row[1] for row in exhibit.table.rows if row[0] == 10 and row[2] == "none"] == [4, 8, 32]
    for k, floor, method, *values in exhibit.table.rows:
        if method != "fairsync":
            runs = [direct(curve, str(method), int(k or 0), int(floor or 0), seed) for seed in (0, 1)]
            assert values == pytest.approx(np.mean(runs, axis=0))
    esps = {tuple(row[:3]): row[-1] for row in exhibit.table.rows}
    assert all(esp == 100 for (_, _, method), esp in esps.items() if method == "guaranteed")
    assert float(str(esps[10, 32, "none"])) < 100  # there is something to see


def test_fairsync_is_tuned_at_each_floor(curve: Lab) -> None:
    rows = {tuple(row[:3]): row for row in EXPERIMENT.show(curve).table.rows}
    for k, floor in ((5, 4), (10, 32)):
        outcomes = [curve.trials.outcome(Trial("svd", seed, "fairsync", k, floor, batch_size=4)) for seed in (0, 1)]
        assert rows[k, floor, "fairsync"][3] == pytest.approx(100 * np.mean([one.recall for one in outcomes]))


def test_floors_go_up_to_what_is_possible_and_no_further(curve: Lab) -> None:
    catalog = curve.trials.bases.get("svd", 0).catalog
    for k in (5, 10):
        highest = curve.floor_at_share(k, 1.0)
        assert max([0, *floors_above(curve, k)]) <= highest
        FairRetriever(catalog, k=k, floors=highest, horizon=30)
        with pytest.raises(InfeasibleFloorsError):
            FairRetriever(catalog, k=k, floors=highest + 1, horizon=30)


def test_floors_are_distinct_also_where_they_are_low() -> None:
    assert floors_below(Setting("small", "", floor=3)) == [1, 2, 3]
    assert floors_below(Setting("small", "", floor=1)) == [1]
