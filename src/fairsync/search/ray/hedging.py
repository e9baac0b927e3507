"""One question to all shards at once: who fails or is slow is passed over, and the first answer of a shard counts."""

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
    from fairsync.search.ray.replicas import Replica, Replicas

# Above this Ray puts an argument into its store: once is enough for all shards.
_MOST_INLINE = 100_000
# Slow is what takes this many times the usual, within these shares of the deadline.
_TIMES_USUAL, _LEAST_SHARE, _MOST_SHARE = 10.0, 0.02, 0.25


class HedgeDelay:
    """How long to wait for one replica before the next is asked too: many times what answers usually take.

    Parameters
    ----------
    deadline
        Seconds that a search may take.
    hedge
        Seconds to wait, where they are not to be learnt.

    Examples
    --------
    >>> patience = HedgeDelay(deadline=5.0)
    >>> patience.delay()
    1.25
    >>> patience.took(0.03)
    >>> patience.delay()
    0.3
    """

    def __init__(self, deadline: float, hedge: float | None = None) -> None:
        self._deadline, self._hedge = deadline, hedge
        self._recent: deque[float] = deque(maxlen=101)

    def took(self, seconds: float) -> None:
        """Note how long an answer took."""
        self._recent.append(seconds)

    def delay(self) -> float:
        """Return how many seconds to wait."""
        if self._hedge is not None:
            return self._hedge
        usual = sorted(self._recent)[len(self._recent) // 2] if self._recent else float("inf")
        return min(max(_TIMES_USUAL * usual, _LEAST_SHARE * self._deadline), _MOST_SHARE * self._deadline)


class HedgedQuery:
    """A question under way.

    Parameters
    ----------
    shards
        Whom to ask.
    message, version
        The `Query`, and the version of its prices.
    lock
        Guards the replicas and the patience, which all threads share.
    """

    def __init__(
        self, shards: Sequence[Replicas], message: bytes, version: int, patience: HedgeDelay, lock: threading.Lock
    ) -> None:
        self._shards, self._version, self._patience, self._lock = shards, version, patience, lock
        self._message = message if len(message) <= _MOST_INLINE else ray.put(message)
        self._asked: list[list[Replica]] = [[] for _ in shards]
        self._open: dict[Any, tuple[int, Replica, float]] = {}
        self.answers: list[Hits | None] = [None] * len(shards)

    def run(self, deadline: float) -> list[Hits | None]:
        """Return the answer of each shard, None where no replica gave one in so many seconds."""
        now = time.monotonic()
        end = now + deadline
        with self._lock:
            for shard in self._shards:
                shard.look(now)
            delay = self._patience.delay()
        hedge = now + delay
        try:
            for at in range(len(self._shards)):
                self._ask_next(at)
            while self._open and (now := time.monotonic()) < end:
                ready, _ = ray.wait(list(self._open), num_returns=1, timeout=max(0.0, min(end, hedge) - now))
                for ref in ready:
                    if ref in self._open:  # it may have been called off by an answer just before
                        self._take(ref, end)
                if time.monotonic() >= hedge:
                    self._hurry()
                    hedge += delay
            self._give_up(deadline)
        finally:
            self._call_off(list(self._open))
        return self.answers

    def _ask_next(self, at: int) -> bool:
        """Ask a replica that was not asked yet; return whether there was one."""
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
            self.answers[at] = unpack_answer(answer, self._version)
        except (RayError, BackendUnavailableError, InvalidInputError) as error:
            if isinstance(error, RayTaskError) and not isinstance(error.cause, BackendUnavailableError):
                raise  # the shard is well, and its search failed: that would fail on every replica
            with self._lock:
                self._shards[at].fail(replica, first_line(error), time.monotonic())
            self._ask_next(at)
            return
        with self._lock:
            self._patience.took(time.monotonic() - since)
        self._call_off([other for other, (shard, *_) in self._open.items() if shard == at])

    def _hurry(self) -> None:
        """Ask another replica of each shard that keeps us waiting."""
        for at, slow, _ in list(self._open.values()):
            if self._ask_next(at):
                with self._lock:
                    self._shards[at].late(slow, time.monotonic())

    def _give_up(self, deadline: float) -> None:
        with self._lock:
            for at, replica, _ in self._open.values():
                self._shards[at].fail(replica, f"no answer within {deadline:g} s", time.monotonic())

    def _call_off(self, refs: Sequence[Any]) -> None:
        for ref in refs:
            del self._open[ref]
            with contextlib.suppress(RayError):
                ray.cancel(ref)  # what waits in the queue of a shard is dropped; what runs comes to its end
