"""Connections, before and after calls: nobody holds one without using it, sends endless heads, or takes them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairsync.service.server.middleware import PAUSE

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

# Seconds within which the head of a call has to come, and in which an answer has to be read, a part at a time.
_HEAD_SECONDS, _READ_SECONDS = 10.0, 60.0
_LONGEST_HEAD = 65_536
_CONTINUE = b"HTTP/1.1 100"
_REFUSAL = (
    "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n{more}"
    "connection: close\r\n\r\n{body}"
)


class _Together:
    """The transport of one answer, which writes the head together with what follows: each write is a system call."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = b""

    def write(self, data: bytes) -> None:
        if self._head is None or data.startswith(_CONTINUE):
            self._transport.write(data)
        elif not self._head:
            self._head = data
        else:
            self._transport.write(self._head + data)
            self._head = None

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Trailers(list[tuple[bytes, bytes]]):
    """Where what follows a body goes: nowhere. It must not count as part of the head, which was judged before."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        pass


_TRAILERS = _Trailers()


class Line(HttpToolsProtocol):
    """One connection, as uvicorn has it, with limits on what comes before a call and after it.

    What is in between, the body and the answer, is the gate's. Of uvicorn's settings it takes ``timeout_keep_alive``
    for connections between calls, and ``limit_concurrency`` for how many there may be.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._timer: asyncio.TimerHandle | None = None
        self._slow: asyncio.TimerHandle | None = None
        self._in_head, self._in_body = True, False
        # What came since a head was complete, or a part of a body came: so much of a head, or of what follows a body.
        self._loose_bytes = 0
        # Which call is being answered: others may have been read after it, and uvicorn's ``cycle`` is the last of them.
        self._answered: RequestResponseCycle | None = None
        self._again: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room for it."""
        super().connection_made(transport)
        self._wait(_HEAD_SECONDS)
        if self._most is not None and len(self.connections) > self._most:
            hint = "Keep connections and use them again."
            again = "retry-after: 1\r\n"
            self._refuse("503 Service Unavailable", "overloaded", "There are too many connections.", hint, again)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, and tell the call that is being answered."""
        self._wait(None)
        self.resume_writing()
        super().connection_lost(exc)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Take what came; of heads, and of what follows bodies, not too much."""
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._loose_bytes += len(data)
        try:
            self._read(data)
        except HttpParserError:
            self.logger.warning("what came is not a call")
            self._refuse("400 Bad Request", "malformed", "This is not a call of HTTP/1.1.", "Check how it is sent.")
            return
        # Most heads come in one piece, and need no timer. Between calls there can be empty lines, which begin nothing.
        if self._timer is None and (self._in_head or self.cycle.response_complete):
            self._wait(_HEAD_SECONDS)
        if self._loose_bytes > _LONGEST_HEAD:
            message = "The head of the call, or what follows its body, is too large."
            self._refuse("431 Request Header Fields Too Large", "too_large", message, "Send fewer or shorter headers.")

    def on_message_begin(self) -> None:
        """Expect the rest of the head soon."""
        super().on_message_begin()
        self._in_head, self._again = True, None
        self._wait(None)

    def on_headers_complete(self) -> None:
        """Leave the rest to the gate."""
        if self.parser.should_upgrade():
            self._again = self._without_offer()
            return
        self._in_head, self._in_body, self._loose_bytes = False, True, 0
        self._wait(None)
        super().on_headers_complete()
        self.headers = _TRAILERS
        if not self.pipeline:
            self._answered = self.cycle
        if self.scope["method"] != "HEAD":  # there nothing follows
            self.cycle.transport = _Together(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect nothing more."""
        if self._again is not None:
            return
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next call; also where the rest of a body still comes, for which nobody waits any more.

        Where the call was turned away under overload, the next is not read before it may be made.
        """
        answered = self._answered
        assert answered is not None, "there was a call"
        if self._in_body and answered is self.cycle:
            self._wait(self.timeout_keep_alive)
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()
        seconds = answered.scope["state"].get(PAUSE)
        if seconds is not None and not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(seconds, self._read_on)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._slow = self._later(_READ_SECONDS)

    def resume_writing(self) -> None:
        """Go on."""
        if self._slow is not None:
            self._slow.cancel()
        super().resume_writing()

    def _read(self, data: bytes | memoryview) -> None:
        """Read what came; calls that offer another protocol too, as Java's client does in all of its calls.

        httptools leaves out the bodies of those, so the head is read a second time, without the offer.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as offer:
                assert self._again is not None, "the head was complete"
                data = memoryview(data)[offer.args[0] :]
                self.parser.feed_data(self._again)
            else:
                return

    def _without_offer(self) -> bytes:
        """Return the head that was just read, without what it offers."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise ValueError("there are no tunnels here")
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _wait(self, seconds: float | None) -> None:
        """Give the connection up after so long."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._later(seconds)

    def _later(self, seconds: float) -> asyncio.TimerHandle:
        # Closing would wait for whoever does not read.
        abort: Callable[[], object] = self.transport.abort
        return self.loop.call_later(seconds, abort)

    def _refuse(self, status: str, error: str, message: str, hint: str, more: str = "") -> None:
        body = f'{{"error":"{error}","message":"{message}","hint":"{hint}"}}'
        self.transport.write(_REFUSAL.format(status=status, length=len(body), more=more, body=body).encode())
        self.transport.close()
