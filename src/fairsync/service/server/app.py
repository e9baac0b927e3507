"""The ASGI application: routes over a promise service, inside the middleware."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route, Router

from fairsync.errors import FairSyncError
from fairsync.service.api_docs import routes as api_docs_routes
from fairsync.service.dashboard import routes as dashboard_routes
from fairsync.service.schema import JSON
from fairsync.service.server.access_control import AccessMiddleware, Tokens
from fairsync.service.server.access_log import AccessLogMiddleware
from fairsync.service.server.body_limit import BodyLimitMiddleware
from fairsync.service.server.error_handling import ErrorMiddleware
from fairsync.service.server.histories import load_histories
from fairsync.service.server.json_logging import log
from fairsync.service.server.micro_batching import MicroBatcher
from fairsync.service.server.openapi import add_limits, make_document
from fairsync.service.server.operations import PathRouter, routes_of
from fairsync.service.server.problems import Problem
from fairsync.service.server.prometheus import Metrics
from fairsync.service.server.request_body import BodyReader
from fairsync.service.server.request_context import RequestContextMiddleware
from fairsync.service.server.routes_control_plane import control_plane_operations
from fairsync.service.server.routes_promises import promise_operations
from fairsync.service.server.routes_retrieve import retrieve_operations
from fairsync.service.server.routes_status import status_operations
from fairsync.service.server.timeout import TimeoutMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.operations import Operation
    from fairsync.service.settings import Settings


def make_app(
    service: PromiseService, settings: Settings, refresh_seconds: float = 1.0, more: Sequence[Operation] = ()
) -> RequestContextMiddleware:
    """Return the service as an ASGI application.

    Its shutdown answers the requests in flight, then closes the promise service.

    Parameters
    ----------
    service
        Retrieves candidates and keeps promises.
    settings
        Limits, tokens, and the model.
    refresh_seconds
        Seconds between two refreshes of the promise service.
    more
        Further operations of the API.
    """
    http, tokens, metrics = settings.http, Tokens(settings.tokens), Metrics(service)
    retrieve = partial(service.retrieve, checked=True)  # each call was checked before it was put into a batch
    batcher = MicroBatcher(retrieve, http.max_batch, http.max_waiting, http.max_wait_seconds, metrics.batch)
    metrics.waiting.set_function(lambda: batcher.waiting)
    tracing = None
    if settings.traces.endpoint is not None:
        from fairsync.service.server.tracing import Tracing, TracingMiddleware  # of an extra

        tracing = Tracing(settings.traces)
    bodies = BodyReader(http.max_body_bytes, http.max_users)
    histories = load_histories(settings, service.catalog.dim)
    operations = [
        *retrieve_operations(service, batcher, http, histories),
        *promise_operations(service, http),
        *control_plane_operations(service, http),
        *status_operations(service, metrics),
        *more,
    ]
    document = make_document(operations, with_tokens=tokens.required)
    add_limits(document, service.catalog.dim, http, with_histories=histories is not None)
    document_json = msgspec.json.encode(document)

    async def openapi(_: Request) -> Response:
        return Response(document_json, media_type=JSON)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(_refresh_forever(service, refresh_seconds))
        yield
        refreshing.cancel()
        bodies.close()
        if histories is not None:
            histories.close()
        await batcher.close()
        try:
            await run_in_threadpool(service.close)
        except FairSyncError as error:  # the service ends in any case, and the ledger may be away for long
            log.error("the state of the service could not be saved: %s", error)
        if tracing is not None:
            await run_in_threadpool(tracing.close)

    resources = routes_of(operations, bodies)
    routes = [*resources, Route("/openapi.json", openapi), *api_docs_routes(), *dashboard_routes()]
    paths = {operation.path for operation in operations if "{" not in operation.path}
    app: ASGIApp = PathRouter(Router(routes, redirect_slashes=False, default=_not_found, lifespan=lifespan), resources)
    app = BodyLimitMiddleware(app, http.max_body_bytes)
    app = AccessMiddleware(app, tokens)
    app = TimeoutMiddleware(app, http.request_seconds)
    app = ErrorMiddleware(app)
    app = AccessLogMiddleware(app, metrics, paths, only_problems=http.log == "problems")
    if tracing is not None:
        app = TracingMiddleware(app, tracing)
    return RequestContextMiddleware(app)


async def _not_found(_: Scope, __: Receive, ___: Send) -> None:
    raise Problem(404, "not_found", "Not Found", "See /openapi.json for paths and methods.")


async def _refresh_forever(service: PromiseService, seconds: float) -> None:
    """Have the promise service observe clock and traffic, and check readiness; retry after errors."""
    while True:
        await asyncio.sleep(seconds)
        try:
            # Not in the thread pool of the requests, which may be exhausted.
            await asyncio.to_thread(service.refresh)
            await asyncio.to_thread(service.check_ready)
        except FairSyncError as error:  # a ledger that is away or gone does not need a trace every second
            log.error("refreshing the promise service failed; retrying: %s", error)
        except Exception:
            log.exception("refreshing the promise service failed; retrying")
