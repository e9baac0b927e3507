"""The dual space, ranks in it, and what the exhibit tells of them."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.conftest import run_work
from fairsync import Catalog, FairRetriever, MissingPackageError
from fairsync.experiments import embedding_map
from fairsync.experiments.compared_methods import make_method
from fairsync.experiments.embedding_map import EXPERIMENT, dual_space, mean_ranks
from fairsync.experiments.experiment import Lab
from fairsync.experiments.trials import Trial

RNG = np.random.default_rng(3)
CATALOG = Catalog(RNG.normal(size=(30, 5)), np.repeat(["a", "b", "c"], 10))
PRICES = np.array([0.3, 0.0, -1.1])


@pytest.mark.parametrize("shape", [(7, 5), (7, 3, 5)])
def test_ranks_are_places_in_a_sorted_list(shape: tuple[int, ...]) -> None:
    users = RNG.normal(size=shape)
    found = mean_ranks(CATALOG, users, PRICES, np.array([2, 0]))
    places = []
    for user in users.reshape(7, -1, 5):
        scores = (CATALOG.embeddings @ user.T).max(axis=1) - PRICES[CATALOG.group_of]
        groups = CATALOG.group_of[np.argsort(-scores)].tolist()
        places.append([groups.index(2) + 1, groups.index(0) + 1])
    assert found.tolist() == pytest.approx(np.mean(places, axis=0).tolist())


def test_in_the_dual_space_inner_products_differ_by_relevance_and_price() -> None:
    users, rows = RNG.normal(size=(4, 2, 5)), np.array([3, 25, 12])
    points = dual_space(CATALOG, rows, users, PRICES)
    direct = CATALOG.embeddings[rows] @ users.reshape(8, 5).T - PRICES[CATALOG.group_of[rows], None]
    assert points[:3] @ points[3:].T == pytest.approx(direct + PRICES.mean())
    own, others = np.linalg.norm(points[:, 5:], axis=1)[[0, 3]]
    assert own == pytest.approx(others)


def test_equal_prices_leave_everything_where_it_was() -> None:
    users, rows = RNG.normal(size=(4, 5)), np.array([3, 14])
    for price in (0.0, 0.7):
        points = dual_space(CATALOG, rows, users, np.full(3, price))
        assert points[:, :5].tolist() == np.vstack([CATALOG.embeddings[rows], users]).tolist()
        assert points[:, 5:] == pytest.approx(np.zeros((6, 3)), abs=1e-6)


def test_the_exhibit_tells_what_happened(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    run_work(EXPERIMENT, lab)
    exhibit = EXPERIMENT.show(lab)
    trial = Trial("svd", 0, "fairsync", 10, 18, batch_size=4)
    base = lab.trials.bases.get("svd", 0)
    catalog, users = base.catalog, base.test.users
    policy = make_method("fairsync", lab.trials.tuned(trial), lab.trials.scale(trial))
    groups = [str(row[1]) for row in exhibit.table.rows[:5]]
    assert len(set(groups)) == 5
    ranks = mean_ranks(catalog, users, np.zeros(8), np.array([catalog.code_of(group) for group in groups]))
    for at, moment in enumerate((1, 3, 30)):
        rows = exhibit.table.rows[5 * at : 5 * at + 5]
        reports = {}
        for name, chosen in (("fairsync", policy), ("none", "none")):
            retriever = FairRetriever(catalog, k=10, floors=18, horizon=30, policy=chosen, batch_size=4)
            retriever.retrieve(users[:moment])
            reports[name] = retriever.report()
        assert [row[0] for row in rows] == [moment] * 5
        assert [row[2] for row in rows] == [reports["fairsync"].exposures[group] for group in groups]
        assert [row[3] for row in rows] == [reports["none"].exposures[group] for group in groups]
        assert [row[4] for row in rows] == [pytest.approx(18 * moment / 30)] * 5
        assert [row[5] for row in rows] == pytest.approx([reports["fairsync"].prices[group] for group in groups])
        assert [row[6] for row in rows] == pytest.approx(ranks.tolist())
        prices = np.array(list(reports["fairsync"].prices.values()))
        codes = np.array([catalog.code_of(group) for group in groups])
        assert [row[7] for row in rows] == pytest.approx(mean_ranks(catalog, users, prices, codes).tolist())
    exposures = lab.trials.outcome(trial).exposures
    assert [row[2] for row in exhibit.table.rows[10:]] == [exposures[catalog.code_of(group)] for group in groups]

    monkeypatch.setattr(embedding_map, "FairRetriever", None)  # from what is kept
    assert EXPERIMENT.show(lab) == exhibit


def test_without_scikit_learn_it_says_what_to_install(
    make_lab: Callable[..., Lab], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(MissingPackageError, match=r"fairsync\[experiments\]"):
        EXPERIMENT.show(make_lab(tmp_path))
