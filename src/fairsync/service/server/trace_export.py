"""Exports traces in a thread of its own, by OTLP over HTTP, and warns if the collector is away."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from fairsync.extras import explain_missing
from fairsync.service.server.json_logging import log

with explain_missing("[traces]"):
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

    from fairsync.service.server.trace_records import TraceRecord

# Spans of one message to the collector.
_MESSAGE_SPANS = 512


class TraceExport:
    """Turns finished records into spans and exports them, about once a second.

    Parameters
    ----------
    exporter
        Takes the spans.
    endpoint
        Where they go, for the warning.
    resource
        Describes this service.
    every
        Seconds between two exports.
    max_waiting
        Calls and micro-batches that may wait to be exported. Further ones are dropped.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        endpoint: str,
        resource: Resource,
        every: float = 1.0,
        max_waiting: int = 8192,
    ) -> None:
        self._exporter, self._endpoint, self._resource = exporter, endpoint, resource
        self._every, self._max_waiting = every, max_waiting
        self._waiting: deque[TraceRecord] = deque()
        self._is_lost, self._dropped, self._was_full = False, 0, False
        self._stopped, self._exporting = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, record: TraceRecord) -> None:
        """Accept a finished record, unless too many are waiting."""
        if len(self._waiting) < self._max_waiting:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def flush(self) -> None:
        """Export what is waiting. If that fails, the rest is dropped."""
        with self._exporting:
            spans: list[ReadableSpan] = []
            for _ in range(len(self._waiting)):
                spans += self._waiting.popleft().spans(self._resource)
                if len(spans) >= _MESSAGE_SPANS:
                    if not self._export(spans):
                        self._waiting.clear()
                        return
                    spans = []
            if spans:
                self._export(spans)
            dropped, self._dropped = self._dropped, 0
            if dropped and not self._was_full:
                log.warning(
                    "traces come faster than they are exported: %d calls were dropped; lower traces.sample", dropped
                )
            self._was_full = dropped > 0

    def close(self) -> None:
        """Export what is left, as far as the collector answers, and stop."""
        self._stopped.set()
        self._thread.join()
        self.flush()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            self.flush()

    def _export(self, spans: list[ReadableSpan]) -> bool:
        """Export one message; warn once if that fails, until it works again."""
        try:
            is_lost = self._exporter.export(spans) is not SpanExportResult.SUCCESS
        except Exception as error:  # the thread that exports must go on
            log.debug("exporting traces failed: %s", error)
            is_lost = True
        if is_lost and not self._is_lost:
            log.warning("the collector of traces at %s does not answer: they are dropped until it does", self._endpoint)
        elif self._is_lost and not is_lost:
            log.info("the collector of traces at %s answers again", self._endpoint)
        self._is_lost = is_lost
        return not is_lost
