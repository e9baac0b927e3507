"""Answers that all callers who wait for one get together."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from fairsync.service.schema import JSON, encode_json
from fairsync.service.server.operations import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fairsync.service.server.request_context import RequestContext


class SharedAnswer:
    """Computes and encodes one answer for all callers that wait for it, in a thread. Must be used from one event loop.

    The state of thousands of promises takes a lock and a good part of a second, so that callers in great number would
    keep planning from the lock. One computation runs at a time, and those who come meanwhile wait for the next one:
    nobody gets an answer that is older than the question.

    Parameters
    ----------
    compute
        Returns a struct or a list of structs, or the bytes of the answer.
    media_type
        Media type of the answer.

    Examples
    --------
    >>> calls = []
    >>> async def three_callers():
    ...     answer = SharedAnswer(lambda: calls.append(1) or [len(calls)])
    ...     return [one.body for one in await asyncio.gather(*(answer() for _ in range(3)))]
    >>> asyncio.run(three_callers())
    [b'[1]', b'[1]', b'[1]']
    """

    def __init__(self, compute: Callable[[], Any], media_type: str = JSON) -> None:
        self._compute, self._media_type = compute, media_type
        self._running: asyncio.Task[Encoded] | None = None
        self._next: asyncio.Task[Encoded] | None = None

    async def __call__(self) -> Encoded:
        """Return an answer whose computation begins after the call."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running))
            self._next.add_done_callback(_mark_retrieved)
        # A caller who goes away must not take the answer from the others.
        return await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[Encoded] | None) -> Encoded:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await run_in_threadpool(self._encode)

    def _encode(self) -> Encoded:
        answer = self._compute()
        return Encoded(answer if isinstance(answer, bytes) else encode_json(answer), self._media_type)


def shared(
    compute: Callable[[], Any], media_type: str = JSON
) -> Callable[[RequestContext], Coroutine[Any, Any, Encoded]]:
    """Return the handler of an operation whose answer is a `SharedAnswer`, under the name of the function."""
    answer = SharedAnswer(compute, media_type)

    @wraps(compute)
    async def handle(_: RequestContext) -> Encoded:
        return await answer()

    return handle


def _mark_retrieved(task: asyncio.Task[Encoded]) -> None:
    """Have asyncio not complain about an exception that all callers were gone for."""
    if not task.cancelled():
        task.exception()
