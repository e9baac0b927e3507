"""The record of one arm: what its users got, by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.service.arms.promised_items import PromisedItems
from fairsync.service.arms.saved_sums import SavedSums

if TYPE_CHECKING:
    from fairsync.candidates import Candidates
    from fairsync.service.promises.promise_service import PromiseService

_DAY = 86_400.0


class ArmRecord:
    """Sums what the users of an arm get.

    Parameters
    ----------
    service
        The promise service of the arm.
    buckets
        Buckets of users.
    """

    def __init__(self, service: PromiseService, buckets: int) -> None:
        self._service = service
        self.sums = SavedSums(service.coordinator.ledger, buckets)
        self.promised = PromisedItems(service)

    def add(self, bucket: int, found: Candidates) -> None:
        """Add the candidates of requests of one user.

        Repeated requests, whose answers were saved before, and answers that lack a part of the catalog are left out.
        """
        there = np.isfinite(found.relevance)
        is_new = ~(there & (found.rows < 0)).any(axis=1) & (found.searched == 1)
        n = int(np.count_nonzero(is_new))
        if not n:
            return
        there &= is_new[:, None]
        promised = self.promised.count(found.ids[there])
        self.sums.own.add(
            int(self._service.scheduler.now().timestamp() // _DAY), bucket, requests=n,
            relevance=float(found.relevance[there].sum()), plain=float(found.plain[is_new].sum()),
            **promised._asdict(),
        )  # fmt: skip
