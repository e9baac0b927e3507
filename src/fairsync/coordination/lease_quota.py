r"""The quota of leases that coordinators grant side by side, where promises may overlap or have caps.

Coordinators that share a ledger know each other's leases only within an exclusive transaction. Most leases are granted
outside of one, by a single statement that adds n to the number G of requests leased so far, unless that exceeds a limit
(:mod:`fairsync.coordination.shared_state`). The quota is what makes this safe. It is made in an exclusive transaction,
from a certificate X for the R requests that are neither settled nor leased:

- Leases under the quota get no part of X. With :math:`R_X` the fewest requests for which X is a certificate, the limit
  is at most :math:`T - R_X`: then X can still be delivered, whatever the leases return.
- Of the cap of promise p, a lease of n requests may use :math:`n q_p`. All leases under the quota together use at most
  :math:`(G - G_0) q_p`, where :math:`G_0` is G when the quota was made. So the limit is also at most :math:`G_0 + B`,
  where :math:`B q_p` is no more than the cap has left beyond X and beyond what leases may use that were open then.

Exposures that become known later only make X need less, and leave the caps what was reserved for them. When the limit
is reached, the next exclusive transaction makes another quota. A lease that is granted in such a transaction can also
have what is left of small caps, of which nothing can be shared out evenly.

A lease that can be granted only while no other is open, because the requests after it would not suffice for X, gets X
itself. Its guard then keeps a certificate.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies.base import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.policies import Terms

# Name under which the ledger saves it, in all versions.
QUOTA = "budget"
# What caps have left is shared out over at least this many price batches.
_BATCHES = 8
UNLIMITED = 1 << 62
"""The limit of requests where nothing limits them."""


@dataclass(frozen=True, eq=False)
class LeaseQuota:
    """What leases may use that are granted side by side.

    Attributes
    ----------
    number : int
        Number of the quota, drawn at random, so that no two are taken for each other after a failure.
    most : int
        The most requests of the horizon that may be leased, those settled included.
    capped : numpy.ndarray
        (C,) the codes of promises with a cap.
    rates : numpy.ndarray
        (C,) what a lease may use of each cap, per request.
    allowances : dict
        (C,) what each lease may use that was open when the quota was made, by number.
    """

    number: int = 0
    most: int = 0
    capped: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rates: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    allowances: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    def reserved(self, number: int, requests: int, terms: Terms) -> NDArray[np.int64]:
        """Return (P,) what an open lease may use of each promise; all its slots of those that had no cap."""
        most = np.full(len(terms.floors), requests * terms.k, dtype=np.int64)
        known = self.capped < len(most)
        allowance = self.allowances.get(number, requests * self.rates)
        most[self.capped[known]] = allowance[known]
        return most

    def all_reserved(self, leases: Mapping[int, int], terms: Terms) -> NDArray[np.int64]:
        """Return (P,) what all open leases may use together; `leases` has the requests of each."""
        total = np.zeros(len(terms.floors), dtype=np.int64)
        for number, requests in leases.items():
            total += self.reserved(number, requests, terms)
        return total

    def room(self, requests: int, terms: Terms) -> NDArray[np.int64] | None:
        """Return (P,) what a lease of this quota may use of each promise; None if there are no caps."""
        if terms.caps is None:
            return None
        room = np.full(len(terms.floors), NO_CAP, dtype=np.int64)
        room[self.capped] = requests * self.rates
        return room

    def closed(self, number: int, leases: Mapping[int, int], terms: Terms) -> LeaseQuota:
        """Return a quota under which nothing is granted, with what leases may use that are open now."""
        capped = _capped(terms)
        allowances = {one: self.reserved(one, n, terms)[capped] for one, n in leases.items()}
        return LeaseQuota(number, 0, capped, np.zeros_like(capped), allowances)

    def dump(self) -> bytes:
        """Return the quota as bytes."""
        allowances = {str(number): one.tolist() for number, one in self.allowances.items()}
        values = {
            "number": self.number,
            "most": self.most,
            "capped": self.capped.tolist(),
            "rates": self.rates.tolist(),
        }
        return json.dumps({**values, "allowances": allowances}).encode()

    @classmethod
    def load(cls, data: bytes) -> LeaseQuota:
        """Return the quota from the bytes of `dump`.

        Examples
        --------
        >>> quota = LeaseQuota(7, 90, np.array([1]), np.array([2]), {5: np.array([40])})
        >>> LeaseQuota.load(quota.dump()).allowances[5].tolist(), LeaseQuota.load(quota.dump()).most
        ([40], 90)
        """
        values = json.loads(data)
        capped, rates = (np.array(values[name], dtype=np.int64) for name in ("capped", "rates"))
        allowances = {int(one): np.array(list_, dtype=np.int64) for one, list_ in values["allowances"].items()}
        return cls(values["number"], values["most"], capped, rates, allowances)


def requests_needed(terms: Terms, plan: NDArray[np.int64]) -> int:
    """Return the fewest requests that can deliver a plan.

    Examples
    --------
    >>> from fairsync.policies import Terms
    >>> requests_needed(Terms(np.zeros(2), np.array([2, 1]), k=2, horizon=9, batch_size=1), np.array([1, 3]))
    3
    """
    planned = np.flatnonzero(plan)
    if not len(planned):
        return 0
    capacities = terms.capacities[planned]
    if (capacities == 0).any():
        return UNLIMITED
    needed = max(int((-(-plan[planned] // capacities)).max()), -(-int(plan.sum()) // terms.k))
    if terms.list_limits is not None:
        exposures, limits = terms.exposures(plan), terms.list_limits
        if (exposures[limits == 0] > 0).any():
            return UNLIMITED
        needed = max(needed, int((-(-exposures // np.maximum(limits, 1)))[limits > 0].max(initial=0)))
    return needed


def share_out(
    number: int,
    terms: Terms,
    plan: NDArray[np.int64],
    room: NDArray[np.int64] | None,
    granted: int,
    allowances: Mapping[int, NDArray[np.int64]],
    lease: tuple[int, int],
) -> tuple[LeaseQuota, NDArray[np.int64] | None] | None:
    """Return a quota, and what the next lease may use, which is granted before all leases of the quota.

    Parameters
    ----------
    number
        Number of the quota.
    terms, plan
        The promises, and a certificate for the requests that are neither settled nor leased.
    room
        (P,) what caps have left beyond the exposures so far and the allowances; None if there are no caps.
    granted
        The requests of the horizon that were leased so far, those settled included.
    allowances
        (P,) what each open lease may use, by number.
    lease
        The number and the requests of the next lease.

    Returns
    -------
    tuple or None
        None if the lease may not be granted beside others, because the requests after it would not suffice.
    """
    name, requests = lease
    limit = most_leased(terms, plan)
    if granted + requests > limit:
        return None
    capped = _capped(terms)
    if room is None or not len(capped):
        return LeaseQuota(number, limit), None
    most = np.minimum(terms.k, NO_CAP if terms.list_limits is None else terms.list_limits[capped])
    slack = np.maximum(room - terms.exposures(plan), 0)[capped]
    span = _BATCHES * terms.batch_size
    rates = np.minimum(slack // (span + requests), most)
    first = np.where(rates > 0, requests * rates, np.minimum(slack, requests * most))
    rest = slack - first
    shared = rates > 0
    # What is left of small caps, and what leases give back of them, goes to leases that make a quota: these must not
    # be too far apart.
    may_return = sum(allowances.values(), np.zeros(len(terms.floors), dtype=np.int64))[capped]
    further = span if ((slack + may_return)[~shared] > 0).any() else UNLIMITED
    if shared.any():
        further = min(further, int((rest[shared] // rates[shared]).min()))
    known = {one: values[capped] for one, values in allowances.items()}
    quota = LeaseQuota(number, min(limit, granted + requests + further), capped, rates, {**known, name: first})
    given = np.full(len(terms.floors), NO_CAP, dtype=np.int64)
    given[capped] = first
    return quota, given


def most_leased(terms: Terms, plan: NDArray[np.int64]) -> int:
    """Return how many requests of the horizon may be leased, if a plan must still be delivered by the others.

    For floors of groups, the plan is what they miss.

    Examples
    --------
    >>> from fairsync.policies import Terms
    >>> most_leased(Terms(np.zeros(2), np.array([2, 1]), k=2, horizon=9, batch_size=1), np.array([1, 3]))
    6
    """
    needed = requests_needed(terms, plan)
    if needed == 0:
        return terms.horizon if terms.auto_restart else UNLIMITED
    return terms.horizon - needed


def _capped(terms: Terms) -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64) if terms.caps is None else np.flatnonzero(terms.caps < NO_CAP)
