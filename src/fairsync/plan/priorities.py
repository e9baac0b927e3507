"""Solve the program of a plan: the least shortfall, higher priorities first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.plan.even_plan import even_plan
from fairsync.promises.linear_program import TOLERANCE, seconds_until, solve, undecided

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Floats

SECONDS = 20.0
"""The time limit for solving a program, in seconds."""

# The weight of missed fractions beside the total shortfall: all of them together count less than one exposure.
_FRACTION = 0.5
# HiGHS meets constraints up to about 1e-7.
MARGIN = 1e-6
# The weight of a missed exposure beside a request of the brief segment.
_EXPOSURES_FIRST = 1000.0
# The weight of an exposure in the brief segment beside one of its requests: no more exposures than are needed there.
_EXPOSURE = 1e-3


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of a program.

    Attributes
    ----------
    exposures : numpy.ndarray
        (A, S) the exposures of each atom in each segment, in fractions.
    shortfall : numpy.ndarray
        (D,) by how much each demand misses its lower bound.
    requests : float
        The requests of the first segment.
    """

    exposures: Floats
    shortfall: Floats
    requests: float


def least_shortfall(program: Program, seconds: float = SECONDS, *, is_whole: bool = False) -> Solution:
    """Return a plan with the least shortfall, lexicographically by priority.

    The total shortfall of the first priority is as small as possible, that of the second as small as possible beside
    it, and so on. Among plans with the same totals, one with the least sum of missed fractions is chosen, so that many
    demands are met in full rather than all of them in part. Then the first segment is as brief as possible, if its requests are a variable.

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
    n_floors, first = len(program.floors), program.n_exposures
    if not n_floors:
        return _solution(program, np.zeros(program.n_variables))
    even = None if is_whole else even_plan(program)
    if even is not None:  # nothing is missed: no program has to be solved
        requests = 0.0 if program.is_brief else float(program.requests[0])
        return Solution(even, np.zeros(len(program.demands)), requests)
    phases = _Phases(program, deadline, is_whole)
    order = program.demands.priority[program.floors]
    # Of plans with the same total, that with the least total of missed fractions: more demands are met in full.
    missed = 1.0 + _FRACTION / n_floors / program.demands.at_least[program.floors]
    brief = np.zeros(program.n_variables)
    if program.is_brief:
        ahead = program.columns[:, 0]
        brief[ahead[ahead >= 0]] = _EXPOSURE / program.k
        brief[-1] = 1.0
    priorities = np.unique(order).tolist()
    if len(priorities) > 1:
        cost = np.zeros(program.n_variables)
        cost[first : first + n_floors] = missed
        if float(cost @ phases.least(cost)) <= TOLERANCE:  # nothing gives way
            priorities = [priorities[-1]]
    values = np.zeros(program.n_variables)
    for priority in priorities:
        cost = np.zeros(program.n_variables)
        cost[first : first + n_floors] = np.where((order == priority) | (len(priorities) == 1), missed, 0.0)
        is_last = priority == priorities[-1]
        values = phases.least(_EXPOSURES_FIRST * cost + brief if is_last else cost)
        phases.keep(cost, values)
    return _solution(program, values)


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


def _solution(program: Program, values: Floats) -> Solution:
    exposures = np.zeros(program.columns.shape)
    used = program.columns >= 0
    exposures[used] = values[program.columns[used]]
    shortfall = np.zeros(len(program.demands))
    first = program.n_exposures
    shortfall[program.floors] = values[first : first + len(program.floors)]
    requests = float(values[-1]) if program.is_brief else float(program.requests[0])
    return Solution(exposures, np.where(shortfall > TOLERANCE, shortfall, 0.0), requests)
