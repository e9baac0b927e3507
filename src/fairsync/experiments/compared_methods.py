"""The compared methods, and the grids of coefficients for tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairsync.policies import IPW, FairSync, RegularizedFair, make_policy

if TYPE_CHECKING:
    from fairsync.policies import Policy

BASELINES = ("regularized-fair", "ipw", "k-neighbor", "uncalibrated")
METHODS = ("none", *BASELINES, "fairsync", "guaranteed")

# In multiples of a unit (see `Scale`), so that one grid serves all models and data. The paper tunes the learning rate
# between 1e-4 and 1e-2. For cosine scores this grid includes that range and larger values.
GRIDS: dict[str, tuple[float, ...]] = {
    "regularized-fair": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    "ipw": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "fairsync": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
}
QUICK_GRIDS: dict[str, tuple[float, ...]] = {
    "regularized-fair": (0.01, 0.1, 1.0),
    "ipw": (0.05, 0.2, 1.0),
    "fairsync": (1e-3, 1e-2, 1e-1),
}


@dataclass(frozen=True)
class Scale:
    """The units of coefficients.

    Attributes
    ----------
    relevance : float
        Mean relevance of a candidate without floors.
    exposures : float
        Mean exposures of a group over the requests: requests · k / groups.
    """

    relevance: float
    exposures: float


def make_method(name: str, coefficient: float | None, scale: Scale) -> Policy:
    """Return the policy of a method. The coefficient is in multiples of the scale.

    Examples
    --------
    >>> make_method("fairsync", 0.01, Scale(relevance=0.5, exposures=100.0)).learning_rate
    0.005
    >>> make_method("regularized-fair", 1.0, Scale(relevance=0.5, exposures=100.0)).coefficient
    0.005
    """
    if coefficient is None:
        return make_policy(name)
    if name == "fairsync":
        return FairSync(coefficient * scale.relevance)
    if name == "ipw":
        return IPW(coefficient * scale.relevance)
    if name == "regularized-fair":
        # Its price is the coefficient times a difference of exposures.
        return RegularizedFair(coefficient * scale.relevance / scale.exposures)
    return make_policy(name)
