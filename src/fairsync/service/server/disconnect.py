"""Clients that disconnect: the work for them is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from starlette.types import Receive

T = TypeVar("T")
# Most answers are there sooner, and watching a connection costs a task.
_WATCH_AFTER_SECONDS = 0.25


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
