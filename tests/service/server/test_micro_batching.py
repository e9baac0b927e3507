"""Calls gathered into batches: each gets its own answer, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.errors import InvalidInputError
from fairsync.service.server.micro_batching import MicroBatcher
from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence


class Search:
    """Answers each user with its own first value; waits at a barrier until it is let go."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int | None]] = []
        self.go, self.entered = threading.Event(), threading.Event()
        self.go.set()

    def __call__(
        self, users: Any, request_ids: Sequence[str | None], k: int | None, deliver: Callable[[Candidates], None]
    ) -> None:
        self.entered.set()
        assert self.go.wait(240)
        if np.isnan(users).any():
            raise InvalidInputError("bad vector")
        assert len(users) == len(request_ids)
        self.batches.append((len(users), k))
        ids = np.repeat(users[:, 0, :1], k or 3, axis=1).astype(np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))


def users_of(*values: float, interests: int = 1) -> Any:
    return np.repeat(np.array(values)[:, None, None], interests, axis=1) * np.ones(4)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def held(search: Search, batcher: MicroBatcher) -> asyncio.Future[Candidates]:
    """Have the search busy with one request, so that others gather behind it."""
    search.go.clear()
    search.entered.clear()
    first = batcher.submit(users_of(0), ["first"], None)
    await asyncio.to_thread(search.entered.wait, 10)
    return first


def test_who_comes_during_a_search_is_searched_together() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=1000)
        first = await held(search, batcher)
        sizes = [1, 3, 2, 1]
        starts = np.cumsum([10, *sizes])
        tasks = [
            (batcher.submit(users_of(*range(start, start + size)), [None] * size, None))
            for start, size in zip(starts, sizes, strict=False)
        ]
        await asyncio.sleep(0.01)
        search.go.set()
        assert (await first).ids.tolist() == [[0, 0, 0]]
        for task, start, size in zip(tasks, starts, sizes, strict=False):
            assert (await task).ids[:, 0].tolist() == list(range(start, start + size))
        await asyncio.sleep(0)
        assert batcher.waiting == 0
        await batcher.close()

    run(work())
    assert search.batches == [(1, None), (7, None)]


def test_batches_have_a_limit_and_one_kind() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=4, max_waiting=1000)
        first = await held(search, batcher)
        asked = [
            batcher.submit(users_of(1, 2, 3), [None] * 3, None),
            batcher.submit(users_of(4), [None], 2),  # another k
            batcher.submit(users_of(5, 6), [None] * 2, None),  # no room
            batcher.submit(users_of(7), [None], None),
            batcher.submit(users_of(8, interests=2), [None], None),  # another shape
            batcher.submit(users_of(*range(20, 30)), [None] * 10, None),  # larger than any batch
        ]
        tasks = asked
        await asyncio.sleep(0.01)
        search.go.set()
        found = [await task for task in (first, *tasks)]
        assert [one.ids[0, 0] for one in found] == [0, 1, 4, 5, 7, 8, 20]
        assert found[2].ids.shape == (1, 2)
        await batcher.close()

    run(work())
    assert sorted(search.batches[1:], key=str) == sorted([(4, None), (1, 2), (2, None), (1, None), (10, None)], key=str)


def test_calls_with_and_without_explanations_are_searched_apart() -> None:
    """Calls that need no explanation must not wait for those of others."""
    seen: list[tuple[int, dict[str, Any]]] = []

    def search(
        users: Any, _: Sequence[str | None], k: int | None, deliver: Callable[[Candidates], None], **more: Any
    ) -> None:
        seen.append((len(users), more))
        ids = np.repeat(users[:, 0, :1], k or 3, axis=1).astype(np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=10, max_waiting=100)
        calls = [batcher.submit(users_of(i), [None], None, explain=i in (1, 2)) for i in range(4)]
        assert [(await call).ids[0, 0] for call in calls] == [0, 1, 2, 3]
        await batcher.close()

    run(work())
    assert sorted(seen, key=str) == [(2, {"explain": True}), (2, {})]


