"""Protection of a service without tokens: only this machine may call it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem
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
        for name, value in scope["headers"] if scope["type"] == "http" else ():
            if (name == b"host" and not is_loopback(_host(value))) or (
                name == b"origin" and not is_loopback(_host(value.partition(b"://")[2]))
            ):
                hint = "Call it as 127.0.0.1, or give it [[tokens]]."
                raise Problem(403, "other_host", "Without tokens this service is for its own machine only.", hint)
        await self.app(scope, receive, send)


def _host(header: bytes) -> str:
    """Return the host name of a Host header, without the port."""
    name = header.decode("latin-1")
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
