"""The meter of costs: it keeps a sample of what was answered, and now and then looks what it has cost."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import FairSyncError
from fairsync.search import Hits
from fairsync.service.promises.costs import Answered, estimate_costs

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.catalog import Catalog
    from fairsync.search import Index
    from fairsync.service.promises.costs import Costs, Search
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.promises.scheduler import Scheduler

_log = logging.getLogger(__name__)
# So that a threshold is below one, whatever the dice say.
_TINY = 1e-12
# Requests in a sample, and how few are worth a look.
SAMPLE, FEWEST = 512, 64
# Seconds between two looks.
_EVERY = 300.0
# Then it rests so many times as long as it has worked.
_REST = 9.0
# Scores that a search may make at once, about ten milliseconds' worth; and all searches of a look, some ten seconds'.
_AT_ONCE, _AT_ALL, _SEARCHES = 2_500_000, 1_000_000_000, 6


@dataclass(frozen=True)
class Measured:
    """What was found, and when."""

    costs: Costs
    at: datetime
    labels: tuple[Any, ...]


class AnswerReservoir:
    """A fair sample of the requests of the present tick that were answered from the present items.

    Each of those is in it with the same probability. With another tick, or other items, it begins anew. It is known
    beforehand which request is the next to be taken in (Li's algorithm L), so that most cost nothing.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.candidates import Candidates
    >>> catalog = Catalog(np.eye(2), ["a", "b"])
    >>> found = Candidates.of(catalog, np.array([[0], [1], [1]]), np.ones((3, 1)), np.ones(3))
    >>> sample = AnswerReservoir(size=2)
    >>> sample.add(catalog, 0.0, np.zeros((3, 1, 2)), found)
    >>> len(sample), sample.seen
    (2, 3)
    >>> sample.add(catalog, 86_400.0, np.zeros((1, 1, 2)), found.take(slice(1)))  # another day
    >>> len(sample)
    1
    """

    def __init__(self, size: int = SAMPLE) -> None:
        self._size, self._rng, self._lock = size, random.Random(0), threading.Lock()
        self._of: tuple[Catalog, float] | None = None
        self._kept: list[tuple[NDArray[Any], ...]] = []
        # Requests so far, which is the next to be taken in, and what decides how far it is to the one after.
        self.seen, self._next, self._threshold = 0, 0, 1.0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, catalog: Catalog, began: float, users: NDArray[np.floating[Any]], found: Candidates) -> None:
        """Take some of these requests in, with what was answered in the tick that began then."""
        with self._lock:
            if self._of is None or self._of[0] is not catalog or self._of[1] != began:
                self._of, self._kept = (catalog, began), []
                self.seen, self._next, self._threshold = 0, 0, 1.0
            first, self.seen = self.seen, self.seen + len(found)
            while self._next < self.seen:
                position = self._next - first
                # Copies: a view would hold the whole batch.
                one = users[position].copy(), found.ids[position].copy(), found.relevance[position].copy()
                if len(self._kept) < self._size:
                    self._kept.append(one)
                else:
                    self._kept[self._rng.randrange(self._size)] = one
                self._next += self._step()

    def _step(self) -> int:
        """Return how far it is to the next request that is taken in.

        Had each request a random number, the sample would be those with the smallest: the threshold is the largest of
        them, and it is a matter of chance how many in a row are above it.
        """
        if len(self._kept) < self._size:
            return 1
        self._threshold *= math.exp(-self._rng.expovariate(self._size) - _TINY)
        return 1 + math.floor(self._rng.expovariate(-math.log1p(-self._threshold)))

    def answered(self, catalog: Catalog) -> Answered | None:
        """Return the sample, or a part of it where items are many; None if it was answered from others than these."""
        with self._lock:
            if self._of is None or self._of[0] is not catalog:
                return None
            most = max(_AT_ALL // (_SEARCHES * len(catalog)), FEWEST)
            kept = self._rng.sample(self._kept, min(most, len(self._kept)))
        users, ids, relevance = zip(*kept, strict=True)
        # An item's relevance is its best over the interests: saying one twice changes nothing.
        interests = max(map(len, users))
        padded = [np.pad(user, ((0, interests - len(user)), (0, 0)), mode="edge") for user in users]
        rows = catalog.rows_of(np.stack(ids))
        return Answered(np.stack(padded), rows, np.stack(relevance))


class CostMonitor:
    """Looks now and then what promises cost, in a thread of its own that mostly sleeps.

    Attributes
    ----------
    last : Measured or None
        What was found last.
    why : str
        Why there is nothing new; empty if there is.
    every : float
        Seconds between two looks; infinity: it looks when it is told to `measure`, and not by itself.
    """

    def __init__(self) -> None:
        self.last: Measured | None = None
        self.why, self.every = "No request was answered yet.", _EVERY
        self.sample = AnswerReservoir()
        self._thread: threading.Thread | None = None
        self._due, self._seen, self._ended = 0.0, 0, threading.Event()

    def note(self, catalog: Catalog, k: int, began: float, users: NDArray[np.floating[Any]], found: Candidates) -> None:
        """Take note of what was answered in the tick that began then, from these items."""
        # What was out of reach cannot be compared, nor lists of another length.
        if found.ids.shape[1] == k and not found.degraded:
            self.sample.add(catalog, began, users, found)

    def refresh(self, service: PromiseService) -> None:
        """Start to measure, if it is time."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or time.monotonic() < self._due or self._ended.is_set() or self.every == math.inf:
            return
        if self.sample.seen == self._seen:  # nothing new to look at
            return
        if len(self.sample) >= FEWEST:
            self._seen = self.sample.seen
            self._thread = threading.Thread(target=self._run, args=(service,), name="costs", daemon=True)
            self._thread.start()
        elif self.last is None:
            self.why = f"Too few requests yet: {len(self.sample)} of the {FEWEST} that an estimate needs."

    def measure(self, service: PromiseService, rest: float = 0.0) -> None:
        """Measure now, resting so many times as long as it works."""
        catalog, index = service.catalog, service.front.index
        answered = self.sample.answered(catalog)
        if answered is None or service.catalog is not catalog:
            return  # the items have just changed
        with service.scheduler.lock:
            asked, prices = asked_share(service.scheduler), service.coordinator.prices()
        n = catalog.n_groups  # the coordinator may know more already
        if self.last is not None and len(self.last.labels) == n:
            prices = self.last.costs.prices  # those of the coordinator end when a floor is reached
        try:
            search = _gently(index, len(catalog), rest, self._ended)
            costs = estimate_costs(catalog, search, answered, asked[:n], prices[:n])
        except FairSyncError as error:
            self.why = f"It cannot be estimated now: {error}"
            return
        self.last, self.why = Measured(costs, service.scheduler.now(), tuple(catalog.labels)), ""

    def close(self) -> None:
        """Stop, also in the middle of it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(10)

    def _run(self, service: PromiseService) -> None:
        try:
            self.measure(service, _REST)
        except _EndedError:
            return
        except Exception:  # whatever it is, requests are answered
            _log.exception("what fairness costs could not be measured")
            self.why = "It cannot be estimated now: see the log of the service."
        self._due = time.monotonic() + self.every


class _EndedError(Exception):
    """Nobody waits for it any more."""


def asked_share(scheduler: Scheduler) -> NDArray[np.float64]:
    """Return (G,) which share of each group's exposures in this tick a promise asked for."""
    return np.clip(asked_in_period(scheduler) / np.maximum(scheduler.counted(), 1), 0.0, 1.0)


def asked_in_period(scheduler: Scheduler) -> NDArray[np.float64]:
    """Return (G,) the exposures that promises lacked when the tick began; 0 where nothing is promised."""
    counted, groups = scheduler.counted(), scheduler.coordinator.groups
    asked = np.zeros(len(counted))
    for promise, so_far in scheduler.exposures().items():
        code = groups.code_of(promise.group)
        asked[code] = max(asked[code], promise.floor - (so_far - counted[code]))
    return asked


def _gently(index: Index, items: int, rest: float, ended: threading.Event) -> Search:
    """Return a search that asks for a few at a time, and leaves the processors to others in between."""
    step = max(_AT_ONCE // items, 1)

    def search(users: NDArray[np.floating[Any]], prices: NDArray[np.float64] | None, k: int) -> Hits:
        parts = []
        for start in range(0, len(users), step):
            began = time.perf_counter()
            hits = index.search(users[start : start + step], prices, k)
            if hits.reached is not None:
                raise FairSyncError("a part of the catalog is out of reach.")
            if (hits.rows < 0).any():
                raise FairSyncError(f"the index finds fewer than {k} items.")
            parts.append(hits)
            if rest and ended.wait(rest * (time.perf_counter() - began)):
                raise _EndedError
        return Hits(np.concatenate([one.rows for one in parts]), np.concatenate([one.relevance for one in parts]))

    return search
