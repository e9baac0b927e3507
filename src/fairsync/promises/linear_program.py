"""The linear programs about plans, solved by HiGHS."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairsync.errors import UndecidedPromisesError

if TYPE_CHECKING:
    from fairsync.policies.base import Floats
    from fairsync.promises.plan_bounds import PlanBounds

TOLERANCE = 1e-3
"""HiGHS meets constraints up to about 1e-7: a total that exceeds what is allowed by less than this proves nothing."""

# With more entries than this, interior point is faster than simplex.
_LARGE = 20_000
_INFEASIBLE = 2


@dataclass(frozen=True)
class LinearSolution:
    """The solution of a linear program.

    Attributes
    ----------
    values : numpy.ndarray
        The variables.
    weights : numpy.ndarray
        The dual value of each row, 0 or more: by how much the cost falls if the limit rises by one.
    cost : float
        The least cost.
    """

    values: Floats
    weights: Floats
    cost: float


def rows_of(bounds: PlanBounds) -> tuple[Any, Floats]:
    """Return the floors, then the caps, and the total as rows of A x <= b."""
    from scipy import sparse  # here and below, because scipy takes a third of a second to import

    floors, capped, matrix = np.flatnonzero(bounds.lower > 0), bounds.capped, bounds.membership.matrix
    total = sparse.csr_array(np.ones((1, len(bounds.most))))
    rows = sparse.vstack([-matrix[floors], matrix[capped], total], format="csr")
    return rows, np.concatenate([-bounds.lower[floors], bounds.upper[capped], [bounds.total]]).astype(np.float64)


def solve(cost: Floats, rows: Any, limits: Floats, most: Floats, deadline: float) -> LinearSolution | None:
    """Return the variables between 0 and ``most`` with A x <= b and the least cost; None if there are none.

    Examples
    --------
    >>> from scipy import sparse
    >>> deadline = time.monotonic() + 9
    >>> solve(np.ones(2), sparse.csr_array([[-1.0, -2.0]]), np.array([-6.0]), np.array([9.0, 2.0]), deadline).cost
    4.0
    """
    from scipy.optimize import linprog

    for method in ("highs-ipm", "highs-ds") if rows.nnz > _LARGE else ("highs-ds", "highs-ipm"):
        found = linprog(  # type: ignore[call-overload]  # the stubs of scipy do not know sparse rows
            cost,
            A_ub=rows,
            b_ub=limits,
            bounds=np.column_stack([np.zeros(len(cost)), most]),
            method=method,
            options={"time_limit": seconds_until(deadline)},
        )
        if found.status == _INFEASIBLE:
            return None
        if found.status == 0:
            return LinearSolution(found.x, -found.ineqlin.marginals, float(found.fun))
    raise undecided()


class Weights(NamedTuple):
    """The dual values of floors, of caps and of the total.

    Attributes
    ----------
    floors, caps : numpy.ndarray
        (P,) the weights of the lower and of the upper bounds, 0 or more.
    total : float
        The weight of the total.
    """

    floors: Floats
    caps: Floats
    total: float


def least_total(bounds: PlanBounds, deadline: float) -> tuple[LinearSolution, Weights] | None:
    """Return the plan with the least total, whatever total is allowed, and its weights; None if there is none.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> bounds = PlanBounds(Membership.of([(0,), (0, 1)], 2), np.array([4, 1]), np.full(2, 99), np.full(2, 9), 2)
    >>> plan, weights = least_total(bounds, time.monotonic() + 9)
    >>> plan.cost, weights.floors.tolist()
    (4.0, [1.0, 0.0])
    """
    rows, limits = rows_of(bounds)
    found = solve(np.ones(len(bounds.most)), rows[:-1], limits[:-1], bounds.most.astype(np.float64), deadline)
    return None if found is None else (found, _weights(bounds, found.weights, 1.0))


def least_missed(bounds: PlanBounds, worth: Floats, deadline: float) -> tuple[Floats, Weights]:
    """Return (P,) by how much floors are missed if as little as possible is, and the weights.

    If something is missed, the promises with a weight cannot hold together.

    Parameters
    ----------
    bounds
        The bounds. Upper bounds are kept.
    worth
        (P,) what missing one exposure of each floor counts; inf for floors that must not be missed.
    deadline
        When to give up, as `time.monotonic` counts.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> bounds = PlanBounds(Membership.of([(0,), (1,)], 2), np.array([4, 9]), np.full(2, 5), np.full(2, 9), 9)
    >>> missed, weights = least_missed(bounds, np.ones(2), time.monotonic() + 9)
    >>> missed.tolist(), weights.floors.tolist(), weights.caps.tolist()
    ([0.0, 4.0], [0.0, 1.0], [0.0, 1.0])
    """
    from scipy import sparse

    floors = np.flatnonzero(bounds.lower > 0)
    n, m = len(bounds.most), len(floors)
    rows, limits = rows_of(bounds)
    slack = sparse.csr_array((-np.ones(m), (np.arange(m), np.arange(m))), shape=(len(limits), m))
    may_miss = np.isfinite(worth[floors])
    found = solve(
        np.concatenate([np.zeros(n), np.where(may_miss, worth[floors], 0.0)]),
        sparse.hstack([rows, slack], format="csr"),
        limits,
        np.concatenate([bounds.most, np.where(may_miss, bounds.lower[floors], 0)]).astype(np.float64),
        deadline,
    )
    if found is None:
        raise undecided()
    missed = np.zeros(len(bounds.lower))
    missed[floors] = found.values[n:]
    return missed, _weights(bounds, found.weights[:-1], float(found.weights[-1]))


def _weights(bounds: PlanBounds, weights: Floats, total: float) -> Weights:
    """Return the weights of the rows that `rows_of` returns."""
    floors, caps = np.zeros(len(bounds.lower)), np.zeros(len(bounds.lower))
    some = np.flatnonzero(bounds.lower > 0)
    floors[some], caps[bounds.capped] = weights[: len(some)], weights[len(some) :]
    return Weights(floors, caps, total)


def seconds_until(deadline: float) -> float:
    """Return the seconds that are left, or raise `UndecidedPromisesError`."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise undecided()
    return seconds


def undecided() -> UndecidedPromisesError:
    """Return the error of a time limit that has passed."""
    return UndecidedPromisesError(
        "it could not be decided in time whether the promises can hold together, and nothing was changed. Promises at"
        " the very edge of what is possible take long to decide: lower some of them a little, or lengthen the horizon."
    )
