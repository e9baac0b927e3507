"""Subsidies and costs of each promise, recounted from the candidates."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.ledger import SqlLedger
from fairsync.loop.promise_costs import PromiseCosts, given_up_by_group
from fairsync.policies.none import NoPolicy
from fairsync.retriever import FairRetriever

RNG = np.random.default_rng(5)
ITEMS = RNG.normal(size=(30, 6))
GROUPS = np.array(["red"] * 18 + ["blue"] * 8 + ["green"] * 4)
ITEMS[GROUPS == "red"] += 0.6  # everyone prefers red
CATALOG = Catalog(ITEMS, GROUPS)
USERS = RNG.normal(size=(60, 6)) + 0.8
FLOORS = {"blue": 90, "green": 20}


def recounted(rows: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return the relevance given up for each group, request by request and item by item."""
    lost = {"red": 0.0, "blue": 0.0, "green": 0.0}
    for user, chosen in zip(USERS, rows.tolist(), strict=True):
        score = ITEMS @ user
        plain = set(np.argsort(-score)[: len(chosen)].tolist())
        went = [score[row] for row in plain - set(chosen)]
        for row in set(chosen) - plain:
            lost[GROUPS[row]] += sum(went) / len(went) - score[row]
    return lost


def retriever(**options: object) -> FairRetriever:
    settings: dict[str, object] = {"k": 5, "floors": FLOORS, "horizon": 60, "batch_size": 4, **options}
    return FairRetriever(CATALOG, **settings)  # type: ignore[arg-type]


def test_costs_are_those_of_the_items_that_came_in() -> None:
    # Lists of 50 hold the whole catalog, so that the bound is exact.
    fair = retriever()
    found = fair.retrieve(USERS)
    report, wanted = fair.report(), recounted(found.rows)
    assert report.costs == pytest.approx({label: wanted[label] for label in FLOORS})
    assert wanted["blue"] > 0
    assert report.cost == pytest.approx(sum(wanted.values()))


@pytest.mark.parametrize("batch_size", [1, 7])
def test_costs_add_up_to_at_most_the_cost(batch_size: int) -> None:
    catalog = Catalog(RNG.normal(size=(500, 6)), np.arange(500) % 7)
    users = RNG.normal(size=(80, 6))
    fair = FairRetriever(catalog, k=3, floors={0: 60, 3: 70}, horizon=80, batch_size=batch_size)
    fair.retrieve(users)
    report = fair.report()
    assert report.cost is not None
    assert report.costs is not None
    assert 0 < sum(report.costs.values()) <= report.cost * (1 + 1e-12)
    assert min(report.costs.values()) >= 0


class FixedPrices(NoPolicy):
    """Prices that never change."""

    name = "fixed"

    def __init__(self, *, keeps_floors: bool) -> None:
        self.keeps_floors = keeps_floors

    def prices(self, state: int) -> npt.NDArray[np.float64]:
        return np.array([-0.5, -0.25, 0.125])  # blue, green, red


@pytest.mark.parametrize("keeps_floors", [True, False])
def test_mean_subsidies_are_those_in_force_at_each_exposure(keeps_floors: bool) -> None:
    fair = retriever(policy=FixedPrices(keeps_floors=keeps_floors), floors={"blue": 20, "green": 5, "red": 10})
    paid = {"blue": 0.0, "green": 0.0, "red": 0.0}
    for start in range(0, 60, 4):
        missing = fair.report().missing
        found = fair.retrieve(USERS[start : start + 4])
        for label, subsidy in (("blue", 0.5), ("green", 0.25)):
            count = int((found.groups == label).sum())
            paid[label] += subsidy * (min(count, missing[label]) if keeps_floors else count)
    report = fair.report()
    assert report.mean_subsidies == pytest.approx({label: paid[label] / report.exposures[label] for label in paid})
    assert (sum(paid.values()) < 0.5 * report.exposures["blue"]) is keeps_floors  # the guard ends subsidies


def test_a_new_horizon_starts_at_zero() -> None:
    fair = retriever()
    fair.retrieve(USERS)
    fair.retrieve(USERS[:1])
    costs, cost = fair.report().costs, fair.report().cost
    assert costs is not None
    assert sum(costs.values()) == pytest.approx(cost)


def test_a_policy_without_deep_lists_measures_subsidies_only() -> None:
    fair = retriever(policy="fairsync")
    fair.retrieve(USERS)
    assert fair.report().costs is None
    assert fair.report().mean_subsidies is not None


def test_plain_retrieval_costs_nothing() -> None:
    plain = retriever(policy="none")
    plain.retrieve(USERS)
    assert plain.report().costs == plain.report().mean_subsidies == dict.fromkeys(FLOORS, 0.0)


def test_costs_survive_the_process(tmp_path: Path) -> None:
    whole = retriever()
    whole.retrieve(USERS)
    with SqlLedger(tmp_path / "ledger.db", CATALOG.n_groups) as ledger:
        with retriever(ledger=ledger) as first:
            first.retrieve(USERS[:30])
        second = retriever(ledger=ledger)
        second.retrieve(USERS[30:])
        assert second.report().costs == whole.report().costs
        assert second.report().mean_subsidies == whole.report().mean_subsidies


def test_costs_of_requests_after_the_last_save_are_unknown_until_the_next_horizon(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "ledger.db", CATALOG.n_groups) as ledger:
        first = retriever(ledger=ledger, save_seconds=1e9)  # never closed
        first.retrieve(USERS[:10])
        first.retrieve(USERS[10:30])
        second = retriever(ledger=ledger)
        second.retrieve(USERS[30:])
        assert (second.report().costs, second.report().mean_subsidies) == (None, None)
        second.retrieve(USERS[:8])
        assert second.report().costs is not None


def test_costs_stay_when_groups_and_floors_change() -> None:
    fair = retriever()
    fair.retrieve(USERS[:30])
    before = fair.report().costs
    fair.upsert(np.zeros((1, 6)), ["new"], [99], floors={**FLOORS, "new": 1})
    assert before is not None
    assert fair.report().costs == {**before, "new": 0.0}


def test_growing_and_adding() -> None:
    costs = PromiseCosts(np.array([1.0]), np.array([2.0])).grown(2).plus(PromiseCosts(np.ones(2), np.ones(2)))
    assert (costs.subsidies.tolist(), costs.given_up.tolist()) == ([2.0, 1.0], [3.0, 1.0])


def test_ties_with_plain_retrieval_cost_nothing() -> None:
    same = np.array([[1.0, 1.0]])
    assert given_up_by_group(same, same, np.array([[0, 1]]), 2).tolist() == [0.0, 0.0]
