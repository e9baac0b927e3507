"""The items that the promises of an arm select, and those whose exposures they hold in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairsync.promises.selected_rows import SelectedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.schedule import ScheduledPromise
    from fairsync.service.promises.promise_service import PromiseService


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
