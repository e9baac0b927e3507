"""Report: floors, exposures, prices and cost of a horizon."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rich.console import Console

from fairsync.report.compare import check_comparable, compare
from fairsync.report.table import render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from rich.console import RenderableType

    from fairsync.catalog.groups import Label
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Totals
    from fairsync.policies import Terms

Status: TypeAlias = Literal["kept", "on track", "behind", "missed"]


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
        {label: floor}.
    exposures : dict
        {label: exposures so far}.
    prices : dict
        {label: price}, which is subtracted from relevance. A negative price is a subsidy; +inf masks the group.
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

    @property
    def is_over(self) -> bool:
        """Whether all requests of the horizon have come."""
        return self.requests >= self.horizon

    @cached_property
    def satisfied(self) -> dict[Label, bool]:
        """{label: whether the floor is reached}."""
        return {label: self.exposures[label] >= floor for label, floor in self.floors.items()}

    @cached_property
    def missing(self) -> dict[Label, int]:
        """{label: exposures missing to the floor}."""
        return {label: max(floor - self.exposures[label], 0) for label, floor in self.floors.items()}

    @cached_property
    def status(self) -> dict[Label, Status]:
        """{label: status}: ``kept``, ``missed`` (the horizon is over), ``on track`` or ``behind``.

        A group is on track if it has at least the fraction of its floor that corresponds to the requests so far.
        """
        return {label: self._status(label) for label in self.floors}

    @property
    def esp(self) -> float:
        """Fraction of the groups whose floor is reached (the paper's Exposure Satisfied Percentage)."""
        return sum(self.satisfied.values()) / len(self.satisfied)

    def _status(self, label: Label) -> Status:
        exposures, floor = self.exposures[label], self.floors[label]
        if exposures >= floor:
            return "kept"
        if self.is_over:
            return "missed"
        return "on track" if exposures * self.horizon >= floor * self.requests else "behind"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary. Groups are rows, so that labels keep their type.

        Infinite numbers are None, because JSON has none: the price of a masked group, and a ratio to a cost of 0.
        """
        return {
            "policy": self.policy,
            "k": self.k,
            "batch_size": self.batch_size,
            "horizon": self.horizon,
            "requests": self.requests,
            "esp": self.esp,
            "relevance": self.relevance,
            "cost": self.cost,
            "cost_ratio": _finite(self.cost_ratio),
            "forced": self.forced,
            "completed": self.completed,
            "kept_horizons": self.kept_horizons,
            "groups": [
                {
                    "group": label,
                    "floor": floor,
                    "exposures": self.exposures[label],
                    "missing": self.missing[label],
                    "price": _finite(self.prices[label]),
                    "satisfied": self.satisfied[label],
                    "status": self.status[label],
                }
                for label, floor in self.floors.items()
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, allow_nan=False)

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Draw exposures, floors and prices of all groups.

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
        return render(self)

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=100, color_system=None, force_terminal=False, legacy_windows=False).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())

    def __repr__(self) -> str:
        kept = f"{sum(self.satisfied.values()):,} of {len(self.floors):,} promises kept"
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
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
