r"""The linear program of a plan: segments of time, atoms, and what promises demand of both.

Time is cut into segments at the deadlines, with :math:`R_s` requests each. With :math:`x_{as}` the exposures of atom a
in segment s, and :math:`z_d` the shortfall of demand d, which is about the atoms :math:`A_d` of a selection in the
segments :math:`S_d`,

.. math::  \ell_d - z_d \le \sum_{a \in A_d, \, s \in S_d} x_{as} \le u_d, \qquad 0 \le x_{as} \le R_s c_a,
           \qquad \sum_a x_{as} \le R_s K

and at most :math:`R_s` times the limit per list for selections that have one. Upper bounds are always kept; they can
be, by no exposures at all. Lower bounds are kept as far as possible: see :mod:`fairsync.plan.priorities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    import numpy.typing as npt

    from fairsync.catalog.atoms import Membership
    from fairsync.policies.base import Counts, Floats


@dataclass(frozen=True, eq=False)
class Demands:
    """What promises demand: bounds on the exposures of a selection in a row of segments.

    Attributes
    ----------
    selection : numpy.ndarray
        (D,) the selection of each demand.
    first, last : numpy.ndarray
        (D,) its first and its last segment.
    at_least, at_most : numpy.ndarray
        (D,) the bounds; 0 and `NO_CAP` where there is none.
    priority : numpy.ndarray
        (D,) the priority, 1 first.
    """

    selection: Counts
    first: Counts
    last: Counts
    at_least: Counts
    at_most: Counts
    priority: Counts

    @classmethod
    def of(
        cls,
        selection: npt.ArrayLike,
        first: npt.ArrayLike,
        last: npt.ArrayLike,
        at_least: npt.ArrayLike,
        at_most: npt.ArrayLike = NO_CAP,
        priority: npt.ArrayLike = 1,
    ) -> Demands:
        """Return demands, given arrays, or single numbers for all of them.

        Examples
        --------
        >>> Demands.of([0, 1], first=0, last=[0, 1], at_least=[3, 9]).first.tolist()
        [0, 0]
        """
        columns = np.broadcast_arrays(selection, first, last, at_least, at_most, priority)
        return cls(*(np.array(column, dtype=np.int64).reshape(-1) for column in columns))

    def __len__(self) -> int:
        return len(self.selection)


class Rows(NamedTuple):
    """Constraints A v <= b on the variables v: exposures and shortfalls.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array
        A. The rows of lower bounds come first, then those of upper bounds.
    limits : numpy.ndarray
        b.
    most : numpy.ndarray
        The largest value of each variable. The smallest is 0.
    demands : numpy.ndarray
        The demand of each of the first rows, as many as lower and upper bounds have.
    """

    matrix: Any
    limits: Floats
    most: Floats
    demands: Counts


@dataclass(frozen=True, eq=False)
class Program:
    """The linear program of a plan.

    Attributes
    ----------
    membership : Membership
        The selections of each atom.
    capacities : numpy.ndarray
        (A,) the most exposures of each atom in one list.
    k : int
        Candidates per request.
    requests : numpy.ndarray
        (S,) the requests of each segment.
    demands : Demands
        What promises demand.
    list_limits : numpy.ndarray or None
        (selections,) the most exposures of each selection in one list; None if none has a limit.
    spares_first : bool
        Whether the first segment is spared: it has as few exposures as possible, those that would be missed otherwise.

    Examples
    --------
    A list has one slot. Selection 0 misses 3 exposures within 4 requests, selection 1 misses 9 within 10.

    >>> from fairsync.catalog.atoms import Membership
    >>> from fairsync.plan import least_shortfall
    >>> demands = Demands.of([0, 1], first=0, last=[0, 1], at_least=[3, 9])
    >>> program = Program(Membership.of([(0,), (1,)], 2), np.ones(2, dtype=int), 1, np.array([4, 6]), demands)
    >>> float(least_shortfall(program).shortfall.sum())
    2.0
    """

    membership: Membership
    capacities: Counts
    k: int
    requests: Counts
    demands: Demands
    list_limits: Counts | None = None
    spares_first: bool = False

    @cached_property
    def floors(self) -> Counts:
        """The demands with a lower bound."""
        return np.flatnonzero(self.demands.at_least > 0)

    @cached_property
    def columns(self) -> Counts:
        """(A, S) the variable of each atom and segment; -1 if it is of no use to any lower bound."""
        demands, n_segments = self.demands, len(self.requests)
        covered = np.zeros((self.membership.n_promises, n_segments + 1))
        selections = demands.selection[self.floors]
        np.add.at(covered, (selections, demands.first[self.floors]), 1.0)
        np.add.at(covered, (selections, demands.last[self.floors] + 1), -1.0)
        is_covered = (np.cumsum(covered, axis=1)[:, :n_segments] > 0).astype(np.float64)
        useful = (self.membership.matrix.T @ is_covered > 0) & (self.capacities > 0)[:, None] & (self.requests > 0)
        columns = np.full(useful.shape, -1)
        columns[useful] = np.arange(np.count_nonzero(useful))
        return columns

    @cached_property
    def n_exposures(self) -> int:
        """The number of variables of exposures. Those of shortfalls follow."""
        return int(self.columns.max(initial=-1)) + 1

    @property
    def n_variables(self) -> int:
        """The number of variables."""
        return self.n_exposures + len(self.floors)

    @cached_property
    def rows(self) -> Rows:
        """The constraints."""
        from scipy import sparse  # here, because scipy takes a third of a second to import

        demands, floors = self.demands, self.floors
        whole = np.concatenate([[0], np.cumsum(self.requests)])
        reach = self.k * (whole[demands.last + 1] - whole[demands.first])
        caps = np.flatnonzero(demands.at_most < reach)
        lower, upper = self._sums(floors, -1.0), self._sums(caps, 1.0)
        shape = (len(floors), self.n_variables)
        slack = (-np.ones(len(floors)), (np.arange(len(floors)), self.n_exposures + np.arange(len(floors))))
        parts = [lower + sparse.coo_array(slack, shape=shape), upper]
        limits = [-demands.at_least[floors], demands.at_most[caps]]
        every = np.arange(self.membership.n_atoms)
        for inside, limit in [(every, self.k), *self._list_limits]:
            parts.append(self._per_segment(inside))
            limits.append(limit * self.requests)
        most = (self.requests * self.capacities[:, None])[self.columns >= 0]
        most = np.concatenate([most, demands.at_least[floors]])
        matrix = sparse.vstack(parts, format="csr")
        return Rows(matrix, np.concatenate(limits).astype(float), most.astype(float), np.concatenate([floors, caps]))

    @property
    def _list_limits(self) -> list[tuple[Counts, int]]:
        """The atoms of each selection with a limit per list that excludes something, and the limit."""
        if self.list_limits is None:
            return []
        reach = np.minimum(self.membership.exposures(self.capacities), self.k)
        return [
            (self.membership.atoms_of(one), int(self.list_limits[one]))
            for one in np.flatnonzero(self.list_limits < reach).tolist()
        ]

    def _sums(self, demands: Counts, factor: float) -> Any:
        """Return one row for each of some demands: a factor times the sum of its exposures."""
        from scipy import sparse

        matrix, every = self.membership.matrix, self.demands
        starts, ends = (matrix.indptr[every.selection[demands] + step].astype(np.int64) for step in (0, 1))
        lengths = every.last[demands] - every.first[demands] + 1
        counts = (ends - starts) * lengths
        row = np.repeat(np.arange(len(demands)), counts)
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        atom = matrix.indices[starts[row] + place // lengths[row]]
        column = self.columns[atom, every.first[demands][row] + place % lengths[row]]
        use = column >= 0
        values = np.full(np.count_nonzero(use), factor)
        return sparse.coo_array((values, (row[use], column[use])), shape=(len(demands), self.n_variables))

    def _per_segment(self, atoms: Counts) -> Any:
        """Return one row for each segment: the exposures of some atoms."""
        from scipy import sparse

        at, segment = np.nonzero(self.columns[atoms] >= 0)
        entries = (np.ones(len(at)), (segment, self.columns[atoms[at], segment]))
        return sparse.coo_array(entries, shape=(len(self.requests), self.n_variables))
