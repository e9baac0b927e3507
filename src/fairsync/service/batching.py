"""Concurrent calls gathered into batches: whatever waits when the search is free is searched together.

One thread searches, so that no call waits for a timer: alone it is searched at once, and under load batches grow by
themselves to what came during the last search.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.service.problems import busy
from fairsync.serving import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


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
    """Searches for calls, many at once.

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
    ...     return [one.ids.shape for one in found]
    >>> asyncio.run(two_calls())
    [(1, 3), (2, 3)]
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
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, users: NDArray[Any], request_ids: Sequence[str | None], k: int | None) -> asyncio.Future[Found]:
        """Return the candidates of these requests, to be awaited; cancelling it takes them out of the queue."""
        n = len(users)
        if self._closed:
            raise busy("stopping", "The service is being stopped.")
        # One call may always wait, or a large one would never be served.
        if self.waiting and self.waiting + n > self.max_waiting:
            raise busy("overloaded", f"{self.waiting} requests are waiting already.")
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(loop,), name="search", daemon=True)
            self._thread.start()
        call = Call(users, request_ids, k, loop.create_future())
        self.waiting += n
        call.answer.add_done_callback(lambda _: self._leave(n))
        self._calls.put(call)
        return call.answer

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closed = True
        if self._thread is not None:
            self._calls.put(None)
            await asyncio.to_thread(self._thread.join)

    def _leave(self, n: int) -> None:
        self.waiting -= n

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Search until the end is called; runs in the thread."""
        waiting: deque[Call] = deque()
        open_ = True
        while open_ or waiting:
            if not waiting:
                first = self._calls.get()
                open_ = first is not None
                if first is not None:
                    waiting.append(first)
            while not self._calls.empty():
                call = self._calls.get()
                if call is None:
                    open_ = False
                else:
                    waiting.append(call)
            batch = take(waiting, self.max_batch)
            if batch:
                self._watch(sum(len(call.users) for call in batch))
                loop.call_soon_threadsafe(_deliver, batch, self._answers(batch))

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


def _deliver(batch: Sequence[Call], answers: Sequence[Found | Exception]) -> None:
    for call, answer in zip(batch, answers, strict=True):
        if call.answer.done():
            continue
        if isinstance(answer, Exception):
            call.answer.set_exception(answer)
        else:
            call.answer.set_result(answer)
