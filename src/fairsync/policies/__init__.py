"""Policies: promises and counts in, one price per promise out."""

from collections.abc import Callable

from fairsync.errors import InvalidInputError
from fairsync.policies.base import Feedback, Policy, Sample, Terms
from fairsync.policies.fairsync import FairSync
from fairsync.policies.guaranteed import Guaranteed
from fairsync.policies.ipw import IPW
from fairsync.policies.k_neighbor import KNeighbor
from fairsync.policies.none import NoPolicy
from fairsync.policies.regularized_fair import RegularizedFair
from fairsync.policies.uncalibrated import Uncalibrated
from fairsync.text import did_you_mean

__all__ = [
    "IPW",
    "POLICIES",
    "FairSync",
    "Feedback",
    "Guaranteed",
    "KNeighbor",
    "NoPolicy",
    "Policy",
    "RegularizedFair",
    "Sample",
    "Terms",
    "Uncalibrated",
    "make_policy",
]

_BASELINES = (RegularizedFair, IPW, KNeighbor, Uncalibrated)
POLICIES: dict[str, Callable[[], Policy]] = {
    policy.name: policy for policy in (NoPolicy, FairSync, Guaranteed, *_BASELINES)
}


def make_policy(policy: str | Policy) -> Policy:
    """Return the policy of that name, or the object itself.

    Examples
    --------
    >>> make_policy("guaranteed").name
    'guaranteed'
    """
    names = ", ".join(repr(name) for name in POLICIES)
    if not isinstance(policy, str):
        if isinstance(policy, type) or not callable(getattr(policy, "step", None)):
            raise InvalidInputError(f"policy must be one of {names}, or an object with step(), got {policy!r}.")
        return policy
    if policy not in POLICIES:
        hint = did_you_mean(policy, POLICIES, f"Choose one of {names}.")
        raise InvalidInputError(f"There is no policy {policy!r}. {hint}")
    return POLICIES[policy]()
