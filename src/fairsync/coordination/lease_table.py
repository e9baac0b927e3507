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

Promises that may overlap have a certificate in place of D (:mod:`fairsync.promises.certificate`). A lease may be open
beside others only if the certificate holds for R - n requests. Such a lease gets no part of it, and what its lists may
use of the caps is its *allowance*: what caps have left beyond the certificate and the allowances of other leases. So
the certificate stays one, whatever the open leases return, and no cap is exceeded. A lease that is alone gets the
certificate, and may use what it plans of the caps. As long as it is open, that stays reserved, also if others meet
floors meanwhile and less is planned.

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

from fairsync.catalog.groups import grow
from fairsync.coordination.lease import Lease
from fairsync.floors import can_be_met
from fairsync.promises.certificate import is_certificate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.batch import Batch
    from fairsync.ledger import Entry
    from fairsync.loop import Progress
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
        (P,) what each open lease may use of the caps beyond the certificate, by the number of the lease.
    parts : dict
        (A,) the certificate that an open lease got because it was alone, by the number of the lease.

    Examples
    --------
    >>> LeaseTable({7: 16, 8: 4}, issued=8).release(7)
    LeaseTable(open={8: 4}, lost=(7,), first=0, issued=8, allowances={}, parts={})
    """

    open: Mapping[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    first: int = 0
    issued: int = 0
    allowances: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    parts: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Requests of all open leases."""
        return sum(self.open.values())

    def grant(self, batch: Batch) -> tuple[LeaseTable, Lease] | None:
        """Lease a batch; None if it is empty, or if it could make a floor unreachable beside the open leases."""
        if batch.requests == 0:  # the next horizon starts when every lease of this one is settled
            return None
        number, allowances, parts = self.issued + 1, self.allowances, self.parts
        if batch.certificate is not None:
            certified = self._certified(batch, batch.certificate)
            if certified is None:
                return None
            allowance = certified[1]
            if allowance is not None:
                allowances = {**allowances, number: allowance}
                parts = parts if self.open else {number: batch.certificate}
            batch = certified[0]
        elif self.open and batch.keeps_floors and not _suffices(batch):
            return None
        leases = {**self.open, number: batch.requests}
        table = replace(self, open=leases, issued=number, allowances=allowances, parts=parts)
        return table, Lease(number, batch)

    def reserved(self, terms: Terms, plan: NDArray[np.int64] | None = None) -> NDArray[np.int64] | None:
        """Return (P,) what open leases may use of the caps; None if there are no caps.

        Parameters
        ----------
        terms
            The promises.
        plan
            (A,) the certificate, of which a lease may use its part. By default, nothing is planned.
        """
        if terms.caps is None:
            return None
        total = np.zeros(len(terms.caps), dtype=np.int64)
        for number, requests in self.open.items():
            most = requests * terms.k  # under promises that were made later
            given = self.allowances.get(number, np.empty(0, dtype=np.int64))
            total += np.concatenate([given, np.full(len(total) - len(given), most)])
        for part in self.parts.values():
            part = grow(part, terms.n_atoms)
            total += terms.exposures(part if plan is None else np.maximum(part - plan, 0))
        return total

    def _certified(self, batch: Batch, plan: NDArray[np.int64]) -> tuple[Batch, NDArray[np.int64] | None] | None:
        """Return the batch with its part of certificate and caps, and its allowance; None if it has to wait."""
        terms, alone = batch.terms, not self.open
        if not alone:
            nothing = np.zeros(len(terms.floors), dtype=np.int64)
            if not is_certificate(terms, plan, nothing, None, batch.left - batch.requests):
                return None
        part = plan if alone else np.zeros_like(plan)
        reserved = self.reserved(terms, plan)
        if batch.room is None or reserved is None:
            return replace(batch, certificate=part), None
        planned = terms.exposures(plan)
        allowance = np.clip(batch.room - planned - reserved, 0, batch.requests * terms.k)
        room = allowance + planned if alone else allowance
        return replace(batch, certificate=part, room=room), allowance

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
        allowances, parts = (_without(some, number) for some in (self.allowances, self.parts))
        return replace(self, open=_without(self.open, number), lost=lost, allowances=allowances, parts=parts), entry

    def release(self, number: int) -> LeaseTable:
        """Close a lease whose counts are unlikely to arrive: it was returned, or it has expired."""
        if number not in self.open:
            return self
        lost = (*self.lost, number)[-_MAX_LOST:]
        allowances, parts = (_without(some, number) for some in (self.allowances, self.parts))
        return replace(self, open=_without(self.open, number), lost=lost, allowances=allowances, parts=parts)

    def allows(self, progress: Progress, terms: Terms) -> bool:
        """Return whether a new promise can be kept even if the open leases deliver nothing of it."""
        left = progress.left(terms) - self.requests
        return not self.open or can_be_met(progress.missing(terms), left, terms)


def _suffices(batch: Batch) -> bool:
    """Return whether the requests after a batch can deliver everything that is missing before it."""
    return can_be_met(batch.missing, batch.left - batch.requests, batch.terms)


def _without(leases: Mapping[int, T], number: int) -> dict[int, T]:
    return {other: one for other, one in leases.items() if other != number}
