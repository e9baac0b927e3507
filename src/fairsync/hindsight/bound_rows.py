"""Floors and caps of promises, which may overlap, as the rows of one system of inequalities over atoms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fairsync.catalog.atoms import Membership

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    Floats = NDArray[np.float64]

_Number = TypeVar("_Number", np.int64, np.float64)


def without_overlap(n_groups: int) -> Membership:
    """Return the membership of groups with a promise each: every group is an atom."""
    return Membership(n_groups, np.arange(n_groups), np.arange(n_groups + 1))


@dataclass(frozen=True, eq=False)
class BoundRows:
    """One row for each bound: a floor says that exposures are at least m, a cap that their negative is at least -u.

    So every row is a floor on a sum with signs, and its multiplier, the subsidy of the row, is at least 0. An atom's
    subsidy is the sum over its rows: those of caps are subtracted.

    Attributes
    ----------
    by_atom : scipy.sparse.csr_array
        (A, J) the sign of each row in the atoms that it counts, 0 elsewhere.
    promise_of : numpy.ndarray
        (J,) the promise of each row.
    signs : numpy.ndarray
        (J,) 1 for floors, -1 for caps.

    Examples
    --------
    Promise 0 is at least 5, promise 1 at most 7. Atom 2 belongs to both.

    >>> from fairsync.catalog.atoms import Membership
    >>> membership = Membership.of([(0,), (1,), (0, 1)], 2)
    >>> rows, least = BoundRows.of(membership, np.array([5, 0]), np.array([2**62, 7]))
    >>> least.tolist(), rows.subsidies(np.array([0.5, 0.25])).tolist(), rows.delivered(np.array([1, 2, 3])).tolist()
    ([5.0, -7.0], [0.5, -0.25, 0.25], [4, -5])
    >>> rows.prices(np.array([0.5, 0.25]), 2).tolist()
    [-0.5, 0.25]
    """

    by_atom: sparse.csr_array
    promise_of: NDArray[np.int64]
    signs: NDArray[np.int64]

    @classmethod
    def of(
        cls, membership: Membership, floors: NDArray[_Number], caps: NDArray[_Number] | None, most: int = 2**62
    ) -> tuple[BoundRows, Floats]:
        """Return the rows of all floors above 0 and all caps below `most`, and the least value of each row."""
        from scipy import sparse  # here and below, because scipy takes a third of a second to import

        floored = np.flatnonzero(floors > 0)
        capped = np.flatnonzero(caps < most) if caps is not None else np.empty(0, dtype=np.int64)
        promise_of = np.concatenate([floored, capped])
        signs = np.repeat([1, -1], [len(floored), len(capped)])
        least = np.concatenate([floors[floored], -caps[capped]] if caps is not None else [floors[floored]])
        matrix = membership.matrix.T[:, promise_of] * signs
        return cls(sparse.csr_array(matrix), promise_of, signs), least.astype(np.float64)

    @classmethod
    def of_groups(cls, floors: NDArray[_Number]) -> tuple[BoundRows, Floats]:
        """Return the rows of floors of groups, which do not overlap: every group is an atom.

        Examples
        --------
        >>> rows, least = BoundRows.of_groups(np.array([0, 5, 2]))
        >>> least.tolist(), rows.subsidies(np.array([0.5, 0.25])).tolist()
        ([5.0, 2.0], [0.0, 0.5, 0.25])
        """
        return cls.of(without_overlap(len(floors)), floors, None)

    def take(self, rows: NDArray[np.int64]) -> BoundRows:
        """Return some of the rows."""
        return BoundRows(self.by_atom[:, rows], self.promise_of[rows], self.signs[rows])

    def with_empty(self, *, twice: bool = False) -> BoundRows:
        """Return the rows with one more atom, that of empty places, which no row counts; then all others again."""
        from scipy import sparse

        nothing = sparse.csr_array((1, self.by_atom.shape[1]))
        joined = sparse.csr_array(sparse.vstack([self.by_atom, nothing, *([self.by_atom] if twice else [])]))
        return BoundRows(joined, self.promise_of, self.signs)

    @property
    def n_atoms(self) -> int:
        """Number of atoms, A."""
        return int(self.by_atom.shape[0])

    @cached_property
    def _by_row(self) -> sparse.csr_array:
        from scipy import sparse

        return sparse.csr_array(self.by_atom.T)

    @cached_property
    def most_rows(self) -> int:
        """The most rows of an atom."""
        return int(np.diff(self.by_atom.indptr).max(initial=0))

    def expand(self, atoms: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return, for a flat list of atoms, every position in the list with a row of the atom there and its sign."""
        lengths = np.diff(self.by_atom.indptr)[atoms]
        at = np.repeat(np.arange(len(atoms)), lengths)
        starts = self.by_atom.indptr[:-1][atoms] - (np.cumsum(lengths) - lengths)
        places = np.arange(len(at)) + starts[at]
        return at, self.by_atom.indices[places].astype(np.int64), self.by_atom.data[places]

    def subsidies(self, subsidies: Floats) -> Floats:
        """Return (A,) the subsidy of each atom, from those of the rows."""
        return np.asarray(self.by_atom @ subsidies, dtype=np.float64)

    def delivered(self, counts: NDArray[_Number]) -> NDArray[_Number]:
        """Return (J,) the sum of each row, from numbers by atom."""
        return np.asarray(self._by_row @ counts).astype(counts.dtype)

    def prices(self, subsidies: Floats, n_promises: int) -> Floats:
        """Return (P,) the price of each promise."""
        return np.bincount(self.promise_of, -self.signs * subsidies, n_promises).astype(np.float64, copy=False)

    def netted(self, subsidies: Floats) -> Floats:
        """Return subsidies of which no promise has two: those of its floor and its cap are set off.

        Atoms keep their subsidies, and the value of the dual does not rise, as no floor is above its cap.
        """
        net = np.bincount(self.promise_of, self.signs * subsidies)[self.promise_of]
        return np.asarray(np.minimum(subsidies, np.maximum(self.signs * net, 0.0)), dtype=np.float64)
