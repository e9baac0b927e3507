"""The control plane: leases with prices for searches that are made elsewhere, and their settlement."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.coordination.outside_lists import OutsideList, settle_outside
from fairsync.errors import InvalidInputError, LeaseBusyError, UnknownLeaseError
from fairsync.promises.selection import conditions_of, is_selection
from fairsync.search.engines.price_formulas import PricedSelection, write_prices
from fairsync.service.schema.control_plane import LeaseGrant, PriceList, PriceRow, SettleResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Where
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.schema.control_plane import SettledList

# Seconds that a call waits for other leases before it is refused with "busy".
_WAIT_SECONDS = 1.0
# Leases whose prices are remembered. Of others, prices are learnt as if they had the present ones.
_MOST_REMEMBERED = 10_000
# Unknown items that a settlement names.
_MOST_NAMED = 20
_NAME = re.compile(r"([1-9][0-9]{0,18})-([1-9][0-9]{0,8})")


class ControlPlane:
    """Grants leases to callers that search themselves, and counts the lists that they report. It is thread-safe.

    A lease is one of the coordinator, so that front ends and callers share one promise. Its name says all that is
    needed to settle it, so that any replica can, also after a restart.

    Parameters
    ----------
    service
        The promise service.
    """

    def __init__(self, service: PromiseService) -> None:
        self._service = service
        self._prices: OrderedDict[int, NDArray[np.float64]] = OrderedDict()
        self._lock = Lock()

    def lease(
        self,
        requests: int,
        seconds: float,
        form: str | None = None,
        columns: Mapping[str, str] | None = None,
        scale: float = 1.0,
    ) -> LeaseGrant:
        """Lease up to this many requests, with the prices to search under, until these seconds have passed.

        Parameters
        ----------
        requests, seconds
            Number of requests, and seconds until the lease expires.
        form, columns, scale
            As for `prices`.

        Raises
        ------
        LeaseBusyError
            Promises are so near that other leases have to be settled first.
        """
        coordinator = self._service.coordinator
        with self._service.readiness.serving():
            lease = coordinator.try_lease(requests, _WAIT_SECONDS, seconds)
        if lease is None:
            raise LeaseBusyError
        batch = lease.batch
        prices = batch.prices_by_promise
        met = (batch.missing == 0) & (prices < 0) if batch.keeps_floors else np.zeros(len(prices), dtype=bool)
        in_force = np.where(met, 0.0, prices)
        try:
            formula = self._formula(in_force, form, columns, scale)
        except BaseException:
            coordinator.release(lease.number)
            raise
        with self._lock:
            self._prices[lease.number] = prices
            while len(self._prices) > _MOST_REMEMBERED:
                self._prices.popitem(last=False)
        return LeaseGrant(
            lease=f"{lease.number}-{batch.requests}",
            requests=batch.requests,
            k=batch.k,
            seconds=seconds,
            version=batch.version,
            prices=self._rows(in_force, batch.missing),
            wanted_scores=batch.k + batch.lookahead if batch.watched else 0,
            formula=formula,
        )

    def settle(self, name: str, lists: Sequence[SettledList]) -> SettleResult:
        """Count the lists of a lease. Idempotent: a lease and a request id are counted once."""
        number, requests = _parse(name)
        if len(lists) > requests:
            raise InvalidInputError(
                f"the lease was for {requests} requests, and {len(lists)} lists were reported: report the others under"
                " another lease."
            )
        service, coordinator = self._service, self._service.coordinator
        given = [OutsideList(one.items, one.request_id, one.fetched, one.scores) for one in lists]
        with self._lock:
            prices = self._prices.get(number)
        with service.readiness.serving():
            items = service.front.items_under(coordinator.terms.membership)
            settled = settle_outside(coordinator, items, number, given, prices)
        with self._lock:
            self._prices.pop(number, None)
        return SettleResult(
            requests=settled.requests,
            exposures=settled.exposures,
            repeated=settled.repeated,
            unknown=len(settled.unknown),
            unknown_items=list(settled.unknown[:_MOST_NAMED]),
            expired=settled.expired,
            learned=settled.learned,
        )

    def release(self, name: str) -> None:
        """Return a lease whose requests were not answered."""
        number, _ = _parse(name)
        self._service.coordinator.release(number)
        with self._lock:
            self._prices.pop(number, None)

    def prices(
        self, form: str | None = None, columns: Mapping[str, str] | None = None, scale: float = 1.0
    ) -> PriceList:
        """Return the prices in force, also in the language of an engine; see `write_prices`."""
        coordinator = self._service.coordinator
        version, prices, terms = coordinator.price_version, coordinator.prices(), coordinator.terms
        missing = np.maximum(terms.floors - coordinator.totals().exposures[: len(terms.floors)], 0)
        formula = self._formula(prices, form, columns, scale)
        return PriceList(version=version, prices=self._rows(prices, missing), formula=formula)

    def _formula(
        self, prices: NDArray[np.float64], form: str | None, columns: Mapping[str, str] | None, scale: float
    ) -> dict[str, Any] | None:
        if form is None:
            return None
        pairs = zip(self._wheres(), prices.tolist(), strict=False)
        priced = [PricedSelection(where, price) for where, price in pairs if price]
        return write_prices(form, priced, self._service.catalog.attributes, columns, scale)

    def _rows(self, prices: NDArray[np.float64], missing: NDArray[np.int64]) -> list[PriceRow]:
        """Return the selections that have a price or lack exposures."""
        return [
            PriceRow(where=dict(where), price=None if math.isinf(price) else price, missing=lacking)
            for where, price, lacking in zip(self._wheres(), prices.tolist(), missing.tolist(), strict=False)
            if where and (price or lacking)
        ]

    def _wheres(self) -> list[Where]:
        """Return the conditions of each column of the coordinator."""
        coordinator, attribute = self._service.coordinator, self._service.catalog.group_attribute
        if coordinator.promises is not None:
            return [one.where for one in coordinator.promises]
        return [conditions_of(str(one)) if is_selection(one) else {attribute: one} for one in coordinator.labels]


def _parse(name: str) -> tuple[int, int]:
    """Return the number of a lease, and its requests.

    Examples
    --------
    >>> _parse("1234-16")
    (1234, 16)
    """
    found = _NAME.fullmatch(name)
    if found is None or int(found[1]) >= 1 << 63:
        raise UnknownLeaseError(name)
    return int(found[1]), int(found[2])
