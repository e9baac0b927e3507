"""Blockers: the demands to which a demand gives way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.linear_program import TOLERANCE, solve, undecided

if TYPE_CHECKING:
    from fairsync.plan.priorities import ShortfallPlan
    from fairsync.plan.program import Program
    from fairsync.policies.base import Counts

SECONDS = 5.0
"""The time limit, in seconds."""


def blockers(program: Program, solution: ShortfallPlan, demand: int, seconds: float = SECONDS) -> Counts:
    """Return the demands to which a demand gives way: it could have more if one of them asked for less.

    Empty if the demand could not have more although it were alone.

    Parameters
    ----------
    program, solution
        A program, and its solution with the least shortfall.
    demand
        A demand with a shortfall.
    seconds
        The time limit.

    Examples
    --------
    Three requests with one slot. Demand 1 misses an exposure because of demand 0, and demand 2 because of nothing.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan import Demands, Program, least_shortfall
    >>> demands = Demands.of([0, 1, 2], first=0, last=0, at_least=[2, 2, 1], priority=[1, 2, 1])
    >>> table, capacities = Membership.of([(0,), (1,), (2,)], 3), np.array([1, 1, 0])
    >>> program = Program(table, capacities, 1, np.array([3]), demands)
    >>> solution = least_shortfall(program)
    >>> blockers(program, solution, 1).tolist(), blockers(program, solution, 2).tolist()
    ([0], [])
    """
    rows, floors, first = program.rows, program.floors, program.n_exposures
    place = int(np.searchsorted(floors, demand))
    cost, most = np.zeros(program.n_variables), rows.most.copy()
    most[first : first + len(floors)] = solution.shortfall[floors] + TOLERANCE
    most[first + place] = program.demands.at_least[demand]
    cost[first + place] = 1.0
    found = solve(cost, rows.matrix, rows.limits, most, time.monotonic() + seconds)
    if found is None:
        raise undecided()
    n_rows = len(rows.demands)
    weighty = rows.demands[found.weights[:n_rows] > TOLERANCE]
    every: Counts = np.unique(weighty[weighty != demand])
    return every
