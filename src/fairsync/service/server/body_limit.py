"""Limits on request bodies: the size of one, and the memory of all that are in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.service.server.problems import CLOSE, Problem, busy
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimitMiddleware:
    """Refuses bodies that are too large (413), and bodies for which there is no memory at the moment (503).

    Starlette's own limit answers in plain text and does not bound the sum over all requests.

    Parameters
    ----------
    app
        The application inside.
    max_bytes
        Largest body of one request.
    max_bodies
        Bodies of that size that may be in memory at once, over all requests.

    Attributes
    ----------
    held_bytes : int
        Bytes of the bodies of all requests in flight.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, max_bodies: int = 16) -> None:
        self.app, self._max_bytes, self._max_held_bytes = app, max_bytes, max_bodies * max_bytes
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        context, received, complete = context_of(scope), 0, False
        length = context.headers.get(b"content-length", b"0")
        # Converting a number of thousands of digits would take long.
        if len(length) > 18 or (length.isdigit() and int(length) > self._max_bytes):
            raise self._too_large()

        async def limited_receive() -> Message:
            nonlocal received, complete
            context.awaits_body = not complete
            message = await receive()
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                if received + size > self._max_bytes:
                    raise self._too_large()
                if self.held_bytes + size > self._max_held_bytes:
                    raise busy("overloaded", "Too many large bodies are in flight.", headers=CLOSE)
                received += size
                self.held_bytes += size
                complete = not message.get("more_body", False)
                context.awaits_body = not complete
            return message

        try:
            await self.app(scope, limited_receive, send)
        finally:
            self.held_bytes -= received

    def _too_large(self) -> Problem:
        hint = "Send it in several calls, or as application/msgpack, which is smaller."
        return Problem(413, "too_large", f"A body may have {self._max_bytes:,} bytes at most.", hint, CLOSE)
