"""Rate limiting: refuses the calls of a token that is over its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class RateLimitMiddleware:
    """Refuses calls of tokens that are over their limit. Stands inside the authentication.

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
            limiter = context_of(scope).caller.rate_limiter
            if limiter is not None:
                limiter.hit()
        await self.app(scope, receive, send)
