r"""A plan that is spread over atoms: the one nearest to likely exposures in relative entropy.

A vertex of the linear program asks for few atoms up to the limit, and the guard would have to fill slots with them at
once. A plan close to what prices deliver anyway asks for little. Given likely exposures B, the plan is

.. math::  X_a = \min\Bigl(R \, c_a, \; B_a \exp \sum_{p \ni a} \lambda_p\Bigr)

with one multiplier a promise: positive only if the floor binds, negative only if the cap does. It is found by
generalised iterative scaling (Darroch and Ratcliff, 1972): in each round every multiplier moves by a part of what would
settle its promise alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.repair import lower_excess, lower_surplus, raise_deficits

if TYPE_CHECKING:
    from fairsync.policies.base import Counts, Floats
    from fairsync.promises.plan_bounds import PlanBounds

_CLOSE = 1e-3


def spread_plan(bounds: PlanBounds, likely: Floats, rounds: int = 60) -> Counts:
    """Return a spread plan. It may violate some bounds where these leave little choice.

    Parameters
    ----------
    bounds
        The bounds.
    likely
        (A,) the likely exposures of each atom. Only atoms with some get any, except to fill gaps.
    rounds
        The most rounds of scaling.

    Examples
    --------
    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.promises.plan_bounds import PlanBounds
    >>> table = Membership.of([(0, 2), (0, 3), (1, 2), (1, 3)], 4)
    >>> bounds = PlanBounds(table, np.array([30, 10, 20, 20]), np.full(4, 99), np.full(4, 99), 40)
    >>> spread_plan(bounds, np.ones(4)).tolist()
    [15, 15, 5, 5]
    """
    target = _scaled(bounds, likely, rounds)
    start = lower_excess(bounds, np.floor(target + 1e-6).astype(np.int64))
    rank = (start + 1) / np.maximum(target, 1e-9)
    return lower_surplus(bounds, raise_deficits(bounds, start, rank), -rank)


def _scaled(bounds: PlanBounds, likely: Floats, rounds: int) -> Floats:
    membership = bounds.membership
    bounded = bounds.lower > 0
    needed = membership.atom_prices(bounded.astype(np.float64)) > 0
    bounded[bounds.capped] = True
    rows = np.flatnonzero(bounded)
    atoms = np.flatnonzero(needed & (bounds.most > 0) & (likely > 0))
    matrix = membership.matrix[rows][:, atoms]
    transposed = matrix.T.tocsr()
    most, lower, upper = (
        array.astype(np.float64) for array in (bounds.most[atoms], bounds.lower[rows], bounds.upper[rows])
    )
    base = np.log(likely[atoms])
    degrees = np.maximum(np.asarray(transposed.sum(axis=1)), 1.0)
    worst = np.zeros(len(rows))
    np.maximum.at(worst, matrix.tocoo().row, degrees[matrix.indices])
    step = 1 / np.maximum(worst, 1)
    multipliers = np.zeros(len(rows))
    values = np.minimum(most, np.exp(np.minimum(base, 60.0)))
    with np.errstate(divide="ignore"):
        low, high = np.log(lower), np.log(upper)
        for _ in range(rounds):
            sums = np.log(np.maximum(matrix @ values, 1e-9))
            wanted = np.maximum(multipliers + low - sums, np.minimum(0.0, multipliers + high - sums))
            change = np.clip(wanted - multipliers, -30.0, 30.0)
            multipliers += step * change
            values = np.minimum(most, np.exp(np.minimum(base + transposed @ multipliers, 60.0)))
            if np.abs(change).max(initial=0.0) < _CLOSE:
                break
    target = np.zeros(len(bounds.most))
    target[atoms] = values
    return target
