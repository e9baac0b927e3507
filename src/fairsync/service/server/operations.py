"""Operations of the API: what the OpenAPI document says of a route, and how the route is called."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.routing import Route

from fairsync.service.schema import JSON, encode_json
from fairsync.service.server.problems import Problem, invalid
from fairsync.service.server.request_context import context_of
from fairsync.service.server.validation_messages import describe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.server.request_body import BodyReader
    from fairsync.service.server.request_context import RequestContext
    from fairsync.service.settings import Role


class Encoded(NamedTuple):
    """An answer that is encoded already: its body and media type."""

    body: bytes
    media_type: str


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes
    ----------
    method, path : str
        The HTTP method and the path template.
    handler : callable
        Takes the context of the request, then the decoded body and query if there are any, and the function that
        receives further messages if it `watches`. Returns a struct, a list of structs, None, `Encoded` or a Response.
        A plain function runs in a thread, because the promise service may wait for its ledger.
    summary : str
        One line for the OpenAPI document. The handler's name is the operation id.
    role : str, tuple or None
        The role that a caller needs, or several, of which one is enough; None for public operations.
    body, query : type or None
        Structs of the request body and of the query parameters.
    media_types : tuple of str
        Accepted types of the body.
    answer : type or None
        Type of the response body.
    status : int
        Status of success.
    problems : tuple of int
        Statuses of failure that are particular to the operation.
    extra : dict
        Merged into the responses of the OpenAPI document, by status.
    admit : callable or None
        Called with the context before the body is read; raises to refuse the request.
    watches : bool
        Whether the handler watches for the client to disconnect.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    role: Role | tuple[Role, ...] | None = None
    body: Any = None
    query: Any = None
    media_types: tuple[str, ...] = (JSON,)
    answer: Any = None
    status: int = 200
    problems: tuple[int, ...] = ()
    extra: Mapping[int, Any] = field(default_factory=dict)
    admit: Callable[[RequestContext], None] | None = None
    watches: bool = False

    @cached_property
    def _handle(self) -> Callable[..., Awaitable[Any]]:
        return self.handler if inspect.iscoroutinefunction(self.handler) else self._run_in_thread

    async def _run_in_thread(self, context: RequestContext, *arguments: Any) -> Any:
        async with context.caller.threads:
            return await run_in_threadpool(self.handler, context, *arguments)

    async def call(self, scope: Scope, receive: Receive, send: Send, bodies: BodyReader) -> None:
        """Authorise the caller, decode the request, call the handler, and send its answer."""
        context = context_of(scope)
        context.route, context.query_string = self.path, scope["query_string"]
        context.path_params = scope.get("path_params", {})
        if self.role is not None:
            context.caller.require(*((self.role,) if isinstance(self.role, str) else self.role))
        if self.admit is not None:
            self.admit(context)
        arguments: list[Any] = [context]
        if self.body is not None:
            arguments.append(await bodies.read(context, receive, self.body, self.media_types))
        if self.query is not None:
            arguments.append(_query(context, self.query))
        if self.watches:
            arguments.append(receive)
        answer = await self._handle(*arguments)
        if type(answer) is Encoded:
            body, media_type = answer
        elif isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        else:
            body, media_type = (b"", "") if answer is None else (encode_json(answer), JSON)
        headers = [(b"content-length", b"%d" % len(body))] if body or self.status != 204 else []
        if media_type:
            headers.append((b"content-type", media_type.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Resource:
    """All operations of one path, as an ASGI application that dispatches by method.

    Parameters
    ----------
    operations
        Operations of the same path.
    bodies
        Reads the bodies.
    """

    def __init__(self, operations: Iterable[Operation], bodies: BodyReader) -> None:
        self._bodies = bodies
        self._operations = {operation.method: operation for operation in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        operation = self._operations.get(scope["method"])
        if operation is None:
            allowed = {"allow": ", ".join(sorted(self._operations))}
            raise Problem(405, "method", "Method Not Allowed", "See /openapi.json for paths and methods.", allowed)
        await operation.call(scope, receive, send, self._bodies)


class PathRouter:
    """Dispatches by path: looks up paths without parameters, and leaves the others to a router that tries its routes.

    Parameters
    ----------
    router
        Knows all routes.
    routes
        Routes, of which those without parameters are looked up.
    """

    def __init__(self, router: ASGIApp, routes: Iterable[Route]) -> None:
        self._router = router
        self._apps: dict[str, ASGIApp] = {route.path: route.app for route in routes if "{" not in route.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        app = self._apps.get(scope["path"]) if scope["type"] == "http" else None
        await (app or self._router)(scope, receive, send)


def routes_of(operations: Iterable[Operation], bodies: BodyReader) -> list[Route]:
    """Return one Starlette route per path, in the order in which the paths first occur."""
    paths: dict[str, list[Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, []).append(operation)
    return [Route(path, Resource(group, bodies), name=path) for path, group in paths.items()]


def _query(context: RequestContext, kind: Any) -> Any:
    try:
        return msgspec.convert(dict(QueryParams(context.query_string)), kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"query.{describe(error, kind)}") from None
