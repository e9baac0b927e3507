"""Traces: exported to a real collector over HTTP, off by default, and harmless if the collector is away."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from fairsync import spans
from fairsync.errors import InvalidInputError
from fairsync.service.server.tracing import WarningExporter
from fairsync.service.settings import parse_settings
from service.running import make_settings, running, small_service
from service.service_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """Receives traces over HTTP, as the OpenTelemetry collector does."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Any] = []
        received = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                for one in ExportTraceServiceRequest.FromString(body).resource_spans:
                    received.extend(span for scope in one.scope_spans for span in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def ask(url: str, headers: dict[str, str] | None = None) -> None:
    body = {"vectors": np.ones((1, 8)).tolist(), "request_ids": [None]}
    httpx.post(f"{url}/v1/retrieve", json=body, headers=headers, timeout=30).raise_for_status()


def test_a_call_its_search_guard_and_settlement_are_one_trace(collector: Collector) -> None:
    with running(small_service(), make_settings(traces={"endpoint": collector.endpoint, "sample": 1.0})) as service:
        ask(service.url, {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-request-id": "mine"})
        assert httpx.get(f"{service.url}/v1/nothing", timeout=60).status_code == 404
    found = {one.name: one for one in collector.spans if one.trace_id.hex() == TRACE}
    assert set(found) == {"POST /v1/retrieve", "batch", "lease", "search", "guard", "settle"}
    call = found["POST /v1/retrieve"]
    assert call.parent_span_id.hex() == "b7ad6b7169203331", "it continues the trace of the caller"
    assert found["batch"].parent_span_id == call.span_id
    for name in ("lease", "search", "guard", "settle"):
        assert found[name].parent_span_id == found["batch"].span_id, name
        assert call.start_time_unix_nano <= found[name].start_time_unix_nano <= found[name].end_time_unix_nano
    values = {one.key: one.value for one in call.attributes}
    assert values["http.response.status_code"].int_value == 200
    assert values["fairsync.request_id"].string_value == "mine"
    assert any(one.name == "GET other" for one in collector.spans)
    assert spans.capture() is None, "nobody listens after the end"


def test_only_a_share_of_the_calls_is_traced(collector: Collector) -> None:
    settings = make_settings(traces={"endpoint": collector.endpoint, "sample": 0.2})
    with running(small_service(), settings) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        for _ in range(100):
            client.get("/health")
    calls = [one for one in collector.spans if one.name == "GET /health"]
    assert 5 <= len(calls) <= 45


def test_without_an_endpoint_nothing_is_imported_and_nothing_listens() -> None:
    program = (
        "import sys; from fairsync.service.server.app import make_app; from fairsync import spans;"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules);"
        "assert spans.span('a') is spans.span('b')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_collector_that_is_away_delays_nothing_and_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port, settings = free_port(), make_settings()
    endpoint = f"http://127.0.0.1:{port}/v1/traces"
    settings = msgspec.structs.replace(settings, traces=parse_settings(
        {"catalog": {"path": "x"}, "traces": {"endpoint": endpoint, "sample": 1.0}}).traces)  # fmt: skip

    def lines(words: str) -> list[logging.LogRecord]:
        return [one for one in caplog.records if words in one.getMessage()]

    def wait_for(words: str) -> None:
        end = time.monotonic() + 240
        while not lines(words):
            assert time.monotonic() < end, words
            ask(service.url)
            time.sleep(0.1)

    with running(small_service(), settings) as service:
        wait_for("does not answer")
        for _ in range(5):
            ask(service.url)
        back = Collector(port)
        wait_for("answers again")
        back.close()
    (warning,) = [one for one in lines("collector of traces") if one.levelno == logging.WARNING][:1]
    assert endpoint in warning.getMessage()
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


def test_each_loss_of_the_collector_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([False, False, OSError("no route"), True, True, False, False])

    class Flaky(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return SpanExportResult.SUCCESS if outcome else SpanExportResult.FAILURE

    caplog.set_level(logging.INFO)
    exporter = WarningExporter(Flaky(), "http://collector")
    for _ in range(7):
        exporter.export([])
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO", "WARNING"]


@pytest.mark.parametrize("traces", [{"endpoint": "collector:4318"}, {"sample": 0}, {"sample": 1.5}, {"url": "x"}])
def test_settings_that_make_no_sense_are_refused(traces: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="traces"):
        parse_settings({"catalog": {"path": "x"}, "traces": traces})
