"""The HTTP API: routes over a keeper of promises."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Match

from fairsync import __version__
from fairsync.errors import BackendUnavailableError
from fairsync.service.dashboard import mount as mount_dashboard
from fairsync.service.server.auth import Tokens
from fairsync.service.server.histories import load_histories
from fairsync.service.server.json_logging import log
from fairsync.service.server.micro_batching import MicroBatcher
from fairsync.service.server.middleware import ServiceMiddleware
from fairsync.service.server.openapi import complete
from fairsync.service.server.problems import Problem, invalid, problem_of
from fairsync.service.server.prometheus import Metrics
from fairsync.service.server.routes_promises import add_keep_routes
from fairsync.service.server.routes_retrieve import add_hot_routes, make_retrieve
from fairsync.service.server.routes_status import add_state_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.settings import Settings

_LOOK_SECONDS = 1.0


def make_app(service: PromiseService, settings: Settings) -> ServiceMiddleware:
    """Return the service as an ASGI application: the gate, and all routes behind it.

    When it is shut down, what is in flight is answered, and then the keeper closed.

    Parameters
    ----------
    keeper
        Answers requests and keeps promises.
    settings
        Its limits, tokens, and model.
    """
    metrics, tokens = Metrics(service), Tokens(settings.tokens)
    http = settings.http
    batcher = MicroBatcher(service.retrieve, http.max_batch, http.max_waiting, http.max_wait_seconds, metrics.batch)
    metrics.waiting.set_function(lambda: batcher.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(_watch(service))
        yield
        watching.cancel()
        await batcher.close()
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="FairSync",
        version=__version__,
        description="Guaranteed exposure for recommendation retrieval.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    histories = load_histories(settings, service.catalog.dim)
    direct = {("POST", "/v1/retrieve"): make_retrieve(service, batcher, http, histories)}
    app.add_exception_handler(Exception, _fail)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    add_hot_routes(app, service, http, with_histories=histories is not None)
    add_keep_routes(app, service, http)
    add_state_routes(app, service, metrics)
    mount_dashboard(app)
    app.openapi = lambda: complete(app, with_tokens=tokens.are_needed)  # type: ignore[method-assign]
    return ServiceMiddleware(app, tokens, http, metrics, direct)


async def _watch(service: PromiseService) -> None:
    """Have the keeper look at clock and traffic every second, and whether it is ready; whatever happens, again."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            # Not by one of the threads of calls, which may all be taken.
            await asyncio.to_thread(service.refresh)
            await asyncio.to_thread(service.check_ready)
        except BackendUnavailableError as error:  # a ledger that is away, for which nobody needs a trace each second
            log.error("looking at clock and traffic failed; trying again: %s", error)
        except Exception:
            log.exception("looking at clock and traffic failed; trying again")


async def _fail(_: Request, error: Exception) -> Response:
    """Say what went wrong; the error goes on to the gate, which writes it down."""
    return problem_of(error).to_response()


async def _refuse(_: Request, error: Any) -> Response:
    """Say what is wrong with a body or parameter that pydantic refused."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "json_invalid":
        return Problem(400, "malformed", "The body is not JSON.", "Check how it is encoded.").to_response()
    return invalid(f"{place}: {first['msg'].removeprefix('Value error, ')}").to_response()


async def _refuse_http(request: Request, error: Any) -> Response:
    if isinstance(error.__cause__, Problem):  # of the gate, while FastAPI read the body
        return error.__cause__.to_response()
    words = {404: "not_found", 405: "method", 400: "malformed"}
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(_methods(request))
    hint = "See /openapi.json for all paths and methods."
    word = words.get(error.status_code, "refused")
    return Problem(error.status_code, word, error.detail, hint, headers).to_response()


def _methods(request: Request) -> list[str]:
    """Return the methods that a path knows; each has a route of its own, and a router looks at the first only."""
    fitting = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
    # A path that is written out goes before one with a blank in it.
    own = [route for route in fitting if route.path == request.url.path] or fitting
    return sorted({method for route in own for method in getattr(route, "methods", None) or ()})
