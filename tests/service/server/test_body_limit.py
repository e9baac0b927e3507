"""Limits on bodies: of one request, and of all in flight."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.responses import Response

from fairsync.service.server.body_limit import BodyLimitMiddleware
from fairsync.service.server.problems import Problem
from service.server.asgi import call, http_scope

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send


async def read(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(await Request(scope, receive).body())(scope, receive, send)


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        ([(b"content-length", b"101")], [b""]),
        ([(b"content-length", b"9" * 5_000)], [b""]),
        ([], [b"a" * 60, b"a" * 41]),
    ],
)
def test_a_body_that_is_too_large_is_refused(headers: list[tuple[bytes, bytes]], parts: list[bytes]) -> None:
    app = BodyLimitMiddleware(read, max_bytes=100)
    with pytest.raises(Problem, match="100 bytes") as refused:
        call(app, http_scope("POST", headers=headers), *parts)
    assert (refused.value.status, refused.value.headers) == (413, {"connection": "close"})
    assert app.held_bytes == 0


def test_a_body_within_the_limit_arrives() -> None:
    app = BodyLimitMiddleware(read, max_bytes=100)
    assert call(app, http_scope("POST"), b"a" * 60, b"b" * 40)[1]["body"] == b"a" * 60 + b"b" * 40
    assert app.held_bytes == 0


def test_the_bodies_of_all_requests_have_a_limit() -> None:
    """Three clients have sent most of a body; the fourth is told to come again, until one of them has gone."""
    app, arrived = BodyLimitMiddleware(read, max_bytes=100, max_bodies=3), asyncio.Event()

    def client(last: asyncio.Event) -> asyncio.Task[None]:
        parts = [b"a" * 90, b""]

        async def receive() -> Message:
            if len(parts) == 1:
                arrived.set()
                await last.wait()
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(_: Message) -> None:
            pass

        return asyncio.create_task(app(http_scope("POST"), receive, send))

    async def work() -> None:
        never, now = asyncio.Event(), asyncio.Event()
        now.set()
        held = [client(never) for _ in range(3)]
        await arrived.wait()
        await asyncio.sleep(0)
        assert app.held_bytes == 270
        with pytest.raises(Problem, match="in flight") as refused:
            await client(now)
        assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "1")
        held[0].cancel()
        await asyncio.gather(held[0], return_exceptions=True)
        await client(now)
        for one in held[1:]:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        assert app.held_bytes == 0

    asyncio.run(work())
