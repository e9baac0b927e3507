r"""Aggregation: many selections as one, where the program has the same solutions.

Take selections of one atom each that share no item and have demands of the same segments and priorities. Let
:math:`D_a` be what is demanded of atom a, and :math:`c_a` the most of it in one list. If

.. math::  \frac{D_a}{\sum_b D_b} \le \frac{c_a}{K} \quad \text{for every } a,

any exposures :math:`X_s \le R_s K` of all of them together can be divided in proportion to :math:`D_a`, and no atom
gets more than :math:`R_s c_a`. So one demand of :math:`\sum_a D_a` stands for all of theirs. Thousands of small
promises with a few different windows become a few demands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.plan.program import Demands, Program
from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Floats


@dataclass(frozen=True, eq=False)
class Aggregation:
    """A program with fewer selections, and how its solutions are divided.

    Attributes
    ----------
    whole : Program
        The program.
    program : Program
        The program with fewer selections.
    atoms : numpy.ndarray
        (A,) the atom of the smaller program that stands for each atom.
    demands : numpy.ndarray
        (D,) the demand of the smaller program that stands for each demand; -1 if it demands nothing.
    """

    whole: Program
    program: Program
    atoms: Counts
    demands: Counts

    @property
    def largest(self) -> Counts:
        """The largest lower bound among the demands for which each one of the smaller program stands."""
        most, some = np.zeros(len(self.program.demands), dtype=np.int64), self.demands >= 0
        np.maximum.at(most, self.demands[some], self.whole.demands.at_least[some])
        return most

    def exposures(self, exposures: Floats) -> Floats:
        """Return (A, S) the exposures of each atom, given those of the smaller program."""
        demands, kept = self.whole.demands, self.demands >= 0
        divided = np.bincount(self.atoms, minlength=len(exposures))[self.atoms] > 1
        found = np.where(divided[:, None], 0.0, exposures[self.atoms])
        matrix = self.whole.membership.matrix
        some = np.flatnonzero(kept & (demands.at_least > 0))
        atom = matrix.indices[matrix.indptr[demands.selection[some]]]
        some, atom = some[divided[atom]], atom[divided[atom]].astype(np.int64)
        part = demands.at_least[some] / self.program.demands.at_least[self.demands[some]]
        for segment in range(found.shape[1]):
            here = (demands.first[some] <= segment) & (segment <= demands.last[some])
            found[atom[here], segment] = part[here] * exposures[self.atoms[atom[here]], segment]
        return found

    def shortfall(self, shortfall: Floats) -> Floats:
        """Return (D,) the shortfall of each demand: the largest miss first, so that as many as possible are met."""
        demands, found = self.whole.demands, np.zeros(len(self.demands))
        some = np.flatnonzero((self.demands >= 0) & (demands.at_least > 0))
        some = some[shortfall[self.demands[some]] > 0]
        some = some[np.lexsort((-demands.at_least[some], self.demands[some]))]
        before = np.cumsum(demands.at_least[some]) - demands.at_least[some]
        _, start, place = np.unique(self.demands[some], return_index=True, return_inverse=True)
        before = before - before[start][place] if len(some) else before
        found[some] = np.clip(shortfall[self.demands[some]] - before, 0.0, demands.at_least[some])
        return found


def aggregate(program: Program, kept: Counts | None = None) -> Aggregation | None:
    """Return a smaller program with the same solutions; None if nothing can be aggregated.

    Parameters
    ----------
    program
        The program.
    kept
        Selections that must not be aggregated.

    Examples
    --------
    Four selections demand 3 exposures each of ten requests with two slots, the last one of one request alone.

    >>> table, ones = Membership.of([(0,), (1,), (2,), (3,)], 4), np.ones(4, dtype=int)
    >>> demands = Demands.of([0, 1, 2, 3], first=0, last=[1, 1, 1, 0], at_least=3)
    >>> found = aggregate(Program(table, ones, 2, np.array([1, 9]), demands))
    >>> found.program.demands.at_least.tolist(), found.atoms.tolist(), found.demands.tolist()
    ([3, 9], [1, 1, 1, 0], [1, 1, 1, 0])
    """
    groups = _groups(program, _only_atoms(program, kept))
    if not groups:
        return None
    demands, membership, n = program.demands, program.membership, len(groups)
    group_of = np.full(membership.n_promises, -1)  # of each selection
    for group, rows in enumerate(groups):
        group_of[demands.selection[rows[:, 0]]] = group
    # What is not aggregated comes first, in its order.
    at, selections = membership.expand(np.arange(membership.n_atoms))
    is_alone = np.ones(membership.n_atoms, dtype=bool)
    is_alone[at[group_of[selections] >= 0]] = False
    place = np.cumsum(group_of < 0) - 1
    codes = np.where(group_of < 0, place, place[-1] + 1 + group_of)
    atoms = np.cumsum(is_alone) - 1
    atoms[at] = np.where(is_alone[at], atoms[at], np.count_nonzero(is_alone) + group_of[selections])
    entries = is_alone[at]
    lengths = np.concatenate([np.diff(membership.offsets)[is_alone], np.ones(n, dtype=np.int64)])
    table = Membership(
        int(place[-1]) + 1 + n,
        np.concatenate([codes[selections[entries]], place[-1] + 1 + np.arange(n)]),
        np.concatenate([[0], np.cumsum(lengths)]),
    )
    others = np.flatnonzero(group_of[demands.selection] < 0)
    columns: list[tuple[int, ...]] = []
    place_of = np.full(len(demands), -1)
    place_of[others] = np.arange(len(others))
    for group, rows in enumerate(groups):
        for column in rows.T:
            place_of[column] = len(others) + len(columns)
            one, total = int(column[0]), int(demands.at_least[column].sum())
            first, last, priority = (int(values[one]) for values in (demands.first, demands.last, demands.priority))
            columns.append((int(place[-1]) + 1 + group, first, last, total, NO_CAP, priority))
    added = np.array(columns, dtype=np.int64).T
    old = (codes[demands.selection], demands.first, demands.last, demands.at_least, demands.at_most, demands.priority)
    every = Demands(*(np.concatenate([values[others], more]) for values, more in zip(old, added, strict=True)))
    limits = program.list_limits
    if limits is not None:
        limits = np.concatenate([limits[group_of < 0], np.full(n, program.k)])
    capacities = np.concatenate([program.capacities[is_alone], np.full(n, program.k)])
    smaller = Program(table, capacities, program.k, program.requests, every, limits, program.spares_first)
    return Aggregation(program, smaller, atoms, place_of)


def _only_atoms(program: Program, kept: Counts | None) -> Counts:
    """Return (selections,) the only atom of each selection that may be aggregated; -1 for all others."""
    membership, demands = program.membership, program.demands
    at, selections = membership.expand(np.arange(membership.n_atoms))
    single = np.diff(membership.offsets)[at] == 1
    found = np.full(membership.n_promises, -1)
    found[selections[single]] = at[single]
    found[np.bincount(selections, minlength=membership.n_promises) != 1] = -1
    found[np.isin(found, np.flatnonzero(program.capacities == 0))] = -1
    found[demands.selection[demands.at_most < NO_CAP]] = -1
    if program.list_limits is not None:
        found[program.list_limits < program.k] = -1
    if kept is not None:
        found[kept] = -1
    return found


def _groups(program: Program, atom_of: Counts) -> list[Counts]:
    """Return (members, demands of each) the demands of selections that one stands for."""
    demands = program.demands
    wanted = program.floors[atom_of[demands.selection[program.floors]] >= 0]
    wanted = wanted[np.lexsort((demands.first[wanted], demands.selection[wanted]))]
    edges = np.flatnonzero(np.diff(demands.selection[wanted], prepend=-1, append=-1)).tolist()
    times = np.stack([demands.first[wanted], demands.last[wanted], demands.priority[wanted]], axis=1).tolist()
    alike: dict[str, list[Counts]] = {}
    for start, end in pairwise(edges):
        alike.setdefault(str(times[start:end]), []).append(wanted[start:end])
    groups = []
    for members in alike.values():
        rows = np.array(members)
        if (demands.first[rows[0, 1:]] <= demands.last[rows[0, :-1]]).any():
            continue  # several demands at the same time: their proportions would have to be the same
        capacities = program.capacities[atom_of[demands.selection[rows[:, 0]]]]
        rows = rows[_fitting(demands.at_least[rows], capacities, program.k)]
        if len(rows) > 1:
            groups.append(rows)
    return groups


def _fitting(floors: Counts, capacities: Counts, k: int) -> NDArray[np.bool_]:
    """Return (members,) which of them can get their part of all exposures, whatever these are.

    Examples
    --------
    >>> _fitting(np.array([[50], [2], [2], [3]]), np.array([1, 1, 1, 2]), k=3).tolist()
    [False, True, True, True]
    """
    fits = np.ones(len(floors), dtype=bool)
    while True:
        good = fits & (floors * k <= capacities[:, None] * floors[fits].sum(axis=0)).all(axis=1)
        if good.sum() == fits.sum():
            return fits
        fits = good
