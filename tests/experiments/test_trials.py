"""Outcomes of trials against the plainest calculation."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from fairsync.experiments.base_models import BaseModel
from fairsync.experiments.compared_methods import METHODS, QUICK_GRIDS, Scale, make_method
from fairsync.experiments.experiment import Lab
from fairsync.experiments.trials import Trial
from fairsync.hindsight import hindsight
from fairsync.retriever import FairRetriever

FLOOR, K = 14, 5


def trial(method: str, **changes: object) -> Trial:
    return Trial("svd", 0, method, **{"k": K, "floor": FLOOR, "batch_size": 4, **changes})  # type: ignore[arg-type]


def base_of(lab: Lab) -> BaseModel:
    return lab.trials.base(trial("none"))


def plain_candidates(base: BaseModel) -> list[list[int]]:
    scores = base.test.users @ base.catalog.embeddings.T
    return [found.tolist() for found in np.argsort(-scores, axis=1, kind="stable")[:, :K]]


def test_without_floors_it_is_a_plain_sort(lab: Lab) -> None:
    base, outcome = base_of(lab), lab.trials.outcome(trial("none"))
    rows = plain_candidates(base)
    targets = [set(one.tolist()) for one in base.test.targets]
    hits = [[row in wanted for row in found] for found, wanted in zip(rows, targets, strict=True)]
    recalls = [sum(hit) / len(wanted) for hit, wanted in zip(hits, targets, strict=True)]
    assert outcome.each["recall"] == pytest.approx(recalls)
    assert outcome.recall == pytest.approx(np.mean(recalls))
    assert outcome.hit_rate == pytest.approx(np.mean([any(hit) for hit in hits]))
    gains = 1 / np.log2(np.arange(2, K + 2))
    ideal = [gains[: min(K, len(wanted))].sum() for wanted in targets]
    assert outcome.ndcg == pytest.approx(
        np.mean([gains[hit].sum() / best for hit, best in zip(hits, ideal, strict=True)])
    )
    of_hits = [gains[hit].sum() / gains[: sum(hit)].sum() if any(hit) else 0.0 for hit in hits]
    assert outcome.each["ndcg_of_hits"] == pytest.approx(of_hits)
    counts = np.bincount(base.catalog.group_of[np.array(rows)].ravel(), minlength=8)
    assert outcome.exposures == counts.tolist()
    assert outcome.esp == np.mean(counts >= FLOOR) < 1  # so there is something to do
    assert outcome.missing == sum(max(FLOOR - int(count), 0) for count in counts)
    assert (outcome.cost, outcome.coefficient) == (0.0, None)


@pytest.mark.parametrize("method", ["guaranteed", "uncalibrated", "k-neighbor"])
@pytest.mark.parametrize("order", ["dealt", "sorted", "time"])
def test_a_method_is_what_the_retriever_does(method: str, order: str, lab: Lab) -> None:
    base, tried = base_of(lab), trial(method, order=order)
    outcome = lab.trials.outcome(tried)
    arriving = lab.trials.order(tried)
    retriever = FairRetriever(base.catalog, k=K, floors=FLOOR, horizon=len(arriving), policy=method, batch_size=4)
    found = retriever.retrieve(base.test.users[arriving])
    assert outcome.exposures == list(retriever.report().exposures.values())
    assert outcome.relevance == pytest.approx(found.relevance.sum())
    ids = base.catalog.ids
    recalls = {}
    for request, items in zip(arriving.tolist(), found.ids.tolist(), strict=True):
        wanted = {ids[row] for row in base.test.targets[request]}
        recalls[request] = len(wanted & set(items)) / len(wanted)
    assert outcome.each["recall"] == pytest.approx([recalls[request] for request in range(len(arriving))])
    best = hindsight(base.catalog, base.test.users, k=K, floors=FLOOR)
    assert outcome.least_cost == pytest.approx(best.cost)
    plain = lab.trials.outcome(trial("none")).relevance
    assert outcome.cost == pytest.approx(plain - outcome.relevance)
    assert outcome.cost_ratio == pytest.approx(outcome.cost / best.cost)


def test_orders(lab: Lab) -> None:
    base = base_of(lab)
    assert lab.trials.order(trial("guaranteed")).tolist() == list(range(30))
    best = base.catalog.group_of[[found[0] for found in plain_candidates(base)]]
    by_group = lab.trials.order(trial("guaranteed", order="sorted"))
    assert best[by_group].tolist() == sorted(best.tolist())
    times = base.test.times[lab.trials.order(trial("guaranteed", order="time"))]
    assert times.tolist() == sorted(times.tolist())


@pytest.mark.parametrize("method", QUICK_GRIDS)
def test_tuned_on_the_validation_requests_alone(method: str, lab: Lab) -> None:
    base, tried = base_of(lab), trial(method)
    floor = int(1.1 * FLOOR * len(base.validation.users) / len(base.test.users))  # a tenth more than in the test
    asked = base.validation
    scores = np.sort(asked.users @ base.catalog.embeddings.T, axis=1)[:, -K:]
    scale = Scale(float(scores.mean()), 30 * K / 8)
    kept: dict[float, tuple[float, float]] = {}
    for coefficient in QUICK_GRIDS[method]:
        policy = make_method(method, coefficient, scale)
        retriever = FairRetriever(
            base.catalog, k=K, floors=floor, horizon=len(asked.users), policy=policy, batch_size=4
        )
        found = retriever.retrieve(asked.users)
        kept[coefficient] = (retriever.report().esp, float(found.relevance.sum()))
    assert lab.trials.tuned(tried) == max(kept, key=lambda one: kept[one])
    assert lab.trials.outcome(tried).coefficient == lab.trials.tuned(tried)


def test_floors_are_rehearsed_with_a_margin_where_there_is_room(lab: Lab) -> None:
    requests = len(base_of(lab).validation.users)
    assert requests == len(base_of(lab).test.users) == 30
    for floor, rehearsed in ((14, 15), (17, 18), (18, 18), (1, 1)):  # 18 · 8 groups fill 144 of 150 slots
        assert set(lab.trials.rehearsed_floors(trial("ipw", floor=floor)).values()) == {rehearsed}


def test_only_those_with_a_grid_are_tuned(lab: Lab) -> None:
    for method in METHODS:
        assert (lab.trials.tuned(trial(method)) is None) == (method not in QUICK_GRIDS)
    assert lab.trials.outcome(trial("fairsync", coefficient=0.5)).coefficient == 0.5


def test_floors_that_differ(lab: Lab) -> None:
    floors = lab.trials.floors(trial("guaranteed", spread=True))
    assert list(floors) == list(base_of(lab).catalog.labels)
    assert all(1 <= floor <= FLOOR for floor in floors.values())
    assert len(set(floors.values())) > 1
    assert lab.trials.floors(trial("none", spread=True)) == floors  # the same for all methods
    outcome = lab.trials.outcome(trial("guaranteed", spread=True))
    assert all(got >= floor for got, floor in zip(outcome.exposures, floors.values(), strict=True))


def test_an_outcome_is_found_again(
    make_lab: Callable[..., Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = trial("fairsync")
    first = make_lab(tmp_path)
    outcome = first.trials.outcome(tried)
    again = make_lab(tmp_path)
    monkeypatch.setattr(again.trials.bases, "get", None)  # no model is needed any more
    assert again.trials.outcome(tried) == outcome
    other = make_lab(tmp_path, fingerprint="other data")
    compute = Mock(return_value=outcome)
    monkeypatch.setattr(other.trials, "compute", compute)
    other.trials.outcome(tried)
    compute.assert_called_once_with(tried)
