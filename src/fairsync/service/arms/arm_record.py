"""The record of one arm: what its users got by day, and the exposures in it that promises hold in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairsync.promises.selected_rows import SelectedRows
from fairsync.service.arms.arm_sums import SavedSums

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.catalog import Catalog
    from fairsync.schedule import ScheduledPromise
    from fairsync.service.promises.promise_service import PromiseService

_DAY = 86_400.0


class PromisedExposures(NamedTuple):
    """How many of some items have a promise, how many of those have a price, and the sum of the prices."""

    exposures: int
    held: int
    prices: float


class PromisedItems:
    """Says which items are selected by at least one promise of a service, and have a price, as of the last refresh.

    While a promise has a price, its exposures are held in place: they will be as many as was promised.

    Parameters
    ----------
    service
        The service of one arm.
    """

    def __init__(self, service: PromiseService) -> None:
        self._service = service
        self._of: tuple[Catalog, Mapping[str, ScheduledPromise]] | None = None
        self._mask: NDArray[np.bool_] = np.zeros(len(service.catalog), dtype=np.bool_)
        self._now = service.catalog, self._mask, np.zeros(len(self._mask))
        self.refresh()

    def refresh(self) -> None:
        """Read prices, and promises and items if one of them has changed."""
        promises = self._service.scheduler.state.promises
        catalog, prices = self._service.front.item_prices(self._service.coordinator.prices())
        if self._of is None or self._of[0] is not catalog or self._of[1] != promises:
            mask: NDArray[np.bool_] = np.zeros(len(catalog), dtype=np.bool_)
            selections = {one.selection: one.promise.where for one in promises.values()}
            rows = SelectedRows(catalog)
            rows.look_up(selections.values())
            for where in selections.values():
                mask[rows.of(where)] = True
            self._of, self._mask = (catalog, dict(promises)), mask
        self._now = catalog, self._mask, np.where(np.isfinite(prices), prices, 0.0)  # an infinite price masks items

    def count(self, ids: NDArray[Any]) -> PromisedExposures:
        """Return how many of these items have a promise, and their prices. Items that are gone have neither."""
        catalog, promised, prices = self._now
        if not len(ids) or not promised.any():
            return PromisedExposures(0, 0, 0.0)
        rows = catalog.rows_of(ids)
        rows = rows[rows >= 0]
        rows = rows[promised[rows]]
        paid = prices[rows]
        return PromisedExposures(len(rows), int(np.count_nonzero(paid)), float(paid.sum()))


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
