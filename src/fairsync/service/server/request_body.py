"""Request bodies: small ones are decoded at once, large ones in a process of their own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from fairsync.service.server.codec import decode, media_type_of
from fairsync.service.server.decode_process import DecodeProcess
from fairsync.service.server.gcra import requests_of
from fairsync.service.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive

    from fairsync.service.server.request_context import RequestContext

# Bytes that the event loop decodes by itself, within a millisecond.
_LARGEST_AT_ONCE = 65_536


class BodyReader:
    """Reads and decodes request bodies. Must be used from one event loop.

    The decoder does not release the interpreter lock, so a thread would stop the event loop as well. Large bodies are
    therefore decoded in a process of low priority, one at a time. Of each caller one is read at a time, so that a
    caller with many large bodies waits for itself and not before others.

    Parameters
    ----------
    max_body_bytes
        Largest body.
    max_users
        Most users of one call.
    """

    def __init__(self, max_body_bytes: int, max_users: int) -> None:
        self._process = DecodeProcess(max_body_bytes, max_users)
        self._thread = ThreadPoolExecutor(1, "decode")
        self._turns: dict[str, asyncio.Lock] = {}

    async def read(self, context: RequestContext, receive: Receive, kind: type[Any], accepted: Sequence[str]) -> Any:
        """Return the struct of the body of a request.

        Parameters
        ----------
        context, receive
            The request.
        kind
            The struct.
        accepted
            Media types that the route accepts; others are answered with 415.
        """
        media_type = media_type_of(context.headers.get(b"content-type", b""))
        if media_type not in accepted:
            message = f"Bodies of type {media_type[:100]!r} are not accepted here."
            raise Problem(415, "media_type", message, f"Send {' or '.join(accepted)}.")
        part, complete = await _part(receive)
        if complete and len(part) <= _LARGEST_AT_ONCE:
            context.body_bytes = len(part)
            return decode(part, media_type, kind)
        async with self._turns.setdefault(context.caller.name, asyncio.Lock()):
            parts = [part]
            while not complete:
                part, complete = await _part(receive)
                parts.append(part)
            body = b"".join(parts)
            context.body_bytes = len(body)
            if context.caller.rate_limiter is not None:
                context.caller.rate_limiter.charge(requests_of(len(body)) - 1)
            if len(body) <= _LARGEST_AT_ONCE:
                return decode(body, media_type, kind)
            del part, parts
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._process.decode, body, media_type, kind)

    def close(self) -> None:
        """End the process."""
        self._process.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether it was the last."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), not message.get("more_body", False)
