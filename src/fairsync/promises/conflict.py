"""Promises that cannot hold together: an irreducible set of them, and what each could be instead."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.promises.certificate import plan_within
from fairsync.promises.exact_plan import MergedBounds
from fairsync.promises.linear_program import least_missed, rows_of, seconds_until, solve, undecided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.policies.base import Counts
    from fairsync.promises.plan_bounds import PlanBounds


@dataclass(frozen=True)
class Conflict:
    """Promises that cannot hold together.

    Attributes
    ----------
    promises : tuple of int
        Their codes, ascending.
    is_irreducible : bool
        Whether the others can hold together without any one of them. False if the time did not suffice to leave out all
        that can be left out.
    """

    promises: tuple[int, ...]
    is_irreducible: bool


def find_conflict(bounds: PlanBounds, seconds: float) -> Conflict:
    """Return promises that cannot hold together, given bounds that no plan satisfies.

    A linear program gives the first set: its proof that something is impossible uses some promises only. Then each
    promise is left out in turn, and stays out if the others are still impossible.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> table = Membership.of([(0, 1), (0, 2), (3,)], 4)
    >>> find_conflict(PlanBounds(table, np.array([0, 4, 3, 1]), np.array([6, 9, 9, 9]), np.full(3, 9), 9), 9.0)
    Conflict(promises=(0, 1, 2), is_irreducible=True)
    """
    deadline = time.monotonic() + seconds
    for promise in np.flatnonzero(bounds.lower > bounds.reach)[:1].tolist():
        return Conflict((promise,), is_irreducible=True)
    merged = MergedBounds.of(bounds)
    codes, bounds = merged.promises, merged.bounds
    needed = set(range(len(codes)))
    try:
        _, weights = least_missed(bounds, np.ones(len(codes)), deadline)
        proof = np.flatnonzero(weights > 1e-7).tolist()
        if plan_within(part := keep_promises(bounds, proof), seconds_until(deadline)) is None:
            smaller = MergedBounds.of(part)
            codes, bounds, weights = codes[smaller.promises], smaller.bounds, weights[smaller.promises]
            needed = set(range(len(codes)))
        for promise in np.argsort(weights * np.maximum(bounds.lower, 1), kind="stable").tolist():
            rest = keep_promises(bounds, sorted(needed - {promise}))
            if plan_within(rest, seconds_until(deadline)) is None:
                needed.remove(promise)
        is_irreducible = True
    except UndecidedPromisesError:
        is_irreducible = False
    return Conflict(tuple(sorted(codes[sorted(needed)].tolist())), is_irreducible)


def keep_promises(bounds: PlanBounds, promises: Sequence[int]) -> PlanBounds:
    """Return bounds that hold for some promises only."""
    lower, upper = np.zeros_like(bounds.lower), np.full_like(bounds.upper, bounds.total)
    some = list(promises)
    lower[some], upper[some] = bounds.lower[some], bounds.upper[some]
    return replace(bounds, lower=lower, upper=upper)


def largest_floor(bounds: PlanBounds, promise: int, seconds: float) -> int:
    """Return the largest lower bound of a promise that is possible with the bounds of the others, which are possible.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> table = Membership.of([(0, 1), (0, 2), (3,)], 4)
    >>> bounds = PlanBounds(table, np.array([0, 4, 3, 1]), np.array([6, 9, 9, 9]), np.full(3, 9), 9)
    >>> largest_floor(bounds, 1, 9.0), smallest_cap(bounds, 0, 9.0)
    (3, 7)
    """
    deadline = time.monotonic() + seconds

    def is_possible(value: int) -> bool:
        return plan_within(_with(bounds, promise, lower=value), seconds_until(deadline)) is not None

    most = _extreme(_with(bounds, promise, lower=0), promise, deadline, largest=True)
    return _largest(is_possible, 0, most)


def smallest_cap(bounds: PlanBounds, promise: int, seconds: float) -> int:
    """Return the smallest upper bound of a promise that is possible with the other bounds, which are possible."""
    deadline = time.monotonic() + seconds

    def is_possible(value: int) -> bool:
        return plan_within(_with(bounds, promise, upper=-value), seconds_until(deadline)) is not None

    least = _extreme(_with(bounds, promise, upper=bounds.total), promise, deadline, largest=False)
    return -_largest(is_possible, -bounds.total, -least)


def _largest(is_possible: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest possible number, given one that is possible and one that none exceeds. Try that one first."""
    middle = high
    while low < high:
        if is_possible(middle):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low


def _with(bounds: PlanBounds, promise: int, *, lower: int | None = None, upper: int | None = None) -> PlanBounds:
    changed: dict[str, Counts] = {}
    for name, value in (("lower", lower), ("upper", upper)):
        if value is not None:
            changed[name] = getattr(bounds, name).copy()
            changed[name][promise] = value
    return replace(bounds, **changed)  # type: ignore[arg-type]


def _extreme(bounds: PlanBounds, promise: int, deadline: float, *, largest: bool) -> int:
    """Return the largest or the smallest exposures of a promise by a linear program: no whole number goes beyond it."""
    from scipy import sparse  # here, because it takes long to import

    rows, limits = rows_of(bounds)
    exposures = bounds.membership.matrix[[promise]].toarray()[0]
    found = solve(
        -exposures if largest else exposures,
        sparse.vstack([rows, sparse.csr_array(np.ones((1, len(bounds.most))))], format="csr"),
        np.append(limits, bounds.total),
        bounds.most.astype(np.float64),
        deadline,
    )
    if found is None:
        raise undecided()
    return int(np.floor(1e-6 - found.cost)) if largest else int(np.ceil(found.cost - 1e-6))
