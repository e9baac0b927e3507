"""Cost curves against hindsight, called by hand for each level."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairsync as fs

RNG = np.random.default_rng(8)
CATALOG = fs.Catalog(
    RNG.normal(size=(80, 5)) + 0.5 * (np.arange(80) < 50)[:, None], ["a"] * 50 + ["b"] * 20 + ["c"] * 10
)
USERS = RNG.normal(size=(40, 5)) + 0.5


@pytest.mark.parametrize("floors", [0, 15, {"c": 30}, {"c": 30, "b": 99}])
def test_every_level_is_a_hindsight(floors: Any) -> None:
    curve = fs.cost_curve(CATALOG, USERS, 4, "b", np.array([60, 0, 20, 60, 40]), floors=floors)
    assert curve.levels == (0, 20, 40, 60)
    others = {label: floors if isinstance(floors, int) else floors.get(label, 0) for label in "ac"}
    for i, level in enumerate(curve.levels):
        best = fs.hindsight(CATALOG, USERS, k=4, floors={**others, "b": level})
        assert curve.costs[i] == best.cost
        assert curve.feasible_costs[i] == pytest.approx(best.unconstrained_relevance - best.feasible_relevance)
        assert curve.marginal_costs[i] == -best.prices["b"]
        assert curve.relevance == best.unconstrained_relevance
    assert list(curve.costs) == sorted(curve.costs)
    assert all(a <= b * (1 + 1e-9) + 1e-9 for a, b in zip(curve.costs, curve.feasible_costs, strict=True))
    assert curve.floors == {label: floor for label, floor in others.items() if floor}
    assert (curve.requests, curve.k, curve.promise) == (40, 4, "b")


def test_marginal_costs_are_slopes() -> None:
    curve = fs.cost_curve(CATALOG, USERS, 4, "c", range(40, 60, 4))
    for at in range(len(curve.levels) - 1):
        slope = (curve.costs[at + 1] - curve.costs[at]) / 4
        assert curve.marginal_costs[at] - 1e-9 <= slope <= curve.marginal_costs[at + 1] + 1e-9


def test_an_index_and_several_interests() -> None:
    users = RNG.normal(size=(12, 2, 5))
    curve = fs.cost_curve(CATALOG, users, 3, "c", [10], index=fs.ExactIndex(CATALOG), progress=False)
    assert curve.costs[0] == fs.hindsight(CATALOG, users, k=3, floors={"c": 10}).cost


def test_it_prints_and_serialises() -> None:
    curve = fs.cost_curve(CATALOG, USERS, 4, "c", [0, 50], floors={"b": 10})
    assert repr(curve).startswith("CostCurve('c', {0: ")
    back = json.loads(json.dumps(curve.to_dict()))
    assert [row["level"] for row in back["levels"]] == [0, 50]
    assert [row["cost"] for row in back["levels"]] == list(curve.costs)
    assert back["floors"] == [{"group": "b", "floor": 10}]


def test_the_plot_shows_the_costs(tmp_path: Path) -> None:
    curve = fs.cost_curve(CATALOG, USERS, 4, "c", [20, 50, 60])
    [axes] = curve.plot(tmp_path / "curve.png").axes
    least, feasible = axes.lines
    assert np.asarray(least.get_xdata()).tolist() == [20, 50, 60]
    assert np.asarray(least.get_ydata()).tolist() == pytest.approx(
        [cost / abs(curve.relevance) for cost in curve.costs]
    )
    assert np.asarray(feasible.get_ydata())[-1] == pytest.approx(curve.feasible_costs[-1] / abs(curve.relevance))
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("error", "message", "changed"),
    [
        (fs.UnknownGroupError, "'d'", {"promise": "d"}),
        (fs.InvalidInputError, "levels are empty", {"levels": []}),
        (fs.InvalidInputError, "must be a list of floors", {"levels": "12"}),
        (fs.InvalidInputError, "must be a list of floors", {"levels": 5}),
        (fs.InvalidInputError, "whole number", {"levels": [0.5]}),
        (fs.InvalidInputError, "whole number", {"levels": [-1]}),
        (fs.InfeasibleFloorsError, "161", {"levels": [10, 161]}),
        (fs.InfeasibleFloorsError, "160 slots", {"levels": [10, 100], "floors": {"b": 100}}),
        (fs.InvalidInputError, "k", {"k": 0}),
        (fs.InvalidInputError, "dimensions", {"past_users": USERS[:, :2]}),
    ],
)
def test_bad_input_is_refused(error: type[Exception], message: str, changed: dict[str, Any]) -> None:
    given: dict[str, Any] = {"past_users": USERS, "k": 4, "promise": "c", "levels": [5], **changed}
    with pytest.raises(error, match=message):
        fs.cost_curve(CATALOG, **given)


def test_a_promise_that_overlaps_with_others_costs_what_hindsight_says() -> None:
    rng = np.random.default_rng(1)
    attributes = {"kind": [f"k{i % 3}" for i in range(30)], "new": [bool(x) for x in rng.random(30) < 0.3]}
    catalog, users = fs.Catalog(rng.normal(size=(30, 4)), attributes), rng.normal(size=(40, 4))
    others = [fs.Promise({"new": True}, at_least=0.3), fs.Promise({"kind": "k1"}, at_most=50)]
    raised = fs.Promise({"kind": "k0"}, at_least=1)
    curve = fs.cost_curve(catalog, users, 3, raised, [60, 0, 0.4], promises=[*others, raised])
    assert curve.levels == (0, 48, 60)
    assert curve.bound == "at_least"
    assert (curve.floors, curve.caps) == ({"new=True": 36}, {"kind=k1": 50})
    for level, cost, feasible, marginal in zip(
        curve.levels, curve.costs, curve.feasible_costs, curve.marginal_costs, strict=True
    ):
        best = fs.hindsight(catalog, users, k=3, promises=[replace(raised, at_least=level), *others])
        assert cost == pytest.approx(best.cost)
        assert feasible == pytest.approx(best.unconstrained_relevance - best.feasible_relevance)
        assert marginal == pytest.approx(-best.prices["kind=k0"])
    assert list(curve.costs) == sorted(curve.costs)
    lowered = fs.cost_curve(catalog, users, 3, fs.Promise({"kind": "k1"}, at_most=50), [10, 20, 50], promises=others)
    assert lowered.bound == "at_most"
    assert list(lowered.costs) == sorted(lowered.costs, reverse=True)
    assert lowered.marginal_costs[0] > 0
    assert lowered.caps == {}
    assert "at_most" in repr(lowered)
    assert lowered.to_dict()["bound"] == "at_most"
    assert "Cost of a cap" in lowered.plot().axes[0].get_title(loc="left")


def test_floors_go_with_labels_and_promises_with_promises() -> None:
    catalog, users, promise = fs.Catalog(np.eye(3), ["a", "b", "b"]), np.eye(3), fs.Promise({"group": "b"}, at_least=1)
    with pytest.raises(fs.InvalidInputError, match="give the other promises as promises"):
        fs.cost_curve(catalog, users, 1, promise, [1], floors=0)
    with pytest.raises(fs.InvalidInputError, match="give the other floors as floors"):
        fs.cost_curve(catalog, users, 1, "b", [1], promises=[promise])
    with pytest.raises(fs.InvalidInputError, match="got None"):
        fs.cost_curve(catalog, users, 1, promise, [1, None])  # type: ignore[list-item]
    with pytest.raises(fs.InfeasibleFloorsError):
        fs.cost_curve(catalog, users, 1, promise, [1, 4])


@pytest.mark.parametrize("by_promise", [False, True])
def test_a_curve_among_eligible_items_is_that_of_hindsight(by_promise: bool) -> None:
    rng = np.random.default_rng(3)
    catalog = fs.Catalog(
        rng.normal(size=(40, 4)), {"kind": ["a", "b"] * 20, "new": [row % 3 == 0 for row in range(40)]}
    )
    users, rules = rng.normal(size=(30, 4)), {"exclude": [[row] for row in range(30)], "where": {"new": False}}
    promise = fs.Promise({"kind": "a"}, at_least=1) if by_promise else "a"
    curve = fs.cost_curve(catalog, users, 2, promise, [0, 50], **rules)  # type: ignore[arg-type]
    given = {"promises": [fs.Promise({"kind": "a"}, at_least=50)]} if by_promise else {"floors": {"a": 50}}
    best = fs.hindsight(catalog, users, 2, **given, **rules)  # type: ignore[arg-type]
    assert curve.costs == pytest.approx((0.0, best.cost))
    assert best.cost > 0
    assert curve.relevance == pytest.approx(best.unconstrained_relevance)
    assert curve.relevance < fs.cost_curve(catalog, users, 2, promise, [0]).relevance