def test_who_has_gone_is_not_searched_for() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=1000)
        first = await held(search, batcher)
        gone, stays = ((batcher.submit(users_of(n, n), [None] * 2, None)) for n in (1, 2))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        assert batcher.waiting == 3
        search.go.set()
        await first
        assert (await stays).ids[0, 0] == 2
        await batcher.close()

    run(work())
    assert search.batches == [(1, None), (2, None)]


def test_too_many_are_turned_away_at_once() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=3)
        first = await held(search, batcher)
        second = batcher.submit(users_of(1, 2), [None] * 2, None)
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as refused:
            await batcher.submit(users_of(3), [None], None)
        assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
        search.go.set()
        await asyncio.gather(first, second)
        assert (await batcher.submit(users_of(*range(9)), [None] * 9, None)).ids.shape == (9, 3)
        await batcher.close()

    run(work())


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedSearch(Search):
    """A search that takes a given time by the clock: so long a batch, and so long a request."""

    def __init__(self, clock: Clock, per_batch: float, per_request: float) -> None:
        super().__init__()
        self._clock, self._per_batch, self._per_request = clock, per_batch, per_request

    def __call__(self, users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        def take_time(found: Candidates) -> None:
            self._clock.now += self._per_batch + self._per_request * len(users)
            deliver(found)

        super().__call__(users, request_ids, k, take_time)


async def submitted(batcher: MicroBatcher, calls: int) -> tuple[list[asyncio.Future[Candidates]], list[str]]:
    """Submit calls of one request each; return the admitted ones, and Retry-After of the others."""
    admitted, refused = [], []
    for n in range(calls):
        try:
            admitted.append(batcher.submit(users_of(n), [None], None))
        except Problem as problem:
            refused.append(problem.headers["retry-after"])
    return admitted, refused


@pytest.mark.parametrize(("max_seconds", "admitted", "retry_after"), [(0.2, 21, "1"), (5.0, 501, "6")])
def test_a_call_that_would_wait_too_long_is_refused(max_seconds: float, admitted: int, retry_after: str) -> None:
    """Each request takes 10 ms: within 0.2 s twenty can be answered, within 5 s five hundred."""
    clock = Clock()
    search = TimedSearch(clock, 0.0, 0.01)

    async def work() -> None:
        batcher = MicroBatcher(search, 8, 10_000, max_seconds, clock=clock)
        await batcher.submit(users_of(*range(8)), [None] * 8, None)
        await batcher.submit(users_of(1), [None], None)  # by now the pace is known
        first = await held(search, batcher)
        waiting, refused = await submitted(batcher, 1_000)
        assert (1 + len(waiting), set(refused)) == (admitted, {retry_after})
        search.go.set()
        assert len(await asyncio.gather(first, *waiting)) == admitted
        await batcher.close()

    run(work())


def test_a_slow_search_still_forms_batches() -> None:
    """One request alone takes longer than the longest wait, and many together take hardly more."""
    clock = Clock()
    search = TimedSearch(clock, 0.05, 0.0001)

    async def work() -> None:
        batcher = MicroBatcher(search, 64, 10_000, 0.02, clock=clock)
        for _ in range(3):
            first = await held(search, batcher)
            waiting, _ = await submitted(batcher, 64)
            search.go.set()
            await asyncio.gather(first, *waiting)
        await batcher.close()

    run(work())
    assert max(size for size, _ in search.batches) >= 7


def test_a_slow_start_refuses_no_call() -> None:
    """The first request alone is slow, as when the catalog is still on disk: the next must not pay for it."""
    clock = Clock()
    search = TimedSearch(clock, 300.0, 0.0)

    async def work() -> None:
        batcher = MicroBatcher(search, 64, 1_000, 1.0, clock=clock)
        await batcher.submit(users_of(1), [None], None)
        first = await held(search, batcher)
        waiting, refused = await submitted(batcher, 64)
        assert (len(waiting), refused) == (64, [])
        search.go.set()
        await asyncio.gather(first, *waiting)
        await batcher.close()

    run(work())


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_waits_for_what_follows_an_answer(fails: bool) -> None:
    after, done = threading.Event(), threading.Event()

    def search(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        ids = np.zeros((len(users), 3), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))
        assert after.wait(240)
        done.set()
        if fails:
            raise ValueError("notes could not be taken")

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=64, max_waiting=1000)
        await batcher.submit(users_of(1), [None], None)
        assert not done.is_set()
        after.set()
        assert len(await batcher.submit(users_of(1), [None], None)) == 1
        await batcher.close()
        assert done.is_set()

    run(work())


