"""Request bodies: small ones are decoded at once, large ones in a process of their own."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from fairsync.service.server.codec import decode, media_type_of
from fairsync.service.server.decode_process import DecodeProcess
from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import requests_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive

    from fairsync.service.server.request_context import RequestContext

# Bytes that the event loop decodes by itself, within a millisecond.
_LARGEST_AT_ONCE = 65_536
# Bytes per second of one caller's large bodies, on average: receiving them is work of the event loop too.
_BYTES_PER_SECOND = 16e6


@dataclass(slots=True)
class _Turn:
    """The turn of one caller's large bodies: one at a time, and the next not before a moment of the clock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    not_before: float = 0.0


class BodyReader:
    """Reads and decodes request bodies. Must be used from one event loop.

    The decoder does not release the interpreter lock, so a thread would stop the event loop as well. Large bodies are
    therefore decoded in a process of low priority, one at a time. Of each caller one is read at a time, and at a
    limited rate, so that a caller with many large bodies waits for itself and others do not wait for it.

    Parameters
    ----------
    max_body_bytes
        Largest body.
    max_users
        Most users of one call.
    bytes_per_second
        Rate of one caller's large bodies, on average.
    """

    def __init__(self, max_body_bytes: int, max_users: int, bytes_per_second: float = _BYTES_PER_SECOND) -> None:
        self._bytes_per_second = bytes_per_second
        self._process = DecodeProcess(max_body_bytes, max_users)
        self._thread = ThreadPoolExecutor(1, "decode")
        self._turns: dict[str, _Turn] = {}

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
        turn = self._turns.setdefault(context.caller.name, _Turn())
        async with turn.lock:
            await asyncio.sleep(turn.not_before - time.monotonic())
            parts = [part]
            while not complete:
                part, complete = await _part(receive)
                parts.append(part)
            body = b"".join(parts)
            context.body_bytes = len(body)
            turn.not_before = time.monotonic() + len(body) / self._bytes_per_second
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
