"""The cost of promises before they are made: the least possible on the requests that came last."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError, TooManyPreviewsError, UndecidedPromisesError
from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.dual_bound import promised_bound
from fairsync.hindsight.limited_lists import ListLimits
from fairsync.promises import Promise
from fairsync.promises.linear_program import solve
from fairsync.promises.selection import conditions_of, selection_name
from fairsync.service.promises.costs import largest_bounds, stack_users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.coordination.searched_items import SearchedItems
    from fairsync.schedule import ScheduledPromise, TrafficForecast

# Previews that are computed at once.
_MOST_PREVIEWS = 2
# Enough to find a price of each group, few enough to be searched within a second.
_REQUESTS = 256
# The least number of requests that an estimate needs.
_FEWEST = _REQUESTS // 4
# Seconds to decide whether the requests could keep all promises.
_SECONDS = 10.0


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
    """The least cost of promises.

    Attributes
    ----------
    cost : float or None
        Relevance per request; None if it is not known.
    share : float or None
        The same as a share of the relevance without promises.
    reason : str
        Why the cost is not known; empty if it is.
    left_out : int
        Floors and caps beyond the most that an estimate is made for: with them, promises cost more.
    """

    cost: float | None = None
    share: float | None = None
    reason: str = ""
    left_out: int = 0

    @property
    def note(self) -> str:
        """What to know of the cost, as a sentence; empty if there is nothing.

        Examples
        --------
        >>> Estimate(reason="there were no requests").note, Estimate(1.0, 0.1, left_out=9).note
        ('Its cost is not known: there were no requests.', 'The least cost is without 9 of the bounds.')
        """
        if self.reason:
            return f"Its cost is not known: {self.reason}."
        return f"The least cost is without {self.left_out:,} of the bounds." if self.left_out else ""


@dataclass(frozen=True)
class AskedRates:
    """What promises to one selection ask for, per request.

    Attributes
    ----------
    floor, cap : float
        Least and most exposures.
    list_limit : float
        The most items in one answer.
    """

    floor: float = 0.0
    cap: float = math.inf
    list_limit: float = math.inf

    def beside(self, other: AskedRates) -> AskedRates:
        """Return what both ask for."""
        return AskedRates(
            max(self.floor, other.floor), min(self.cap, other.cap), min(self.list_limit, other.list_limit)
        )


class RecentRequests:
    """The requests that came last, on which promises are tried.

    Examples
    --------
    Every request prefers "big" by 0.5; one "small" item in every second answer costs half of that.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.coordination.searched_items import SearchedItems
    >>> catalog, recent = Catalog([[1.0], [0.5], [0.5]], {"size": ["big", "small", "small"]}), RecentRequests()
    >>> for _ in range(16):
    ...     recent.add(np.ones((16, 1, 1)))
    >>> items = SearchedItems.of(catalog, None, "exact", "mean")
    >>> estimate = recent.estimate(items, 1, {selection_name({"size": "small"}): AskedRates(floor=0.5)})
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
        items: SearchedItems,
        k: int,
        asked: Mapping[str, AskedRates],
        prices: Mapping[str, float] | None = None,
        checkpoint: Callable[[], object] = lambda: None,
    ) -> Estimate:
        """Return the least cost of promises to selections, which may overlap.

        It is a lower bound: the best plan in hindsight on these requests
        (:func:`fairsync.hindsight.dual_bound.promised_bound`). The service gives up somewhat more, because it decides
        requests as they come.

        Parameters
        ----------
        items
            The items and their index, under any promises.
        k
            The number of candidates.
        asked
            What is asked for, by the name of the selection.
        prices
            Prices in force by the name of the selection, where the search for the least cost starts; 0 by default.
        checkpoint
            Called before each search; raises to end the estimate.
        """
        with self._lock:
            users = list(self._users)
        if len(users) < _FEWEST:
            return Estimate(reason=f"it takes {_FEWEST} requests to estimate it, and there were {len(users)}")
        vectors, n = stack_users(users), len(users)
        tried = _tried(items, asked, k)
        membership, atom_of = tried.items.membership, tried.items.searched.group_of
        floors = np.minimum(tried.floors, tried.most) * n
        caps = np.minimum(tried.caps * n, n * k)
        try:
            if not _can_hold(tried, floors, caps, n, k):
                return Estimate(reason="the latest requests could not have kept all promises at the same time")
        except UndecidedPromisesError:
            return Estimate(reason="it was not found in time whether the latest requests could have kept all promises")

        def search(*arguments: Any, **options: Any) -> Any:
            checkpoint()
            return tried.items.index.search(*arguments, **options)

        plain = float(search(vectors, None, k).relevance.sum())
        rows, least = BoundRows.of(membership, floors, caps, n * k)
        before = np.array([(prices or {}).get(name, 0.0) for name in tried.selections], dtype=np.float64)
        # Those that cost most by the prices in force; those of new promises are not known, and count by their size.
        worth = np.where(before != 0, np.abs(before), float(np.abs(before).max(initial=0.0)) or 1.0)
        used = np.flatnonzero(largest_bounds(least * worth[rows.promise_of]))
        left_out, rows, least = len(least) - len(used), rows.take(used), least[used]
        limits = ListLimits.of(membership, np.minimum(tried.list_limits, k).astype(np.int64), k)
        start = np.clip(-before[rows.promise_of] * rows.signs.astype(np.float64), 0.0, 1e30)
        try:
            bound = promised_bound(atom_of, search, vectors, k, rows, least, start, plain, limits=limits)
        except InvalidInputError as error:  # limits per list that leave too little of what was fetched
            return Estimate(reason=str(error).rstrip("."))
        cost = max(plain - bound.relevance, 0.0)
        return Estimate(cost / n, cost / abs(plain) if plain else 0.0, left_out=left_out)


