"""The best plan for requests that are all known, and the bounds that prove how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Label


@dataclass(frozen=True, repr=False, eq=False)
class Hindsight:
    """The best plan over all requests, and bounds that prove how good it is.

    Attributes
    ----------
    relevance
        What no plan that meets the floors can exceed: the value of the dual under ``prices``.
    feasible_relevance
        The relevance of the plan in ``rows``, which meets the floors.
    unconstrained_relevance
        The relevance without floors.
    prices
        The price of each group; negative prices are subsidies. A group above its floor has price 0. Where the
        floors take (nearly) all places, only differences between prices mean something.
    floors
        What each group had to get.
    exposures
        What each group gets from the plan.
    rows
        (requests, k) the plan: rows of the catalog, best relevance first; -1 at the end of the list of a request with
        fewer than k eligible items.
    caps
        The most that each promise may get; those without a cap are not in it.

    With promises, read promise for group: prices, floors and exposures are by name, and a positive price is what a cap
    charges.
    """

    relevance: float
    feasible_relevance: float
    unconstrained_relevance: float
    prices: dict[Label, float]
    floors: dict[Label, int]
    exposures: dict[Label, int]
    rows: NDArray[np.int64]
    caps: dict[Label, int] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The relevance that must be given up for the floors."""
        return max(0.0, self.unconstrained_relevance - self.relevance)

    @property
    def gap(self) -> float:
        """The distance between the two bounds, relative to ``relevance``; 0 if the plan is the best."""
        between = self.relevance - self.feasible_relevance
        return between / abs(self.relevance) if between and self.relevance else between

    def __repr__(self) -> str:
        share = self.cost / max(abs(self.unconstrained_relevance), 1e-300)
        subsidised = sum(price < 0 for price in self.prices.values())
        charged = sum(price > 0 for price in self.prices.values())
        prices = f"{subsidised} of {len(self.prices)} subsidised" + (f", {charged} charged" if self.caps else "")
        return (
            f"Hindsight(relevance={self.relevance:.6g}, cost={self.cost:.4g} ({share:.3%}), "
            f"gap={self.gap:.1e}, {len(self.rows)} requests, "
            f"{prices})"
        )
