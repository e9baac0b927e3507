"""Exports traces in a thread of its own, by OTLP over HTTP, and warns if the collector is away."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING

from fairsync.errors import BackendUnavailableError
from fairsync.extras import explain_missing
from fairsync.service.server.json_logging import log

with explain_missing("[traces]"):
    import urllib3
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.util.re import parse_env_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairsync.service.server.trace_records import TraceRecord

# Seconds for one message. A collector that is away must not delay the end of the service by much.
_SECONDS = 2.0
# Spans of one message to the collector, about.
_MESSAGE_SPANS = 4096
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")


class Collector:
    """A collector of traces, by OTLP over HTTP.

    Parameters
    ----------
    endpoint
        Its address.
    """

    def __init__(self, endpoint: str) -> None:
        given = next((os.environ[name] for name in _HEADERS if name in os.environ), "")
        self._headers = {"content-type": "application/x-protobuf", **parse_env_headers(given, liberal=True)}
        self._pool, self._endpoint = urllib3.PoolManager(retries=False, timeout=_SECONDS), endpoint

    def __call__(self, message: bytes) -> None:
        """Send a message, or raise an error."""
        answer = self._pool.request("POST", self._endpoint, body=message, headers=self._headers)
        if not 200 <= answer.status < 300:
            raise BackendUnavailableError(f"the collector answered with {answer.status}")


class TraceExport:
    """Turns finished records into spans and exports them, about once a second.

    Parameters
    ----------
    send
        Takes the messages, or raises an error.
    endpoint
        Where they go, for the warning.
    resource
        Attributes of this service.
    every
        Seconds between two exports.
    max_waiting
        Calls and micro-batches that may wait to be exported. Further ones are dropped.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        endpoint: str,
        resource: Mapping[str, object],
        every: float = 1.0,
        max_waiting: int = 8192,
    ) -> None:
        self._send, self._endpoint, self._resource = send, endpoint, resource
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
            left = len(self._waiting)
            while left:
                message = ExportTraceServiceRequest()
                found = message.resource_spans.add()
                for key, value in self._resource.items():
                    found.resource.attributes.add(key=key).value.string_value = str(value)
                spans = found.scope_spans.add()
                spans.scope.name = "fairsync"
                while left and len(spans.spans) < _MESSAGE_SPANS:
                    self._waiting.popleft().write(spans)
                    left -= 1
                if not self._export(message.SerializeToString()):
                    self._waiting.clear()
                    return
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

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            self.flush()

    def _export(self, message: bytes) -> bool:
        """Export one message; warn once if that fails, until it works again."""
        try:
            self._send(message)
            is_lost = False
        except Exception as error:  # the thread that exports must go on
            log.debug("exporting traces failed: %s", error)
            is_lost = True
        if is_lost and not self._is_lost:
            log.warning("the collector of traces at %s does not answer: they are dropped until it does", self._endpoint)
        elif self._is_lost and not is_lost:
            log.info("the collector of traces at %s answers again", self._endpoint)
        self._is_lost = is_lost
        return not is_lost
