"""A lease: a batch of requests that is granted to a front end, and what the front end reports of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairsync.loop.batch import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.loop.batch import Batch


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
    """

    answers: Mapping[str, bytes] = field(default_factory=dict, kw_only=True)
