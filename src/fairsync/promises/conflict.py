"""Promises that cannot hold together: an irreducible set of them, and what each could be instead."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.promises.certificate import plan_within
from fairsync.promises.exact_plan import MergedBounds
from fairsync.promises.linear_program import TOLERANCE, least_missed, least_total, rows_of, seconds_until, solve

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
    is_irreducible = False
    try:
        proof = _shortest_proof(bounds, deadline)
        if plan_within(part := keep_promises(bounds, proof), seconds_until(deadline)) is None:
            smaller = MergedBounds.of(part)
            codes, bounds = codes[smaller.promises], smaller.bounds
            needed = set(range(len(codes)))
        plan = None
        for promise in np.argsort(bounds.lower, kind="stable").tolist():
            rest = keep_promises(bounds, sorted(needed - {promise}))
            plan = plan_within(rest, seconds_until(deadline), plan)
            if plan is None:
                needed.remove(promise)
        is_irreducible = True
    except UndecidedPromisesError:
        pass  # the promises that are left are still impossible together
    return Conflict(tuple(sorted(codes[sorted(needed)].tolist())), is_irreducible)


def _shortest_proof(bounds: PlanBounds, deadline: float) -> list[int]:
    """Return promises that a linear program proves impossible together; none if fractions of exposures are possible.

    With weights f of floors, g of caps and t of the total, all of them 0 or more, no plan is within the bounds if

        sum f D - sum g U - t (total) - sum over atoms of most (sum f - sum g - t)^+  >  0.

    Promises are dropped as long as that stays true, those that contribute least first.
    """
    found = least_total(bounds, deadline)
    if found is None:
        _, weights = least_missed(bounds, np.ones(len(bounds.lower)), deadline)
    elif found[0].cost > bounds.total + TOLERANCE:
        weights = found[1]
    else:
        return []
    most = bounds.most
    floors, caps = (np.where(array > 1e-9, array, 0.0) for array in weights[:2])
    gains = floors * bounds.lower - caps * bounds.upper
    used = (floors > 0) | (caps > 0)
    over = bounds.membership.atom_prices(floors - caps) - weights.total
    value = gains.sum() - weights.total * bounds.total - float(most @ np.maximum(over, 0))
    for promise in np.flatnonzero(used)[np.argsort(np.abs(gains[used]), kind="stable")].tolist():
        atoms = bounds.membership.atoms_of(promise)
        after = over[atoms] - (floors[promise] - caps[promise])
        less = float(most[atoms] @ (np.maximum(over[atoms], 0) - np.maximum(after, 0)))
        if value - gains[promise] + less > TOLERANCE:
            value += less - gains[promise]
            over[atoms] = after
            used[promise] = False
    return np.flatnonzero(used).tolist()


def keep_promises(bounds: PlanBounds, promises: Sequence[int]) -> PlanBounds:
    """Return bounds that hold for some promises only."""
    lower, upper = np.zeros_like(bounds.lower), np.full_like(bounds.upper, bounds.total)
    some = list(promises)
    lower[some], upper[some] = bounds.lower[some], bounds.upper[some]
    return replace(bounds, lower=lower, upper=upper)


def largest_floor(bounds: PlanBounds, promise: int, deadline: float) -> int | None:
    """Return the largest lower bound of a promise that is possible with all other bounds; None if these are not.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> table = Membership.of([(0, 1), (0, 2), (3,)], 4)
    >>> bounds = PlanBounds(table, np.array([0, 4, 3, 1]), np.array([6, 9, 9, 9]), np.full(3, 9), 9)
    >>> deadline = time.monotonic() + 9
    >>> largest_floor(bounds, 1, deadline), smallest_cap(bounds, 0, deadline), largest_floor(bounds, 3, deadline)
    (3, 7, None)
    """
    most = _extreme(with_bound(bounds, promise, lower=0), promise, deadline, largest=True)

    def is_possible(value: int) -> bool:
        return plan_within(with_bound(bounds, promise, lower=value), seconds_until(deadline)) is not None

    return None if most is None else _largest(is_possible, 0, most)


def smallest_cap(bounds: PlanBounds, promise: int, deadline: float) -> int | None:
    """Return the smallest upper bound of a promise that is possible with all other bounds; None if these are not."""
    least = _extreme(with_bound(bounds, promise, upper=bounds.total), promise, deadline, largest=False)

    def is_possible(value: int) -> bool:
        return plan_within(with_bound(bounds, promise, upper=-value), seconds_until(deadline)) is not None

    negative = None if least is None else _largest(is_possible, -bounds.total, -least)
    return None if negative is None else -negative


def _largest(is_possible: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the largest possible number of a range whose last number is likely possible; None if none is."""
    if is_possible(high):
        return high
    if not is_possible(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_possible(middle) else (low, middle)
    return low


def with_bound(bounds: PlanBounds, promise: int, *, lower: int | None = None, upper: int | None = None) -> PlanBounds:
    """Return bounds with another lower or upper bound of one promise."""
    changed: dict[str, Counts] = {}
    for name, value in (("lower", lower), ("upper", upper)):
        if value is not None:
            changed[name] = getattr(bounds, name).copy()
            changed[name][promise] = value
    return replace(bounds, **changed)  # type: ignore[arg-type]


def _extreme(bounds: PlanBounds, promise: int, deadline: float, *, largest: bool) -> int | None:
    """Return the largest or smallest exposures of a promise by a linear program: no plan goes beyond. None: no plan."""
    rows, limits = rows_of(bounds)
    exposures = bounds.membership.matrix[[promise]].toarray()[0]
    found = solve(
        -exposures if largest else exposures,
        rows,
        limits,
        bounds.most.astype(np.float64),
        deadline,
    )
    if found is None:
        return None
    return int(np.floor(1e-6 - found.cost)) if largest else int(np.ceil(found.cost - 1e-6))
