"""Protection of a service without tokens: only this machine may call it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem
from fairsync.service.server.request_context import context_of
from fairsync.service.settings import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class LocalHostMiddleware:
    """Refuses calls by another host name, and calls of browsers from pages of another host (DNS rebinding, CSRF).

    Without tokens, a page on the web could otherwise make a browser on this machine call the service.

    Parameters
    ----------
    app
        The application inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            headers = context_of(scope).headers
            origin = headers.get(b"origin")
            if not (
                _is_local(headers.get(b"host", b"localhost"))
                and (origin is None or _is_local(origin.partition(b"://")[2]))
            ):
                hint = "Call it as 127.0.0.1, or give it [[tokens]]."
                raise Problem(403, "other_host", "Without tokens this service is for its own machine only.", hint)
        await self.app(scope, receive, send)


@lru_cache(maxsize=256)
def _is_local(header: bytes) -> bool:
    """Return whether a Host header, with or without a port, names this machine."""
    name = header.decode("latin-1")
    return is_loopback(name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0])
