"""Routes on the way of every request: retrieve, and what comes back as shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fairsync.inputs import check_users
from fairsync.service.schema import CatalogSize, RetrieveAnswers
from fairsync.service.server.access import holder_of
from fairsync.service.server.bodies import items_body, retrieve_body
from fairsync.service.server.codec import JSON, MSGPACK, read_items, read_retrieve, write_found
from fairsync.service.server.problems import documented, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.candidates import Candidates
    from fairsync.service.promises.promise_service import PromiseService
    from fairsync.service.server.histories import Histories
    from fairsync.service.server.micro_batching import MicroBatcher
    from fairsync.service.settings import HttpSettings

_WATCH_AFTER_SECONDS = 0.25
_MSGPACK_ANSWER = {MSGPACK: {"schema": {"type": "string", "format": "binary"}}}


class PlainRoute(APIRoute):
    """A route that is in the OpenAPI document, but reads its request itself: bodies of vectors are not for pydantic."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint as it is."""
        return self.endpoint


def make_retrieve(
    service: PromiseService, batcher: MicroBatcher, settings: HttpSettings, histories: Histories | None
) -> ASGIApp:
    """Return who answers calls to retrieve, as an ASGI application that nothing need stand before."""

    async def find(scope: Scope, receive: Receive) -> tuple[bytes, bytes]:
        holder = holder_of(scope)
        holder.check("retrieve")
        batcher.check_room(caller=holder.name)  # before a body is read in vain
        asked, binary = read_retrieve(await _body(receive), _content_type(scope), settings)
        n = len(asked.request_ids)
        wanted, most = n * (asked.k or service.k), settings.max_candidates
        if wanted > most:
            raise invalid(
                f"A call may ask for {most:,} candidates, got {wanted:,}.", "Send the users in several calls."
            )
        if holder.rate_limit is not None:
            holder.rate_limit.add(n - 1)
        if asked.vectors is not None:
            users = check_users(asked.vectors, service.catalog)
        elif histories is not None:
            users = check_users(await run_in_threadpool(histories.vectors, asked.histories), service.catalog)
        else:
            raise invalid("'histories' need a model, and this service has none.", "Send 'vectors'.")
        searching = batcher.ask(users, asked.request_ids, asked.k, holder.name)
        with _Watch(searching, receive, batcher.loop):
            found = await searching
        return write_found(found, asked.request_ids, binary=binary), (MSGPACK if binary else JSON).encode()

    async def retrieve(scope: Scope, receive: Receive, send: Send) -> None:
        body, kind = await find(scope, receive)
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return retrieve


def add_hot_routes(app: FastAPI, service: PromiseService, settings: HttpSettings, *, with_histories: bool) -> None:
    """Add the routes that carry vectors: retrieve only to the document, for the gate knows it already."""
    dim = service.catalog.dim

    async def retrieve(request: Request) -> Response:
        raise NotImplementedError("the gate sends these calls to make_retrieve's")

    async def upsert_items(request: Request) -> Response:
        holder_of(request.scope).check("admin")
        items = read_items(await _body(request.receive), _content_type(request.scope), settings.max_items)
        await run_in_threadpool(service.upsert_items, *items)
        return Response(CatalogSize(items=len(service.catalog)).model_dump_json(), media_type=JSON)

    app.router.add_api_route(
        "/v1/retrieve",
        retrieve,
        methods=["POST"],
        route_class_override=PlainRoute,
        response_model=RetrieveAnswers,
        summary="The candidates of one or many users",
        responses={200: {"content": _MSGPACK_ANSWER}, **documented(415, 422)},
        openapi_extra=retrieve_body(dim, settings, with_histories=with_histories),
    )
    app.router.add_api_route(
        "/v1/items",
        upsert_items,
        methods=["PUT"],
        route_class_override=PlainRoute,
        response_model=CatalogSize,
        summary="Add items, or replace those whose ids are known",
        responses=documented(409, 415, 422),
        openapi_extra=items_body(dim, settings),
    )


def _content_type(scope: Scope) -> str:
    return next((value for name, value in scope["headers"] if name == b"content-type"), b"").decode("latin-1")


async def _body(receive: Receive) -> bytes:
    """Return the body in one piece; the gate has a limit on it."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


class _Watch:
    """Cancels a search when the client has gone away. Looks only after a while: most answers are there before."""

    def __init__(
        self, searching: asyncio.Future[Candidates], receive: Receive, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._searching, self._receive = searching, receive
        self._task: asyncio.Future[None] | None = None
        self._timer = loop.call_later(_WATCH_AFTER_SECONDS, self._begin)

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._task is None:
            return
        if self._task.done() and kind is asyncio.CancelledError:
            raise ClientDisconnect from None
        self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._wait())
        self._task.add_done_callback(lambda _: self._searching.cancel())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
