r"""Certificates: plans that prove that all promises can still be kept.

A certificate is a whole number :math:`X_a` of exposures for each atom that R requests can deliver, and that keeps every
promise: with D what the floors miss and U what the caps have left,

.. math::  D \le M X \le U, \qquad 0 \le X_a \le R \, c_a, \qquad \sum_a X_a \le R \, K,

and at most R times the limit per list for promises that have one. Such a plan can be cut into R lists, and whatever
lists keep the promises add up to one. So the promises can be kept if and only if there is a certificate.

Many plans are certificates. Good ones ask for little beyond what prices deliver anyway, so that the guard has little to
force: see :mod:`fairsync.promises.spread_plan`. A linear program is solved only if no such plan is found, and an
integer program only if its solution cannot be rounded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.promises.exact_plan import exact_plan
from fairsync.promises.plan_bounds import PlanBounds
from fairsync.promises.repair import lower_excess, lower_surplus, raise_deficits
from fairsync.promises.spread_plan import spread_target, whole_plan
from fairsync.promises.tight_plan import tight_plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Floats, Terms
    from fairsync.promises.shown import Shown

SECONDS = 60.0
"""The time limit for finding a certificate, in seconds."""

# The part of all slots that is added to likely exposures, in proportion to what atoms can show.
_UNLIKELY = 0.3
# Likely exposures are scaled down to this for a plan with a small total.
_LITTLE = 1e-4
# A target whose total exceeds the slots by more than this factor will not become a plan that fits.
_TOO_MUCH = 1.1
# With more entries of promises by atoms than this, a program over some of the atoms is tried before one over all.
_LARGE = 20_000
# Rounds of scaling when a certificate is renewed.
_ROUNDS = 40


class Certified(NamedTuple):
    """The certificate after some requests.

    Attributes
    ----------
    plan : numpy.ndarray
        (A,) the certificate for the requests after them, as the guard left it.
    shown : Shown
        The atoms in them.
    too_dear : numpy.ndarray or None
        (P,) the floors that the certificate no longer covers, because a slot for them would have cost more than their
        highest price; None for none.
    """

    plan: Counts
    shown: Shown
    too_dear: NDArray[np.bool_] | None = None

    @property
    def counts(self) -> Counts:
        """(A,) exposures of each atom in the requests."""
        return self.shown.up_to(len(self.plan))


def find_certificate(
    terms: Terms,
    missing: Counts,
    room: Counts | None,
    left: int,
    near: Counts | None = None,
    *,
    seconds: float = SECONDS,
) -> Counts | None:
    """Return a certificate, or None if there is none: then the promises cannot all be kept.

    Parameters
    ----------
    terms
        The promises.
    missing
        (P,) the exposures that each floor misses, 0 or more.
    room
        (P,) the exposures that each cap has left; None if there are no caps.
    left
        Requests left.
    near
        (A,) a plan to start from, such as the certificate before a change of the items.
    seconds
        The time limit.

    Raises
    ------
    UndecidedPromisesError
        Neither a certificate nor a proof that there is none was found in time.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.policies.base import Terms
    >>> both = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> terms = Terms(np.array([5, 5]), np.array([2, 2, 1]), k=2, horizon=3, batch_size=1, membership=both)
    >>> find_certificate(terms, np.array([4, 4]), None, 3).tolist()
    [1, 1, 3]
    >>> find_certificate(terms, np.array([5, 5]), None, 3) is None
    True
    """
    bounds = PlanBounds.of(terms, missing, room, left)
    if terms.membership is None:
        is_possible = (bounds.lower <= bounds.reach).all() and int(bounds.lower.sum()) <= bounds.total
        return bounds.lower if is_possible else None
    return plan_within(bounds, seconds, near)


def plan_within(bounds: PlanBounds, seconds: float, near: Counts | None = None) -> Counts | None:
    """Return a plan within bounds, as :func:`find_certificate` does."""
    deadline = time.monotonic() + seconds
    if (bounds.lower > bounds.reach).any():
        return None
    if near is not None:
        plan = lower_surplus(bounds, raise_deficits(bounds, lower_excess(bounds, near)))
        if bounds.hold(plan):
            return plan
    target = spread_target(bounds, _LITTLE * _even(bounds))
    plan = whole_plan(bounds, target)
    if bounds.hold(plan):
        return plan
    if len(bounds.membership.promises) > _LARGE:
        tight = tight_plan(bounds, target, deadline)
        if tight is not None:
            return tight
    return exact_plan(bounds, deadline)


def is_quickly_possible(bounds: PlanBounds) -> bool:
    """Return whether a plan within bounds is found without a linear program. If not, there may be one all the same."""
    if (bounds.lower > bounds.reach).any():
        return False
    return bounds.hold(whole_plan(bounds, spread_target(bounds, _LITTLE * _even(bounds))))


def is_certificate(terms: Terms, plan: Counts, missing: Counts, room: Counts | None, left: int) -> bool:
    """Return whether a plan is a certificate.

    Examples
    --------
    >>> from fairsync.policies.base import Terms
    >>> terms = Terms(np.array([9, 9]), np.array([2, 1]), k=2, horizon=9, batch_size=1)
    >>> is_certificate(terms, np.array([4, 2]), np.array([4, 1]), None, 3)
    True
    >>> is_certificate(terms, np.array([4, 2]), np.array([4, 1]), None, 2)
    False
    """
    return PlanBounds.of(terms, missing, room, left).hold(plan)


def prune(terms: Terms, plan: Counts, missing: Counts) -> Counts:
    """Return a certificate that is lowered where no floor needs it.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.policies.base import Terms
    >>> both = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> terms = Terms(np.array([5, 5]), np.array([2, 2, 1]), k=2, horizon=3, batch_size=1, membership=both)
    >>> prune(terms, np.array([3, 2, 2]), np.array([3, 4])).tolist()
    [1, 2, 2]
    """
    bounds = PlanBounds.of(terms, missing, None, terms.horizon)
    if terms.membership is None:
        return np.minimum(plan, bounds.lower)
    return lower_surplus(bounds, plan, -plan / np.maximum(terms.capacities, 1))


def renew(
    terms: Terms, plan: Counts, missing: Counts, room: Counts | None, left: int, likely: Floats | None = None
) -> Counts:
    """Return a certificate that asks for less than the given one beyond likely exposures, or that one pruned.

    Parameters
    ----------
    terms, missing, room, left
        As in :func:`find_certificate`.
    plan
        A certificate.
    likely
        (A,) the likely exposures of each atom in the requests left; by default in proportion to its capacity.
    """
    bounds = PlanBounds.of(terms, missing, room, left)
    if terms.membership is None:
        return np.minimum(plan, bounds.lower)
    even = _even(bounds)
    base = even if likely is None else likely + _UNLIKELY * even
    pruned = lower_surplus(bounds, plan, -plan / np.maximum(base, 1e-9))
    target = spread_target(bounds, base, _ROUNDS)
    if target.sum() > _TOO_MUCH * bounds.total:
        target = spread_target(bounds, _LITTLE * base, _ROUNDS)
    spread = whole_plan(bounds, target)
    if bounds.hold(spread) and _beyond(spread, base) <= _beyond(pruned, base):
        return spread
    return pruned


def _even(bounds: PlanBounds) -> Floats:
    """Return all slots, spread over the atoms in proportion to what they can show."""
    most = bounds.most.astype(np.float64)
    return most * (bounds.total / max(float(most.sum()), 1.0))


def _beyond(plan: Counts, likely: Floats) -> float:
    """Return the exposures of a plan beyond the likely ones."""
    return float(np.maximum(plan - likely, 0).sum())
