"""What promises may cost: highest prices and budgets, with promises of other priorities untouched."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fairsync as fs
from fairsync.loop.loop_state import LoopState
from fairsync.loop.spending import Spending

K, HORIZON = 8, 480


class Market:
    """Items of which the rare ones are far less relevant, so that a floor for them is dear; new ones are cheap."""

    def __init__(self, seed: int = 0, scale: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        vectors = rng.normal(size=(240, 12))
        vectors[:20] *= 0.3
        kinds = ["rare" if row < 20 else "abc"[row % 3] for row in range(240)]
        self.catalog = fs.Catalog(vectors * scale, {"kind": kinds, "new": [row % 7 == 0 for row in range(240)]})
        self.users = rng.normal(size=(HORIZON, 12))

    def run(self, promises: list[fs.Promise], **options: Any) -> tuple[fs.FairRetriever, npt.NDArray[Any]]:
        retriever = fs.FairRetriever(self.catalog, k=K, horizon=HORIZON, promises=promises, **options)
        return retriever, retriever.retrieve(self.users).ids


def rare_and_new(**limits: Any) -> list[fs.Promise]:
    return [fs.Promise({"kind": "rare"}, at_least=0.1, **limits), fs.Promise({"new": True}, at_least=0.3)]


def share(report: fs.Report) -> float:
    assert report.cost is not None
    return report.cost / (report.relevance + report.cost)


def distant(**options: Any) -> fs.FairRetriever:
    """Return a retriever over two providers, of which one is hardly ever relevant."""
    vectors = 0.001 * np.random.default_rng(0).normal(size=(60, 4))
    vectors[:, 0] += np.repeat([1.0, 0.01], 30)
    catalog = fs.Catalog(vectors, {"provider": ["near"] * 30 + ["far"] * 30})
    return fs.FairRetriever(catalog, k=5, horizon=100, batch_size=10, **options)


def users_near(n: int) -> npt.NDArray[np.float64]:
    return np.tile([1.0, 0.0, 0.0, 0.0], (n, 1))


def state_of(retriever: fs.FairRetriever) -> LoopState:
    return retriever._state


@pytest.mark.parametrize("scale", [1000.0, 1024.0])
def test_a_highest_price_means_the_same_under_another_scale(scale: float) -> None:
    promises = rare_and_new(max_price=0.4)
    _, plain = Market().run(promises)
    _, scaled = Market(scale=scale).run(promises)
    assert (plain == scaled).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_promise_that_would_cost_more_is_given_up_and_the_others_are_kept(seed: int) -> None:
    market = Market(seed)
    free, _ = market.run(rare_and_new())
    limited, _ = market.run(rare_and_new(max_price=0.3))
    report, highest = limited.report(), 0.3 * state_of(limited).spending.last_relevance
    assert free.report().esp == 1.0
    assert report.exposures["new=True"] >= report.floors["new=True"]
    assert report.exposures["kind=rare"] < report.floors["kind=rare"]
    assert report.mean_subsidies is not None
    assert report.mean_subsidies["kind=rare"] <= 1.05 * highest
    gave_way = report.gave_way["kind=rare"]
    assert (gave_way.reason, gave_way.exposures) == ("max_price", report.missing["kind=rare"])
    assert gave_way.since is not None
    assert gave_way.since < HORIZON // 4
    costs = free.report().costs
    assert gave_way.would_cost == pytest.approx(report.missing["kind=rare"] * highest)
    assert costs is not None
    assert report.missing["kind=rare"] * highest <= costs["kind=rare"]  # it says "more than"
    assert "needed more than its max_price" in str(report)
    assert [row.max_price for row in report.promises] == [0.3, None]
    assert [row["max_price"] for row in report.to_dict()["rows"]] == [0.3, None]


def test_a_high_limit_changes_nothing() -> None:
    market = Market()
    _, free = market.run(rare_and_new())
    limited, found = market.run(rare_and_new(max_price=50.0))
    assert (free == found).all()
    assert not limited.report().gave_way


def test_the_guard_forces_nothing_beyond_the_limit() -> None:
    """One batch as long as the horizon: no prices are learnt, so that all is up to the guard."""
    market, other = Market(), fs.Promise({"kind": "a"}, at_least=0.6)
    free, _ = market.run([fs.Promise({"kind": "rare"}, at_least=0.1), other], batch_size=HORIZON)
    rare = fs.Promise({"kind": "rare"}, at_least=0.1, max_price=0.01)
    limited, _ = market.run([rare, other], batch_size=HORIZON)
    assert free.report().exposures["kind=rare"] >= free.report().floors["kind=rare"]
    # Nothing is known of the last candidate's relevance in the first batch, and from the second one on it is.
    limited.retrieve(market.users)
    report = limited.report()
    assert report.exposures["kind=a"] >= report.floors["kind=a"]
    assert report.exposures["kind=rare"] < report.floors["kind=rare"] // 4
    assert report.gave_way["kind=rare"].reason == "max_price"


def test_under_a_new_model_the_limit_is_learnt_again() -> None:
    market, scaled = Market(), Market(scale=1000.0)
    retriever, _ = market.run(rare_and_new(max_price=0.4))
    before = state_of(retriever).spending
    retriever.replace(scaled.catalog)
    retriever.retrieve(scaled.users[:64])
    after = state_of(retriever).spending
    assert after.last_relevance == pytest.approx(1000 * before.last_relevance, rel=0.1)


def test_a_report_under_a_new_model_tells_what_gave_way_though_its_cost_is_not_known() -> None:
    market = Market()
    retriever, _ = market.run(rare_and_new(max_price=0.3))
    retriever.replace(market.catalog)
    assert retriever.report().gave_way["kind=rare"].would_cost is None
    assert "needed more than its max_price" in str(retriever.report())


@pytest.mark.parametrize("shorts", [0, 1, 9])
def test_short_lists_do_not_change_the_unit_of_the_limit(shorts: int) -> None:
    """Of ten requests, some have fewer eligible items than places."""
    rng = np.random.default_rng(0)
    catalog = fs.Catalog(
        1 + 0.01 * rng.normal(size=(60, 4)), {"name": range(60), "rare": [row < 2 for row in range(60)]}
    )
    promises = [fs.Promise({"rare": True}, at_least=1, max_price=0.1)]
    retriever = fs.FairRetriever(catalog, k=5, horizon=1000, promises=promises)
    where = [{"rare": True} if row % 10 < shorts else None for row in range(40)]
    retriever.retrieve(np.ones((40, 4)), where=where)
    fifth = np.sort(catalog.embeddings.sum(axis=1))[-5]
    spending = state_of(retriever).spending
    assert spending.last_relevance == pytest.approx(fifth)
    assert spending.seen == 40 - 4 * shorts


@pytest.mark.parametrize("price", [None, 0.05])
def test_a_floor_whose_limit_is_taken_away_is_certain_again(price: float | None) -> None:
    """Without any limit, or with that of another promise."""
    near = fs.Promise({"provider": "near"}, at_least=100, max_price=price)
    retriever = distant(promises=[fs.Promise({"provider": "far"}, at_least=300, max_price=0.05), near])
    retriever.retrieve(users_near(30))
    assert retriever.report().gave_way
    retriever.promise(promises=[fs.Promise({"provider": "far"}, at_least=300), near])
    assert not retriever.report().gave_way
    assert "max_price" not in str(retriever.report())
    retriever.retrieve(users_near(70))
    assert retriever.report().esp == 1.0


def two_priorities() -> list[fs.Promise]:
    return [fs.Promise({"kind": "rare"}, at_least=0.1, priority=2), fs.Promise({"new": True}, at_least=0.3)]


@pytest.mark.parametrize("seed", range(3))
def test_over_budget_the_lowest_priority_gives_way_and_the_first_is_kept(seed: int) -> None:
    market = Market(seed)
    alone = share(market.run(two_priorities()[1:])[0].report())
    both = share(market.run(two_priorities())[0].report())
    budget = (alone + both) / 2
    retriever, _ = market.run(two_priorities(), budget=budget)
    report = retriever.report()
    assert share(report) <= budget
    assert report.exposures["new=True"] >= report.floors["new=True"]
    gave_way = report.gave_way["kind=rare"]
    assert gave_way.reason == "budget"
    assert gave_way.exposures == report.missing["kind=rare"] > 0
    assert "gave way to the budget" in str(report)
    assert retriever.report().to_dict()["rows"][0]["gave_way"]["reason"] == "budget"


def test_within_the_budget_nothing_changes() -> None:
    market = Market()
    free, lists = market.run(two_priorities())
    retriever, found = market.run(two_priorities(), budget=0.5)
    assert (lists == found).all()
    assert retriever.report() == free.report()


@pytest.mark.parametrize("budget", [0.0005, 0.004, 0.008, 0.02])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_the_budget_is_exceeded_by_the_cost_of_a_batch_for_each_priority_at_most(
    budget: float, batch_size: int
) -> None:
    """Floors give way and come back a few times at most."""
    market = Market(5)
    retriever = fs.FairRetriever(
        market.catalog, k=K, horizon=HORIZON, promises=two_priorities(), budget=budget, batch_size=batch_size
    )
    excess, dearest, cuts, before = 0.0, 0.0, [], 0.0
    for start in range(0, HORIZON, batch_size):
        retriever.retrieve(market.users[start : start + batch_size])
        totals, spending = state_of(retriever).progress.totals, state_of(retriever).spending
        dearest, before = max(dearest, totals.cost - before), totals.cost
        excess = max(excess, totals.cost - budget * abs(totals.relevance + totals.cost))
        cuts.append(spending.cut)
    assert excess <= 2 * dearest
    changes = sum(one != other for one, other in itertools.pairwise(cuts))
    assert 1 <= changes <= 2 * (2 + np.log2(HORIZON))


def test_what_limits_per_list_cost_is_no_reason_for_floors_to_give_way() -> None:
    """Without any floor, the limit costs several times the budget; the floor adds less than the budget allows."""
    limit, floor = fs.Promise({"kind": "a"}, at_most_per_list=1), fs.Promise({"new": True}, at_least=0.2)
    market = Market()
    (alone, _), (free, lists) = market.run([limit]), market.run([limit, floor])
    retriever, found = market.run([limit, floor], budget=0.01)
    report = retriever.report()
    assert share(alone.report()) > 0.02
    assert share(free.report()) - share(alone.report()) < 0.01
    assert (lists == found).all()
    assert not report.gave_way
    assert report.costs is not None
    assert report.cost is not None
    assert report.costs["kind=a"] == pytest.approx(alone.report().cost)
    assert sum(report.costs.values()) == pytest.approx(report.cost)


def test_floors_give_way_to_the_budget_beside_a_limit_per_list() -> None:
    limit, floor = fs.Promise({"kind": "a"}, at_most_per_list=1), fs.Promise({"kind": "rare"}, at_least=0.1)
    retriever, _ = Market().run([limit, floor], budget=0.01)
    assert retriever.report().gave_way["kind=rare"].reason == "budget"


def test_floors_of_groups_have_a_budget_too() -> None:
    market = Market()
    retriever = fs.FairRetriever(market.catalog, k=K, horizon=HORIZON, floors={"rare": 384}, budget=0.001)
    retriever.retrieve(market.users)
    report = retriever.report()
    assert report.exposures["rare"] < 384
    assert report.gave_way["rare"].reason == "budget"
    assert share(report) < 0.01


def test_a_new_horizon_starts_with_all_promises() -> None:
    market = Market()
    retriever, _ = market.run(two_priorities(), budget=0.005)
    assert retriever.report().gave_way
    retriever.retrieve(market.users[:1])
    assert not retriever.report().gave_way


@pytest.mark.parametrize("options", [{"budget": 0.01}, {}])
def test_a_saved_retriever_continues_with_its_limits(options: dict[str, Any]) -> None:
    market = Market()
    promises = [
        fs.Promise({"kind": "rare"}, at_least=0.1, priority=2, max_price=0.3),
        fs.Promise({"new": True}, at_least=0.3),
    ]
    retriever = fs.FairRetriever(market.catalog, k=K, horizon=HORIZON, promises=promises, **options)
    retriever.retrieve(market.users[:200])
    with tempfile.TemporaryDirectory() as folder:
        retriever.save(Path(folder) / "saved")
        loaded = fs.FairRetriever.load(Path(folder) / "saved")
    assert (loaded.retrieve(market.users[200:]).ids == retriever.retrieve(market.users[200:]).ids).all()
    assert loaded.report() == retriever.report()


def test_a_ledger_keeps_what_the_last_candidate_is_worth(tmp_path: Path) -> None:
    market = Market()
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    given: dict[str, Any] = {"k": K, "horizon": HORIZON, "promises": rare_and_new(max_price=0.3), "ledger": url}
    with fs.FairRetriever(market.catalog, **given) as first:
        first.retrieve(market.users[:100])
        spending = state_of(first).spending
    with fs.FairRetriever(market.catalog, **given) as second:
        again = state_of(second).spending
    assert again.last_relevance == spending.last_relevance


GIVING_UP = pytest.mark.parametrize(
    "limited",
    [
        {"promises": [fs.Promise({"provider": "far"}, at_least=300, max_price=0.05)]},
        {"promises": [fs.Promise({"provider": "far"}, at_least=300)], "budget": 0.01},
        {"floors": {"far": 300}, "budget": 0.01},
    ],
    ids=["max_price", "budget", "budget for floors"],
)


@GIVING_UP
def test_a_retriever_whose_floors_gave_way_continues_over_its_ledger(limited: dict[str, Any], tmp_path: Path) -> None:
    """The requests that are left could not deliver what was given up."""
    whole = distant(**limited)
    expected = whole.retrieve(users_near(95)).ids
    limited = {**limited, "ledger": f"sqlite:///{tmp_path / 'ledger.db'}"}
    with distant(**limited) as first:
        found, gave_way = first.retrieve(users_near(90)).ids, first.report().gave_way
    with distant(**limited) as second:
        assert second.report().gave_way == gave_way != {}
        found = np.concatenate([found, second.retrieve(users_near(5)).ids])
        assert (found == expected).all()
        assert second.report() == whole.report()


@GIVING_UP
def test_floors_that_gave_way_are_saved_at_once(limited: dict[str, Any], tmp_path: Path) -> None:
    """So that a process which follows a crash knows them, also before the next save is due."""
    limited = {**limited, "ledger": f"sqlite:///{tmp_path / 'ledger.db'}", "save_seconds": 1e6}
    first = distant(**limited)
    for _ in range(9):
        first.retrieve(users_near(10))
    first.ledger.close()
    second = distant(**limited)
    assert second.report().gave_way
    second.retrieve(users_near(11))  # the last one is of the next horizon, in which nothing is given up yet
    second.ledger.close()
    with distant(**limited) as third:
        assert state_of(third).spending.given_way == Spending().given_way
        assert third.report().requests == 1


def test_without_the_budget_floors_that_gave_way_to_it_come_back(tmp_path: Path) -> None:
    market = Market()
    given: dict[str, Any] = {"k": K, "horizon": HORIZON, "floors": {"rare": 384}}
    given["ledger"] = f"sqlite:///{tmp_path / 'ledger.db'}"
    with fs.FairRetriever(market.catalog, budget=0.001, **given) as first:
        first.retrieve(market.users[:100])
        assert first.report().gave_way
    with fs.FairRetriever(market.catalog, **given) as second:
        assert not second.report().gave_way
        second.retrieve(market.users[100:])
        assert second.report().esp == 1.0


@GIVING_UP
def test_promises_can_be_changed_while_others_have_given_way(limited: dict[str, Any]) -> None:
    retriever = distant(**limited)
    retriever.retrieve(users_near(90))
    if "floors" in limited:
        retriever.promise({"far": 300, "near": 40})
    else:
        retriever.promise(promises=[*limited["promises"], fs.Promise({"provider": "near"}, at_least=40)])
    assert retriever.report().gave_way
    retriever.retrieve(users_near(10))
    report = retriever.report()
    near = next(label for label in report.floors if "near" in str(label))
    assert report.exposures[near] >= report.floors[near] > 0


@pytest.mark.parametrize("budget", [0, 1, -0.1, 1.5, True, "1%", float("nan")])
def test_a_budget_is_a_share(budget: Any) -> None:
    with pytest.raises(fs.InvalidInputError, match="budget must be a share"):
        fs.FairRetriever(Market().catalog, k=K, budget=budget)