def test_callers_take_turns() -> None:
    search = Search()

    async def work() -> list[float]:
        batcher = MicroBatcher(search, max_batch=4, max_waiting=1000)
        first = await held(search, batcher)
        order: list[float] = []

        def note(n: float, _: object) -> None:
            order.append(n)

        asked = [(10 + n, "flood") for n in range(12)] + [(n, "other") for n in (1, 2, 3)]
        calls = [batcher.submit(users_of(n), [None], None, caller) for n, caller in asked]
        for call, (n, _) in zip(calls, asked, strict=True):
            call.add_done_callback(partial(note, n))
        search.go.set()
        await asyncio.gather(first, *calls)
        await batcher.close()
        return order

    order = run(work())
    assert [order.index(n) < 8 for n in (1, 2, 3)] == [True] * 3
    assert [n for n in order if n >= 10] == list(range(10, 22)), "each caller's are answered in their order"


def test_a_caller_that_returns_at_once_does_not_hold_up_others() -> None:
    """The requests of one caller cannot be searched together, and another is back before the next search begins."""
    search = TimedSearch(clock := Clock(), 0.012, 0.0)  # long enough for the next search to wait for further calls

    async def work() -> list[str]:
        batcher = MicroBatcher(search, max_batch=8, max_waiting=100, clock=clock)
        order: list[str] = []

        async def ask(caller: str, k: int) -> None:
            await batcher.submit(users_of(1), [None], k, caller)
            order.append(caller)

        async def again_and_again() -> None:
            for _ in range(20):
                await ask("quick", 1)

        await asyncio.gather(again_and_again(), *(ask("patient", k) for k in (2, 3, 4)))
        await batcher.close()
        return order

    assert run(work())[:8].count("patient") == 3, "they take turns"


def test_one_token_leaves_room_for_another() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=100)
        first = await held(search, batcher)
        taken = [batcher.submit(users_of(n), [None], None, "flood") for n in range(75)]
        with pytest.raises(Problem, match="waiting already"):
            batcher.submit(users_of(1), [None], None, "flood")
        other = batcher.submit(users_of(7), [None], None, "other")
        search.go.set()
        assert (await other).ids[0, 0] == 7
        await asyncio.gather(first, *taken)
        await asyncio.sleep(0)
        assert not batcher.callers, "nothing is kept of callers that have gone"
        await batcher.close()

    run(work())


def test_bad_input_of_one_is_not_the_others_fault() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=1000)
        first = await held(search, batcher)
        tasks = [(batcher.submit(users_of(n), [None], None)) for n in (1, float("nan"), 3)]
        await asyncio.sleep(0.01)
        search.go.set()
        await first
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, InvalidInputError) for one in found] == [False, True, False]
        await batcher.close()

    run(work())
    assert search.batches == [(1, None), (1, None), (1, None)]


def test_what_waits_at_the_end_is_answered() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=1, max_waiting=1000)
        first = await held(search, batcher)
        tasks = [(batcher.submit(users_of(n), [None], None)) for n in range(5)]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="stopped"):
            await batcher.submit(users_of(9), [None], None)
        search.go.set()
        await asyncio.gather(first, *tasks, closing)

    run(work())
    assert len(search.batches) == 6
