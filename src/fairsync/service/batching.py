"""Concurrent calls gathered into batches: whatever waits when the search is free is searched together.

A call that comes alone is searched at once. After a batch, clients who ask again as soon as they are answered would
fall into two halves, of which one is searched while the other is answered; so the next search waits for as many calls
as there were, as long as they keep coming.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.service.problems import busy
from fairsync.serving import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

# Searches that take less are not worth waiting for each other.
_WORTH_WAITING = 0.010
# How often it is looked whether calls still come, and how often in a row nobody may have come.
_LOOK_SECONDS = 0.001
_EMPTY_LOOKS = 1


@dataclass(frozen=True)
class Call:
    """Requests that came in one call.

    Attributes
    ----------
    users : numpy.ndarray
        (n, interests, d).
    request_ids : sequence
        One per request; None for those without.
    k : int or None
        Candidates wanted.
    answer : asyncio.Future
        Done when they are found; cancelled when nobody waits any more.
    """

    users: NDArray[np.floating[Any]]
    request_ids: Sequence[str | None]
    k: int | None
    answer: asyncio.Future[Found]

    def goes_with(self, other: Call) -> bool:
        """Whether both can be searched together."""
        return self.k == other.k and self.users.shape[1] == other.users.shape[1]


class Gatherer:
    """Searches for calls, many at once. To be used from one event loop.

    Parameters
    ----------
    search
        Takes users, request ids and k; called by one thread only.
    max_batch
        Requests in one search, unless a single call has more.
    max_waiting
        Requests that may wait or be searched; who comes beyond is turned away at once.
    watch
        Told the requests of each batch.

    Examples
    --------
    >>> def search(users, request_ids, k):
    ...     return Found(*(np.full((len(users), k), len(users)) for _ in range(3)), np.ones(len(users)))
    >>> async def two_calls():
    ...     gatherer = Gatherer(search, max_batch=8, max_waiting=100)
    ...     calls = [gatherer.ask(np.zeros((n, 1, 4)), [None] * n, 3) for n in (1, 2)]
    ...     found = await asyncio.gather(*calls)
    ...     await gatherer.close()
    ...     return [(one.ids.shape, int(one.ids[0, 0])) for one in found]
    >>> asyncio.run(two_calls())
    [((1, 3), 3), ((2, 3), 3)]
    """

    def __init__(
        self,
        search: Callable[[NDArray[Any], Sequence[str | None], int | None], Found],
        max_batch: int,
        max_waiting: int,
        watch: Callable[[int], object] = lambda size: None,
    ) -> None:
        self._search, self._watch = search, watch
        self.max_batch, self.max_waiting = max_batch, max_waiting
        self.waiting = 0
        self._queue: deque[Call] = deque()
        self._thread = ThreadPoolExecutor(1, "search")
        self._closed = False
        # A search is under way, or about to be: whoever comes is searched with it, or after it.
        self._busy = False
        self._expected = 0

    def ask(self, users: NDArray[Any], request_ids: Sequence[str | None], k: int | None) -> asyncio.Future[Found]:
        """Return the candidates of these requests, to be awaited; cancelling it takes them out of the queue."""
        n = len(users)
        if self._closed:
            raise busy("stopping", "The service is being stopped.")
        # One call may always wait, or a large one would never be served.
        if self.waiting and self.waiting + n > self.max_waiting:
            raise busy("overloaded", f"{self.waiting} requests are waiting already.")
        loop = asyncio.get_running_loop()
        call = Call(users, request_ids, k, loop.create_future())
        self.waiting += n
        call.answer.add_done_callback(lambda _: self._leave(n))
        self._queue.append(call)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start, loop)  # calls that were read together are searched together
        return call.answer

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closed = True
        while self._busy:
            await asyncio.sleep(0.001)
        self._thread.shutdown()

    def _leave(self, n: int) -> None:
        self.waiting -= n

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the next batch searched."""
        batch = take(self._queue, self.max_batch)
        self._busy = bool(batch)
        if batch:
            self._watch(sum(len(call.users) for call in batch))
            self._thread.submit(self._work, batch, loop)

    def _work(self, batch: list[Call], loop: asyncio.AbstractEventLoop) -> None:
        """Search; runs in the thread."""
        began = time.perf_counter()
        answers = self._answers(batch)
        loop.call_soon_threadsafe(self._deliver, batch, answers, time.perf_counter() - began, loop)

    def _deliver(
        self,
        batch: Sequence[Call],
        answers: Sequence[Found | Exception],
        seconds: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        expected = min(len(batch) + len(self._queue), self.max_batch)
        for call, answer in zip(batch, answers, strict=True):
            if call.answer.done():
                continue
            if isinstance(answer, Exception):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)
        if expected > 1 and seconds > _WORTH_WAITING and not self._closed:
            loop.call_later(_LOOK_SECONDS, self._look, expected, len(self._queue), 0, loop.time() + seconds, loop)
        else:
            self._start(loop)

    def _look(self, expected: int, seen: int, empty: int, end: float, loop: asyncio.AbstractEventLoop) -> None:
        """Start the next search when all are back, when nobody comes any more, or when it takes too long."""
        came = len(self._queue)
        empty = 0 if came > seen else empty + 1
        if came >= expected or empty > _EMPTY_LOOKS or loop.time() > end or self._closed:
            self._start(loop)
        else:
            loop.call_later(_LOOK_SECONDS, self._look, expected, came, empty, end, loop)

    def _answers(self, batch: Sequence[Call]) -> list[Found | Exception]:
        try:
            users = batch[0].users if len(batch) == 1 else np.concatenate([call.users for call in batch])
            found = self._search(users, [one for call in batch for one in call.request_ids], batch[0].k)
        except Exception as error:  # whatever it is, those who wait have to hear of it
            if len(batch) > 1 and isinstance(error, InvalidInputError):
                # Bad input is refused before anything is changed, so nobody suffers for the input of another.
                return [answer for call in batch for answer in self._answers([call])]
            return [error] * len(batch)
        return split(found, [len(call.users) for call in batch])


def take(waiting: deque[Call], max_batch: int) -> list[Call]:
    """Take the next batch out of the queue: the first call, and those behind it that go with it while there is room.

    Calls that nobody waits for are dropped. Those that do not fit stay, in order.
    """
    batch: list[Call] = []
    kept: list[Call] = []
    size = 0
    while waiting:
        call = waiting.popleft()
        if call.answer.cancelled():
            continue
        if batch and (not call.goes_with(batch[0]) or size + len(call.users) > max_batch):
            kept.append(call)
            continue
        batch.append(call)
        size += len(call.users)
    waiting.extend(kept)
    return batch


def split(found: Found, sizes: Sequence[int]) -> list[Found | Exception]:
    """Return the candidates of each call."""
    if len(sizes) == 1:
        return [found]
    parts: list[Found | Exception] = []
    start = 0
    for size in sizes:
        at = slice(start, start + size)
        parts.append(Found(found.ids[at], found.groups[at], found.relevance[at], found.searched[at]))
        start += size
    return parts
