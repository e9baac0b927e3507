"""Supply: what one list of candidates can hold of each selection of items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.inputs import check_positive
from fairsync.promises.selection import selection_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Label
    from fairsync.schedule.seasonal_profile import Ints


@dataclass(frozen=True, eq=False)
class Supply:
    """What one list of candidates can hold of each selection of items.

    Attributes
    ----------
    selections : tuple of str
        The names of the selections (:func:`fairsync.promises.selection.selection_name`).
    membership : Membership
        The selections of each atom.
    capacities : numpy.ndarray
        (A,) the most items of each atom in one list, at most k.
    k : int
        Candidates per request.
    unreduced : numpy.ndarray or None
        (A,) the capacities for requests that exclude nothing, if the atoms have all items of a catalog. Without them,
        it is not checked whether caps and limits per list leave enough items to fill lists with.
    sure : numpy.ndarray or None
        (A,) the capacities whatever requests exclude, where ``capacities`` are for requests that exclude nothing. By
        default, both are the same.

    Examples
    --------
    >>> supply = Supply.of_groups({"toys": 20, "books": 3}, k=20)
    >>> supply.selections, supply.most.tolist()
    (('{"group": "toys"}', '{"group": "books"}'), [20, 3])
    """

    selections: tuple[str, ...]
    membership: Membership
    capacities: Ints
    k: int
    unreduced: Ints | None = None
    sure: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_positive(self.k, "k"))
        wrong = np.flatnonzero((self.capacities < 0) | (self.capacities > self.k))
        for atom in wrong[:1].tolist():
            names = ", ".join(self.selections[one] for one in self.membership.of_atom(atom).tolist())
            raise InvalidInputError(
                f"the most of {names} in one list is {self.capacities[atom]}: give min(k, items), 0 to {self.k}."
            )

    @classmethod
    def of_groups(cls, capacities: Mapping[Label, int], k: int, attribute: str = "group") -> Supply:
        """Return the supply of groups that share no item.

        Parameters
        ----------
        capacities
            {label: min(k, items of the group)}.
        k
            Candidates per request.
        attribute
            The attribute that has the labels.
        """
        n = len(capacities)
        names = tuple(selection_name({attribute: label}) for label in capacities)
        sizes = np.array(list(capacities.values()), dtype=np.int64)
        return cls(names, Membership(n, np.arange(n), np.arange(n + 1)), sizes, k)

    @cached_property
    def most(self) -> Ints:
        """(selections,) the most items of each selection in one list."""
        return np.minimum(self.membership.exposures(self.capacities), self.k)

    @cached_property
    def assured(self) -> Supply:
        """The supply of requests that exclude as much as they may."""
        return self if self.sure is None else replace(self, capacities=self.sure)

    @cached_property
    def is_disjoint(self) -> bool:
        """Whether every selection is one atom, so that no two of them share an item."""
        n = len(self.selections)
        return self.membership.n_atoms == n and np.array_equal(self.membership.promises, np.arange(n))

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.selections)}

    def codes_of(self, names: Sequence[str]) -> list[int]:
        """Return the codes of selections, or raise `UnknownGroupError`."""
        codes = self._codes
        unknown = [name for name in dict.fromkeys(names) if name not in codes]
        if unknown:
            raise UnknownGroupError([*unknown], [*self.selections])
        return [codes[name] for name in names]

    def restricted(self, codes: Ints) -> Supply:
        """Return the supply with some of the selections only, and with the atoms that belong to one of them."""
        place = np.full(len(self.selections), -1)
        place[codes] = np.arange(len(codes))
        at, selections = self.membership.expand(np.arange(self.membership.n_atoms))
        use = place[selections] >= 0
        at, selections = at[use], place[selections[use]]
        counts = np.bincount(at, minlength=self.membership.n_atoms)
        some = counts > 0
        order = np.lexsort((selections, at))
        membership = Membership(len(codes), selections[order], np.concatenate([[0], np.cumsum(counts[some])]))
        names = tuple(self.selections[code] for code in codes.tolist())
        return Supply(names, membership, self.capacities[some], self.k)
