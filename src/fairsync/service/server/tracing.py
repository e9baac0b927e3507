"""Traces by OpenTelemetry: calls, micro-batches, search, guard and settlement, exported by OTLP over HTTP."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from fairsync import spans
from fairsync.extras import explain_missing
from fairsync.service.server.json_logging import log
from fairsync.service.server.request_context import context_of

with explain_missing("[traces]"):
    from opentelemetry import propagate, trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from starlette.types import ASGIApp, Receive, Scope, Send

    from fairsync.service.settings import TracesSettings

# Seconds for one export. A collector that is away must not delay the end of the service by much.
_EXPORT_SECONDS = 2.0
_NOTHING: AbstractContextManager[Any] = nullcontext()


class Tracing:
    """The traces of one service: receives spans, and exports them in a thread of its own.

    Parameters
    ----------
    settings
        Endpoint and share of the calls that are traced.
    exporter
        Takes the spans. By default OTLP over HTTP.
    """

    def __init__(self, settings: TracesSettings, exporter: SpanExporter | None = None) -> None:
        named = Resource({SERVICE_NAME: "fairsync"}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=named, sampler=ParentBased(TraceIdRatioBased(settings.sample)))
        exporter = exporter or OTLPSpanExporter(endpoint=settings.endpoint, timeout=_EXPORT_SECONDS)
        # Its own lines, several for each attempt, are replaced by one warning.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        provider.add_span_processor(BatchSpanProcessor(WarningExporter(exporter, str(settings.endpoint))))
        self._provider, self._tracer = provider, provider.get_tracer("fairsync")
        spans.listen(self)

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Return the context manager of a part of a micro-batch."""
        if not trace.get_current_span().is_recording():  # work for calls that are not traced, or for none
            return _NOTHING
        return self._tracer.start_as_current_span(name, record_exception=False)

    def capture(self) -> object:
        """Return the span of the call under way."""
        return trace.get_current_span()

    def joined(self, name: str, causes: Sequence[object]) -> AbstractContextManager[Any]:
        """Return the span of a micro-batch: part of its first call that is traced, linked with the others."""
        traced = [one for one in causes if isinstance(one, trace.Span) and one.get_span_context().trace_flags.sampled]
        if not traced:
            return _NOTHING
        links = [trace.Link(one.get_span_context()) for one in traced[1:]]
        parent = trace.set_span_in_context(traced[0])
        return self._tracer.start_as_current_span(name, parent, links=links, attributes={"calls": len(causes)})

    def call(self, scope: Scope) -> AbstractContextManager[Any]:
        """Return the span of a call, part of the trace that its headers name."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return self._tracer.start_as_current_span(
            scope["method"], propagate.extract(carrier), trace.SpanKind.SERVER, record_exception=False
        )

    def close(self) -> None:
        """Export what is left, as far as the collector answers, and stop."""
        spans.listen(None)
        self._provider.shutdown()


class TracingMiddleware:
    """Makes a span of every call.

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
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with self._tracing.call(scope) as span:
            await self.app(scope, receive, send)
            if span.is_recording():
                context = context_of(scope)
                route = context.route or "other"
                span.update_name(f"{scope['method']} {route}")
                span.set_attributes(
                    {
                        "http.request.method": scope["method"],
                        "http.route": route,
                        "http.response.status_code": context.status,
                        "fairsync.request_id": context.request_id.decode("latin-1"),
                    }
                )
                if context.status >= 500:
                    span.set_status(trace.StatusCode.ERROR)


class WarningExporter(SpanExporter):
    """Exports spans, and warns once if that fails, until it works again.

    Parameters
    ----------
    exporter
        Takes the spans.
    endpoint
        Where they go, for the warning.
    """

    def __init__(self, exporter: SpanExporter, endpoint: str) -> None:
        self._exporter, self._endpoint, self._is_lost = exporter, endpoint, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; those that cannot be exported are dropped."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # the thread that exports must go on
            log.debug("exporting traces failed: %s", error)
            result = SpanExportResult.FAILURE
        is_lost = result is not SpanExportResult.SUCCESS
        if is_lost and not self._is_lost:
            log.warning("the collector of traces at %s does not answer: they are dropped until it does", self._endpoint)
        elif self._is_lost and not is_lost:
            log.info("the collector of traces at %s answers again", self._endpoint)
        self._is_lost = is_lost
        return result

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: exports are not buffered here."""
        return True
