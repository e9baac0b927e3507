"""Calls of ASGI applications without a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairsync.service.server.request_context import RequestContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message


def http_scope(method: str = "GET", path: str = "/", headers: Sequence[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """Return the scope of a request that has a context."""
    return {
        "type": "http", "method": method, "path": path, "root_path": "", "query_string": b"",
        "headers": list(headers), "state": {"context": RequestContext(b"test", dict(headers))},
    }  # fmt: skip


def call(app: ASGIApp, scope: dict[str, Any], *parts: bytes) -> list[Message]:
    """Send a request with a body in parts, and return the messages of the response. Further parts never arrive."""
    sent: list[Message] = []
    left = list(parts)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent
