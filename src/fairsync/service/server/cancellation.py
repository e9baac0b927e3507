"""Cancellation: work ends when nobody waits for its answer any longer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive

    from fairsync.service.server.request_context import RequestContext

T = TypeVar("T")
# Most answers are there sooner, and watching a connection costs a task.
_WATCH_AFTER_SECONDS = 0.25


def run_cancellable(work: Callable[[Callable[[], bool]], T]) -> asyncio.Future[T]:
    """Run a function in a thread of its own, and return the future of its result.

    The thread does not keep the process from ending, unlike those of Starlette and asyncio.

    Parameters
    ----------
    work
        Takes a function that returns whether the future was cancelled, which it calls every now and then.

    Examples
    --------
    >>> async def add():
    ...     return await run_cancellable(lambda is_cancelled: 1 + 1)
    >>> asyncio.run(add())
    2
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def resolve(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work(future.cancelled)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(resolve, result, failure)

    threading.Thread(target=run, name="cancellable", daemon=True).start()
    return future


async def unless_timed_out(context: RequestContext, work: Callable[[Callable[[], bool]], T]) -> T:
    """Run a change in a thread of its own; one whose request times out first is cancelled, and changes nothing."""
    async with context.caller.threads:
        computing = run_cancellable(work)
        try:
            return await computing
        finally:
            computing.cancel()


async def unless_disconnected(answer: asyncio.Future[T], receive: Receive) -> T:
    """Await an answer; cancel it when the client disconnects."""
    watcher: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watcher
        watcher = asyncio.ensure_future(_disconnect(receive))
        watcher.add_done_callback(lambda _: answer.cancel())

    timer = answer.get_loop().call_later(_WATCH_AFTER_SECONDS, watch)
    try:
        return await answer
    except asyncio.CancelledError:
        if watcher is not None and watcher.done():
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
