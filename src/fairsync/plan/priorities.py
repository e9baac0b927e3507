"""Solve the program of a plan: the least shortfall, higher priorities first."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.plan.aggregation import aggregate
from fairsync.plan.even_plan import even_plan
from fairsync.promises.linear_program import TOLERANCE, seconds_until, solve, undecided

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Counts, Floats

SECONDS = 20.0
"""The time limit for solving a program, in seconds."""

# The weight of missed fractions beside the total shortfall: all of them together count less than one exposure.
_FRACTION = 0.5
# By how much a missed exposure weighs more where it is demanded from a later segment on: if either could be missed, it
# is the demand under way, so that warnings come early.
_LATER = 1e-5
# HiGHS meets constraints up to about 1e-7.
MARGIN = 1e-6
# The weight of an exposure in a first segment that is spared, beside a missed exposure.
_SPARED = 1e-3
# If the first segment is spared, by how much more a missed exposure weighs at the nearest deadline than at the last:
# what ends later has more time to come.
_NEAR = 0.1


@dataclass(frozen=True, eq=False)
class ShortfallPlan:
    """A plan with the least shortfall.

    Attributes
    ----------
    exposures : numpy.ndarray
        (A, S) the exposures of each atom in each segment, in fractions.
    shortfall : numpy.ndarray
        (D,) by how much each demand misses its lower bound.
    """

    exposures: Floats
    shortfall: Floats


def least_shortfall(program: Program, seconds: float = SECONDS, *, is_whole: bool = False) -> ShortfallPlan:
    """Return a plan with the least shortfall, lexicographically by priority.

    The total shortfall of the first priority is as small as possible, that of the second as small as possible beside
    it, and so on. Among plans with the same totals, one with the least sum of missed fractions is chosen, so that many
    demands are met in full rather than all of them in part. If the first segment is spared, near deadlines come first,
    and it has as few exposures as possible.

    Parameters
    ----------
    program
        The program.
    seconds
        The time limit.
    is_whole
        Whether exposures must be whole numbers. This may take long.

    Raises
    ------
    UndecidedPromisesError
        The time limit has passed.

    Examples
    --------
    Two requests with one slot each. The second demand comes first.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan.program import Demands, Program
    >>> demands = Demands.of([0, 1], first=0, last=0, at_least=[2, 1], priority=[2, 1])
    >>> program = Program(Membership.of([(0,), (1,)], 2), np.ones(2, dtype=int), 1, np.array([2]), demands)
    >>> least_shortfall(program).shortfall.round(3).tolist()
    [1.0, 0.0]
    """
    deadline = time.monotonic() + seconds
    if not len(program.floors):
        return _solution(program, np.zeros(program.n_variables))
    even = None if is_whole else even_plan(program)
    if even is not None:  # nothing is missed: no program has to be solved
        return ShortfallPlan(even, np.zeros(len(program.demands)))
    smaller = None if is_whole else aggregate(program)
    if smaller is None:
        found = solve_phases(program, program.demands.at_least, deadline, is_whole)
    else:
        few = solve_phases(smaller.program, smaller.largest, deadline)
        found = ShortfallPlan(smaller.exposures(few.exposures), smaller.shortfall(few.shortfall))
    return replace(found, shortfall=np.where(found.shortfall > TOLERANCE, found.shortfall, 0.0))


def solve_phases(program: Program, sizes: Counts, deadline: float, is_whole: bool = False) -> ShortfallPlan:
    """Return a plan with the least shortfall, priority by priority, without any shortcut.

    Parameters
    ----------
    program, deadline, is_whole
        The program, when the time limit has passed, and whether exposures must be whole numbers.
    sizes
        (D,) the lower bounds of which fractions are missed.
    """
    n_floors, first = len(program.floors), program.n_exposures
    phases = _Phases(program, deadline, is_whole)
    order = program.demands.priority[program.floors]
    # Of plans with the same total, that with the least total of missed fractions: more demands are met in full.
    missed = 1.0 + _FRACTION / n_floors / sizes[program.floors]
    missed += _LATER * (program.demands.first[program.floors] > 0)
    spared = np.zeros(program.n_variables)
    if program.spares_first:
        missed = 1.0 + _NEAR * (1.0 - program.demands.last[program.floors] / len(program.requests))
        ahead = program.columns[:, 0]
        spared[ahead[ahead >= 0]] = _SPARED * (1.0 + _NEAR * _nearest(program)[ahead >= 0] / len(program.requests))
    priorities = np.unique(order).tolist()
    if len(priorities) > 1:
        cost = np.zeros(program.n_variables)
        cost[first : first + n_floors] = missed
        values = phases.least(cost + spared)
        if float(cost @ values) <= TOLERANCE:  # nothing gives way
            return _solution(program, values)
    values = np.zeros(program.n_variables)
    for priority in priorities:
        cost, total = np.zeros((2, program.n_variables))
        cost[first : first + n_floors] = np.where(order == priority, missed, 0.0)
        total[first : first + n_floors] = order == priority
        values = phases.least(cost + spared if priority == priorities[-1] else cost)
        phases.keep(total, values)
    return _solution(program, values)


def _nearest(program: Program) -> Counts:
    """Return (A,) the nearest last segment among the lower bounds that each atom counts for."""
    membership, floors = program.membership, program.floors
    of_selection = np.full(membership.n_promises, len(program.requests))
    np.minimum.at(of_selection, program.demands.selection[floors], program.demands.last[floors])
    at, selections = membership.expand(np.arange(membership.n_atoms))
    nearest = np.full(membership.n_atoms, len(program.requests))
    np.minimum.at(nearest, at, of_selection[selections])
    return nearest


class _Phases:
    """One cost after another, each as small as possible beside those before."""

    def __init__(self, program: Program, deadline: float, is_whole: bool) -> None:
        self._rows, self._deadline = program.rows, deadline
        is_exposure = np.arange(program.n_variables) < program.n_exposures
        self._integrality = is_exposure.astype(np.int64) if is_whole else None
        self._costs: list[Floats] = []
        self._limits: list[float] = []

    def keep(self, cost: Floats, values: Floats) -> None:
        """Keep a cost as small as it is."""
        self._costs.append(cost)
        self._limits.append(float(cost @ values) * (1 + MARGIN) + MARGIN)

    def least(self, cost: Floats) -> Floats:
        """Return the variables with the least cost."""
        from scipy import sparse

        matrix, limits = self._rows.matrix, np.concatenate([self._rows.limits, self._limits])
        if self._costs:
            matrix = sparse.vstack([matrix, sparse.csr_array(np.array(self._costs))], format="csr")
        if self._integrality is not None:
            return self._least_whole(cost, matrix, limits)
        found = solve(cost, matrix, limits, self._rows.most, self._deadline)
        if found is None:  # although no exposures at all satisfy every row of the first phase
            raise undecided()
        return found.values

    def _least_whole(self, cost: Floats, matrix: Any, limits: Floats) -> Floats:
        from scipy.optimize import Bounds, LinearConstraint, milp

        found = milp(
            cost,
            integrality=self._integrality,
            bounds=Bounds(0, self._rows.most),
            constraints=LinearConstraint(matrix, -np.inf, limits),
            options={"time_limit": seconds_until(self._deadline)},
        )
        if found.status != 0:
            raise undecided()
        values: Floats = found.x
        return values


def _solution(program: Program, values: Floats) -> ShortfallPlan:
    exposures = np.zeros(program.columns.shape)
    used = program.columns >= 0
    exposures[used] = values[program.columns[used]]
    shortfall = np.zeros(len(program.demands))
    first = program.n_exposures
    shortfall[program.floors] = values[first : first + len(program.floors)]
    return ShortfallPlan(exposures, np.maximum(shortfall, 0.0))
