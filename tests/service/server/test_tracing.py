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

from fairsync import spans
from fairsync.errors import InvalidInputError
from fairsync.service.server.trace_export import TraceExport
from fairsync.service.server.trace_records import TraceRecord
from fairsync.service.server.tracing import Tracing
from fairsync.service.settings import TracesSettings, parse_settings
from service.running import make_settings, running, small_service
from service.service_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

LOST = OSError("no route")
NEVER = 1e6
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
                received.extend(spans_of(body))
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
    with running(small_service(), make_settings(traces={"endpoint": collector.endpoint})) as service:
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
        {"catalog": {"path": "x"}, "traces": {"endpoint": endpoint}}).traces)  # fmt: skip

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
    assert not [one for one in caplog.records if one.name.startswith(("opentelemetry", "urllib3"))]


def spans_of(message: bytes) -> list[Any]:
    found = ExportTraceServiceRequest.FromString(message).resource_spans
    return [span for one in found for scope in one.scope_spans for span in scope.spans]


class Outcomes:
    """Takes messages, with one outcome after the other, and success at the end."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.spans = list(errors), list[Any]()

    def __call__(self, message: bytes) -> None:
        self.spans += spans_of(message)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def ended(name: str) -> TraceRecord:
    record = TraceRecord(name)
    record.ended = record.began
    return record


def test_each_loss_of_the_collector_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    export = TraceExport(
        Outcomes(LOST, LOST, LOST, None, None, LOST, LOST),
        "http://collector",
        {},
        NEVER,
    )
    for _ in range(7):
        export.add(ended("call"))
        export.flush()
    export.close()
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_more_traces_than_can_wait_are_dropped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Outcomes()
    export = TraceExport(exporter, "http://collector", {}, NEVER, max_waiting=5)
    for _ in range(2):
        for number in range(8):
            export.add(ended(str(number)))
        export.flush()
    assert [one.name for one in exporter.spans] == ["0", "1", "2", "3", "4"] * 2
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "3 calls" in caplog.text
    export.close()


def test_a_micro_batch_is_part_of_one_call_and_linked_with_the_others() -> None:
    exporter = Outcomes()
    tracing = Tracing(TracesSettings(endpoint="http://collector"), exporter)
    headers = [[], [(b"traceparent", f"00-{TRACE}-b7ad6b7169203331-00".encode())], [], []]
    calls = [tracing.begin({"method": "POST", "headers": one}) for one in headers]
    assert calls[1] is None, "its caller decided that it is not traced"

    def work() -> None:
        with tracing.joined("batch", [calls[1], calls[0], calls[2], calls[3]]):
            with tracing.span("search"):
                pass
            with tracing.span("settle"):
                raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        work()
    assert tracing.span("search") is tracing.span("guard"), "nothing is recorded outside"
    assert tracing.joined("batch", [calls[1]]) is tracing.span("search")
    tracing.close()
    batch, search, settle = exporter.spans
    first, second, third = (one.ids() for one in calls if one is not None)
    assert (batch.trace_id, batch.parent_span_id) == (first.trace, first.span)
    assert [(one.trace_id, one.span_id) for one in batch.links] == [second[:2], third[:2]]
    assert [(one.key, one.value.int_value) for one in batch.attributes] == [("calls", 4)]
    assert batch.status.message == settle.status.message == "ValueError"
    assert (batch.status.code, search.status.code) == (2, 0)
    assert {one.trace_id for one in exporter.spans} == {first.trace}
    assert len({one.span_id for one in exporter.spans} | {first.span, second.span, third.span}) == 6


@pytest.mark.parametrize("traces", [{"endpoint": "collector:4318"}, {"sample": 0}, {"sample": 1.5}, {"url": "x"}])
def test_settings_that_make_no_sense_are_refused(traces: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="traces"):
        parse_settings({"catalog": {"path": "x"}, "traces": traces})
