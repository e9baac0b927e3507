"""Reports against numbers worked out by hand."""

import json
import math

import matplotlib.colors
import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.groups import Label
from fairsync.promises import Promise
from fairsync.retriever import FairRetriever
from report.made import bars, report


def test_the_numbers_midway() -> None:
    # Half of the horizon: a floor of 20 asks for 10 by now, or 6 one batch ago.
    midway = report([20, 10, 5, 0], [20, 20, 20, 0], requests=5, forced=3, past=[[20, 20, 20, 0], [19, 20, 20, 5]])
    assert midway.exposures == {"g0": 20, "g1": 10, "g2": 5, "g3": 0}
    assert midway.floors == {"g0": 20, "g1": 20, "g2": 20, "g3": 0}
    assert midway.satisfied == {"g0": True, "g1": False, "g2": False, "g3": True}
    assert midway.missing == {"g0": 0, "g1": 10, "g2": 15, "g3": 0}
    assert midway.status == {"g0": "kept", "g1": "on track", "g2": "behind", "g3": "no promise"}
    assert midway.esp == 1 / 3  # g3 has no promise
    assert (midway.promised, midway.n_kept) == (["g0", "g1", "g2"], 1)
    assert (midway.relevance, midway.cost, midway.cost_ratio, midway.forced) == (90.0, 10.0, None, 3)
    assert (midway.completed, midway.kept_horizons) == (2, 1)
    assert (midway.policy, midway.k, midway.batch_size, midway.requests, midway.horizon) == ("guaranteed", 4, 2, 5, 10)


def test_the_only_promise_missed_is_not_hidden_by_groups_without_one() -> None:
    made = report([20] * 499 + [144], [0] * 499 + [500])
    assert made.esp == 0
    assert (made.status["g0"], made.status["g499"]) == ("no promise", "missed")
    assert "0 of 1 promises kept" in repr(made)


def test_without_any_promise_none_is_broken() -> None:
    made = report([3, 0], [0, 0])
    assert (made.esp, made.promised, set(made.status.values())) == (1.0, [], {"no promise"})
    assert "no promises" in repr(made)
    assert made.to_dict()["promises"] == 0


def test_promises_have_their_mean_subsidy_and_cost() -> None:
    made = report([40, 30, 20], [20, 30, 0], subsidies=[0.0, 15.0, 0.0], given_up=[0.0, 2.5, 0.125])
    assert made.mean_subsidies == {"g0": 0.0, "g1": 0.5}
    assert made.costs == {"g0": 0.0, "g1": 2.5}
    rows = made.to_dict()["groups"]
    assert [(row["mean_subsidy"], row["cost"]) for row in rows] == [(0.0, 0.0), (0.5, 2.5), (None, None)]
    unmeasured = report([40, 30], [20, 30], subsidies=[0.0, 15.0], given_up=[math.nan, math.nan])
    assert (unmeasured.mean_subsidies, unmeasured.costs) == ({"g0": 0.0, "g1": 0.5}, None)


def test_groups_below_their_floor_at_the_end_are_missed() -> None:
    assert report([20, 19], [20, 20]).status == {"g0": "kept", "g1": "missed"}


def test_before_the_first_request_all_is_on_track() -> None:
    assert set(report([0, 0], [5, 7], requests=0).status.values()) == {"on track"}


def test_cost_that_was_not_measured_is_none() -> None:
    unmeasured = report([1, 1], [1, 1], cost=math.nan)
    assert unmeasured.cost is None
    assert "cost not measured" in str(unmeasured)


@pytest.mark.parametrize("labels", [[7, -3], ["ä", "7"]])
def test_json_keeps_labels_and_numbers(labels: list[Label]) -> None:
    made = report([20, 3], [20, 20], labels=labels, prices=[-0.5, math.inf], forced=2)
    back = json.loads(made.to_json(indent=2))
    assert back == made.to_dict()
    assert [row["group"] for row in back["groups"]] == labels
    assert {row["group"]: row["exposures"] for row in back["groups"]} == made.exposures
    assert back["groups"][1] == {
        "group": labels[1],
        "floor": 20,
        "exposures": 3,
        "missing": 17,
        "price": None,  # masked: JSON has no infinity
        "mean_subsidy": None,  # not measured
        "cost": None,
        "satisfied": False,
        "status": "missed",
        "outlook": None,  # no request was limited
        "eligible_share": None,
        "expected_shortfall": None,
        "reason": None,
    }
    assert (back["esp"], back["relevance"], back["cost"], back["forced"]) == (0.5, 90.0, 10.0, 2)


