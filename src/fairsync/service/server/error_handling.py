"""Error rendering: exceptions become problem+json responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from fairsync.service.server.problems import Problem, busy, problem_of
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

# Web servers log this status for a client that disconnected before the response.
_CLIENT_CLOSED_REQUEST = 499


class ErrorMiddleware:
    """Answers requests whose handling raised an exception.

    Parameters
    ----------
    app
        The application inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        context = context_of(scope)
        try:
            await self.app(scope, receive, send)
        except ClientDisconnect:
            context.status = _CLIENT_CLOSED_REQUEST
            return
        except asyncio.CancelledError:  # the server's shutdown period is over
            failure: Exception = busy("stopping", "The service is being stopped.")
        except Exception as error:
            failure = error
        else:
            return
        context.failure = failure
        if isinstance(failure, Problem):
            context.turned_away = failure.error == "overloaded"
            # Its trace holds the request and its body, and the request holds the problem: a cycle, which would keep
            # the body in memory until the next collection of garbage.
            failure.__traceback__ = failure.__context__ = None
        if not context.status:
            await problem_of(failure).to_response()(scope, receive, send)
