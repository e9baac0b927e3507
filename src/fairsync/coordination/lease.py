"""A lease: a batch of requests that is granted to a front end, and what the front end reports of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fairsync.catalog.atoms import keeps_codes
from fairsync.loop.batch import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog.atoms import Membership
    from fairsync.loop.batch import Batch
    from fairsync.policies import Terms


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
class Settlement(Outcome):
    """What a front end reports of the requests of a lease: what they brought, in the atoms of the coordinator.

    Attributes
    ----------
    answers : dict
        Answers to save with the counts, by request id.
    membership : Membership or None
        The atoms that sample, slots and certificate speak of; None for groups.
    """

    answers: Mapping[str, bytes] = field(default_factory=dict, kw_only=True)
    membership: Membership | None = field(default=None, kw_only=True)

    def within(self, terms: Terms) -> Settlement:
        """Return the settlement for a coordinator with the atoms of these terms.

        Atoms may have been added since the lease was granted. The coordinator that has granted it may have been another
        one, whose atoms had other codes. Then prices are not learnt from it.
        """
        if keeps_codes(self.membership, terms.membership):
            return self if self.slots is None else replace(self, slots=self.slots.grown(terms.n_atoms))
        return replace(self, sample=None, slots=None, certified=None)