def test_the_report_of_a_retriever_counts_its_candidates() -> None:
    rng = np.random.default_rng(3)
    catalog = Catalog(rng.normal(size=(60, 6)), rng.permutation(np.arange(60) % 5))
    retriever = FairRetriever(catalog, k=4, floors=10, horizon=20, batch_size=3)
    found = retriever.retrieve(rng.normal(size=(13, 6)))
    made = retriever.report()
    assert made.exposures == {label: int((found.groups == label).sum()) for label in catalog.labels}
    assert made.relevance == pytest.approx(found.relevance.sum())
    assert (made.requests, made.horizon, made.completed) == (13, 20, 0)
    kept = f"{sum(made.satisfied.values())} of 5 promises kept"
    assert repr(made) == f"Report(policy='guaranteed', {kept}, 13 of 20 requests, cost {made.cost:.6g})"


def limited(**bounds: float) -> tuple[FairRetriever, np.ndarray]:
    """A retriever with at most one "big" item per list, and requests that prefer these."""
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(60, 6)) + np.repeat([[1.0], [0.0]], 30, axis=0)
    catalog = Catalog(vectors, {"size": ["big"] * 30 + ["small"] * 30})
    promise = Promise({"size": "big"}, at_most_per_list=1, **bounds)  # type: ignore[arg-type]
    return FairRetriever(catalog, k=4, horizon=40, promises=[promise]), rng.normal(size=(40, 6)) + 1.0


def test_a_limit_per_list_is_a_promise_that_is_kept_and_has_a_cost() -> None:
    retriever, users = limited()
    retriever.retrieve(users)
    made = retriever.report()
    [row] = made.promises
    assert (row.status, row.kept, row.at_most_per_list, row.exposures) == ("kept", True, 1, 40)
    assert (made.esp, made.n_kept, made.list_limits) == (1.0, 1, {"size=big": 1})
    # Everything that was given up was given up for the limit.
    assert row.cost == pytest.approx(made.cost)
    assert made.cost is not None
    assert made.cost > 0
    [record] = made.to_dict()["rows"]
    assert (record["at_most_per_list"], record["status"], record["cost"]) == (1, "kept", row.cost)
    assert made.to_dict()["promises"] == 1
    assert "every promise was kept" in str(made)
    assert "per list" in str(made)
    colour = bars(made.plot().axes[0])[0].get_facecolor()
    assert colour[:3] == pytest.approx(matplotlib.colors.to_rgb("#0072B2"))


def test_a_limit_per_list_beside_a_promise_without_one_is_shown() -> None:
    catalog = limited()[0].catalog
    promises = [Promise({"size": "big"}, at_most_per_list=1), Promise({"size": "small"}, at_least=3)]
    retriever = FairRetriever(catalog, k=4, horizon=40, promises=promises)
    assert "per list" in str(retriever.report())


def test_a_limit_per_list_beside_a_cap_takes_only_what_its_lists_gave_up() -> None:
    retriever, users = limited(at_most=10)
    retriever.retrieve(users)
    made = retriever.report()
    assert made.status == {"size=big": "kept"}
    assert made.costs is not None
    assert made.cost is not None
    assert 0 < made.costs["size=big"] <= made.cost * (1 + 1e-12)


def test_limits_per_list_are_no_promise_where_nothing_keeps_them() -> None:
    retriever, users = limited()
    plain = FairRetriever(retriever.catalog, k=4, horizon=40, promises=retriever.promises, policy="none")
    plain.retrieve(users)
    assert plain.report().status == {"size=big": "no promise"}


def test_a_floor_that_lags_by_less_than_a_batch_is_on_track() -> None:
    # Prices are renewed every 2 requests: after 5 of 10, a floor of 20 asks for what it needs after 3.
    assert report([6, 5], [20, 20], requests=5).status == {"g0": "on track", "g1": "behind"}
