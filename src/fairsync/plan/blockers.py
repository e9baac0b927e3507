"""Blockers: the demands to which a demand gives way."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import UndecidedPromisesError
from fairsync.plan.aggregation import aggregate
from fairsync.plan.priorities import solve_phases
from fairsync.promises.linear_program import TOLERANCE, solve

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Counts

_SECONDS = 5.0  # the time limit


def blockers(program: Program, demand: int) -> Counts:
    """Return the demands to which a demand gives way: it could have more if one of them asked for less.

    Empty if the demand could not have more although it were alone, or if the time limit has passed.

    Parameters
    ----------
    program
        A program.
    demand
        A demand that has a shortfall in its solution with the least shortfall.

    Examples
    --------
    Three requests with one slot. Demand 1 misses an exposure because of demand 0, and demand 2 because of nothing.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan import Demands, Program
    >>> demands = Demands.of([0, 1, 2], first=0, last=0, at_least=[2, 2, 1], priority=[1, 2, 1])
    >>> table, capacities = Membership.of([(0,), (1,), (2,)], 3), np.array([1, 1, 0])
    >>> program = Program(table, capacities, 1, np.array([3]), demands)
    >>> blockers(program, 1).tolist(), blockers(program, 2).tolist()
    ([0], [])
    """
    deadline = time.monotonic() + _SECONDS
    smaller = aggregate(program, kept=program.demands.selection[[demand]])
    stands_for = np.arange(len(program.demands)) if smaller is None else smaller.demands
    program, demand = (program, demand) if smaller is None else (smaller.program, int(stands_for[demand]))
    rows, floors, first = program.rows, program.floors, program.n_exposures
    place = int(np.searchsorted(floors, demand))
    cost, most = np.zeros(program.n_variables), rows.most.copy()
    cost[first + place] = 1.0
    found = None
    with suppress(UndecidedPromisesError):
        shortfall = solve_phases(program, program.demands.at_least, deadline).shortfall
        most[first : first + len(floors)] = shortfall[floors] + TOLERANCE
        most[first + place] = program.demands.at_least[demand]
        found = solve(cost, rows.matrix, rows.limits, most, deadline)
    if found is None:
        return np.zeros(0, dtype=np.int64)
    weighty = rows.demands[found.weights[: len(rows.demands)] > TOLERANCE]
    every: Counts = np.flatnonzero(np.isin(stands_for, weighty[weighty != demand]))
    return every
