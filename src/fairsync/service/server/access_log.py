"""The access log: one line and one metric per request; lines are written in batches."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from fairsync.errors import FairSyncError
from fairsync.service.server.json_logging import log, log_calls
from fairsync.service.server.problems import Problem
from fairsync.service.server.request_context import context_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.server.prometheus import Metrics
    from fairsync.service.server.request_context import RequestContext

_LONGEST_PATH = 200
# Lines about overload are thinned to one per this many seconds.
_THINNED_SECONDS = 1.0
# Lines are written this many seconds later, many at once: the next search need not wait for them.
_WRITE_AFTER_SECONDS = 0.025


class AccessLogMiddleware:
    """Logs each request and counts it in the metrics.

    Parameters
    ----------
    app
        The application inside.
    metrics
        Counts requests by method, path template and status.
    paths
        Paths without parameters. They are counted under their own name even if the request never reached its route.
    only_problems
        Whether requests that succeeded are left out of the log.
    clock
        Seconds of a monotonic clock.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        paths: Collection[str],
        *,
        only_problems: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.app, self._metrics, self._paths, self._clock = app, metrics, paths, clock
        self._only_problems = only_problems
        self._turned_away, self._thinned_since = 0, float("-inf")
        self._lines: list[dict[str, object]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            self.flush()
            return
        started = self._clock()
        await self.app(scope, receive, send)
        context, seconds = context_of(scope), self._clock() - started
        # Label values must be few, and there is no end of ids and unknown paths.
        path = context.route or (scope["path"] if scope["path"] in self._paths else "other")
        self._metrics.call(scope["method"] if path != "other" else "other", path, context.status, seconds)
        if context.status >= 400 or context.failure is not None or not self._only_problems:
            self._log(scope, context, started, seconds)

    def _log(self, scope: Scope, context: RequestContext, started: float, seconds: float) -> None:
        facts: dict[str, object] = {
            "time": time.time(),
            "request_id": context.request_id.decode(),
            "method": scope["method"],
            "path": scope["path"][:_LONGEST_PATH],
            "status": context.status,
            "ms": round(1000 * seconds, 2),
            "token": context.caller.name,
        }
        failure = context.failure
        if context.turned_away:
            self._turned_away += 1
            if started < self._thinned_since + _THINNED_SECONDS:
                return
            self._thinned_since = started
            facts["turned_away"] = self._turned_away
        unexpected = context.status >= 500 and not isinstance(failure, Problem)
        broken_off = context.status < 400
        if failure is not None and (unexpected or broken_off):
            self.flush()
            del facts["time"]
            if isinstance(
                failure, FairSyncError
            ):  # its message says it all, and while a ledger is away, every call fails
                log.error("call failed: %s", failure, extra={"facts": facts})
            else:
                log.error("call failed", exc_info=failure, extra={"facts": facts})
            return
        self._lines.append(facts)
        if len(self._lines) == 1:
            asyncio.get_running_loop().call_later(_WRITE_AFTER_SECONDS, self.flush)

    def flush(self) -> None:
        """Write the lines of the requests that were answered since the last time."""
        lines, self._lines = self._lines, []
        if lines:
            log_calls(lines)
