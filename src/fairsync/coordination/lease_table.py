r"""Who was given which requests of a horizon, and what came of them.

Requests are handed out in *leases*: so many requests, and where the horizon stands. What came of a lease is *settled*.
Between the two, nobody knows; the accounts assume the worst, that a lease brings no missing exposure at all. So with R
requests of the horizon neither settled nor leased and :math:`D_g` exposures missing from what is settled, a lease of n
may be out beside others only if

.. math::  D_g \le (R - n) \, c_g \text{ for every group } g, \qquad \sum_g D_g \le (R - n) \, K

Otherwise it has to wait until it is the only one, and then the guard keeps the floors within it
(:mod:`fairsync.guard`). Hence the floors hold for any number of front ends, however stale their prices; what
staleness costs is relevance. One front end alone never waits.

A lease that was given back, or that expired, leaves things as if it had never been: its requests return to R, which
makes the condition no harder. If the answer comes after all, its exposures count, and its requests do not. The same
holds for leases of a coordinator that died.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync import guard
from fairsync.ledger import Totals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.ledger import Entry
    from fairsync.policies import Terms

# An answer to a lease that was lost longer ago than so many others is taken for a repetition.
_MOST_LOST = 10_000
# More requests than ever come.
_NEVER = 1 << 53


def requests_needed(missing: NDArray[np.int64], terms: Terms) -> int:
    """Return how many requests the missing exposures take, at least: the least R that fulfils the condition above.

    Examples
    --------
    >>> from fairsync.policies import Terms
    >>> requests_needed(np.array([4, 2]), Terms(np.array([9, 9]), np.array([2, 1]), k=2, horizon=9, batch_size=1))
    3
    """
    due = missing > 0
    if (terms.caps[due] == 0).any():
        return _NEVER
    each = -(-missing[due] // terms.caps[due])
    return max(int(each.max(initial=0)), -(-int(missing.sum()) // terms.k))


@dataclass(frozen=True)
class Grant:
    """Requests handed out.

    Attributes
    ----------
    number : int
        Of the lease.
    requests : int
        How many.
    missing : numpy.ndarray
        (G,) exposures still missing, as far as is known.
    left : int
        Requests of the horizon from these on, leaving out what others were given.
    """

    number: int
    requests: int
    missing: NDArray[np.int64]
    left: int


@dataclass(frozen=True)
class LeaseTable:
    """Where things stand. Accounts are never changed, only replaced: what fails leaves no trace.

    Attributes
    ----------
    standing : Totals
        Of the horizon, as far as it is settled.
    opens_horizon : bool
        Whether counts start anew with what is settled next.
    out : dict
        Requests of each lease that is neither settled nor given back, by its number.
    lost : tuple of int
        Leases that were given back or expired, the latest: an answer may yet come.
    first, issued : int
        The numbers of its own leases lie above ``first``, up to ``issued``.
    """

    totals: Totals
    opens_horizon: bool = False
    out: Mapping[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    first: int = 0
    issued: int = 0

    @classmethod
    def open(cls, totals: Totals, first: int = 0) -> LeaseTable:
        """Return the accounts of a horizon that stands there, with nothing handed out."""
        return cls(totals, first=first, issued=first)

    @property
    def given(self) -> int:
        """Requests that are out."""
        return sum(self.out.values())

    def left(self, terms: Terms) -> int:
        """Return how many requests of the horizon are neither settled nor out; below 0 if more came than expected."""
        return terms.horizon - self.totals.requests - self.given

    def is_over(self, terms: Terms) -> bool:
        """Return whether every request of the horizon is settled."""
        return terms.auto_restart and self.totals.requests >= terms.horizon

    def anew(self, began: float = 0.0) -> LeaseTable:
        """Return the accounts at the start of a new horizon. What is still out will count there."""
        return replace(self, totals=Totals.nothing(len(self.totals.exposures), began), opens_horizon=True)

    def grown(self, n_groups: int) -> LeaseTable:
        """Return the same with more groups."""
        return replace(self, totals=self.totals.grown(n_groups))

    def grant(self, terms: Terms, n: int, *, keeps_floors: bool) -> tuple[LeaseTable, Grant] | None:
        """Hand out up to n requests, never beyond the horizon; None if that has to wait for leases that are out."""
        left = self.left(terms)
        if not terms.auto_restart:
            left = max(left, n)  # more came than expected, and they are served too
        if left <= 0:
            return None  # the next horizon begins when this one is settled
        size = min(n, left)
        missing = np.maximum(terms.floors - self.totals.exposures, 0)
        if self.out and keeps_floors and not guard.is_safe(missing, left - size, terms):
            return None
        number = self.issued + 1
        return replace(self, out={**self.out, number: size}, issued=number), Grant(number, size, missing, left)

    def settle(self, number: int, entry: Entry) -> tuple[LeaseTable, Entry] | None:
        """Write down what came of a lease; return the entry as the ledger should have it.

        None if that was done before: whoever is not sure may say it again. Of leases that others have made, the ledger
        knows whether it was.
        """
        own = self.first < number <= self.issued
        if number not in self.out:
            if own and number not in self.lost:
                return None
            entry = replace(entry, requests=0)  # others were given its requests
        entry = replace(entry, opens_horizon=self.opens_horizon, began=self.totals.began)
        if len(entry.counts) < len(self.totals.exposures):  # groups have come since
            entry = entry.grown(len(self.totals.exposures))
        settled = replace(
            self,
            totals=self.totals.after(entry),
            opens_horizon=False,
            out={other: size for other, size in self.out.items() if other != number},
            lost=tuple(other for other in self.lost if other != number),
        )
        return settled, entry

    def note(self, entry: Entry) -> tuple[LeaseTable, Entry]:
        """Write down something that belongs to no lease, such as what was reported to be shown."""
        entry = replace(entry, opens_horizon=self.opens_horizon, began=self.totals.began)
        entry = entry.grown(len(self.totals.exposures))  # groups may have come since
        return replace(self, totals=self.totals.after(entry), opens_horizon=False), entry

    def release(self, number: int) -> LeaseTable:
        """Take a lease back that will hardly be answered."""
        if number not in self.out:
            return self
        out = {other: size for other, size in self.out.items() if other != number}
        return replace(self, out=out, lost=(*self.lost, number)[-_MOST_LOST:])
