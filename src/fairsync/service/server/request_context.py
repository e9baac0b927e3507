"""The context of one request, shared by middleware and handlers: its id, headers, caller, status and failure."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairsync.service.server.caller import PUBLIC, Caller

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fairsync.candidates import Candidates

# Ids of clients go into logs and headers unchanged, so only harmless characters are accepted.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
# Generated ids count up from a random start: one call to the random generator per process instead of one per request.
_FIRST, _NUMBERS = secrets.randbits(63), itertools.count()


@dataclass(slots=True)
class RequestContext:
    """The state of one request.

    Attributes
    ----------
    request_id : bytes
        Value of x-request-id, taken from the request or generated.
    headers : dict
        Headers of the request by their names in lower case. Of repeated ones, the last.
    caller : Caller
        The holder of the token.
    status : int
        Status of the response; 0 before it has started.
    route : str
        Path template of the matched route; empty if none matched.
    path_params, query_string : dict, bytes
        Parameters of the path and of the query.
    body_bytes : int
        Size of the request body, as far as it was read.
    awaits_body : bool
        Whether the application is waiting for a part of the request body.
    failure : Exception or None
        The exception that ended the request.
    turned_away : bool
        Whether the request was refused because of overload.
    found : Candidates or None
        What a retrieval was answered with.
    """

    request_id: bytes
    headers: dict[bytes, bytes] = field(default_factory=dict)
    caller: Caller = PUBLIC
    status: int = 0
    route: str = ""
    path_params: dict[str, Any] = field(default_factory=dict)
    query_string: bytes = b""
    body_bytes: int = 0
    awaits_body: bool = False
    failure: Exception | None = None
    turned_away: bool = False
    found: Candidates | None = None


def context_of(scope: Scope) -> RequestContext:
    """Return the context that `RequestContextMiddleware` attached to a request."""
    context: RequestContext = scope["state"]["context"]
    return context


class RequestContextMiddleware:
    """The outermost middleware: attaches the context, sets x-request-id, and applies backpressure to connections.

    A connection whose request was turned away because of overload is not read from for a while: the response is sent
    whole at once, but its end is only declared to the server after the pause. Refusing every client that retries
    immediately would leave no time for the requests that were admitted.

    Parameters
    ----------
    app
        The application inside.
    pause_seconds
        Length of that pause.

    Attributes
    ----------
    draining : bool
        Set to ask clients to close their connections, before the service stops.
    """

    def __init__(self, app: ASGIApp, pause_seconds: float = 1.0) -> None:
        self.app, self._pause_seconds = app, pause_seconds
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        request_id = given if given is not None and _REQUEST_ID.fullmatch(given) else _new_id()
        context = RequestContext(request_id, headers)
        scope.setdefault("state", {})["context"] = context
        holds = False

        async def send_with_id(message: Message) -> None:
            nonlocal holds
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"].append((b"x-request-id", request_id))
                if self.draining:
                    message["headers"].append((b"connection", b"close"))
                else:
                    holds = context.turned_away
            elif holds:
                message["more_body"] = True
            await send(message)

        await self.app(scope, receive, send_with_id)
        if holds:
            await asyncio.sleep(self._pause_seconds)
            await send({"type": "http.response.body"})


def _new_id() -> bytes:
    return b"%016x" % ((_FIRST + next(_NUMBERS)) % 2**64)
