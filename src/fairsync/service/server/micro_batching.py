"""Concurrent calls gathered into batches: whatever waits when the search is free is searched together.

A call that comes alone is searched at once. After a batch, clients who ask again as soon as they are answered would
fall into two halves, of which one is searched while the other is answered; so the next search waits for as many calls
as there were, as long as they keep coming.

Under overload, who would wait for too long is turned away at once, and those who are not are answered as quickly as
before: searching for callers whose time is over before the answer comes would be the end of all answers. Callers take
turns by what they have asked for, so that one who floods the service waits behind those who do not.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.service.server.json_logging import log
from fairsync.service.server.problems import busy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.candidates import Candidates

# So many may wait however slow the search was, and from so many on a batch tells how fast it is.
_ALWAYS_WAIT = 8
# One token may take so much of the queue, so that others find room.
_LARGEST_SHARE = 0.75
# Nobody is sent away for longer, in seconds.
_LONGEST_PAUSE = 30
# How much of the pace of searches is remembered from one to the next.
_REMEMBERED = 0.7
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
    turn : int
        Calls are searched in this order.
    """

    users: NDArray[np.floating[Any]]
    request_ids: Sequence[str | None]
    k: int | None
    answer: asyncio.Future[Candidates]
    turn: int = 0

    def goes_with(self, other: Call) -> bool:
        """Whether both can be searched together."""
        return self.k == other.k and self.users.shape[1] == other.users.shape[1]


