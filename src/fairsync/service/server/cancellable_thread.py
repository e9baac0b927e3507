"""Work in a thread that ends when nobody waits for it any longer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


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
