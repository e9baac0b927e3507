r"""The leases of a horizon: which are open, and which were lost.

A coordinator grants requests in *leases*. A front end answers the requests of a lease and *settles* it: it reports the
counts. Until then the counts are unknown, and the coordinator assumes the worst case: that an open lease delivers no
missing exposure at all.

**Why leases are safe.** Let R requests of the horizon be neither settled nor leased, and let group g miss :math:`D_g`
exposures in the settled counts. A lease of n requests may be open beside others only if

.. math::  D_g \le (R - n) \, c_g \text{ for every group } g, \qquad \sum_g D_g \le (R - n) \, K

so that the requests after it can deliver everything that is missing, whatever the open leases deliver. Otherwise the
lease has to wait until no other is open. The front end of a lease that is alone knows all counts, and its guard keeps
the floors within the lease (:mod:`fairsync.guard`). Therefore the floors hold for any number of front ends, however
stale their prices are; staleness only costs relevance. A single front end never waits.

If requests have conditions, what later requests can show is forecast (:mod:`fairsync.eligibility.eligible_slots`). A
lease may be open beside others only if the slots that the guard counts on after it cover what is missing, too:
otherwise the next lease could not know how much of it was delivered. Promises that will be missed in any case do not
count, so that they do not make front ends wait for each other until the horizon ends.

Promises that may overlap have a certificate in place of D (:mod:`fairsync.promises.certificate`). A lease may be open
beside others only if the certificate holds for R - n requests, within what caps have left beyond the *allowances* of
open leases: what their lists may use of the caps. Such a lease gets no part of the certificate, and its allowance is
what caps have left beyond the certificate and the other allowances. So the certificate stays one, whatever the open
leases return, and no cap is exceeded. A lease that is alone gets the certificate, which its guard may change, and may
use all that caps have left.

A lease that is released, or that *expires*, is lost. Its requests return to R, which makes the condition no harder to
meet. If its counts arrive after all, its exposures count and its requests do not, because they were granted again. The
same holds for the leases of a coordinator that died. Where there are caps, others may use what a lost lease had of
them. So its counts are refused (`LostLeaseError`) before its answers were returned to anyone, and its front end answers
the requests again under another lease. Caps are therefore never exceeded, whatever is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fairsync.coordination.lease import Lease
from fairsync.promises.certificate import is_certificate
from fairsync.promises.floors import can_be_met

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.ledger import Entry
    from fairsync.loop.batch import Batch
    from fairsync.policies import Terms

T = TypeVar("T")

# Number of lost leases that are remembered. A late settlement of an older one is ignored as a duplicate.
_MAX_LOST = 10_000


@dataclass(frozen=True)
class LeaseTable:
    """The leases of one coordinator. It is immutable: every method returns a new table.

    Attributes
    ----------
    open : dict
        Number of requests of each open lease, by the number of the lease.
    lost : tuple of int
        The latest leases that were released or expired: their counts may still arrive.
    first, issued : int
        The leases that this table has granted are numbered from ``first + 1`` to ``issued``.
    allowances : dict
        (P,) what each open lease may use of the caps, by the number of the lease.

    Examples
    --------
    >>> LeaseTable({7: 16, 8: 4}, issued=8).release(7)
    LeaseTable(open={8: 4}, lost=(7,), first=0, issued=8, allowances={})
    """

    open: Mapping[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    first: int = 0
    issued: int = 0
    allowances: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Requests of all open leases."""
        return sum(self.open.values())

    def grant(self, batch: Batch) -> tuple[LeaseTable, Lease] | None:
        """Lease a batch; None if it is empty, or if it could make a floor unreachable beside the open leases."""
        if batch.requests == 0:  # the next horizon starts when every lease of this one is settled
            return None
        number, allowances = self.issued + 1, self.allowances
        if batch.certificate is not None:
            certified = self._certified(batch, batch.certificate)
            if certified is None:
                return None
            batch, allowance = certified
            if allowance is not None:
                allowances = {**allowances, number: allowance}
        elif self.open and batch.keeps_floors and not (_suffices(batch) and forecast_suffices(batch, batch.missing)):
            return None
        leases = {**self.open, number: batch.requests}
        table = replace(self, open=leases, issued=number, allowances=allowances)
        return table, Lease(number, batch)

    def reserved(self, terms: Terms) -> NDArray[np.int64] | None:
        """Return (P,) what open leases may use of the caps; None if there are no caps."""
        if terms.caps is None:
            return None
        total = np.zeros(len(terms.caps), dtype=np.int64)
        for number, requests in self.open.items():
            most = requests * terms.k  # under promises that were made later
            given = self.allowances.get(number, np.empty(0, dtype=np.int64))
            total += np.concatenate([given, np.full(len(total) - len(given), most)])
        return total

    def _certified(self, batch: Batch, plan: NDArray[np.int64]) -> tuple[Batch, NDArray[np.int64] | None] | None:
        """Return the batch with its part of certificate and caps, and its allowance; None if it has to wait."""
        terms, reserved, room = batch.terms, self.reserved(batch.terms), batch.room
        if room is not None and reserved is not None:
            room = np.maximum(room - reserved, 0)
        if not self.open:
            return replace(batch, certificate=plan, room=room), _at_most(room, batch)
        nothing = np.zeros(len(terms.floors), dtype=np.int64)
        if fills_every_slot(terms, batch.missing):  # without the plan, caps would leave too few items for lists
            return None
        if not is_certificate(terms, plan, nothing, room, batch.left - batch.requests):
            return None
        if not forecast_suffices(batch, plan):
            return None
        allowance = None if room is None else _at_most(room - terms.exposures(plan), batch)
        return replace(batch, certificate=np.zeros_like(plan), room=allowance), allowance

    def settle(self, number: int, entry: Entry) -> tuple[LeaseTable, Entry] | None:
        """Close a lease; return also the entry as it counts: without requests, if the lease was lost.

        Returns None if the lease is settled already, so that settling is idempotent. This is not known of leases that
        another coordinator has granted: the idempotency keys of the ledger tell.
        """
        if number not in self.open:
            if self.first < number <= self.issued and number not in self.lost:
                return None
            entry = replace(entry, requests=0)
        lost = tuple(n for n in self.lost if n != number)
        open_, allowances = _without(self.open, number), _without(self.allowances, number)
        return replace(self, open=open_, lost=lost, allowances=allowances), entry

    def release(self, number: int) -> LeaseTable:
        """Close a lease whose counts are unlikely to arrive: it was returned, or it has expired."""
        if number not in self.open:
            return self
        lost = (*self.lost, number)[-_MAX_LOST:]
        open_, allowances = _without(self.open, number), _without(self.allowances, number)
        return replace(self, open=open_, lost=lost, allowances=allowances)


def fills_every_slot(terms: Terms, missing: NDArray[np.int64]) -> bool:
    """Return whether lists can be filled only by a plan for every slot."""
    return terms.priorities is not None and bool((missing[terms.priorities == 0] > 0).any())


def _at_most(room: NDArray[np.int64] | None, batch: Batch) -> NDArray[np.int64] | None:
    return None if room is None else np.minimum(room, batch.requests * batch.k)


def _suffices(batch: Batch) -> bool:
    """Return whether the requests after a batch can deliver everything that is missing before it."""
    return can_be_met(batch.missing, batch.left - batch.requests, batch.terms)


def forecast_suffices(batch: Batch, missing: NDArray[np.int64]) -> bool:
    """Return whether what can be counted on after a batch covers the missing exposures that are possible at all."""
    forecast = batch.forecast
    if forecast is None:
        return True
    return forecast.counted(batch.left - batch.requests).suffice(forecast.possible(missing, batch.left))


def _without(leases: Mapping[int, T], number: int) -> dict[int, T]:
    return {other: one for other, one in leases.items() if other != number}
