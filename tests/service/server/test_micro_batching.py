"""Calls gathered into batches: each gets its own answer, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import threading
import time
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
        assert self.go.wait(10)
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
    first = batcher.ask(users_of(0), ["first"], None)
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
            (batcher.ask(users_of(*range(start, start + size)), [None] * size, None))
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
            batcher.ask(users_of(1, 2, 3), [None] * 3, None),
            batcher.ask(users_of(4), [None], 2),  # another k
            batcher.ask(users_of(5, 6), [None] * 2, None),  # no room
            batcher.ask(users_of(7), [None], None),
            batcher.ask(users_of(8, interests=2), [None], None),  # another shape
            batcher.ask(users_of(*range(20, 30)), [None] * 10, None),  # larger than any batch
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


def test_who_has_gone_is_not_searched_for() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=1000)
        first = await held(search, batcher)
        gone, stays = ((batcher.ask(users_of(n, n), [None] * 2, None)) for n in (1, 2))
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
        second = batcher.ask(users_of(1, 2), [None] * 2, None)
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as refused:
            await batcher.ask(users_of(3), [None], None)
        assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
        search.go.set()
        await asyncio.gather(first, second)
        assert (await batcher.ask(users_of(*range(9)), [None] * 9, None)).ids.shape == (9, 3)
        await batcher.close()

    run(work())


def test_who_would_wait_too_long_is_turned_away() -> None:
    """Each request takes 10 ms: within 0.2 s about twenty can be answered, and whoever comes beyond is told so."""

    def slowly(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        time.sleep(0.01 * len(users))
        ids = np.zeros((len(users), 3), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))

    async def work() -> tuple[list[float], list[int]]:
        batcher = MicroBatcher(slowly, max_batch=8, max_waiting=10_000, max_seconds=0.2)
        await batcher.ask(users_of(*range(8)), [None] * 8, None)  # how long it takes is not known before
        waited, pauses = [], []

        async def call() -> None:
            start = time.monotonic()
            try:
                await batcher.ask(users_of(1), [None], None)
            except Problem as refused:
                pauses.append(int(refused.headers["retry-after"]))
            else:
                waited.append(time.monotonic() - start)

        calls = []
        for _ in range(100):  # ten times what can be answered
            calls += [asyncio.create_task(call()) for _ in range(10)]
            await asyncio.sleep(0.01)
        await asyncio.gather(*calls)
        await batcher.close()
        return waited, pauses

    waited, pauses = run(work())
    assert len(waited) + len(pauses) == 1000
    assert 60 <= len(waited) <= 140, "about a hundred can be answered in a second"
    assert max(waited) < 0.5
    assert set(pauses) == {1}


def test_a_slow_search_still_gathers_batches() -> None:
    """One request alone takes longer than anybody may wait, and many together take hardly more."""

    def slowly(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        time.sleep(0.05 + 0.0001 * len(users))
        ids = np.zeros((len(users), 3), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))

    async def work() -> int:
        batcher = MicroBatcher(slowly, max_batch=64, max_waiting=10_000, max_seconds=0.02)
        await batcher.ask(users_of(1), [None], None)
        answered = 0
        end = time.monotonic() + 1.0

        async def client() -> None:
            nonlocal answered
            while time.monotonic() < end:
                try:
                    await batcher.ask(users_of(1), [None], None)
                    answered += 1
                except Problem:
                    await asyncio.sleep(0.005)

        await asyncio.gather(*(client() for _ in range(64)))
        await batcher.close()
        return answered

    assert run(work()) > 5 * 20, "one at a time, twenty would be answered"


def test_a_slow_start_turns_nobody_away() -> None:
    """The first request alone is slow, as when the catalog is still on disk: what comes next must not pay for it."""
    slow = [0.3]

    def search(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        time.sleep(slow.pop() if slow else 0.01)
        ids = np.zeros((len(users), 3), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=64, max_waiting=1000, max_seconds=1.0)
        await batcher.ask(users_of(1), [None], None)
        await asyncio.gather(*(batcher.ask(users_of(n), [None], None) for n in range(64)))
        await batcher.close()

    run(work())


@pytest.mark.parametrize("fails", [False, True])
def test_nobody_waits_for_what_follows_an_answer(fails: bool) -> None:
    after, done = threading.Event(), threading.Event()

    def search(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        ids = np.zeros((len(users), 3), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))
        assert after.wait(10)
        done.set()
        if fails:
            raise ValueError("notes could not be taken")

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=64, max_waiting=1000)
        await batcher.ask(users_of(1), [None], None)
        assert not done.is_set()
        after.set()
        assert len(await batcher.ask(users_of(1), [None], None)) == 1
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
        calls = [batcher.ask(users_of(n), [None], None, caller) for n, caller in asked]
        for call, (n, _) in zip(calls, asked, strict=True):
            call.add_done_callback(partial(note, n))
        search.go.set()
        await asyncio.gather(first, *calls)
        await batcher.close()
        return order

    order = run(work())
    assert [order.index(n) < 8 for n in (1, 2, 3)] == [True] * 3
    assert [n for n in order if n >= 10] == list(range(10, 22)), "each caller's are answered in their order"


def test_who_asks_again_at_once_does_not_hold_up_others() -> None:
    """What one caller asks for cannot be searched together, and another is back before the next search begins."""

    def slowly(users: Any, request_ids: Any, k: Any, deliver: Callable[[Candidates], None]) -> None:
        time.sleep(0.012)  # long enough to be waited for
        ids = np.zeros((len(users), k), dtype=np.int64)
        deliver(Candidates(ids, ids, ids.astype(float), np.ones(len(users))))

    async def work() -> list[str]:
        batcher = MicroBatcher(slowly, max_batch=8, max_waiting=100)
        order: list[str] = []

        async def ask(caller: str, k: int) -> None:
            await batcher.ask(users_of(1), [None], k, caller)
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
        taken = [batcher.ask(users_of(n), [None], None, "flood") for n in range(75)]
        with pytest.raises(Problem, match="waiting already"):
            batcher.ask(users_of(1), [None], None, "flood")
        other = batcher.ask(users_of(7), [None], None, "other")
        search.go.set()
        assert (await other).ids[0, 0] == 7
        await asyncio.gather(first, *taken)
        await asyncio.sleep(0)
        assert not batcher._waiting_of, "nothing is kept of callers who have gone"
        assert not batcher._turns
        await batcher.close()

    run(work())


def test_bad_input_of_one_is_not_the_others_fault() -> None:
    search = Search()

    async def work() -> None:
        batcher = MicroBatcher(search, max_batch=100, max_waiting=1000)
        first = await held(search, batcher)
        tasks = [(batcher.ask(users_of(n), [None], None)) for n in (1, float("nan"), 3)]
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
        tasks = [(batcher.ask(users_of(n), [None], None)) for n in range(5)]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="stopped"):
            await batcher.ask(users_of(9), [None], None)
        search.go.set()
        await asyncio.gather(first, *tasks, closing)

    run(work())
    assert len(search.batches) == 6
