"""Operations of the API: what the OpenAPI document says of a route, and how the route is called."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fairsync.service.schema import JSON, encode_json
from fairsync.service.server.codec import decode, describe
from fairsync.service.server.problems import Problem, invalid
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from fairsync.service.settings import Role


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes
    ----------
    method, path : str
        The HTTP method and the path template.
    handler : callable
        Takes the request, then the decoded body and query if there are any; returns a struct, a list of structs, None
        or a Response. A plain function runs in a thread, because the promise service may wait for its ledger.
    summary : str
        One line for the OpenAPI document. The handler's name is the operation id.
    role : str or None
        The role that a caller needs; None for public operations.
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
        Called with the request before its body is read; raises to refuse it.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    role: Role | None = None
    body: Any = None
    query: Any = None
    media_types: tuple[str, ...] = (JSON,)
    answer: Any = None
    status: int = 200
    problems: tuple[int, ...] = ()
    extra: Mapping[int, Any] = field(default_factory=dict)
    admit: Callable[[Request], None] | None = None

    @cached_property
    def _handle(self) -> Callable[..., Awaitable[Any]]:
        return self.handler if inspect.iscoroutinefunction(self.handler) else partial(run_in_threadpool, self.handler)

    async def call(self, request: Request) -> Response:
        """Authorise the caller, decode the request, call the handler and encode its answer."""
        if self.role is not None:
            request.user.require(self.role)
        if self.admit is not None:
            self.admit(request)
        arguments: list[Any] = [request]
        if self.body is not None:
            content_type = request.headers.get("content-type", "")
            arguments.append(decode(await request.body(), content_type, self.body, self.media_types))
        if self.query is not None:
            arguments.append(_query(request, self.query))
        answer = await self._handle(*arguments)
        if isinstance(answer, Response):
            return answer
        body = b"" if answer is None else encode_json(answer)
        return Response(body, self.status, media_type=None if answer is None else JSON)


class Resource:
    """All operations of one path, as an ASGI application that dispatches by method.

    Parameters
    ----------
    operations
        Operations of the same path.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._operations = {operation.method: operation for operation in operations}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        operation = self._operations.get(scope["method"])
        if operation is None:
            allowed = {"allow": ", ".join(sorted(self._operations))}
            raise Problem(405, "method", "Method Not Allowed", "See /openapi.json for paths and methods.", allowed)
        context_of(scope).route = operation.path
        response = await operation.call(Request(scope, receive))
        await response(scope, receive, send)


def routes_of(operations: Iterable[Operation]) -> list[Route]:
    """Return one Starlette route per path, in the order in which the paths first occur."""
    paths: dict[str, list[Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, []).append(operation)
    return [Route(path, Resource(group), name=path) for path, group in paths.items()]


def _query(request: Request, kind: Any) -> Any:
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"query.{describe(error)}") from None
