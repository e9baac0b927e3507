"""Report: floors, exposures, prices and cost of a horizon."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fairsync.report.compare import check_comparable, compare
from fairsync.report.outlook import promise_outlooks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.eligible_slots import EligibleSlots
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Totals
    from fairsync.policies import Terms
    from fairsync.promise_costs import PromiseCosts
    from fairsync.report.outlook import PromiseOutlook

Status: TypeAlias = Literal["kept", "on track", "behind", "missed", "no promise"]


@dataclass(frozen=True, repr=False)
class Report:
    """The progress of the current horizon.

    Printing a report shows a table, :meth:`plot` draws it, and :meth:`to_json` serialises it.

    Attributes
    ----------
    policy : str
        The policy that decided the prices.
    k, batch_size, horizon : int
        The terms: candidates per request, requests between two price changes, requests per horizon.
    requests : int
        Requests of the current horizon so far.
    floors : dict
        {label: floor}. A floor of 0 is no promise.
    exposures : dict
        {label: exposures so far}.
    prices : dict
        {label: price in force now}, which is subtracted from relevance. A negative price is a subsidy; +inf masks the
        group. Under the policy ``guaranteed`` the price of a group is 0 once its floor is met, so that all prices are 0
        when the horizon is over.
    relevance : float
        Sum of the candidates' relevance.
    cost : float or None
        Relevance given up for the floors: exact if compared with a hindsight, else an upper bound. None if it was not
        measured.
    cost_ratio : float or None
        Cost divided by the least possible cost. None without a hindsight, +inf if the least possible cost is 0.
    forced : int
        Slots that the guard filled because prices alone would have broken a promise.
    completed : int
        Number of horizons before the current one.
    kept_horizons : int
        Number of those horizons that kept every floor.
    mean_subsidies : dict or None
        {label: mean over the group's exposures in this horizon of the subsidy in force}, for promised groups. An
        exposure beyond a floor that the guard enforces has none. None if not every request was measured.
    costs : dict or None
        {label: relevance given up for the promise in this horizon}, for promised groups. An exposure that plain
        retrieval would not have made costs the mean relevance of the items that went out of its list, minus its own.
        The costs of all promises add up to at most the upper bound that ``cost`` is without a hindsight; each is an
        upper bound too. None if not every request was measured.
    limited_requests : int
        Requests of the horizon that excluded more than was declared, or had a condition: floors could not count on
        them.
    outlooks : dict or None
        {label: what is to be expected of the promise}, for promised groups. None as long as no request is limited: then
        every floor is as certain as the policy makes it.
    """

    policy: str
    k: int
    batch_size: int
    horizon: int
    requests: int
    floors: dict[Label, int]
    exposures: dict[Label, int]
    prices: dict[Label, float]
    relevance: float
    cost: float | None
    cost_ratio: float | None
    forced: int
    completed: int
    kept_horizons: int
    mean_subsidies: dict[Label, float] | None = None
    costs: dict[Label, float] | None = None
    limited_requests: int = 0
    outlooks: dict[Label, PromiseOutlook] | None = None

    @property
    def is_over(self) -> bool:
        """Whether all requests of the horizon have come."""
        return self.requests >= self.horizon

    @cached_property
    def promised(self) -> list[Label]:
        """The labels of the groups with a promise: a floor above 0."""
        return [label for label, floor in self.floors.items() if floor > 0]

    @cached_property
    def satisfied(self) -> dict[Label, bool]:
        """{label: whether the floor is reached}. True for groups without a promise, which `esp` does not count."""
        return {label: self.exposures[label] >= floor for label, floor in self.floors.items()}

    @cached_property
    def n_kept(self) -> int:
        """Number of promises whose floor is reached."""
        return sum(self.satisfied[label] for label in self.promised)

    @cached_property
    def missing(self) -> dict[Label, int]:
        """{label: exposures missing to the floor}."""
        return {label: max(floor - self.exposures[label], 0) for label, floor in self.floors.items()}

    @cached_property
    def status(self) -> dict[Label, Status]:
        """{label: status}: ``kept``, ``missed`` (the horizon is over), ``on track``, ``behind`` or ``no promise``.

        A group is on track if it has at least the fraction of its floor that corresponds to the requests so far.
        """
        return {label: self._status(label) for label in self.floors}

    @property
    def esp(self) -> float:
        """Fraction of the promises whose floor is reached (the paper's Exposure Satisfied Percentage).

        Groups without a promise do not count. Without any promise it is 1: none is broken.
        """
        return self.n_kept / len(self.promised) if self.promised else 1.0

    def _status(self, label: Label) -> Status:
        exposures, floor = self.exposures[label], self.floors[label]
        if floor == 0:
            return "no promise"
        if exposures >= floor:
            return "kept"
        if self.is_over:
            return "missed"
        return "on track" if exposures * self.horizon >= floor * self.requests else "behind"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary. Groups are rows, so that labels keep their type.

        Infinite numbers are None, because JSON has none: the price of a masked group, and a ratio to a cost of 0. None
        is also the value of what was not measured, of the mean subsidy, cost and outlook of groups without a promise,
        and of all outlooks as long as no request is limited.
        """
        subsidies, costs, outlooks = self.mean_subsidies or {}, self.costs or {}, self.outlooks or {}
        return {
            "policy": self.policy,
            "k": self.k,
            "batch_size": self.batch_size,
            "horizon": self.horizon,
            "requests": self.requests,
            "promises": len(self.promised),
            "esp": self.esp,
            "relevance": self.relevance,
            "cost": self.cost,
            "cost_ratio": _finite(self.cost_ratio),
            "forced": self.forced,
            "completed": self.completed,
            "kept_horizons": self.kept_horizons,
            "limited_requests": self.limited_requests,
            "groups": [
                {
                    "group": label,
                    "floor": floor,
                    "exposures": self.exposures[label],
                    "missing": self.missing[label],
                    "price": _finite(self.prices[label]),
                    "mean_subsidy": subsidies.get(label),
                    "cost": costs.get(label),
                    "satisfied": self.satisfied[label],
                    "status": self.status[label],
                    "outlook": outlooks[label].outlook if label in outlooks else None,
                    "eligible_share": outlooks[label].share if label in outlooks else None,
                    "expected_shortfall": outlooks[label].shortfall if label in outlooks else None,
                    "reason": outlooks[label].reason or None if label in outlooks else None,
                }
                for label, floor in self.floors.items()
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Draw exposures, floors and prices of all groups, and what the promises cost.

        Parameters
        ----------
        path
            File to write: PNG, SVG or PDF, by suffix. If None, the figure is only returned.
        """
        from fairsync.report.plot import plot_report, save

        figure = plot_report(self)
        if path is not None:
            save(figure, path)
        return figure

    def __rich__(self) -> RenderableType:
        from fairsync.report.table import render  # here, because rich takes long to import

        return render(self)

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=100, color_system=None, force_terminal=False, legacy_windows=False).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())

    def __repr__(self) -> str:
        kept = f"{self.n_kept:,} of {len(self.promised):,} promises kept" if self.promised else "no promises"
        requests = f"{self.requests:,} of {self.horizon:,} requests"
        cost = "cost not measured" if self.cost is None else f"cost {self.cost:.6g}"
        return f"Report(policy={self.policy!r}, {kept}, {requests}, {cost})"


def make_report(
    labels: Sequence[Label],
    terms: Terms,
    policy: str,
    totals: Totals,
    past: Sequence[Totals],
    prices: NDArray[np.float64],
    hindsight: Hindsight | None = None,
    promise_costs: PromiseCosts | None = None,
    slots: EligibleSlots | None = None,
) -> Report:
    """Make a report from the totals of a ledger.

    Parameters
    ----------
    labels
        The G group labels.
    terms
        The terms, with the floors.
    policy
        Name of the policy.
    totals
        Totals of the current horizon.
    past
        Totals of the horizons before it.
    prices
        (G,) Current prices.
    hindsight
        The best plan for the same requests. It can be compared with only after the horizon is over.
    promise_costs
        Subsidies and costs of each group in the current horizon, if they were measured for all its requests.
    slots
        What requests could show; None for what was declared.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.ledger import Totals
    >>> from fairsync.policies import Terms
    >>> terms = Terms(np.array([5, 5]), np.array([2, 2]), k=2, horizon=10, batch_size=1)
    >>> report = make_report(["a", "b"], terms, "none", Totals(np.array([7, 1]), 4), [], np.zeros(2))
    >>> report.esp, report.status
    (0.5, {'a': 'kept', 'b': 'behind'})
    """
    cost = None if math.isnan(totals.cost) else float(totals.cost)
    cost_ratio = None
    if hindsight is not None:
        check_comparable(hindsight, labels, terms, totals)
        cost, cost_ratio = compare(totals.relevance, hindsight)
    promised = [(label, i) for i, label in enumerate(labels) if terms.floors[i] > 0]
    mean_subsidies = costs = None
    if promise_costs is not None:
        mean = promise_costs.subsidies / np.maximum(totals.exposures, 1)
        mean_subsidies = {label: float(mean[i]) for label, i in promised}
        if not np.isnan(promise_costs.given_up).any():
            costs = {label: float(promise_costs.given_up[i]) for label, i in promised}
    return Report(
        policy=policy,
        k=terms.k,
        batch_size=terms.batch_size,
        horizon=terms.horizon,
        requests=totals.requests,
        floors=dict(zip(labels, terms.floors.tolist(), strict=True)),
        exposures=dict(zip(labels, totals.exposures.tolist(), strict=True)),
        prices=dict(zip(labels, (prices + 0.0).tolist(), strict=True)),  # -0.0 is 0.0
        relevance=float(totals.relevance),
        cost=cost,
        cost_ratio=cost_ratio,
        forced=totals.forced,
        completed=len(past),
        kept_horizons=sum(bool((one.exposures >= terms.floors).all()) for one in past),
        mean_subsidies=mean_subsidies,
        costs=costs,
        limited_requests=0 if slots is None else slots.limited,
        outlooks=None if slots is None else promise_outlooks(labels, terms, totals, slots),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