@dataclass(frozen=True)
class _Tried:
    """Items under promises that are tried on them.

    Attributes
    ----------
    items : SearchedItems
        The items, with a price for each atom.
    selections : Sequence
        The name of each selection.
    floors, caps, list_limits : numpy.ndarray
        (P,) what is asked for, per request.
    most : numpy.ndarray
        (P,) the most items of each selection in one answer.
    """

    items: SearchedItems
    selections: Sequence[str]
    floors: NDArray[np.float64]
    caps: NDArray[np.float64]
    list_limits: NDArray[np.float64]
    most: NDArray[np.int64]


def _tried(items: SearchedItems, asked: Mapping[str, AskedRates], k: int) -> _Tried:
    """Return the items under promises. Selections that they have no prices for yet get some."""
    attribute = items.catalog.group_attribute
    known = items.promises
    if known is None:
        known = tuple(Promise({attribute: label}, at_least=0) for label in items.catalog.labels)
    names = [selection_name(promise.where) for promise in known]
    new = [name for name in asked if name not in set(names)]
    if new:  # those that are known come first, so that their atoms, and what was built for them, can stay
        items = items.with_promises((*known, *(Promise(conditions_of(name), at_least=0) for name in new)))
        names += new
    rates = [asked.get(name, AskedRates()) for name in names]
    floors, caps, limits = (
        np.array([getattr(one, bound) for one in rates]) for bound in ("floor", "cap", "list_limit")
    )
    sizes = items.membership.exposures(items.searched.group_sizes)
    most = np.minimum(np.minimum(sizes, k), np.minimum(limits, k).astype(np.int64))
    return _Tried(items, names, floors, caps, limits, most)


def _can_hold(tried: _Tried, floors: NDArray[np.float64], caps: NDArray[np.float64], n: int, k: int) -> bool:
    """Return whether n requests can be answered with k items each so that floors and caps hold."""
    from scipy import sparse  # here, because scipy takes a third of a second to import

    caps = np.minimum(caps, n * tried.list_limits)
    sizes = np.minimum(tried.items.searched.group_sizes, k).astype(np.float64)
    total = min(n * k, n * len(tried.items.catalog))
    floored, capped = np.flatnonzero(floors > 0), np.flatnonzero(caps < total)
    if not len(capped) and tried.items.atoms is None:  # groups share no item
        return bool(floors.sum() <= total)
    matrix, every = tried.items.membership.matrix, sparse.csr_array(np.ones((1, len(sizes))))
    rows = sparse.vstack([-matrix[floored], matrix[capped], every, -every], format="csr")
    limits = np.concatenate([-floors[floored], caps[capped], [total, -total]])
    return solve(np.zeros(len(sizes)), rows, limits, n * sizes, time.monotonic() + _SECONDS) is not None


def asked_rates(
    promises: Iterable[ScheduledPromise], forecast: TrafficForecast, now: datetime, k: int
) -> dict[str, AskedRates]:
    """Return what promises ask for per request in the long run, by the name of the selection.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Window
    >>> hourly, noon = ScheduledPromise.of_group("toys", 900, Window.hour("UTC")), datetime(2026, 3, 2, 12, tzinfo=UTC)
    >>> asked_rates([hourly], Forecast(rate=0.5), noon, k=10)
    {'{"group": "toys"}': AskedRates(floor=0.5, cap=inf, list_limit=inf)}
    """
    rates: dict[str, AskedRates] = {}
    for scheduled in promises:
        span = scheduled.window.at(now) or scheduled.window.after(now)
        if span is not None:
            promise, requests = scheduled.promise, max(forecast.expected(span.start, span.end, now), 1.0)
            slots, limit = round(k * requests), promise.at_most_per_list
            cap = promise.cap(slots)
            one = AskedRates(
                promise.floor(slots) / requests,
                math.inf if cap is None else cap / requests,
                math.inf if limit is None else limit,
            )
            rates[scheduled.selection] = one.beside(rates.get(scheduled.selection, AskedRates()))
    return rates
