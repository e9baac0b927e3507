"""What was shown: the atoms of lists, and how many of their items are in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Membership
    from fairsync.policies.base import Counts


class Shown(NamedTuple):
    """The atoms of a list, each once, and the number of its items in each."""

    atoms: NDArray[np.int64]
    counts: Counts

    @classmethod
    def of(cls, rows: NDArray[np.int64], atom_of: NDArray[np.int32]) -> Shown:
        """Return the atoms of a list, which may have empty places at its end."""
        return cls.of_atoms(atom_of[rows[rows >= 0]])

    @classmethod
    def of_atoms(cls, atoms: NDArray[np.integer]) -> Shown:
        """Return the atoms of some items, given the atom of each.

        Examples
        --------
        >>> Shown.of_atoms(np.array([7, 3, 7]))
        Shown(atoms=array([3, 7]), counts=array([1, 2]))
        """
        each, counts = np.unique(atoms, return_counts=True)
        return cls(each.astype(np.int64), counts.astype(np.int64))

    @classmethod
    def in_all(cls, counts: Counts) -> Shown:
        """Return the atoms of one list or several, from (A,) the number of their items in each atom."""
        atoms = (counts != 0).nonzero()[0]
        return cls(atoms, counts[atoms])

    def exposures(self, links: Membership) -> Counts:
        """Return (P,) the exposures of each promise."""
        at, promises = links.expand(self.atoms)
        return np.bincount(promises, self.counts[at], links.n_promises).astype(np.int64)

    def taken_from(self, plan: Counts) -> Counts:
        """Return (A,) a plan lowered by what was shown of it."""
        rest = plan.copy()
        rest[self.atoms] = np.maximum(rest[self.atoms] - self.counts, 0)
        return rest

    def up_to(self, n_atoms: int) -> Counts:
        """Return (A,) the number of items of every atom."""
        counts = np.zeros(n_atoms, dtype=np.int64)
        counts[self.atoms] = self.counts
        return counts
