"""Atoms: the finest parts of a catalog that promises tell apart.

Promises may overlap: an item of the provider "acme" in the category "toys" counts for a promise to either. An atom is
all items that belong to the same promises. Every item is in exactly one atom, so that search and guard work with atoms
as if they were groups: an atom has one price, the sum of the prices of its promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.price_sources import PriceSource, note_source
from fairsync.errors import FairSyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy import sparse

    from fairsync.catalog.catalog import Catalog

# Up to this many promises of one atom, sums are made promise by promise.
_MOST_COLUMNS = 8
# They are made in blocks that stay in cache. What fewer than one in this many atoms have is added atom by atom.
_BLOCK, _FEW = 1 << 14, 4


@dataclass(frozen=True, eq=False)
class Membership:
    """Which atoms belong to which promises: a sparse 0/1 matrix M of promises by atoms.

    Attributes
    ----------
    n_promises : int
        Number of promises, P.
    promises : numpy.ndarray
        int64, codes of promises, atom by atom, ascending within an atom.
    offsets : numpy.ndarray
        (A + 1,) int64: the promises of atom a are ``promises[offsets[a] : offsets[a + 1]]``.

    Examples
    --------
    Promise 0 is to the provider "acme", promise 1 to "toys". Atom 0 is in neither, atom 2 in both.

    >>> membership = Membership.of([(), (0,), (0, 1)], 2)
    >>> membership.atom_prices(np.array([-0.5, 0.25])).tolist()
    [0.0, -0.5, -0.25]
    >>> membership.exposures(np.array([7, 1, 2])).tolist()
    [3, 2]
    """

    n_promises: int
    promises: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, atoms: Sequence[Sequence[int]], n_promises: int) -> Membership:
        """Return the membership of atoms whose promises are given one by one."""
        lengths = np.array([len(atom) for atom in atoms], dtype=np.int64)
        flat = np.array([code for atom in atoms for code in sorted(atom)], dtype=np.int64)
        return cls(n_promises, flat, np.concatenate([[0], np.cumsum(lengths)]))

    @property
    def n_atoms(self) -> int:
        """Number of atoms, A."""
        return len(self.offsets) - 1

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """(P, A) the matrix M, with float64 entries."""
        from scipy import sparse  # here, because it takes long to import

        return sparse.csr_array(self._by_atom.T)

    @cached_property
    def _by_atom(self) -> sparse.csr_array:
        from scipy import sparse

        shape = (self.n_atoms, self.n_promises)
        return sparse.csr_array((np.ones(len(self.promises)), self.promises, self.offsets), shape=shape)

    @cached_property
    def _owners(self) -> NDArray[np.int64]:
        """The atom of each entry of ``promises``."""
        return np.repeat(np.arange(self.n_atoms), np.diff(self.offsets))

    def atom_prices(self, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (A,) the sum over the promises of each atom of values by promise, such as prices.

        The array is not writeable, and what it was made from can be asked for; see `price_sources.source_of`.
        """
        if self._columns is None:
            sums = np.bincount(self._owners, prices[self.promises], self.n_atoms).astype(np.float64, copy=False)
            sums.flags.writeable = False
            return sums
        total, buffer, wide = np.empty(self.n_atoms), np.empty(_BLOCK), np.empty(_BLOCK, dtype=np.intp)
        padded = np.append(prices, 0.0)
        columns, rest = self._columns
        for start in range(0, self.n_atoms, _BLOCK):
            part = total[start : start + _BLOCK]
            more, at = buffer[: len(part)], wide[: len(part)]
            if not columns:
                part[:] = 0.0
            for place, column in enumerate(columns):
                at[:] = column[start : start + _BLOCK]
                padded.take(at, out=more if place else part, mode="clip")
                if place:
                    part += more
        for atoms, promises in rest:
            np.add.at(total, atoms, prices[promises])  # in half the time of an assignment
        total.flags.writeable = False
        note_source(total, PriceSource(self, padded))
        return total

    def in_any(self, promises: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return (A,) whether an atom belongs to one of the promises that a (P,) mask selects.

        Examples
        --------
        >>> Membership.of([(), (0,), (0, 1)], 2).in_any(np.array([False, True])).tolist()
        [False, False, True]
        """
        found: NDArray[np.bool_] = self.atom_prices(promises.astype(np.float64)) > 0
        return found

    def atoms_of(self, promise: int) -> NDArray[np.int64]:
        """Return the atoms of a promise, in ascending order."""
        matrix = self.matrix
        atoms: NDArray[np.int64] = matrix.indices[matrix.indptr[promise] : matrix.indptr[promise + 1]].astype(np.int64)
        return atoms

    @cached_property
    def _columns(self) -> tuple[list[NDArray[np.integer]], list[tuple[NDArray[np.intp], NDArray[np.int64]]]] | None:
        """The first promise of each atom, the second, and so on; None if an atom has many.

        If most atoms have one, it is a column with P where there is none; else the atoms that have one, and the
        promises. Sums over columns take a fraction of the time of sums over entries, and add in the same order. Codes
        are as short as they can be: most of the time goes to reading them.
        """
        lengths = np.diff(self.offsets)
        most = int(lengths.max(initial=0))
        if most > _MOST_COLUMNS:
            return None
        columns: list[NDArray[np.integer]] = []
        kind = np.min_scalar_type(self.n_promises)
        rest: list[tuple[NDArray[np.intp], NDArray[np.int64]]] = []
        for place in range(most):
            has = np.flatnonzero(lengths > place)
            promises = self.promises[self.offsets[has] + place]
            if len(has) * _FEW > self.n_atoms:
                columns.append(np.full(self.n_atoms, self.n_promises, dtype=kind))
                columns[-1][has] = promises
            else:
                rest.append((has, promises))
        return columns, rest

    @cached_property
    def codes_by_place(self) -> list[NDArray[np.int64]]:
        """The codes of all promises that come first in an atom, of those that come second, and so on.

        P is among them if some atom has no promise there. The list is empty if there are no atoms.
        """
        lengths = np.diff(self.offsets)
        found = []
        for place in range(int(lengths.max(initial=0))):
            has = lengths > place
            codes = np.unique(self.promises[self.offsets[:-1][has] + place])
            found.append(codes if has.all() else np.append(codes, self.n_promises))
        return found

    def exposures(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (P,) the sum over the atoms of each promise of whole numbers by atom, such as exposures."""
        # Sums are exact below 2**53, which no number of exposures may exceed. Most atoms have none: these are left out.
        some = (counts != 0).nonzero()[0]  # in a fraction of the time of `np.flatnonzero(counts)`
        at, promises = self.expand(some)
        return np.bincount(promises, counts[some][at], self.n_promises).astype(np.int64)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (P,) the sum over the atoms of each promise of values by atom."""
        return np.bincount(self.promises, values[self._owners], self.n_promises).astype(np.float64, copy=False)

    def followed_by(self, other: Membership) -> Membership:
        """Return these atoms, and after them those of another membership in the same or more promises."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]])
        return Membership(other.n_promises, np.concatenate([self.promises, other.promises]), offsets)

    def of_atom(self, atom: int) -> NDArray[np.int64]:
        """Return the codes of an atom's promises."""
        return self.promises[self.offsets[atom] : self.offsets[atom + 1]]

    def expand(self, atoms: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, for a flat list of atoms, every pair of a position in the list and a promise of the atom there.

        Examples
        --------
        >>> at, promises = Membership.of([(), (0,), (0, 1)], 2).expand(np.array([2, 0, 1]))
        >>> at.tolist(), promises.tolist()
        ([0, 0, 2], [0, 1, 0])
        """
        starts = self.offsets[atoms]
        lengths = self.offsets[atoms + 1] - starts
        ends = np.cumsum(lengths)
        at = np.repeat(np.arange(len(atoms)), lengths)
        places = np.arange(len(at)) + np.repeat(starts - (ends - lengths), lengths)
        return at, self.promises[places]


def keeps_codes(before: Membership | None, now: Membership | None) -> bool:
    """Return whether promises and atoms still have the codes that they had; there may be more of them now.

    None stands for groups, which are their own atoms.

    Examples
    --------
    >>> one = Membership.of([(), (0,)], 1)
    >>> keeps_codes(one, Membership.of([(), (0,), (0, 1)], 2)), keeps_codes(one, Membership.of([(0,), ()], 1))
    (True, False)
    >>> keeps_codes(None, None), keeps_codes(None, one)
    (True, False)
    """
    if before is None or now is None or before is now:
        return before is now
    n, m = len(before.offsets), len(before.promises)
    return (
        before.n_promises <= now.n_promises
        and np.array_equal(before.offsets, now.offsets[:n])
        and np.array_equal(before.promises, now.promises[:m])
    )


@dataclass(frozen=True, eq=False)
class Atoms:
    """The atoms of a catalog under some promises.

    Attributes
    ----------
    atom_of : numpy.ndarray
        (n,) int32, the atom of each item.
    membership : Membership
        The promises of each atom.
    weights : numpy.ndarray or None
        (n,) the number of items that each row stands for; None if a row is an item.

    Examples
    --------
    Of four items, the first two belong to promise 0, the second and the third to promise 1.

    >>> atoms = Atoms.of([np.array([0, 1]), np.array([1, 2])], 4)
    >>> atoms.atom_of.tolist(), [atoms.membership.of_atom(a).tolist() for a in range(4)], atoms.sizes.tolist()
    ([0, 1, 2, 3], [[0], [0, 1], [1], []], [1, 1, 1, 1])
    """

    atom_of: NDArray[np.int32]
    membership: Membership
    weights: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[NDArray[np.integer]],
        n_items: int,
        before: Atoms | None = None,
        weights: NDArray[np.int64] | None = None,
    ) -> Atoms:
        """Return the atoms under promises that are given by the rows of their items.

        Parameters
        ----------
        rows
            For each promise the rows of its items, each row once.
        n_items
            Number of items.
        before
            Atoms before a change of the items. Those keep their codes, also if no item is left in them, and new ones
            follow. Promises must have kept their codes, too.
        weights
            The number of items that each row stands for; None if a row is an item.
        """
        of_items, n_before = _by_item(rows, n_items), 0
        if before is not None:  # as if the atoms before were the first items
            n_before = before.membership.n_atoms
            of_items = before.membership.followed_by(of_items)
        membership, atom_of = _distinct(of_items)
        return cls(atom_of[n_before:].astype(np.int32), membership, weights)

    def extended(self, lists: Sequence[Sequence[int]]) -> tuple[Atoms, list[int]]:
        """Return these atoms and an atom for each list of promises, without items where it is new; and their codes.

        Examples
        --------
        >>> atoms = Atoms.of([np.array([0, 1]), np.array([1, 2])], 3)
        >>> more, codes = atoms.extended([(0,), (0, 1)])
        >>> codes, more is atoms
        ([0, 1], True)
        >>> more, codes = atoms.extended([()])
        >>> codes, more.sizes.tolist()
        ([3], [1, 1, 1, 0])
        """
        membership, numbers = _distinct(self.membership.followed_by(Membership.of(lists, self.membership.n_promises)))
        codes = numbers[self.membership.n_atoms :].tolist()
        if membership.n_atoms == self.membership.n_atoms:
            return self, codes
        return Atoms(self.atom_of, membership, self.weights), codes

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(A,) the number of items of each atom."""
        return np.bincount(self.atom_of, self.weights, self.membership.n_atoms).astype(np.int64)

    def catalog(self, catalog: Catalog) -> Catalog:
        """Return the same items with atoms as their groups, for indexes and the guard."""
        return catalog.regrouped(self.atom_of, self.membership.n_atoms, self.rarity)

    @cached_property
    def rarity(self) -> NDArray[np.float64]:
        """(A,) how small the selections are that an atom is in: minus the sum of the logarithms of their shares.

        A promise to few items is more likely to need a subsidy than one to many.

        Examples
        --------
        >>> atoms = Atoms.of([np.array([0]), np.array([0, 1, 2])], 4)
        >>> np.exp(atoms.rarity).round(2).tolist(), atoms.atom_of.tolist()
        ([5.33, 1.33, 1.0], [0, 1, 1, 2])
        """
        shares = self.membership.exposures(self.sizes) / max(1, int(self.sizes.sum()))
        return self.membership.atom_prices(-np.log(np.maximum(shares, 1e-12)))


def _by_item(rows: Sequence[NDArray[np.integer]], n_items: int) -> Membership:
    """Return the promises of each item, as if it were an atom."""
    from scipy import sparse

    flat = np.concatenate([np.empty(0, dtype=np.int64), *rows])
    ends = np.cumsum([0, *map(len, rows)])
    by_promise = sparse.csr_array((np.ones(len(flat), dtype=np.int8), flat, ends), shape=(len(rows), n_items))
    by_item = by_promise.tocsc()  # sorts in linear time
    return Membership(len(rows), by_item.indices.astype(np.int64), by_item.indptr.astype(np.int64))


def _distinct(membership: Membership) -> tuple[Membership, NDArray[np.int64]]:
    """Return the atoms that differ, in the order in which they first come, and (A,) the code of each there."""
    first, number = distinct_lists(membership.promises, membership.offsets)
    at, promises = membership.expand(first)
    ends = np.cumsum(np.bincount(at, minlength=len(first)))
    return Membership(membership.n_promises, promises, np.concatenate([[0], ends])), number


def distinct_lists(codes: NDArray[np.int64], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first item with each distinct list of codes, and the number of each item's list in that order."""
    n, lengths = len(offsets) - 1, np.diff(offsets)
    owners = np.repeat(np.arange(n), lengths)
    for seed in range(8):
        # Equal lists have equal sums of random numbers; that unequal ones have not is checked below.
        keys = np.random.default_rng(seed).integers(1, 2**63, size=int(codes.max(initial=-1)) + 1, dtype=np.uint64)
        running = np.zeros(len(codes) + 1, dtype=np.uint64)
        np.cumsum(keys[codes], out=running[1:])  # may wrap around, as differences do
        sums = running[offsets[1:]] - running[offsets[:-1]]
        order = np.argsort(sums, kind="stable")
        new = np.ones(n, dtype=bool)
        new[1:] = sums[order][1:] != sums[order][:-1]
        number = np.empty(n, dtype=np.int64)
        number[order] = np.cumsum(new) - 1
        first = order[new]
        like = first[number]
        if (lengths == lengths[like]).all():
            place = np.arange(len(codes)) - np.repeat(offsets[:-1], lengths)
            if (codes == codes[offsets[:-1][like][owners] + place]).all():
                break
    else:
        raise FairSyncError("The items could not be sorted by their promises.")
    by_item = np.argsort(first)  # so that codes do not depend on the random numbers
    rank = np.empty(len(first), dtype=np.int64)
    rank[by_item] = np.arange(len(first))
    return first[by_item], rank[number]
