"""Reports and hindsights with given numbers, and the bars of a plot."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from fairsync.catalog.groups import Label
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.hindsight import Hindsight
from fairsync.ledger import Totals
from fairsync.loop.promise_costs import PromiseCosts
from fairsync.policies import Terms
from fairsync.report import Report, make_report


def report(
    exposures: list[int],
    floors: list[int],
    *,
    labels: list[Label] | None = None,
    prices: list[float] | None = None,
    requests: int = 10,
    horizon: int = 10,
    relevance: float = 90.0,
    cost: float = 10.0,
    forced: int = 0,
    past: list[list[int]] | None = None,
    hindsight: Hindsight | None = None,
    subsidies: list[float] | None = None,
    given_up: list[float] | None = None,
    able: list[float] | None = None,
    limited: int = 0,
) -> Report:
    names: list[Label] = labels or [f"g{i}" for i in range(len(floors))]
    return make_report(
        names,
        Terms(np.array(floors), np.full(len(floors), 4), k=4, horizon=horizon, batch_size=2),
        "guaranteed",
        Totals(np.array(exposures), requests, relevance, cost, forced),
        [Totals(np.array(one), horizon) for one in past or []],
        np.array(prices or [0.0] * len(floors)),
        hindsight,
        None if subsidies is None else PromiseCosts(np.array(subsidies), np.array(given_up)),
        None if able is None else EligibleSlots(requests, limited, np.array(able), np.array(able), requests),
    )


def best(*, relevance: float = 95.0, floors: dict[Label, int] | None = None, requests: int = 10) -> Hindsight:
    given: dict[Label, int] = {"g0": 20, "g1": 20} if floors is None else floors
    return Hindsight(relevance, relevance, 100.0, {}, given, given, np.zeros((requests, 4), dtype=np.int64))


def bars(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]
