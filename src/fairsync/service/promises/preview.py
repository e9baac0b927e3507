"""The cost of promises before they are made: the least possible on the requests that came last."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import TooManyPreviewsError
from fairsync.hindsight.dual_bound import ROUNDS, dual_bound
from fairsync.promises.floors import group_capacities
from fairsync.service.promises.columns import column_of
from fairsync.service.promises.costs import MOST_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.schedule import ScheduledPromise, TrafficForecast
    from fairsync.search import Index

# Previews that are computed at once.
_MOST_PREVIEWS = 2
# Enough to find a price of each group, few enough to be searched within a second.
_REQUESTS = 256


class PreviewLimit:
    """Bounds the previews that are computed at once.

    Examples
    --------
    >>> limit = PreviewLimit(1)
    >>> with limit, limit:
    ...     pass
    Traceback (most recent call last):
    fairsync.errors.TooManyPreviewsError: 1 previews are being computed already.
    """

    def __init__(self, most: int = _MOST_PREVIEWS) -> None:
        self._most, self._slots = most, threading.BoundedSemaphore(most)

    def __enter__(self) -> None:
        """Begin a preview, or refuse it."""
        if not self._slots.acquire(blocking=False):
            raise TooManyPreviewsError(f"{self._most} previews are being computed already.")

    def __exit__(self, *_: object) -> None:
        """End a preview."""
        self._slots.release()


@dataclass(frozen=True)
class Estimate:
    """The least cost of promises per request, and as a share of the relevance without promises."""

    cost: float
    share: float


class RecentRequests:
    """The requests that came last, on which promises are tried.

    Examples
    --------
    Every request prefers "big" by 0.5; one "small" item in every second answer costs half of that.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.search import ExactIndex
    >>> catalog, recent = Catalog([[1.0], [0.5], [0.5]], ["big", "small", "small"]), RecentRequests()
    >>> for _ in range(16):
    ...     recent.add(np.ones((16, 1, 1)))
    >>> estimate = recent.estimate(catalog, ExactIndex(catalog), 1, {"small": 0.5}, np.zeros(2))
    >>> 0.23 < estimate.cost <= 0.25
    True
    """

    def __init__(self) -> None:
        self._users: deque[NDArray[np.floating[Any]]] = deque(maxlen=_REQUESTS)
        self._lock = threading.Lock()

    def add(self, users: NDArray[np.floating[Any]]) -> None:
        """Remember the last of these requests, (n, interests, d)."""
        with self._lock:
            self._users.extend(users[-16:])

    def estimate(
        self,
        catalog: Catalog,
        index: Index,
        k: int,
        rates: Mapping[Label, float],
        prices: NDArray[np.float64],
        checkpoint: Callable[[], object] = lambda: None,
    ) -> Estimate | None:
        """Return the least cost of giving each group this many exposures per request.

        It is a lower bound: the best plan in hindsight on these requests
        (:func:`fairsync.hindsight.dual_bound.dual_bound`). The service gives up somewhat more, because it decides
        requests as they come.

        Parameters
        ----------
        catalog, index, k
            The items, their index, and the number of candidates.
        rates
            Exposures per request by label.
        prices
            (G,) the prices in force, where the search for the least cost starts.
        checkpoint
            Called before each search; raises to end the estimate.

        Returns
        -------
        Estimate or None
            None if too few requests are known, or if they cannot deliver the promises.
        """
        with self._lock:
            interests = max((len(user) for user in self._users), default=0)
            users = [user for user in self._users if len(user) == interests]
        if len(users) < _REQUESTS // 4:
            return None
        vectors, n = np.stack(users), len(users)
        floors = np.zeros(catalog.n_groups)
        for label, rate in rates.items():
            floors[catalog.code_of(label)] = rate * n
        floors = np.minimum(floors, n * group_capacities(catalog, k))
        if floors.sum() > n * k:
            return None

        def search(*arguments: Any, **options: Any) -> Any:
            checkpoint()
            return index.search(*arguments, **options)

        plain = float(search(vectors, None, k).relevance.sum())
        # Without a round, the prices in force prove a bound too, only a weaker one.
        rounds = ROUNDS if len(rates) <= MOST_BOUNDS else 0
        bound = dual_bound(catalog, search, vectors, k, floors, prices, plain, rounds)
        cost = max(plain - bound.relevance, 0.0)
        return Estimate(cost / n, cost / abs(plain) if plain else 0.0)


def exposure_rates(
    promises: Iterable[ScheduledPromise], forecast: TrafficForecast, now: datetime, k: int, attribute: str = "group"
) -> dict[Label, float]:
    """Return the exposures per request that promises ask for in the long run, by column.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Window
    >>> hourly, noon = ScheduledPromise.of_group("toys", 900, Window.hour("UTC")), datetime(2026, 3, 2, 12, tzinfo=UTC)
    >>> exposure_rates([hourly], Forecast(rate=0.5), noon, k=10)
    {'toys': 0.5}
    """
    rates: dict[Label, float] = {}
    for promise in promises:
        span = promise.window.at(now) or promise.window.after(now)
        if span is not None:
            requests = max(forecast.expected(span.start, span.end, now), 1.0)
            column = column_of(promise, attribute)
            rates[column] = max(rates.get(column, 0.0), promise.promise.floor(round(k * requests)) / requests)
    return rates
