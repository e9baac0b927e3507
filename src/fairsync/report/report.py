"""The numbers of a report: what was promised, what was given, and what it cost."""

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
    """Where the promise stands in the present horizon.

    Printing it shows a table; :meth:`plot` draws it, :meth:`to_json` is for programs.

    Attributes
    ----------
    policy : str
        The policy that decided the prices.
    k, batch_size, horizon : int
        The terms: candidates per request, requests between two price changes, requests per horizon.
    requests : int
        Requests of the present horizon so far.
    floors, exposures : dict
        By group label: what was promised, and what was given so far.
    prices : dict
        By group label: what is subtracted from relevance now; negative is a subsidy, +inf masks the group.
    relevance : float
        Sum of the candidates' relevance.
    cost : float or None
        Relevance given up against no floors: exact next to a hindsight, else at most this; None if not
        measured.
    cost_ratio : float or None
        Cost in multiples of the least possible; None without a hindsight, +inf if nothing had to be given up.
    forced : int
        Slots that the guard filled because prices alone would have broken the promise.
    completed, kept_horizons : int
        Horizons before the present one, and how many of them kept every floor.
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
        """By group label: whether the floor is reached."""
        return {label: self.exposures[label] >= floor for label, floor in self.floors.items()}

    @cached_property
    def missing(self) -> dict[Label, int]:
        """By group label: exposures that are missing now."""
        return {label: max(floor - self.exposures[label], 0) for label, floor in self.floors.items()}

    @cached_property
    def status(self) -> dict[Label, Status]:
        """By group label: ``kept``; else ``missed`` if the horizon is over; else ``on track`` or ``behind``.

        On track is what has at least the part of its floor that corresponds to the requests so far.
        """
        return {label: self._status(label) for label in self.floors}

    @property
    def esp(self) -> float:
        """Share of the groups whose floor is reached (the paper's Exposure Satisfied Percentage)."""
        return sum(self.satisfied.values()) / len(self.satisfied)

    def _status(self, label: Label) -> Status:
        exposures, floor = self.exposures[label], self.floors[label]
        if exposures >= floor:
            return "kept"
        if self.is_over:
            return "missed"
        return "on track" if exposures * self.horizon >= floor * self.requests else "behind"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold. Groups are rows, so that a label keeps its type.

        What JSON has no number for is None: the price of a masked group, a multiple of no cost at all.
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
            Where to save it, as PNG, SVG or PDF by suffix; None to only return the figure.
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
    """Put labels on a standing, and its cost next to the least possible.

    Parameters
    ----------
    labels
        The G group labels.
    terms
        What was promised.
    policy
        The policy's name.
    standing
        Where the present horizon stands.
    past
        The horizons before it.
    prices
        (G,) the prices now.
    hindsight
        The best possible plan for the same requests; it can be compared with once the horizon is over.

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
