"""A lease: a batch of requests that is granted to a front end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairsync.batch import Batch


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
