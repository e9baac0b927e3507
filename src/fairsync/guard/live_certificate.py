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
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership
from fairsync.promises.certificate import prune
from fairsync.promises.shown import Shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies.base import Counts, Terms


# Check all atoms once for this many requests.
_CHECKED_AHEAD = 64
# More atoms than this are lowered together.
_ONE_BY_ONE = 1000
_MANY = 2**62


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
        self._planned: Counts | None = None
        self.total = int(self.plan.sum())
        self._fitting = _MANY  # a number of requests that is known to be enough for every atom
        self.keep_caps()

    @property
    def planned(self) -> Counts:
        """(P,) the planned exposures of each promise, M X; computed when it is first needed."""
        if self._planned is None:
            self._planned = self.links.exposures(self.plan)
        return self._planned

    def fits(self, left: int) -> bool:
        """Return whether ``left`` requests can show what is planned of each atom."""
        if left >= self._fitting:
            return True
        for enough in (left - _CHECKED_AHEAD, left):
            if not (self.plan > enough * self.terms.capacities).any():
                self._fitting = enough
                return True
        return False

    def copy(self) -> LiveCertificate:
        """Return a copy that can change by itself."""
        other = copy.copy(self)
        other.plan, other.missing = self.plan.copy(), self.missing.copy()
        other._planned = None if self._planned is None else self._planned.copy()
        other.room = None if self.room is None else self.room.copy()
        return other

    def exposures(self, shown: Shown, counts: Counts | None = None) -> Counts:
        """Return (P,) the exposures of each promise in a list, or other numbers for its atoms, summed up."""
        return (shown if counts is None else Shown(shown.atoms, counts)).exposures(self.links)

    @property
    def slack(self) -> Counts | None:
        """(P,) what caps have left beyond the certificate."""
        return None if self.room is None else self.room - self.planned

    def is_deliverable(self, left: int) -> bool:
        """Return whether ``left`` requests can deliver what is planned, within the caps."""
        nothing = np.empty(0, dtype=np.int64)
        return self.is_safe(Shown(nothing, nothing), left)

    def _over_limit(self, left: int, planned: Counts) -> NDArray[np.int64]:
        """Return the promises with a list limit of which ``left`` requests cannot show what is planned."""
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
        if len(self.late(shown, left)):
            return False
        return not len(self.over_limit(shown, left)) and not len(self.over_cap(shown))

    def late(self, shown: Shown, left: int) -> NDArray[np.int64]:
        """Return the atoms of which a list shows too little; condition (a)."""
        if self.fits(left):
            return np.empty(0, dtype=np.int64)
        late = np.flatnonzero(self.plan > left * self.terms.capacities)
        counts = shown.up_to(len(self.plan))[late]
        return late[counts < self.plan[late] - left * self.terms.capacities[late]]

    def over_limit(self, shown: Shown, left: int) -> NDArray[np.int64]:
        """Return the promises with a list limit of which a list shows too little; condition (b)."""
        if not len(self.limited):
            return self.limited
        used = np.minimum(shown.counts, self.plan[shown.atoms])
        return self._over_limit(left, self.planned - self.exposures(shown, used))

    def over_cap(self, shown: Shown) -> NDArray[np.int64]:
        """Return the promises whose cap could not be kept beside the certificate; condition (c)."""
        if self.room is None:
            return np.empty(0, dtype=np.int64)
        surplus = self.exposures(shown, np.maximum(shown.counts - self.plan[shown.atoms], 0))
        return np.flatnonzero(surplus > self.room - self.planned)

    def record(self, shown: Shown) -> None:
        """Count a list that was returned."""
        used = np.minimum(shown.counts, self.plan[shown.atoms])
        self.add(shown.atoms, -used)
        given = self.exposures(shown)
        self.missing = np.maximum(self.missing - given, 0)
        if self.room is not None:
            self.room = np.maximum(self.room - given, 0)
            self.keep_caps()

    def limit_missing(self, left: int) -> None:
        """Limit what floors miss to the slots of ``left`` requests, after requests with fewer than k candidates."""
        self.missing = np.minimum(self.missing, left * self.terms.k)

    def keep_caps(self) -> None:
        """Lower the plan where it exceeds what caps have left: a cap comes before a floor.

        That happens only if a request could not be filled otherwise, because it was limited or a part of the catalog
        was out of reach.
        """
        if self.room is None:
            return
        for promise in np.flatnonzero(self.planned > self.room).tolist():
            atoms = self.links.atoms_of(promise)
            excess = max(int(self.planned[promise] - self.room[promise]), 0)
            upto = np.minimum(np.cumsum(self.plan[atoms]), excess)
            self.add(atoms, -np.diff(upto, prepend=0))

    def lower(self, by: Counts) -> None:
        """Lower the plan by (A,) numbers, which may be negative."""
        atoms = np.flatnonzero(by)
        if len(atoms):
            self.add(atoms, -by[atoms])

    def add(self, atoms: NDArray[np.int64], counts: Counts) -> None:
        """Add exposures, or take them away, from the plan of some atoms."""
        self.plan[atoms] += counts
        if self._planned is not None:
            self._planned += self.exposures(Shown(atoms, counts))
        self.total += int(counts.sum())
        if (counts > 0).any():
            self._fitting = _MANY

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
        beyond = self.planned - self.missing
        pending = np.flatnonzero((free > 0) & ~self.links.in_any(beyond <= 0))
        if least is None and len(pending) > _ONE_BY_ONE:
            self.lower(self.plan - prune(self.terms, self.plan, self.missing))
            return
        key = self.plan[pending] / np.maximum(self.terms.capacities[pending], 1)
        if urgent is not None:
            key[urgent[pending]] = np.inf
        n = 32
        while len(pending):
            first = np.argpartition(-key, n - 1)[:n] if n < len(pending) else np.arange(len(pending))
            for atom in pending[first[np.argsort(-key[first], kind="stable")]].tolist():
                mine = self.links.of_atom(atom)
                by = min(int(free[atom]), int(beyond[mine].min(initial=_MANY)))
                if by > 0:
                    beyond[mine] -= by
                    self.planned[mine] -= by
                    self.plan[atom] -= by
                    self.total -= by
            is_left = ~self.links.in_any(beyond <= 0)[pending]
            is_left[first] = False
            pending, key, n = pending[is_left], key[is_left], 2 * n

    def is_tight(self, promises: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of some promises needs all that is planned for it."""
        tight: NDArray[np.bool_] = (self.planned[promises] <= self.missing[promises]) & (self.missing[promises] > 0)
        return tight
