"""One call on its way through the gate: what was received of it, and what was sent."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from typing import TYPE_CHECKING

from fairsync.service.server.problems import Problem, busy

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

# As many bodies of the largest size may be held at once, in all calls together.
_BODIES_AT_ONCE = 16
# The rest of a body is still on its way, so the connection cannot be used again.
_CLOSE = {"connection": "close"}
# An id from outside goes into logs and headers as it came.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
# Ids of this process: random where it begins, and counted on from there. Asking the system for each would cost more.
_FIRST, _NUMBERS = secrets.randbits(63), itertools.count()


class Bodies:
    """What the bodies hold that came and are not answered yet, in all calls together.

    Parameters
    ----------
    largest
        Bytes of one body.

    Examples
    --------
    >>> bodies = Bodies(largest=1_000)
    >>> bodies.hold(0, 600)
    600
    >>> bodies.hold(600, 500)
    Traceback (most recent call last):
    fairsync.service.server.problems.Problem: A body may have 1,000 bytes at most.
    """

    def __init__(self, largest: int) -> None:
        self.largest, self.held = largest, 0

    def hold(self, before: int, more: int) -> int:
        """Take bytes of a body of which so many came before; return how many."""
        if before + more > self.largest:
            raise self.too_large()
        if self.held + more > _BODIES_AT_ONCE * self.largest:
            raise busy("overloaded", "Too many large bodies are on their way.", headers=_CLOSE)
        self.held += more
        return more

    def too_large(self) -> Problem:
        """Return the problem of a body that is."""
        hint = "Send it in several calls, or as application/msgpack, which is smaller."
        return Problem(413, "too_large", f"A body may have {self.largest:,} bytes at most.", hint, _CLOSE)


class RequestContext:
    """One call.

    Parameters
    ----------
    scope, receive, send
        Of ASGI.
    bodies
        Of all calls.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, bodies: Bodies) -> None:
        self.scope, self._receive, self._send, self._bodies = scope, receive, send, bodies
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started, self.status, self._held = time.perf_counter(), 0, 0
        self._has_body = self._awaits_body = False
        given = self.headers.get(b"x-request-id", b"")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else _new_id()

    async def receive(self) -> Message:
        """Receive the next part of the body."""
        self._awaits_body = not self._has_body
        message = await self._receive()
        if message["type"] == "http.request":
            self._held += self._bodies.hold(self._held, len(message.get("body", b"")))
            self._has_body = not message.get("more_body", False)
            self._awaits_body = not self._has_body
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer, under the call's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id)]
        await self._send(message)

    def forget(self) -> None:
        """Let go of the body."""
        self._bodies.held -= self._held
        self._held = 0

    def late(self, seconds: float) -> Problem:
        """Return the problem of a call whose time is up: it is the caller's if the body was."""
        if self._awaits_body:
            hint = "Send the body faster, or in smaller parts."
            return Problem(408, "slow", f"The body did not arrive within {seconds:g} s.", hint, _CLOSE)
        return busy("timed_out", f"The answer took more than {seconds:g} s.")


def _new_id() -> bytes:
    return b"%016x" % ((_FIRST + next(_NUMBERS)) % 2**64)
