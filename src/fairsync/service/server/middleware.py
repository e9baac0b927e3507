"""What every call passes, whatever it asks for: token, limits, time, request id, log and metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from fairsync.service.server.json_logging import log
from fairsync.service.server.problems import Problem, busy, problem_of
from fairsync.service.server.request_context import Bodies, RequestContext
from fairsync.service.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.server.auth import Tokens
    from fairsync.service.server.prometheus import Metrics
    from fairsync.service.settings import HttpSettings

# What anybody may see: whether the service lives, what it can be asked, and the page that asks for a token.
_OPEN = frozenset({"/", "/health", "/ready", "/openapi.json"})
_OPEN_FOLDER = "/dashboard/"
# What logs of web servers say of a client that went away before the answer.
_GONE = 499
# Who was turned away under overload is not read from for so long, if the connection can do it: answering everybody who
# asks again at once would leave no time for those who are not turned away.
PAUSE, _PAUSE_SECONDS = "pause", 1.0
# Lines of calls are written so much later: when many are answered at once, the next search need not wait for them.
_WRITE_AFTER_SECONDS = 0.025
# Of a path, so much goes into the log.
_LONGEST_PATH = 200


class ServiceMiddleware:
    """The service as an ASGI application: around all routes, and outside of what FastAPI puts around them.

    Parameters
    ----------
    app
        What is behind it.
    tokens
        Who may pass, and how often. Without tokens, only calls to a loopback name do, and of browsers only those that
        are on a page of this machine: otherwise a page on the web could have a browser here call the service.
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
        self._bodies = Bodies(settings.max_body_bytes)
        self._turned_away, self._told_at = 0, 0.0
        self._lines: list[dict[str, object]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a call through, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            self.write_lines()
            return
        scope.setdefault("state", {})
        app = self._direct.get((scope["method"], scope["path"]), self.app)
        passage = RequestContext(scope, receive, send, self._bodies)
        failure: Exception | None = None
        try:
            self._admit(scope, passage.headers)
            async with asyncio.timeout(self._settings.request_seconds):
                await app(scope, passage.receive, passage.send)
        except TimeoutError:
            failure = passage.late(self._settings.request_seconds)
        except ClientDisconnect:
            passage.status = _GONE
        except asyncio.CancelledError:  # the server's time to shut down is over
            failure = busy("stopping", "The service is being stopped.")
        except Exception as error:  # nobody else would answer
            failure = error
        finally:
            passage.forget()
        if isinstance(failure, Problem) and failure.error == "overloaded":
            scope["state"][PAUSE] = _PAUSE_SECONDS
        if failure is not None and not passage.status:
            await problem_of(failure).to_response()(scope, receive, passage.send)
        self._write_down(passage, failure)

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"]
        if not self._tokens.are_needed and not _is_local(headers):
            hint = "Call it as 127.0.0.1, or give it [[tokens]]."
            raise Problem(403, "other_host", "Without tokens this service is for its own machine only.", hint)
        if path not in _OPEN and not path.startswith(_OPEN_FOLDER):
            holder = self._tokens.holder(headers.get(b"authorization"))
            scope["state"]["holder"] = holder
            if holder.rate_limit is not None:
                holder.rate_limit.spend()
        length = headers.get(b"content-length", b"0")
        # More digits than any size has: reading them all would take long.
        if len(length) > 18 or (length.isdigit() and int(length) > self._bodies.largest):
            raise self._bodies.too_large()

    def _write_down(self, passage: RequestContext, failure: Exception | None) -> None:
        scope, status, seconds = passage.scope, passage.status, time.perf_counter() - passage.started
        path = scope["path"] if (scope["method"], scope["path"]) in self._direct else _template(scope)
        self._metrics.call(scope["method"] if path != "other" else "other", path, status, seconds)
        if self._settings.log == "problems" and status < 400:
            return
        holder = scope["state"].get("holder")
        facts = {
            "request_id": passage.request_id.decode(),
            "method": scope["method"],
            "path": scope["path"][:_LONGEST_PATH],
            "status": status,
            "ms": round(1000 * seconds, 2),
            "token": holder.name if holder else "",
        }
        if PAUSE in scope["state"]:
            # When all is too much already, writing of each would be more of it.
            self._turned_away += 1
            if passage.started < self._told_at + 1.0:
                return
            self._told_at = passage.started
            facts["turned_away"] = self._turned_away
        mistake = status >= 500 and failure is not None and not isinstance(failure, Problem)
        if mistake or (failure is not None and status < 400):  # the latter: it broke off in the middle of the answer
            log.error("call failed", exc_info=failure, extra={"facts": facts})
        else:
            self._lines.append(facts)
            if len(self._lines) == 1:
                asyncio.get_running_loop().call_later(_WRITE_AFTER_SECONDS, self.write_lines)

    def write_lines(self) -> None:
        """Write the lines of calls that were answered a moment ago."""
        lines, self._lines = self._lines, []
        for facts in lines:
            log.info("call", extra={"facts": facts})


def _template(scope: Scope) -> str:
    """Return a path as it is documented: there may be no end of ids, and labels of metrics must be few."""
    return str(getattr(scope.get("route"), "path", "other"))


def _is_local(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a call is made by a name of this machine, and by no page of another."""
    page = headers.get(b"origin", b"http://localhost").partition(b"://")[2]
    return is_loopback(_host(headers.get(b"host", b"localhost"))) and is_loopback(_host(page))


def _host(header: bytes) -> str:
    """Return the name in a Host header, without the port."""
    name = header.decode("latin-1")
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
