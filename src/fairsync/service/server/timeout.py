"""The timeout of a request, from its first byte after the head to the end of the response."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fairsync.service.server.problems import CLOSE, Problem, busy
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class TimeoutMiddleware:
    """Ends requests that take too long: with 408 if their body has not arrived, else with 503.

    The response to a slow body closes the connection, so that slow bodies and endless trailers end.

    Parameters
    ----------
    app
        The application inside.
    seconds
        Seconds within which a request has to be answered.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self._seconds = app, seconds
        # All requests have the same timeout, so the oldest is due first, and one timer serves them all: a timer per
        # request would cost more than the rest of the middleware.
        self._deadlines: dict[asyncio.Task[object], float] = {}
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self.app(scope, receive, send)
            return
        self._deadlines[task] = time.monotonic() + self._seconds
        if self._timer is None:
            self._timer = task.get_loop().call_later(self._seconds, self._expire, task.get_loop())
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:
            if task not in self._expired:
                raise
            task.uncancel()
            if context_of(scope).awaits_body:
                message = f"The body did not arrive within {self._seconds:g} s."
                raise Problem(408, "slow", message, "Send the body faster, or in smaller parts.", CLOSE) from None
            raise busy("timed_out", f"The answer took more than {self._seconds:g} s.") from None
        finally:
            self._deadlines.pop(task, None)
            self._expired.discard(task)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the requests that are due, and set the timer for the next one."""
        now, self._timer = time.monotonic(), None
        for task, deadline in list(self._deadlines.items()):
            if deadline > now:
                self._timer = loop.call_later(deadline - now, self._expire, loop)
                return
            del self._deadlines[task]
            self._expired.add(task)
            task.cancel()
