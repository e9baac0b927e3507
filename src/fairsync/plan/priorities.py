"""Solve the program of a plan: the least shortfall, higher priorities first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.promises.linear_program import TOLERANCE, seconds_until, solve, undecided

if TYPE_CHECKING:
    from fairsync.plan.program import Program
    from fairsync.policies.base import Floats

SECONDS = 20.0
"""The time limit for solving a program, in seconds."""

# HiGHS meets constraints up to about 1e-7.
_MARGIN = 1e-6
# The weight of an exposure in the brief segment beside one of its requests: no more exposures than are needed there.
_EXPOSURE = 1e-3


@dataclass(frozen=True, eq=False)
class ShortfallPlan:
    """A plan with the least shortfall.

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


def least_shortfall(program: Program, seconds: float = SECONDS, *, is_whole: bool = False) -> ShortfallPlan:
    """Return a plan with the least shortfall, lexicographically by priority.

    The total shortfall of the first priority is as small as possible, that of the second as small as possible beside
    it, and so on. Then the first segment is as brief as possible, if its requests are a variable.

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
    phases = _Phases(program, deadline, is_whole)
    missed = np.zeros(program.n_variables)
    missed[first : first + n_floors] = 1.0
    values = phases.least(missed)
    order = program.demands.priority[program.floors]
    priorities = np.unique(order).tolist()
    if float(missed @ values) <= TOLERANCE or len(priorities) == 1:
        phases.keep(missed, values)
    else:
        for priority in priorities:
            cost = np.zeros(program.n_variables)
            cost[first + np.flatnonzero(order == priority)] = 1.0
            values = phases.least(cost)
            phases.keep(cost, values)
    if program.is_brief:
        ahead, cost = program.columns[:, 0], np.zeros(program.n_variables)
        cost[ahead[ahead >= 0]] = _EXPOSURE / program.k
        cost[-1] = 1.0
        values = phases.least(cost)
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
        self._limits.append(float(cost @ values) * (1 + _MARGIN) + _MARGIN)

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
    requests = float(values[-1]) if program.is_brief else float(program.requests[0])
    return ShortfallPlan(exposures, np.where(shortfall > TOLERANCE, shortfall, 0.0), requests)
