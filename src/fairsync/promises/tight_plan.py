"""A plan for promises that leave hardly any choice: most of it spread, the rest by a linear program over few atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.exact_plan import MergedBounds, linear_plan, rounded_plan
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Floats

# Atoms of the linear program: the number with the largest targets of each promise, and of all.
_EACH, _ALL = 4, 15_000
# The part of the target that is kept, so that the linear program has some freedom.
_KEPT = 0.9


def tight_plan(bounds: PlanBounds, target: Floats, deadline: float) -> Counts | None:
    """Return a plan near a target that satisfies the bounds approximately; None if none was found this way.

    Where the target gives a promise more than it needs, it is lowered, so that no exposure is wasted. What promises
    then miss is left to the linear program.

    Examples
    --------
    >>> import time
    >>> from fairsync.catalog.atoms import Membership
    >>> table = Membership.of([(0, 2), (0, 3), (1, 2), (1, 3)], 4)
    >>> bounds = PlanBounds(table, np.array([30, 10, 20, 20]), np.full(4, 99), np.full(4, 99), 40)
    >>> int(tight_plan(bounds, np.array([15.4, 14.8, 5.2, 4.9]), time.monotonic() + 9).sum())
    40
    """
    membership = bounds.membership
    sums = membership.sums(target)
    needed = np.where(bounds.lower > 0, bounds.lower, bounds.upper)
    factor = np.minimum(needed / np.maximum(sums, 1e-9), 1.0)
    at, promises = membership.expand(np.arange(membership.n_atoms))
    least = np.ones(membership.n_atoms)
    np.minimum.at(least, at, factor[promises])
    start = np.minimum(np.floor(_KEPT * target * least).astype(np.int64), bounds.most)
    exposures = membership.exposures(start)
    rest = PlanBounds(
        membership,
        np.maximum(bounds.lower - exposures, 0),
        np.maximum(bounds.upper - exposures, 0),
        bounds.most - start,
        bounds.total - int(start.sum()),
    )
    merged = MergedBounds.of(rest, _largest(bounds, target))
    fractions = linear_plan(merged.bounds, deadline)
    plan = None if fractions is None else rounded_plan(merged.bounds, fractions)
    if plan is None:
        return None
    whole = start + merged.split(plan, rest)
    return whole if bounds.hold(whole) else None


def _largest(bounds: PlanBounds, target: Floats) -> NDArray[np.bool_]:
    """Return (A,) whether the target of an atom is among the largest of one of its promises, or of all atoms."""
    order = np.argsort(-target, kind="stable")
    at, promises = bounds.membership.expand(order)
    by_promise = np.argsort(promises, kind="stable")
    sorted_promises = promises[by_promise]
    place = np.arange(len(promises)) - np.searchsorted(sorted_promises, sorted_promises)
    chosen = np.zeros(len(target), dtype=bool)
    chosen[order[at[by_promise[place < _EACH]]]] = True
    chosen[order[:_ALL]] = True
    return chosen
