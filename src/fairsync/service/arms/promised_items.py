"""The items that the promises of an arm select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.schedule import ScheduledPromise
    from fairsync.service.promises.promise_service import PromiseService


class PromisedItems:
    """Says which items are selected by at least one promise of a service, as of the last refresh.

    Parameters
    ----------
    service
        The service of one arm.
    """

    def __init__(self, service: PromiseService) -> None:
        self._service = service
        self._of: tuple[Catalog, Mapping[str, ScheduledPromise]] | None = None
        self._catalog, self._mask = service.catalog, np.zeros(len(service.catalog), dtype=np.bool_)
        self.refresh()

    def refresh(self) -> None:
        """Read promises and items again, if one of them has changed."""
        catalog, promises = self._service.catalog, self._service.scheduler.state.promises
        if self._of is not None and self._of[0] is catalog and self._of[1] == promises:
            return
        mask: NDArray[np.bool_] = np.zeros(len(catalog), dtype=np.bool_)
        for where in {repr(one.promise.where): one.promise.where for one in promises.values()}.values():
            selected = catalog.select(where)
            mask |= True if selected is None else selected.mask
        self._of, (self._catalog, self._mask) = (catalog, dict(promises)), (catalog, mask)

    def count(self, ids: Sequence[Any]) -> int:
        """Return how many of these items have a promise. Ids that are no items any more have none."""
        if not ids:
            return 0
        catalog, mask = self._catalog, self._mask
        rows = catalog.rows_of(np.asarray(ids))
        return int(np.count_nonzero(mask[rows[rows >= 0]]))
