"""A query to all shards with failover, hedged requests and a deadline: the first answer of each shard counts."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search.ray.messages import unpack_answer
from fairsync.search.ray.replicas import first_line

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from fairsync.search.base import Hits
    from fairsync.search.ray.messages import Query
    from fairsync.search.ray.replicas import Replica, Replicas

# Ray puts larger arguments into its object store: once is enough for all shards.
_MOST_INLINE = 100_000
# A request is hedged after this many times the median latency, within these shares of the deadline.
_TIMES_MEDIAN, _LEAST_SHARE, _MOST_SHARE = 10.0, 0.02, 0.25


class HedgeDelay:
    """The delay after which a request is hedged (sent to another replica as well): ten times the median latency.

    Parameters
    ----------
    deadline
        Seconds that a search may take.
    hedge
        A fixed delay in seconds. By default the delay follows the observed latency.

    Examples
    --------
    >>> delay = HedgeDelay(deadline=5.0)
    >>> delay.seconds()
    1.25
    >>> delay.observe(0.03)
    >>> delay.seconds()
    0.3
    """

    def __init__(self, deadline: float, hedge: float | None = None) -> None:
        self._deadline, self._fixed = deadline, hedge
        self._recent: deque[float] = deque(maxlen=101)

    def observe(self, seconds: float) -> None:
        """Record the latency of an answer."""
        self._recent.append(seconds)

    def seconds(self) -> float:
        """Return the delay in seconds."""
        if self._fixed is not None:
            return self._fixed
        median = sorted(self._recent)[len(self._recent) // 2] if self._recent else float("inf")
        return min(max(_TIMES_MEDIAN * median, _LEAST_SHARE * self._deadline), _MOST_SHARE * self._deadline)


class HedgedQuery:
    """One query to all shards. A failed or slow replica is replaced by another replica of its shard.

    Parameters
    ----------
    shards
        The shards to ask.
    query
        The query.
    items
        The number of items in the catalog. An answer with others is refused, like any that does not fit the query.
    hedge_delay
        The delay after which another replica is asked too.
    lock
        Guards the replicas and the hedge delay, which all threads share.
    """

    def __init__(
        self, shards: Sequence[Replicas], query: Query, items: int, hedge_delay: HedgeDelay, lock: threading.Lock
    ) -> None:
        self._shards, self._query, self._items = shards, query, items
        self._hedge_delay, self._lock = hedge_delay, lock
        message = query.pack()
        self._message = message if len(message) <= _MOST_INLINE else ray.put(message)
        self._asked: list[list[Replica]] = [[] for _ in shards]
        self._open: dict[Any, tuple[int, Replica, float]] = {}
        self.answers: list[Hits | None] = [None] * len(shards)

    def run(self, deadline: float) -> list[Hits | None]:
        """Return the answer of each shard, None if no replica of it answered within the deadline, in seconds."""
        now = time.monotonic()
        end = now + deadline
        with self._lock:
            for shard in self._shards:
                shard.check_pings(now)
            delay = self._hedge_delay.seconds()
        hedge = now + delay
        try:
            for at in range(len(self._shards)):
                self._ask_next(at)
            while self._open and (now := time.monotonic()) < end:
                ready, _ = ray.wait(list(self._open), num_returns=1, timeout=max(0.0, min(end, hedge) - now))
                for ref in ready:
                    if ref in self._open:  # an answer just before may have cancelled it
                        self._take(ref, end)
                if time.monotonic() >= hedge:
                    self._hedge()
                    hedge += delay
            self._time_out(deadline)
        finally:
            self._cancel(list(self._open))
        return self.answers

    def _ask_next(self, at: int) -> bool:
        """Send the query to a replica that has not got it yet; return whether there was one."""
        with self._lock:
            replica = self._shards[at].pick(self._asked[at])
        if replica is None:
            return False
        self._asked[at].append(replica)
        self._open[replica.actor.search.remote(self._message)] = (at, replica, time.monotonic())
        return True

    def _take(self, ref: Any, end: float) -> None:
        at, replica, since = self._open.pop(ref)
        try:
            answer = ray.get(ref, timeout=max(0.01, end - time.monotonic()))
            query = self._query
            self.answers[at] = unpack_answer(answer, query.version, len(query.users), query.k, self._items)
        except (RayError, BackendUnavailableError, InvalidInputError) as error:
            if isinstance(error, RayTaskError) and not isinstance(error.cause, BackendUnavailableError):
                raise  # the search itself failed: it would fail on every replica
            with self._lock:
                self._shards[at].mark_down(replica, first_line(error), time.monotonic())
            self._ask_next(at)
            return
        with self._lock:
            self._hedge_delay.observe(time.monotonic() - since)
        self._cancel([other for other, (shard, *_) in self._open.items() if shard == at])

    def _hedge(self) -> None:
        """Hedge: send the query to another replica of each shard that has not answered."""
        for at, slow, _ in list(self._open.values()):
            if self._ask_next(at):
                with self._lock:
                    self._shards[at].mark_late(slow, time.monotonic())

    def _time_out(self, deadline: float) -> None:
        with self._lock:
            for at, replica, _ in self._open.values():
                self._shards[at].mark_down(replica, f"no answer within {deadline:g} s", time.monotonic())

    def _cancel(self, refs: Sequence[Any]) -> None:
        for ref in refs:
            del self._open[ref]
            with contextlib.suppress(RayError):
                ray.cancel(ref)  # queued calls are dropped; a running one completes
