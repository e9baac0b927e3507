r"""A plan that is spread over atoms: the one nearest to likely exposures in relative entropy.

A vertex of the linear program asks for few atoms up to the limit, and the guard would have to fill slots with them at
once. A plan close to what prices deliver anyway asks for little. Given likely exposures B, the plan is

.. math::  X_a = \min\Bigl(R \, c_a, \; B_a \exp \sum_{p \ni a} \lambda_p\Bigr)

with one multiplier a promise: positive only if the floor binds, negative only if the cap does. It is found by
generalised iterative scaling (Darroch and Ratcliff, 1972): in each round every multiplier moves by a part of what would
settle its promise alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.promises.repair import lower_excess, lower_surplus, raise_deficits

if TYPE_CHECKING:
    from fairsync.policies.base import Counts, Floats
    from fairsync.promises.plan_bounds import PlanBounds

# Scaling ends when every promise is this close to what it needs, relatively.
_CLOSE = 1e-3
# An atom is asked for at most this part of what it can show, unless one of its promises needs more. The rest is for the
# guard: an atom that must be shown as often as possible is forced into the very next list.
_PART = 0.8


def spread_target(bounds: PlanBounds, likely: Floats, rounds: int = 60) -> Floats:
    """Return a spread plan in fractions of exposures, which satisfies the bounds approximately.

    Parameters
    ----------
    bounds
        The bounds.
    likely
        (A,) the likely exposures of each atom. Only atoms with some get any. The lower they are altogether, the smaller
        is the total of the plan.
    rounds
        The most rounds of scaling.
    """
    membership = bounds.membership
    bounded = bounds.lower > 0
    needed = membership.in_any(bounded)
    bounded[bounds.capped] = True
    rows = np.flatnonzero(bounded)
    atoms = np.flatnonzero(needed & (bounds.most > 0) & (likely > 0))
    matrix = membership.matrix[rows][:, atoms]
    by_atom = matrix.T.tocsr()
    lower, upper = bounds.lower[rows].astype(np.float64), bounds.upper[rows].astype(np.float64)
    most = _part_of_most(bounds.most[atoms].astype(np.float64), matrix, lower)
    base = np.log(likely[atoms])
    # A multiplier moves by a part that is safe if all promises of its atoms move the same way.
    shared = np.maximum(np.asarray(by_atom.sum(axis=1)), 1.0)
    step = 1 / np.maximum(_largest_in_row(matrix, shared), 1.0)
    multipliers = np.zeros(len(rows))
    values = np.minimum(most, np.exp(np.minimum(base, 60.0)))
    with np.errstate(divide="ignore"):
        low, high = np.log(lower), np.log(upper)
        for _ in range(rounds):
            sums = np.log(np.maximum(matrix @ values, 1e-9))
            settled = np.maximum(multipliers + low - sums, np.minimum(0.0, multipliers + high - sums))
            change = np.clip(settled - multipliers, -30.0, 30.0)
            multipliers += step * change
            values = np.minimum(most, np.exp(np.minimum(base + by_atom @ multipliers, 60.0)))
            if np.abs(change).max(initial=0.0) < _CLOSE:
                break
    target = np.zeros(len(bounds.most))
    target[atoms] = values
    return target


def whole_plan(bounds: PlanBounds, target: Floats) -> Counts:
    """Return a plan near a target: rounded down, raised where promises miss exposures, and lowered where none does.

    It may violate some bounds where these leave little choice.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> table = Membership.of([(0, 2), (0, 3), (1, 2), (1, 3)], 4)
    >>> bounds = PlanBounds(table, np.array([30, 10, 20, 20]), np.full(4, 99), np.full(4, 99), 40)
    >>> whole_plan(bounds, spread_target(bounds, np.ones(4))).tolist()
    [15, 15, 5, 5]
    """
    start = lower_excess(bounds, np.floor(target + 1e-6).astype(np.int64))
    rank = (start + 1) / np.maximum(target, 1e-9)
    return lower_surplus(bounds, raise_deficits(bounds, start, rank), -rank)


def _part_of_most(most: Floats, matrix: Any, lower: Floats) -> Floats:
    """Return the most that each atom is asked for: a part of what it can show, as far as its promises allow."""
    needed = np.minimum(1.2 * lower / np.maximum(matrix @ most, 1.0), 1.0)
    return most * np.maximum(_largest_in_row(matrix.T.tocsr(), needed), _PART)


def _largest_in_row(matrix: Any, values: Floats) -> Floats:
    """Return, for each row of a sparse 0/1 matrix, the largest of the values of its columns; 0 for an empty row."""
    largest = np.zeros(matrix.shape[0])
    filled = np.flatnonzero(np.diff(matrix.indptr))
    if len(filled):
        largest[filled] = np.maximum.reduceat(values[matrix.indices], matrix.indptr[filled])
    return largest
