"""What every call passes, whatever it asks for: token, limits, time, request id, log and metrics."""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from fairsync.service.logs import log
from fairsync.service.problems import Problem, busy, problem_of
from fairsync.service.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fairsync.service.auth import Tokens
    from fairsync.service.metrics import Metrics
    from fairsync.service.settings import HttpSettings

# What anybody may see: whether the service lives, what it can be asked, and the page that asks for a token.
_OPEN = frozenset({"/", "/health", "/ready", "/openapi.json"})
_OPEN_FOLDER = "/dashboard/"
# What logs of web servers say of a client that went away before the answer.
_GONE = 499
# An id from outside goes into logs and headers as it came.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


class Gate:
    """The service as an ASGI application: around all routes, and outside of what FastAPI puts around them.

    Parameters
    ----------
    app
        What is behind it.
    tokens
        Who may pass. Without tokens, only calls to a loopback name do: otherwise a page on the web could make a
        browser on this machine call the service by a name of its own.
    settings
        The limits.
    metrics
        Where calls are counted.
    direct
        Calls that go straight to who answers them, by method and path: what lies between takes a quarter of the time of
        a call.
    """

    def __init__(
        self,
        app: FastAPI,
        tokens: Tokens,
        settings: HttpSettings,
        metrics: Metrics,
        direct: Mapping[tuple[str, str], ASGIApp],
    ) -> None:
        self.app, self._tokens, self._settings, self._metrics = app, tokens, settings, metrics
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        app = self._direct.get((scope["method"], scope["path"]), self.app)
        passage = _Passage(scope, receive, send, self._settings.max_body_bytes)
        failure: Exception | None = None
        try:
            self._admit(scope, passage.headers)
            async with asyncio.timeout(self._settings.request_seconds):
                await app(scope, passage.receive, passage.send)
        except TimeoutError:
            failure = passage.late(self._settings.request_seconds)
        except ClientDisconnect:
            passage.status = _GONE
        except Exception as error:  # nobody else would answer
            failure = error
        if failure is not None and not passage.status:
            await problem_of(failure).to_response()(scope, receive, passage.send)
        self._write_down(passage, failure)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"]
        if not self._tokens.are_needed and not is_loopback(_host(headers.get(b"host", b"localhost"))):
            hint = "Call it as 127.0.0.1, or give it [[tokens]]."
            raise Problem(403, "other_host", "Without tokens this service is for its own machine only.", hint)
        if path not in _OPEN and not path.startswith(_OPEN_FOLDER):
            scope.setdefault("state", {})["holder"] = self._tokens.holder(headers.get(b"authorization"))
        length, most = headers.get(b"content-length", b"0"), self._settings.max_body_bytes
        if length.isdigit() and int(length) > most:
            raise _too_large(most)

    def _write_down(self, passage: _Passage, failure: Exception | None) -> None:
        scope, status, seconds = passage.scope, passage.status, time.perf_counter() - passage.started
        path = scope["path"] if (scope["method"], scope["path"]) in self._direct else _template(scope)
        self._metrics.call(scope["method"] if path != "other" else "other", path, status, seconds)
        if self._settings.log == "problems" and status < 400:
            return
        holder = scope.get("state", {}).get("holder")
        facts = {
            "request_id": passage.request_id.decode(),
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(1000 * seconds, 2),
            "token": holder.name if holder else "",
        }
        mistake = status >= 500 and failure is not None and not isinstance(failure, Problem)
        if mistake or (failure is not None and status < 400):  # the latter: it broke off in the middle of the answer
            log.error("call failed", exc_info=failure, extra={"facts": facts})
        else:
            log.info("call", extra={"facts": facts})


class _Passage:
    """One call on its way through: what was received and sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        self.scope, self._receive, self._send, self._left = scope, receive, send, max_body
        self._max_body = max_body
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started, self.status, self._has_body = time.perf_counter(), 0, False
        given = self.headers.get(b"x-request-id", b"")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else _new_id()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise _too_large(self._max_body)
            self._has_body = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id)]
        await self._send(message)

    def late(self, seconds: float) -> Problem:
        if not self._has_body:
            hint = "Send the body faster, or in smaller parts."
            return Problem(408, "slow", f"The body did not arrive within {seconds:g} s.", hint, {"connection": "close"})
        return busy("timed_out", f"The answer took more than {seconds:g} s.")


# Ids of this process: random where it begins, and counted on from there. Asking the system for each would cost more.
_FIRST, _NUMBERS = secrets.randbits(63), itertools.count()


def _new_id() -> bytes:
    return b"%016x" % ((_FIRST + next(_NUMBERS)) % 2**64)


def _too_large(most: int) -> Problem:
    hint = "Send it in several calls, or as application/msgpack, which is smaller."
    # The rest of the body is still on its way, so the connection cannot be used again.
    headers = {"connection": "close"}
    return Problem(413, "too_large", f"A body may have {most:,} bytes at most.", hint, headers)


def _template(scope: Scope) -> str:
    """Return a path as it is documented: there may be no end of ids, and labels of metrics must be few."""
    return str(getattr(scope.get("route"), "path", "other"))


def _host(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    name = header.decode("latin-1")
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
