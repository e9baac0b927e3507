"""Micro-batching: concurrent calls are searched together.

A call that arrives alone is searched at once. Calls that arrive during a search form the next micro-batch. Clients that
call again as soon as they are answered would fall into two halves, one searched while the other is answered; therefore
the next search waits for as many calls as there were before, as long as they keep arriving.

Admission control sheds load: a call that would wait too long is refused at once, so that the admitted ones are answered
as fast as before. Searching for callers whose timeout is over before the answer arrives would be the end of all
answers. Callers are scheduled by fair queuing, so that one that floods the service waits behind the others.

Hand-written: no library batches concurrent calls with fair queuing and admission control by waiting time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError, UnusableLedgerError
from fairsync.service.server.json_logging import log
from fairsync.service.server.problems import busy
from fairsync.spans import capture, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates
    from fairsync.catalog import Where

# Requests that may wait however slow the search was. Batches of at least this size measure its pace.
_ALWAYS_ADMITTED = 8
# Largest share of the queue that one token may occupy.
_LARGEST_SHARE = 0.75
# Largest Retry-After, in seconds.
_LONGEST_RETRY = 30
# Weight of the past in the moving average of the pace.
_MEMORY = 0.7
# Searches shorter than this many seconds do not wait for further calls.
_WORTH_WAITING = 0.010
# Seconds between two polls for further calls, and the polls in a row that may find none.
_POLL_SECONDS = 0.001
_EMPTY_POLLS = 1


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call in the queue.

    Attributes
    ----------
    users : numpy.ndarray
        (n, interests, d).
    request_ids : sequence
        One per request; None for those without.
    k : int or None
        Candidates wanted.
    exclude, where : sequence or None
        What each request excludes, and its condition; None if there are none.
    explain : bool
        Whether its candidates are to be explained.
    answer : asyncio.Future
        Done when the candidates are found; cancelled when the client has gone.
    turn : int
        Position in the fair queue.
    cause : object
        The span of the call, if it is traced.
    """

    users: NDArray[np.floating[Any]]
    request_ids: Sequence[str | None]
    k: int | None
    answer: asyncio.Future[Candidates]
    turn: int = 0
    exclude: Sequence[Any] | None = None
    where: Sequence[Where | None] | None = None
    explain: bool = False
    cause: object = None

    def is_compatible(self, other: PendingCall) -> bool:
        """Whether both can be searched together."""
        # Calls that need no explanation must not wait for those of others.
        same = self.k == other.k and self.explain == other.explain
        return same and self.users.shape[1] == other.users.shape[1]


