"""Report: floors, exposures, prices and cost of a horizon."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fairsync.extras import explain_missing
from fairsync.policies.base import NO_CAP
from fairsync.report.compare import check_comparable, compare
from fairsync.report.outlook import promise_outlooks
from fairsync.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.eligibility.eligible_slots import EligibleSlots
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Totals
    from fairsync.loop.promise_costs import PromiseCosts
    from fairsync.policies import Terms
    from fairsync.report.gave_way import GaveWay
    from fairsync.report.outlook import PromiseOutlook

Status: TypeAlias = Literal["kept", "on track", "behind", "missed", "exceeded", "gave way", "no promise"]


@dataclass(frozen=True)
class PromiseRow:
    """One promise in a report.

    Attributes
    ----------
    name : str or int
        The name of the promise, or the label of its group.
    at_least, at_most : int or None
        Bounds on its exposures in the horizon.
    exposures : int
        Exposures so far.
    kept : bool
        Whether the exposures are within the bounds.
    status : str
        As in `Report.status`.
    price : float
        The price in force now; negative for a subsidy.
    cost : float or None
        Relevance given up for it in this horizon, an upper bound; None if it was not measured.
    certain : bool
        Whether it is certain, whatever requests come and exclude within what was declared.
    priority : int
        Its priority, 1 first.
    gave_way : GaveWay or None
        Why it gave way, and by how much; None if it did not.
    max_price : float or None
        Its highest price, in units of the mean relevance of the last candidate; None for no limit.
    at_most_per_list : int or None
        The most of its items in one list; None for no limit.
    """

    name: Label
    at_least: int | None
    at_most: int | None
    exposures: int
    kept: bool
    status: Status
    price: float
    cost: float | None
    certain: bool
    priority: int = 1
    gave_way: GaveWay | None = None
    max_price: float | None = None
    at_most_per_list: int | None = None


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
        exposure beyond a floor that the guard enforces has none. A charge for a cap is negative. None if not every
        request was measured.
    costs : dict or None
        {label: relevance given up for the promise in this horizon}, for promised groups. An exposure that plain
        retrieval would not have made costs the mean relevance of the items that went out of its list, minus its own.
        The costs of all promises add up to at most the upper bound that ``cost`` is without a hindsight; each is an
        upper bound too. None if not every request was measured.
    limited_requests : int
        Requests of the horizon that could not show what floors count on, because of what they excluded or required.
    outlooks : dict or None
        {label: what is to be expected of the promise}, for promised groups. None as long as no request is limited: then
        every floor is as certain as the policy makes it.
    caps : dict or None
        {name: cap} for the promises that have one. None if there are floors of groups only, no promises: then labels of
        groups stand where otherwise names of promises do.
    uncertain : tuple
        Names of promises that are expected and not certain: they rest on parts of the catalog that a request may
        exclude as a whole (``max_exclude``).
    priorities : dict or None
        {name: priority}; None if all are 1.
    max_prices : dict
        {name: highest price} for the promises that have one.
    gave_way : dict
        {name: why it gave way} for the promises that cannot all be kept, cost too much or exceed the budget.
    list_limits : dict
        {name: most items in one list} for the promises that have such a limit. The guard keeps it in every list. Under
        the policy ``none``, which has no guard, it is left out.
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
    caps: dict[Label, int] | None = None
    uncertain: tuple[Label, ...] = ()
    priorities: dict[Label, int] | None = None
    gave_way: dict[Label, GaveWay] = field(default_factory=dict)
    max_prices: dict[Label, float] = field(default_factory=dict)
    list_limits: dict[Label, int] = field(default_factory=dict)

    @cached_property
    def promises(self) -> list[PromiseRow]:
        """The promises, one row each."""
        costs, caps, uncertain = self.costs or {}, self.caps or {}, {*self.uncertain, *self.gave_way}
        priorities = self.priorities or {}
        return [
            PromiseRow(
                label, self.floors[label] or None, caps.get(label), self.exposures[label], self.satisfied[label],
                self.status[label], self.prices[label], costs.get(label), label not in uncertain,
                priorities.get(label, 1), self.gave_way.get(label), self.max_prices.get(label),
                self.list_limits.get(label),
            )
            for label in self.promised
        ]  # fmt: skip

    @property
    def is_over(self) -> bool:
        """Whether all requests of the horizon have come."""
        return self.requests >= self.horizon

    @cached_property
    def promised(self) -> list[Label]:
        """The labels of what has a promise: a floor above 0, a cap, or a limit per list."""
        bounded = {*(self.caps or {}), *self.list_limits}
        return [label for label, floor in self.floors.items() if floor > 0 or label in bounded]

    @cached_property
    def promised_set(self) -> set[Label]:
        """The labels of what has a promise, as a set."""
        return set(self.promised)

    @property
    def noun(self) -> str:
        """What a label names: a group, or a promise."""
        return "group" if self.caps is None else "promise"

    @cached_property
    def satisfied(self) -> dict[Label, bool]:
        """{label: whether the floor is reached and no cap exceeded}. True without a promise."""
        caps = self.caps or {}
        return {
            label: floor <= self.exposures[label] <= caps.get(label, self.exposures[label])
            for label, floor in self.floors.items()
        }

    @cached_property
    def n_kept(self) -> int:
        """Number of promises whose floor is reached, and whose cap is not exceeded."""
        return sum(self.satisfied[label] for label in self.promised)

    @cached_property
    def missing(self) -> dict[Label, int]:
        """{label: exposures missing to the floor}."""
        return {label: max(floor - self.exposures[label], 0) for label, floor in self.floors.items()}

    @cached_property
    def status(self) -> dict[Label, Status]:
        """{label: status}: ``kept``, ``missed``, ``exceeded``, ``on track``, ``behind``, ``gave way``, ``no promise``.

        A cap can be exceeded. A floor is on track if the exposures are at least the fraction of it that corresponds to
        the requests so far without the last ``batch_size``, because prices are that late. It is missed when the horizon
        is over. A cap is on track until then. A limit per list is kept in every list.
        """
        return {label: self._status(label) for label in self.floors}

    @property
    def esp(self) -> float:
        """Fraction of the promises whose floor is reached (the paper's Exposure Satisfied Percentage).

        Groups without a promise do not count. Without any promise it is 1: none is broken.
        """
        return self.n_kept / len(self.promised) if self.promised else 1.0

    def _status(self, label: Label) -> Status:
        exposures, floor, cap = self.exposures[label], self.floors[label], (self.caps or {}).get(label)
        if label not in self.promised_set:
            return "no promise"
        if cap is not None and exposures > cap:
            return "exceeded"
        if exposures >= floor:
            return "kept" if cap is None or self.is_over else "on track"
        if label in self.gave_way:
            return "gave way"
        if self.is_over:
            return "missed"
        return "on track" if exposures * self.horizon >= floor * (self.requests - self.batch_size) else "behind"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary. Groups or promises are rows, so that labels keep their type.

        Infinite numbers are None, because JSON has none: the price of a masked group, and a ratio to a cost of 0. None
        is also the value of what was not measured, of the mean subsidy, cost and outlook of groups without a promise,
        and of all outlooks as long as no request is limited.
        """
        subsidies, costs, outlooks = self.mean_subsidies or {}, self.costs or {}, self.outlooks or {}
        rows, name = ("groups", "group") if self.caps is None else ("rows", "promise")
        uncertain, priorities = {*self.uncertain, *self.gave_way}, self.priorities or {}

        def of_promise(label: Label) -> dict[str, Any]:
            if self.caps is None:
                return {}
            gave_way = self.gave_way.get(label)
            return {
                "cap": self.caps.get(label),
                "at_most_per_list": self.list_limits.get(label),
                "certain": label not in uncertain,
                "priority": priorities.get(label, 1),
                "max_price": self.max_prices.get(label),
                "gave_way": None if gave_way is None else gave_way.to_dict(),
            }

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
            rows: [
                {
                    name: label,
                    "floor": floor,
                    **of_promise(label),
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
        with explain_missing("a plot"):
            from fairsync.report.plot import plot_report, save

        figure = plot_report(self)
        if path is not None:
            save(figure, path)
        return figure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from fairsync.report.table import render  # here, because rich takes long to import

        return render(self, options.max_width)

    def __str__(self) -> str:
        return plain_text(self)

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
    gave_way: Mapping[Label, GaveWay] | None = None,
) -> Report:
    """Make a report from the totals of a ledger.

    Parameters
    ----------
    labels
        The labels of the groups, or the names of the promises.
    terms
        The terms, with the floors and caps.
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
    gave_way
        The promises that gave way; see `fairsync.report.gave_way`.

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
    caps = None if terms.membership is None else _below(NO_CAP, labels, terms.caps)
    limits = {} if policy == "none" else _below(terms.k, labels, terms.list_limits)  # nothing would keep them
    bounded = {*(caps or {}), *limits}
    promised = [(label, i) for i, label in enumerate(labels) if terms.floors[i] > 0 or label in bounded]
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
        prices=dict(zip(labels, prices.tolist(), strict=True)),
        relevance=float(totals.relevance),
        cost=cost,
        cost_ratio=cost_ratio,
        forced=totals.forced,
        completed=len(past),
        kept_horizons=sum(_is_kept(one, terms) for one in past),
        mean_subsidies=mean_subsidies,
        costs=costs,
        limited_requests=0 if slots is None else slots.limited,
        outlooks=None if slots is None else promise_outlooks(labels, terms, totals, slots),
        caps=caps,
        uncertain=() if terms.certain is None else tuple(labels[i] for i in np.flatnonzero(~terms.certain).tolist()),
        priorities=None if terms.priorities is None else dict(zip(labels, terms.priorities.tolist(), strict=True)),
        gave_way=dict(gave_way or {}),
        max_prices=_below(math.inf, labels, terms.max_prices),
        list_limits=limits,
    )


def _below(nothing: float, labels: Sequence[Label], limits: NDArray[Any] | None) -> dict[Label, Any]:
    """Return the limits of the promises that have one: those below the value that stands for none."""
    if limits is None:
        return {}
    return {label: limit for label, limit in zip(labels, limits.tolist(), strict=True) if limit < nothing}


def _is_kept(totals: Totals, terms: Terms) -> bool:
    """Return whether a past horizon kept every promise."""
    within = terms.caps is None or (totals.exposures <= terms.caps).all()
    return bool((totals.exposures >= terms.floors).all() and within)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
