"""A lease: a batch of requests that is granted to a front end, and what the front end reports of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog.atoms import Membership
    from fairsync.eligibility.eligible_slots import EligibleSlots
    from fairsync.ledger import Entry
    from fairsync.loop.batch import Batch
    from fairsync.loop.promise_costs import PromiseCosts
    from fairsync.policies import Sample
    from fairsync.promises.certificate import Certified


def lease_key(number: int) -> str:
    """Return the idempotency key under which the counts of a lease are recorded, in time or late."""
    return f"lease {number}"


@dataclass(frozen=True)
class Lease:
    """Requests granted to a front end, with prices. The front end settles it by this number, or releases it.

    Attributes
    ----------
    number : int
        Number of the lease.
    batch : Batch
        The requests, their prices and the state of the promise.
    """

    number: int
    batch: Batch


@dataclass(frozen=True)
class Settlement:
    """What a front end reports of the requests of a lease.

    Attributes
    ----------
    entry : Entry
        Their counts, for the ledger.
    sample : Sample or None
        Lists from which the policy learns.
    answers : dict
        Answers to save with the counts, by request id.
    slots : EligibleSlots or None
        What the requests could show, from which the guard forecasts what later ones can show; None if that is what was
        declared.
    certified : Certified or None
        The certificate after these requests; None if promises do not overlap.
    costs : PromiseCosts or None
        Subsidies and costs of each group; None if they were not measured.
    last_relevance : tuple or None
        The mean relevance of the last candidate of plain retrieval, the unit of the highest prices of promises, and the
        number of full lists; None if it is not known.
    membership : Membership or None
        The atoms that sample, slots and certificate speak of; None for groups.
    """

    entry: Entry
    sample: Sample | None = None
    answers: Mapping[str, bytes] = field(default_factory=dict)
    slots: EligibleSlots | None = None
    certified: Certified | None = None
    costs: PromiseCosts | None = None
    last_relevance: tuple[float, int] | None = None
    membership: Membership | None = None

    def within(self, membership: Membership | None) -> Settlement:
        """Return the settlement for a coordinator with these atoms.

        The coordinator that has granted the lease may have been another one, whose atoms had other codes. Then prices
        are not learnt from it.
        """
        mine = self.membership
        if mine is membership or (mine is not None and membership is not None and mine.is_part_of(membership)):
            return self
        return replace(self, sample=None, slots=None, certified=None)