class MicroBatcher:
    """Searches for many concurrent calls at once. Must be used from one event loop.

    Parameters
    ----------
    search
        Takes users, request ids, k, and a function that it calls with the candidates. The callers do not wait for what
        it does after that. Called in one thread only. If a call has rules, ``exclude`` and ``where`` as well;
        ``explain=True`` if it wants to know why.
    max_batch
        Requests per micro-batch, unless a single call has more.
    max_waiting
        Requests that may wait or be searched. Further ones are refused.
    max_seconds
        Longest waiting time, estimated by the pace of the latest searches. Calls that would wait longer are refused.
    observe
        Called with the number of requests of each micro-batch.
    clock
        Seconds of a monotonic clock.

    Examples
    --------
    >>> from fairsync.candidates import Candidates
    >>> def search(users, request_ids, k, deliver):
    ...     deliver(Candidates(*(np.full((len(users), k), len(users)) for _ in range(3)), np.ones(len(users))))
    >>> async def two_calls():
    ...     batcher = MicroBatcher(search, max_batch=8, max_waiting=100)
    ...     calls = [batcher.submit(np.zeros((n, 1, 4)), [None] * n, 3) for n in (1, 2)]
    ...     found = await asyncio.gather(*calls)
    ...     await batcher.close()
    ...     return [(one.ids.shape, int(one.ids[0, 0])) for one in found]
    >>> asyncio.run(two_calls())
    [((1, 3), 3), ((2, 3), 3)]
    """

    def __init__(
        self,
        search: Callable[..., object],
        max_batch: int,
        max_waiting: int,
        max_seconds: float = math.inf,
        observe: Callable[[int], object] = lambda size: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._search, self._observe, self._clock = search, observe, clock
        self.max_batch, self.max_waiting, self.max_seconds = max_batch, max_waiting, max_seconds
        self.waiting = 0
        self._waiting_of: Counter[str] = Counter()
        self._queue: list[PendingCall] = []
        self._thread = ThreadPoolExecutor(1, "search")
        self._closed = False
        # A search is running or scheduled: new calls join it or wait for the next.
        self._busy = False
        # Start and size of the current batch, and the moving averages of seconds and requests.
        self._started, self._size, self._measures_pace = 0.0, 0, False
        self._seconds, self._requests = 0.0, 1e-9
        # Fair queuing: the turn of the current batch, and the next turn of each caller that waits.
        self._turn = 0
        self._next_turn: dict[str, int] = {}
        # While the next search waits for further calls: their expected number, and the timer of the next poll.
        self._expected = 0
        self._poll_timer: asyncio.TimerHandle | None = None
        self._cached_loop: asyncio.AbstractEventLoop | None = None

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # Looking the running loop up costs more than the rest of a call's way through here.
        if self._cached_loop is None:
            self._cached_loop = asyncio.get_running_loop()
        return self._cached_loop

    @property
    def callers(self) -> list[str]:
        """The callers that have requests waiting."""
        return list(self._next_turn)

    def submit(
        self,
        users: NDArray[Any],
        request_ids: Sequence[str | None],
        k: int | None,
        caller: str = "",
        exclude: Sequence[Any] | None = None,
        where: Sequence[Where | None] | None = None,
        *,
        explain: bool = False,
    ) -> asyncio.Future[Candidates]:
        """Enqueue requests and return the future of their candidates; cancelling it takes them out of the queue."""
        n = len(users)
        self.admit(n, caller)
        # Callers with much in the queue come after those with less.
        turn = max(self._next_turn.get(caller, 0), self._turn)
        call = PendingCall(users, request_ids, k, self._loop.create_future(), turn, exclude, where, explain, capture())
        self._next_turn[caller] = turn + n
        self.waiting += n
        self._waiting_of[caller] += n
        call.answer.add_done_callback(lambda _: self._release(n, caller))
        self._queue.append(call)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._start_batch)  # calls that were read together are searched together
        elif self._poll_timer is not None and len(self._queue) == self._expected:
            self._poll_timer.cancel()
            self._start_batch()
        return call.answer

    def admit(self, n: int = 1, caller: str = "") -> None:
        """Refuse requests (503 with Retry-After) if the queue is full or the wait would be too long."""
        if self._closed:
            raise busy("stopping", "The service is being stopped.")
        if not self.waiting:  # one call may always wait, or a large one would never be served
            return
        own = self._waiting_of[caller]
        # By fair queuing, the requests of the current search come first, and of each other caller as many as own ones.
        ahead = min(self._size + own * len(self._waiting_of), self.waiting)
        seconds = ahead * self._seconds / self._requests
        too_long = ahead >= _ALWAYS_ADMITTED and seconds > self.max_seconds
        too_much = caller and own + n > _LARGEST_SHARE * self.max_waiting
        if too_long or (own and too_much) or self.waiting + n > self.max_waiting:
            retry_after = min(max(math.ceil(seconds), 1), _LONGEST_RETRY)
            raise busy("overloaded", f"{self.waiting} requests are waiting already.", retry_after)

    async def close(self) -> None:
        """Answer the requests that wait, then end the search thread."""
        self._closed = True
        while self._busy:
            await asyncio.sleep(0.001)
        self._thread.shutdown()

    def _release(self, n: int, caller: str) -> None:
        self.waiting -= n
        self._waiting_of[caller] -= n
        if not self._waiting_of[caller]:
            del self._waiting_of[caller], self._next_turn[caller]

    def _start_batch(self) -> None:
        now, self._poll_timer = self._clock(), None
        # The pace is the whole time from one batch to the next: that is what waiting calls will see.
        if self._measures_pace:
            self._seconds = _MEMORY * self._seconds + now - self._started
            self._requests = _MEMORY * self._requests + self._size
        batch, self._queue = next_batch(self._queue, self.max_batch)
        self._busy = bool(batch)
        self._started, self._size = now, sum(len(call.users) for call in batch)
        # A few requests take nearly as long as many, so small batches say nothing about the pace.
        self._measures_pace = self._size >= _ALWAYS_ADMITTED or bool(self._queue)
        if batch:
            # New calls come after those whose turn is next; otherwise a caller that always returns at once would
            # overtake them forever.
            self._turn = batch[0].turn + 1
            self._observe(self._size)
            self._thread.submit(self._search_batch, batch)

    def _search_batch(self, batch: list[PendingCall]) -> None:
        """Search in the search thread, and hand the answers to the event loop."""
        answers: list[Candidates | Exception] = []

        def deliver(found: Candidates) -> None:
            answers.extend(split(found, [len(call.users) for call in batch]))
            self._loop.call_soon_threadsafe(self._resolve, batch, answers)

        try:
            self._search_calls(batch, deliver)
        except Exception as error:  # every kind of exception has to reach the callers
            if answers:  # the callers have their answers already
                log.exception("the search failed after its requests were answered")
                return
            # Invalid input is refused before anything is changed, so the other calls can be searched separately.
            separately = len(batch) > 1 and isinstance(error, InvalidInputError)
            separately = separately and not isinstance(error, UnusableLedgerError)
            answers = [self._search_alone(call) for call in batch] if separately else [error] * len(batch)
            self._loop.call_soon_threadsafe(self._resolve, batch, answers)

    def _resolve(self, batch: Sequence[PendingCall], answers: Sequence[Candidates | Exception]) -> None:
        seconds = self._clock() - self._started
        expected = min(len(batch) + len(self._queue), self.max_batch)
        for call, answer in zip(batch, answers, strict=True):
            if call.answer.done():
                continue
            if isinstance(answer, Exception):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)
        if expected > max(len(self._queue), 1) and seconds > _WORTH_WAITING and not self._closed:
            self._expected = expected
            self._schedule_poll(len(self._queue), 0, self._clock() + seconds)
        else:
            self._start_batch()

    def _schedule_poll(self, seen: int, empty: int, deadline: float) -> None:
        self._poll_timer = self._loop.call_later(_POLL_SECONDS, self._poll, seen, empty, deadline)

    def _poll(self, seen: int, empty: int, deadline: float) -> None:
        """Start the next search when no further calls arrive, or at the deadline."""
        arrived = len(self._queue)
        empty = 0 if arrived > seen else empty + 1
        if empty > _EMPTY_POLLS or self._clock() > deadline or self._closed:
            self._start_batch()
        else:
            self._schedule_poll(arrived, empty, deadline)

    def _search_calls(self, batch: Sequence[PendingCall], deliver: Callable[[Candidates], None]) -> None:
        users = batch[0].users if len(batch) == 1 else np.concatenate([call.users for call in batch])
        rules: dict[str, Any] = {
            name: [one for call in batch for one in (getattr(call, name) or [None] * len(call.users))]
            for name in ("exclude", "where")
            if any(getattr(call, name) is not None for call in batch)
        }
        if batch[0].explain:
            rules["explain"] = True
        with joined("batch", [call.cause for call in batch]):
            self._search(users, [one for call in batch for one in call.request_ids], batch[0].k, deliver, **rules)

    def _search_alone(self, call: PendingCall) -> Candidates | Exception:
        answers: list[Candidates] = []
        try:
            self._search_calls([call], answers.append)
        except Exception as error:
            return answers[0] if answers else error
        return answers[0]


def next_batch(waiting: Sequence[PendingCall], max_batch: int) -> tuple[list[PendingCall], list[PendingCall]]:
    """Return the next micro-batch and the rest of the queue.

    The batch is the call whose turn it is, and compatible ones while there is room. Cancelled calls are dropped.
    """
    batch: list[PendingCall] = []
    rest: list[PendingCall] = []
    size = 0
    for call in sorted(waiting, key=lambda one: one.turn):
        if call.answer.cancelled():
            continue
        if batch and (not call.is_compatible(batch[0]) or size + len(call.users) > max_batch):
            rest.append(call)
            continue
        batch.append(call)
        size += len(call.users)
    return batch, rest


def split(found: Candidates, sizes: Sequence[int]) -> list[Candidates | Exception]:
    """Return the candidates of each call of a batch."""
    if len(sizes) == 1:
        return [found]
    return [found.take(slice(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)]
