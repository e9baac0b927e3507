"""Comparison of a policy's cost with the least possible cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Label
    from fairsync.hindsight import Hindsight
    from fairsync.ledger import Totals
    from fairsync.policies import Terms

# Relative rounding error of sums in different order. A difference below it is not a cost.
_ROUNDING = 1e-9
# No policy has more relevance than plain retrieval. A larger relative excess means that the requests were different.
_TOLERANCE = 1e-6


def compare(relevance: float, hindsight: Hindsight) -> tuple[float, float]:
    """Return the cost, and its ratio to the least possible cost.

    If the least possible cost is 0, the ratio is 1 for a cost of 0 and +inf otherwise.
    """
    noise = _ROUNDING * abs(hindsight.unconstrained_relevance)
    cost = _above(noise, hindsight.unconstrained_relevance - relevance)
    least = _above(noise, hindsight.cost)
    if least == 0:
        return cost, math.inf if cost else 1.0
    return cost, cost / least


def check_comparable(hindsight: Hindsight, labels: Sequence[Label], terms: Terms, totals: Totals) -> None:
    """Raise an error if the hindsight was computed for other requests or floors, as far as that can be detected."""
    if not hasattr(hindsight, "unconstrained_relevance"):
        raise InvalidInputError(f"a report is compared with a Hindsight, got {type(hindsight).__name__}.")
    requests, k = hindsight.rows.shape
    if (requests, k) != (terms.horizon, terms.k):
        raise InvalidInputError(
            f"The hindsight was computed for {requests} requests of {k} candidates, but the horizon is"
            f" {terms.horizon} requests of {terms.k}: compute it for all requests of one horizon."
        )
    if totals.requests != terms.horizon:
        raise InvalidInputError(
            f"Only {totals.requests} of the {terms.horizon} requests of the hindsight have come:"
            " compare with it when the horizon is over."
        )
    if set(hindsight.exposures) != set(labels):
        raise InvalidInputError("The hindsight has other groups than the report: compute it for the same catalog.")
    for label, floor in zip(labels, terms.floors.tolist(), strict=True):
        if hindsight.floors[label] != floor:
            raise InvalidInputError(
                f"The hindsight was computed for a floor of {hindsight.floors[label]} for group {label!r}, but its"
                f" floor is {floor}: compute it for the same floors."
            )
    most = hindsight.unconstrained_relevance
    if totals.relevance - most > _TOLERANCE * abs(most):
        raise InvalidInputError(
            f"The relevance {totals.relevance:.6g} is more than the {most:.6g} that the hindsight has"
            " without floors: compute it for the same requests, with an exact index."
        )


def _above(noise: float, value: float) -> float:
    """Return the value if it exceeds rounding errors, else 0."""
    return value if value > noise else 0.0
