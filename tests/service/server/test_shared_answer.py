"""Shared answers: one computation at a time for any number of callers, and none is older than its question."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from fairsync.service.server.shared_answer import SharedAnswer
from service.running import running, small_service

if TYPE_CHECKING:
    from collections.abc import Callable


class Computation:
    """Counts, and waits in between until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.count = self.at_once = self.most_at_once = 0

    def __call__(self) -> list[int]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.may_go_on.acquire(timeout=240)
        self.at_once -= 1
        if number == 3:
            raise ValueError("the third one fails")
        return [number]


def test_callers_share_the_next_computation() -> None:
    async def call() -> None:
        compute = Computation()
        answer = SharedAnswer(compute)

        async def begin(callers: int) -> list[asyncio.Task[bytes]]:
            async def body() -> bytes:
                return (await answer()).body

            tasks = [asyncio.create_task(body()) for _ in range(callers)]
            await asyncio.sleep(0)
            return tasks

        first = await begin(1)
        await asyncio.to_thread(compute.begun.acquire)
        second = await begin(100)  # the first computation may not know what they ask for
        second.pop().cancel()
        compute.may_go_on.release()
        assert await asyncio.gather(*first) == [b"[1]"]
        await asyncio.to_thread(compute.begun.acquire)
        third = await begin(2)
        compute.may_go_on.release()
        assert set(await asyncio.gather(*second)) == {b"[2]"}
        compute.may_go_on.release()
        for task in third:
            with pytest.raises(ValueError, match="third"):
                await task
        compute.may_go_on.release()
        assert await asyncio.gather(*await begin(1)) == [b"[4]"], "an error is not kept"
        assert compute.most_at_once == 1

    asyncio.run(call())


@pytest.mark.parametrize("path", ["/v1/overview", "/v1/promises", "/v1/groups", "/v1/report", "/metrics"])
def test_a_flood_of_questions_does_not_keep_others_from_the_lock(path: str) -> None:
    """While one answer is computed, all others wait for the next, and not in threads for the lock of the planner."""
    service = small_service()
    held, in_threads = threading.Event(), threading.Semaphore(0)
    overview, promises = service.overview, service.promises

    def wait(then: Callable[[], Any]) -> Any:
        in_threads.release()
        assert held.wait(240)
        return then()

    service.overview = partial(wait, overview)  # type: ignore[method-assign]
    service.promises = partial(wait, promises)  # type: ignore[method-assign]
    with running(service) as one, ThreadPoolExecutor(30) as clients:
        calls = [clients.submit(httpx.get, f"{one.url}{path}", timeout=60) for _ in range(30)]
        try:
            assert in_threads.acquire(timeout=240)
            assert not in_threads.acquire(timeout=0.5)
        finally:
            held.set()
        answers = [call.result() for call in calls]
        assert {answer.status_code for answer in answers} == {200}
        assert answers[0].headers["content-type"].startswith("text/plain" if path == "/metrics" else "application/json")
