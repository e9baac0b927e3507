"""Traces by OpenTelemetry: calls, micro-batches, search, guard and settlement.

On the path of a request only names and times are recorded (`trace_records`); another thread makes spans of them and
exports them (`trace_export`).
"""

from __future__ import annotations

import logging
import random
import time
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fairsync import spans
from fairsync.extras import explain_missing
from fairsync.service.server.request_context import context_of

with explain_missing("[traces]"):
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource

    from fairsync.service.server.trace_export import Collector, TraceExport
    from fairsync.service.server.trace_records import SERVER, SpanIds, TraceRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.settings import TracesSettings

_NOTHING: AbstractContextManager[Any] = nullcontext()
# The call, or in the search thread the micro-batch, that this thread or task works for.
_current: ContextVar[TraceRecord | None] = ContextVar("fairsync_trace", default=None)


class Tracing:
    """The traces of one service: records spans, and exports them in a thread of its own.

    Parameters
    ----------
    settings
        Endpoint and share of the calls that are traced.
    send
        Takes messages to the collector. By default OTLP over HTTP.
    """

    def __init__(self, settings: TracesSettings, send: Callable[[bytes], object] | None = None) -> None:
        named = Resource({SERVICE_NAME: "fairsync"}).merge(OTELResourceDetector().detect()).attributes
        # The lines of the client, several for each attempt, are replaced by one warning.
        logging.getLogger("urllib3").setLevel(logging.CRITICAL)
        endpoint = str(settings.endpoint)
        self._sample, self.export = settings.sample, TraceExport(send or Collector(endpoint), endpoint, named)
        spans.listen(self)

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Return the context manager of a part of the work for a call or a micro-batch."""
        record = _current.get()
        return _NOTHING if record is None else _Part(name, record)  # without a record: no call that is traced

    def capture(self) -> object:
        """Return the record of the call under way."""
        return _current.get()

    def joined(self, name: str, causes: Sequence[object]) -> AbstractContextManager[Any]:
        """Return the context manager of a micro-batch: part of its first traced call, linked with the others."""
        traced = [one for one in causes if isinstance(one, TraceRecord)]
        if not traced:
            return _NOTHING
        batch = TraceRecord(name, parent=traced[0], causes=traced[1:])
        batch.attributes = {"calls": len(causes)}
        return _Whole(batch, self.export)

    def begin(self, scope: Scope) -> TraceRecord | None:
        """Return the record of a call, part of the trace that its headers name; None if it is not traced."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        caller = trace.get_current_span(propagate.extract(carrier, Context())).get_span_context()
        if not (caller.trace_flags.sampled if caller.is_valid else random.random() < self._sample):
            return None
        if not caller.is_valid:
            return TraceRecord(scope["method"], SERVER)
        ids = caller.trace_id.to_bytes(16), caller.span_id.to_bytes(8)
        return TraceRecord(scope["method"], SERVER, SpanIds(*ids, caller.trace_state.to_header()))

    def close(self) -> None:
        """Export what is left, as far as the collector answers, and stop."""
        spans.listen(None)
        self.export.close()


class _Part:
    """The context manager of a part of a record."""

    __slots__ = ("_began", "_name", "_record")

    def __init__(self, name: str, record: TraceRecord) -> None:
        self._name, self._record = name, record

    def __enter__(self) -> None:
        self._began = time.time_ns()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        failure = None if kind is None else kind.__name__
        self._record.parts.append((self._name, self._began, time.time_ns(), failure))


class _Whole:
    """The context manager of a record: parts of the work in this thread belong to it meanwhile."""

    __slots__ = ("_export", "_record", "_token")

    def __init__(self, record: TraceRecord, export: TraceExport) -> None:
        self._record, self._export = record, export

    def __enter__(self) -> None:
        self._token = _current.set(self._record)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _current.reset(self._token)
        record = self._record
        record.ended = time.time_ns()
        if kind is not None:
            record.failure = kind.__name__
        self._export.add(record)


class TracingMiddleware:
    """Records every call that is traced.

    Parameters
    ----------
    app
        The application inside.
    tracing
        The traces.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self.app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        record = self._tracing.begin(scope) if scope["type"] == "http" else None
        if record is None:
            await self.app(scope, receive, send)
            return
        with _Whole(record, self._tracing.export):
            await self.app(scope, receive, send)
            context = context_of(scope)
            route = context.route or "other"
            record.name = f"{scope['method']} {route}"
            record.attributes = {
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": context.status,
                "fairsync.request_id": context.request_id.decode("latin-1"),
            }
            if context.status >= 500:
                record.failure = f"status {context.status}"
