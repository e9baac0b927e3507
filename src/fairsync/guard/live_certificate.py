r"""The certificate while requests are answered: what a list does to it, and how it is made to fit a list.

With R requests left, floors that miss D and caps that have U left, a certificate is a plan of :math:`X_a` exposures of
each atom with

.. math::  M X \ge D, \quad M X \le U, \quad X_a \le R \, c_a, \quad \sum X \le R K, \quad (M X)_p \le R \, l_p

the last for promises with a list limit. A list of :math:`x_a` items of each atom leaves
:math:`X' = \max(X - x, 0)`. It is a certificate for the R - 1 requests after it, and the list is *safe*, if

* (a) :math:`x_a \ge X_a - (R - 1) c_a` for every atom,
* (b) :math:`\sum \min(x, X) \ge \sum X - (R - 1) K`, and the same for each promise with a list limit,
* (c) :math:`\sum_{a \in p} (x_a - X_a)^+ \le U_p - (M X)_p` for every promise with a cap.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.catalog.atoms import Membership

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Terms


class Shown(NamedTuple):
    """The atoms of a list, each once, and the number of its items in each."""

    atoms: NDArray[np.int64]
    counts: Counts

    @classmethod
    def of(cls, rows: NDArray[np.int64], atom_of: NDArray[np.int32]) -> Shown:
        """Return the atoms of a list, which may have empty places at its end."""
        atoms, counts = np.unique(atom_of[rows[rows >= 0]], return_counts=True)
        return cls(atoms.astype(np.int64), counts.astype(np.int64))

    def up_to(self, n_atoms: int) -> Counts:
        """Return (A,) the number of items of every atom."""
        counts = np.zeros(n_atoms, dtype=np.int64)
        counts[self.atoms] = self.counts
        return counts


def links(terms: Terms) -> Membership:
    """Return the promises of each atom, also where promise p is atom p."""
    if terms.membership is not None:
        return terms.membership
    n = terms.n_atoms
    return Membership(n, np.arange(n), np.arange(n + 1))


class LiveCertificate:
    """A certificate, and what the promises miss and have left, from request to request.

    Attributes
    ----------
    plan : numpy.ndarray
        (A,) the certificate X.
    planned : numpy.ndarray
        (P,) M X.
    missing : numpy.ndarray
        (P,) what floors miss, D.
    room : numpy.ndarray or None
        (P,) what caps have left, U; None if there are no caps.
    total : int
        The sum of X.
    """

    def __init__(self, terms: Terms, plan: Counts, missing: Counts, room: Counts | None) -> None:
        self.terms, self.links = terms, links(terms)
        self.plan, self.missing = plan.astype(np.int64), np.maximum(missing, 0)
        self.room = None if terms.caps is None or room is None else np.maximum(room, 0)
        limits = terms.list_limits
        self.limited = np.empty(0, dtype=np.int64) if limits is None else np.flatnonzero(limits < terms.k)
        self.planned = self.links.exposures(self.plan)
        self.total = int(self.plan.sum())
        self.keep_caps()

    def copy(self) -> LiveCertificate:
        """Return a copy that can change by itself."""
        other = copy.copy(self)
        other.plan, other.planned, other.missing = self.plan.copy(), self.planned.copy(), self.missing.copy()
        other.room = None if self.room is None else self.room.copy()
        return other

    def exposures(self, shown: Shown, counts: Counts | None = None) -> Counts:
        """Return (P,) the exposures of each promise in a list, or other numbers for its atoms, summed up."""
        at, promises = self.links.expand(shown.atoms)
        weights = (shown.counts if counts is None else counts)[at]
        return np.bincount(promises, weights, self.links.n_promises).astype(np.int64)

    @property
    def slack(self) -> Counts | None:
        """(P,) what caps have left beyond the certificate."""
        return None if self.room is None else self.room - self.planned

    def is_valid(self, left: int) -> bool:
        """Return whether this is a certificate for so many requests."""
        terms = self.terms
        return (
            self.total <= left * terms.k
            and bool((self.plan <= left * terms.capacities).all())
            and bool((self.planned >= self.missing).all())
            and not len(self._over_limit(left, self.planned))
            and (self.room is None or bool((self.planned <= self.room).all()))
        )

    def _over_limit(self, left: int, planned: Counts) -> NDArray[np.int64]:
        """Return the promises with a list limit that so many requests could not show as often as planned."""
        if not len(self.limited):
            return self.limited
        limits = self.terms.list_limits
        assert limits is not None
        return self.limited[planned[self.limited] > left * limits[self.limited]]

    def is_safe(self, shown: Shown, left: int) -> bool:
        """Return whether a certificate for the requests after it is left by a list; conditions (a) to (c).

        Parameters
        ----------
        shown
            The list.
        left
            Requests left after it.
        """
        used = np.minimum(shown.counts, self.plan[shown.atoms])
        if self.total - int(used.sum()) > left * self.terms.k:
            return False
        late = np.flatnonzero(self.plan > left * self.terms.capacities)
        if len(late):
            counts = shown.up_to(len(self.plan))[late]
            if (counts < self.plan[late] - left * self.terms.capacities[late]).any():
                return False
        if len(self.limited) and len(self._over_limit(left, self.planned - self.exposures(shown, used))):
            return False
        return self.room is None or not self._over_cap(shown).any()

    def _over_cap(self, shown: Shown) -> NDArray[np.bool_]:
        """Return (P,) the promises whose cap could not be kept beside the certificate; condition (c)."""
        beyond = np.maximum(shown.counts - self.plan[shown.atoms], 0)
        surplus = self.exposures(shown, beyond)
        assert self.room is not None
        over: NDArray[np.bool_] = surplus > self.room - self.planned
        return over

    def record(self, shown: Shown) -> None:
        """Count a list that was returned."""
        used = np.minimum(shown.counts, self.plan[shown.atoms])
        self._add(shown.atoms, -used)
        given = self.exposures(shown)
        self.missing = np.maximum(self.missing - given, 0)
        if self.room is not None:
            self.room = np.maximum(self.room - given, 0)
            self.keep_caps()

    def keep_caps(self) -> None:
        """Lower the plan where it exceeds what caps have left: a cap comes before a floor.

        That happens only if a request could not be filled otherwise, because it was limited or a part of the catalog
        was out of reach.
        """
        if self.room is None:
            return
        for promise in np.flatnonzero(self.planned > self.room).tolist():
            matrix = self.links.matrix
            atoms = matrix.indices[matrix.indptr[promise] : matrix.indptr[promise + 1]].astype(np.int64)
            excess = max(int(self.planned[promise] - self.room[promise]), 0)
            upto = np.minimum(np.cumsum(self.plan[atoms]), excess)
            self._add(atoms, -np.diff(upto, prepend=0))

    def lower(self, by: Counts) -> None:
        """Lower the plan by (A,) numbers, which may be negative."""
        atoms = np.flatnonzero(by)
        if len(atoms):
            self._add(atoms, -by[atoms])

    def _add(self, atoms: NDArray[np.int64], counts: Counts) -> None:
        self.plan[atoms] += counts
        self.planned += self.exposures(Shown(atoms, counts))
        self.total += int(counts.sum())

    def prune(self, least: Counts | None = None, urgent: NDArray[np.bool_] | None = None) -> None:
        """Lower the plan while it still covers what is missing.

        Parameters
        ----------
        least
            (A,) numbers below which the plan is not lowered; None for 0.
        urgent
            (A,) the atoms to lower first.
        """
        free = self.plan if least is None else self.plan - least
        atoms = np.flatnonzero(free > 0)
        beyond = self.planned - self.missing
        spare = np.full(len(atoms), np.iinfo(np.int64).max)
        at, promises = self.links.expand(atoms)
        np.minimum.at(spare, at, beyond[promises])
        atoms = atoms[spare > 0]
        load = self.plan[atoms] / np.maximum(self.terms.capacities[atoms], 1)
        order = np.lexsort((-load, np.zeros(len(atoms)) if urgent is None else ~urgent[atoms]))
        for atom in atoms[order].tolist():
            mine = self.links.of_atom(atom)
            by = min(int(free[atom]), int(beyond[mine].min(initial=np.iinfo(np.int64).max)))
            if by > 0:
                beyond[mine] -= by
                self.planned[mine] -= by
                self.plan[atom] -= by
                self.total -= by

    def adapted(self, shown: Shown, left: int) -> LiveCertificate:
        """Return a plan that counts on this list: items that it shows take the place of others with their promises.

        What it covers is the same. It need not be a certificate for the request with this list, because it may be
        larger; whether the list is safe under it says :meth:`is_safe`.
        """
        other = self.copy()
        more = np.maximum(shown.counts - self.plan[shown.atoms], 0)
        other._add(shown.atoms, more)
        counts = shown.up_to(len(self.plan))
        urgent = other.plan > left * self.terms.capacities + counts
        if self.room is not None:
            over = np.flatnonzero(self._over_cap(shown))
            urgent |= self._in_any(over)
        other.prune(np.minimum(counts, other.plan), urgent)
        other.prune()
        return other

    def _in_any(self, promises: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (A,) whether an atom belongs to one of these promises."""
        chosen = np.zeros(self.links.n_promises)
        chosen[promises] = 1.0
        found: NDArray[np.bool_] = self.links.atom_prices(chosen) > 0
        return found
