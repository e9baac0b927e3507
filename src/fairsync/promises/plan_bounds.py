"""The inequalities that a certificate satisfies, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Membership

if TYPE_CHECKING:
    from fairsync.policies.base import Counts, Terms


@dataclass(frozen=True, eq=False)
class PlanBounds:
    r"""What a plan X over atoms must satisfy to prove that all promises can still be kept.

    .. math::  D \le M X \le U, \qquad 0 \le X_a \le R \, c_a, \qquad \sum_a X_a \le R \, K

    Attributes
    ----------
    membership : Membership
        The promises of each atom, M.
    lower, upper : numpy.ndarray
        (P,) the least and the most exposures of each promise. A limit per list is a limit of R times as many.
    most : numpy.ndarray
        (A,) the most exposures of each atom.
    total : int
        The most exposures of all atoms together.

    Examples
    --------
    >>> bounds = PlanBounds(
    ...     Membership.of([(0,), (1,), (0, 1)], 2), np.array([5, 5]), np.array([9, 9]), np.array([9, 9, 2]), 8
    ... )
    >>> bounds.hold(np.array([3, 3, 2])), bounds.hold(np.array([4, 4, 1])), bounds.hold(np.array([2, 3, 3]))
    (True, False, False)
    """

    membership: Membership
    lower: Counts
    upper: Counts
    most: Counts
    total: int

    @classmethod
    def of(cls, terms: Terms, missing: Counts, room: Counts | None, left: int) -> PlanBounds:
        """Return the bounds for ``left`` requests, given what floors miss and the room that caps have."""
        n, total = len(terms.floors), left * terms.k
        membership = terms.membership or Membership(n, np.arange(n), np.arange(n + 1))
        upper = np.full(n, total, dtype=np.int64)
        if room is not None:
            upper = np.minimum(upper, room)
        if terms.list_limits is not None:
            upper = np.minimum(upper, left * terms.list_limits)
        return cls(membership, np.maximum(missing, 0), upper, np.minimum(left * terms.capacities, total), total)

    @cached_property
    def reach(self) -> Counts:
        """(P,) the most exposures of each promise by itself."""
        return np.minimum(self.membership.exposures(self.most), np.minimum(self.upper, self.total))

    @cached_property
    def capped(self) -> Counts:
        """The promises whose upper bound excludes something."""
        limit = np.minimum(self.membership.exposures(self.most), self.total)
        return np.flatnonzero(self.upper < limit)

    def hold(self, plan: Counts) -> bool:
        """Return whether a plan satisfies all of them."""
        if int(plan.sum()) > self.total or (plan < 0).any() or (plan > self.most).any():
            return False
        exposures = self.membership.exposures(plan)
        return bool((exposures >= self.lower).all() and (exposures <= self.upper).all())
