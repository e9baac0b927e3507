"""The largest lower bound of some demands that is possible beside all others."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.plan.aggregation import aggregate
from fairsync.plan.even_plan import even_plan
from fairsync.plan.priorities import MARGIN, SECONDS, solve_phases
from fairsync.promises.linear_program import TOLERANCE, solve, undecided

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Floats


def with_floors(program: Program, times: Floats, offset: Floats, value: float) -> Program:
    """Return a program in which demands with ``times`` above 0 have the lower bound ``times * value + offset``."""
    asked = np.ceil(times * value + offset - TOLERANCE).astype(np.int64)
    floors = np.where(times > 0, np.maximum(asked, 0), program.demands.at_least)
    return replace(program, demands=replace(program.demands, at_least=floors))


def largest_value(program: Program, times: Floats, offset: Floats, most: float) -> float:
    """Return the largest value v for which demands can have the lower bounds ``times * v + offset``.

    All other demands miss no more than they do anyway.

    Parameters
    ----------
    program
        The program.
    times, offset
        (D,) the factor and the summand, at most 0, of each demand; the factor is 0 for demands that keep their lower
        bounds.
    most
        The value is at most this.

    Examples
    --------
    Ten requests with two slots. Selection 0 is promised 6 exposures, so that selection 1 can have 7 in each half.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan import Demands, Program
    >>> demands = Demands.of([0, 1, 1], first=[0, 0, 1], last=[1, 0, 1], at_least=[6, 0, 0])
    >>> program = Program(Membership.of([(0,), (1,)], 2), np.full(2, 2), 2, np.array([5, 5]), demands)
    >>> largest_value(program, np.array([0.0, 1.0, 1.0]), np.zeros(3), most=99).__round__(3)
    7.0
    """
    from scipy import sparse

    deadline = time.monotonic() + SECONDS
    whole = with_floors(program, times, offset, most)  # has all variables that any value needs
    if even_plan(whole) is not None:
        return most
    smaller = aggregate(whole, kept=whole.demands.selection[times > 0])
    if smaller is not None:
        whole = program = smaller.program
        own = np.flatnonzero(times > 0)
        parts = np.zeros((2, len(program.demands)))
        parts[:, smaller.demands[own]] = times[own], offset[own]
        times, offset = parts
    others = with_floors(program, times * 0 + (times > 0), offset * 0, 0.0)
    missed = np.zeros(len(others.demands))
    if len(others.floors):
        missed = solve_phases(others, np.maximum(others.demands.at_least, 1), deadline).shortfall
    rows, floors, first, n = whole.rows, whole.floors, whole.n_exposures, whole.n_variables
    factor, limits, upper = np.zeros(len(rows.limits)), rows.limits.copy(), rows.most.copy()
    mine = times[floors] > 0
    # The value is solved for in exposures: the factors of shares are as many as slots, too large for the solver.
    unit = max(times.max(initial=0.0), 1.0)
    factor[: len(floors)] = np.where(mine, times[floors] / unit, 0.0)
    limits[: len(floors)] = np.where(mine, -offset[floors], limits[: len(floors)])
    upper[first : first + len(floors)] = np.where(mine, 0.0, missed[floors] + MARGIN)
    matrix = sparse.hstack([rows.matrix, sparse.csr_array(factor[:, None])], format="csr")
    found = solve(np.append(np.zeros(n), -1.0), matrix, limits, np.append(upper, most * unit), deadline)
    if found is None:  # although the value 0 is possible
        raise undecided()
    return float(found.values[-1] / unit)