class MicroBatcher:
    """Searches for calls, many at once. To be used from one event loop.

    Parameters
    ----------
    search
        Takes users, request ids, k, and whom to tell the candidates: nobody waits for what it does after that. Called
        by one thread only.
    max_batch
        Requests in one search, unless a single call has more.
    max_waiting
        Requests that may wait or be searched; who comes beyond is turned away at once.
    max_seconds
        Who would have to wait for longer than this, by the pace of the latest searches, is turned away at once.
    watch
        Told the requests of each batch.

    Examples
    --------
    >>> from fairsync.candidates import Candidates
    >>> def search(users, request_ids, k, deliver):
    ...     deliver(Candidates(*(np.full((len(users), k), len(users)) for _ in range(3)), np.ones(len(users))))
    >>> async def two_calls():
    ...     batcher = MicroBatcher(search, max_batch=8, max_waiting=100)
    ...     calls = [batcher.ask(np.zeros((n, 1, 4)), [None] * n, 3) for n in (1, 2)]
    ...     found = await asyncio.gather(*calls)
    ...     await batcher.close()
    ...     return [(one.ids.shape, int(one.ids[0, 0])) for one in found]
    >>> asyncio.run(two_calls())
    [((1, 3), 3), ((2, 3), 3)]
    """

    def __init__(
        self,
        search: Callable[[NDArray[Any], Sequence[str | None], int | None, Callable[[Candidates], None]], object],
        max_batch: int,
        max_waiting: int,
        max_seconds: float = math.inf,
        watch: Callable[[int], object] = lambda size: None,
    ) -> None:
        self._search, self._watch = search, watch
        self.max_batch, self.max_waiting, self.max_seconds = max_batch, max_waiting, max_seconds
        self.waiting = 0
        self._waiting_of: Counter[str] = Counter()
        self._queue: list[Call] = []
        self._thread = ThreadPoolExecutor(1, "search")
        self._closed = False
        # A search is under way, or about to be: whoever comes is searched with it, or after it.
        self._busy = False
        # When the present batch began and what it holds; seconds and requests of the latest ones.
        self._began, self._size, self._tells_pace = 0.0, 0, False
        self._seconds, self._requests = 0.0, 1e-9
        # Where the order of calls stands, and where each caller who waits does.
        self._turn = 0
        self._turns: dict[str, int] = {}
        # While the next search waits for calls: for how many, and when it is looked whether they still come.
        self._expected = 0
        self._looking: asyncio.TimerHandle | None = None
        self._of_loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where it is used. Asking Python each time takes longer than all the rest of a call's way through here."""
        if self._of_loop is None:
            self._of_loop = asyncio.get_running_loop()
        return self._of_loop

    def ask(
        self, users: NDArray[Any], request_ids: Sequence[str | None], k: int | None, caller: str = ""
    ) -> asyncio.Future[Candidates]:
        """Return the candidates of these requests, to be awaited; cancelling it takes them out of the queue."""
        n = len(users)
        self.check_room(n, caller)
        # Who has much in the queue already comes after those who have less.
        turn = max(self._turns.get(caller, 0), self._turn)
        call = Call(users, request_ids, k, self.loop.create_future(), turn)
        self._turns[caller] = turn + n
        self.waiting += n
        self._waiting_of[caller] += n
        call.answer.add_done_callback(lambda _: self._leave(n, caller))
        self._queue.append(call)
        if not self._busy:
            self._busy = True
            self.loop.call_soon(self._start)  # calls that were read together are searched together
        elif self._looking is not None and len(self._queue) == self._expected:
            self._looking.cancel()
            self._start()
        return call.answer

    def check_room(self, n: int = 1, caller: str = "") -> None:
        """Refuse requests for which there is no room, or no time."""
        if self._closed:
            raise busy("stopping", "The service is being stopped.")
        if not self.waiting:  # one call may always wait, or a large one would never be served
            return
        mine = self._waiting_of[caller]
        # Callers take turns: before these requests come those of the present search, and of others as many as there
        # are of this caller.
        ahead = min(self._size + mine * len(self._waiting_of), self.waiting)
        seconds = ahead * self._seconds / self._requests
        too_long = ahead >= _ALWAYS_WAIT and seconds > self.max_seconds
        too_much = caller and mine + n > _LARGEST_SHARE * self.max_waiting
        if too_long or (mine and too_much) or self.waiting + n > self.max_waiting:
            again = min(max(math.ceil(seconds), 1), _LONGEST_PAUSE)
            raise busy("overloaded", f"{self.waiting} requests are waiting already.", again)

    async def close(self) -> None:
        """Answer what waits, and end."""
        self._closed = True
        while self._busy:
            await asyncio.sleep(0.001)
        self._thread.shutdown()

    def _leave(self, n: int, caller: str) -> None:
        self.waiting -= n
        self._waiting_of[caller] -= n
        if not self._waiting_of[caller]:
            del self._waiting_of[caller], self._turns[caller]

    def _start(self) -> None:
        """Have the next batch searched."""
        now, self._looking = self.loop.time(), None
        # The whole time from one batch to the next counts: it is what those who wait will see.
        if self._tells_pace:
            self._seconds = _REMEMBERED * self._seconds + now - self._began
            self._requests = _REMEMBERED * self._requests + self._size
        batch, self._queue = take(self._queue, self.max_batch)
        self._busy = bool(batch)
        self._began, self._size = now, sum(len(call.users) for call in batch)
        # A few requests take nearly as long as many would: they do not tell how long many wait.
        self._tells_pace = self._size >= _ALWAYS_WAIT or bool(self._queue)
        if batch:
            # Whoever comes from now on comes after those whose turn is next: who always asks again at once would be
            # before them for ever.
            self._turn = batch[0].turn + 1
            self._watch(self._size)
            self._thread.submit(self._work, batch)

    def _work(self, batch: list[Call]) -> None:
        """Search; runs in the thread."""
        answers: list[Candidates | Exception] = []

        def deliver(found: Candidates) -> None:
            answers.extend(split(found, [len(call.users) for call in batch]))
            self.loop.call_soon_threadsafe(self._deliver, batch, answers)

        try:
            self._find(batch, deliver)
        except Exception as error:  # whatever it is, those who wait have to hear of it
            if answers:  # they have what they waited for
                log.exception("something went wrong after requests were answered")
                return
            # Bad input is refused before anything is changed, so nobody need suffer for the input of another.
            apart = len(batch) > 1 and isinstance(error, InvalidInputError)
            answers = [self._alone(call) for call in batch] if apart else [error] * len(batch)
            self.loop.call_soon_threadsafe(self._deliver, batch, answers)

    def _deliver(self, batch: Sequence[Call], answers: Sequence[Candidates | Exception]) -> None:
        seconds = self.loop.time() - self._began
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
            self._look_again(len(self._queue), 0, self.loop.time() + seconds)
        else:
            self._start()

    def _look_again(self, seen: int, empty: int, end: float) -> None:
        self._looking = self.loop.call_later(_LOOK_SECONDS, self._look, seen, empty, end)

    def _look(self, seen: int, empty: int, end: float) -> None:
        """Start the next search when nobody comes any more, or when it takes too long."""
        came = len(self._queue)
        empty = 0 if came > seen else empty + 1
        if empty > _EMPTY_LOOKS or self.loop.time() > end or self._closed:
            self._start()
        else:
            self._look_again(came, empty, end)

    def _find(self, batch: Sequence[Call], deliver: Callable[[Candidates], None]) -> None:
        users = batch[0].users if len(batch) == 1 else np.concatenate([call.users for call in batch])
        self._search(users, [one for call in batch for one in call.request_ids], batch[0].k, deliver)

    def _alone(self, call: Call) -> Candidates | Exception:
        answers: list[Candidates] = []
        try:
            self._find([call], answers.append)
        except Exception as error:
            return answers[0] if answers else error
        return answers[0]


def take(waiting: Sequence[Call], max_batch: int) -> tuple[list[Call], list[Call]]:
    """Return the next batch, and the rest: the call whose turn it is, and those that go with it while there is room.

    Calls that nobody waits for are dropped.
    """
    batch: list[Call] = []
    kept: list[Call] = []
    size = 0
    for call in sorted(waiting, key=lambda one: one.turn):
        if call.answer.cancelled():
            continue
        if batch and (not call.goes_with(batch[0]) or size + len(call.users) > max_batch):
            kept.append(call)
            continue
        batch.append(call)
        size += len(call.users)
    return batch, kept


def split(found: Candidates, sizes: Sequence[int]) -> list[Candidates | Exception]:
    """Return the candidates of each call."""
    if len(sizes) == 1:
        return [found]
    return [found.take(slice(end - size, end)) for size, end in zip(sizes, accumulate(sizes), strict=True)]
