"""Calls gathered into batches: each gets its own answer, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.service.batching import Gatherer
from fairsync.service.problems import Problem
from fairsync.serving import Found

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence


class Search:
    """Answers each user with its own first value; waits at a barrier until it is let go."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int | None]] = []
        self.go, self.entered = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, users: Any, request_ids: Sequence[str | None], k: int | None) -> Found:
        self.entered.set()
        assert self.go.wait(10)
        if np.isnan(users).any():
            raise InvalidInputError("bad vector")
        assert len(users) == len(request_ids)
        self.batches.append((len(users), k))
        ids = np.repeat(users[:, 0, :1], k or 3, axis=1).astype(np.int64)
        return Found(ids, ids, ids.astype(float), np.ones(len(users)))


def users_of(*values: float, interests: int = 1) -> Any:
    return np.repeat(np.array(values)[:, None, None], interests, axis=1) * np.ones(4)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def held(search: Search, gatherer: Gatherer) -> asyncio.Future[Found]:
    """Have the search busy with one request, so that others gather behind it."""
    search.go.clear()
    search.entered.clear()
    first = gatherer.ask(users_of(0), ["first"], None)
    await asyncio.to_thread(search.entered.wait, 10)
    return first


def test_who_comes_during_a_search_is_searched_together() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=100, max_waiting=1000)
        first = await held(search, gatherer)
        sizes = [1, 3, 2, 1]
        starts = np.cumsum([10, *sizes])
        tasks = [
            (gatherer.ask(users_of(*range(start, start + size)), [None] * size, None))
            for start, size in zip(starts, sizes, strict=False)
        ]
        await asyncio.sleep(0.01)
        search.go.set()
        assert (await first).ids.tolist() == [[0, 0, 0]]
        for task, start, size in zip(tasks, starts, sizes, strict=False):
            assert (await task).ids[:, 0].tolist() == list(range(start, start + size))
        await asyncio.sleep(0)
        assert gatherer.waiting == 0
        await gatherer.close()

    run(work())
    assert search.batches == [(1, None), (7, None)]


def test_batches_have_a_limit_and_one_kind() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=4, max_waiting=1000)
        first = await held(search, gatherer)
        asked = [
            gatherer.ask(users_of(1, 2, 3), [None] * 3, None),
            gatherer.ask(users_of(4), [None], 2),  # another k
            gatherer.ask(users_of(5, 6), [None] * 2, None),  # no room
            gatherer.ask(users_of(7), [None], None),
            gatherer.ask(users_of(8, interests=2), [None], None),  # another shape
            gatherer.ask(users_of(*range(20, 30)), [None] * 10, None),  # larger than any batch
        ]
        tasks = asked
        await asyncio.sleep(0.01)
        search.go.set()
        found = [await task for task in (first, *tasks)]
        assert [one.ids[0, 0] for one in found] == [0, 1, 4, 5, 7, 8, 20]
        assert found[2].ids.shape == (1, 2)
        await gatherer.close()

    run(work())
    assert sorted(search.batches[1:], key=str) == sorted([(4, None), (1, 2), (2, None), (1, None), (10, None)], key=str)


def test_who_has_gone_is_not_searched_for() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=100, max_waiting=1000)
        first = await held(search, gatherer)
        gone, stays = ((gatherer.ask(users_of(n, n), [None] * 2, None)) for n in (1, 2))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        assert gatherer.waiting == 3
        search.go.set()
        await first
        assert (await stays).ids[0, 0] == 2
        await gatherer.close()

    run(work())
    assert search.batches == [(1, None), (2, None)]


def test_too_many_are_turned_away_at_once() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=100, max_waiting=3)
        first = await held(search, gatherer)
        second = gatherer.ask(users_of(1, 2), [None] * 2, None)
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as refused:
            await gatherer.ask(users_of(3), [None], None)
        assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
        search.go.set()
        await asyncio.gather(first, second)
        assert (await gatherer.ask(users_of(*range(9)), [None] * 9, None)).ids.shape == (9, 3)
        await gatherer.close()

    run(work())


def test_bad_input_of_one_is_not_the_others_fault() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=100, max_waiting=1000)
        first = await held(search, gatherer)
        tasks = [(gatherer.ask(users_of(n), [None], None)) for n in (1, float("nan"), 3)]
        await asyncio.sleep(0.01)
        search.go.set()
        await first
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, InvalidInputError) for one in found] == [False, True, False]
        await gatherer.close()

    run(work())
    assert search.batches == [(1, None), (1, None), (1, None)]


def test_what_waits_at_the_end_is_answered() -> None:
    search = Search()

    async def work() -> None:
        gatherer = Gatherer(search, max_batch=1, max_waiting=1000)
        first = await held(search, gatherer)
        tasks = [(gatherer.ask(users_of(n), [None], None)) for n in range(5)]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(gatherer.close())
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="stopped"):
            await gatherer.ask(users_of(9), [None], None)
        search.go.set()
        await asyncio.gather(first, *tasks, closing)

    run(work())
    assert len(search.batches) == 6
