"""The timeout of a request, from its first byte after the head to the end of the response."""

from __future__ import annotations

import asyncio
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                await self.app(scope, receive, send)
        except TimeoutError:
            if not timeout.expired():
                raise
            if context_of(scope).awaits_body:
                message = f"The body did not arrive within {self._seconds:g} s."
                raise Problem(408, "slow", message, "Send the body faster, or in smaller parts.", CLOSE) from None
            raise busy("timed_out", f"The answer took more than {self._seconds:g} s.") from None
