"""The access log: which requests get a line, and which metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from fairsync.service.server.access_log import AccessLogMiddleware
from fairsync.service.server.json_logging import JsonFormatter
from fairsync.service.server.problems import busy
from fairsync.service.server.prometheus import Metrics
from fairsync.service.server.request_context import context_of
from service.running import small_service
from service.server.asgi import call, http_scope
from service.server.logged import logged

if TYPE_CHECKING:
    import pytest
    from starlette.types import Receive, Scope, Send


class App:
    """Answers with a status; what comes before is said by the test."""

    def __init__(self, status: int, **context: Any) -> None:
        self.status, self.context = status, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in {"status": self.status, **self.context}.items():
            setattr(context_of(scope), name, value)
        await Response(status_code=self.status)(scope, receive, send)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = logged(caplog.records)
    caplog.clear()
    return found


def send(middleware: AccessLogMiddleware, path: str = "/") -> None:
    """Send a request and have its line written."""
    call(middleware, http_scope(path=path))
    middleware.flush()


def test_only_problems_are_logged_if_that_is_set(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(small_service())
    with caplog.at_level("INFO"):
        for status in (200, 404):
            send(AccessLogMiddleware(App(status), metrics, [], only_problems=True))
            send(AccessLogMiddleware(App(status), metrics, []))
    assert [facts["status"] for _, facts in lines(caplog)] == [200, 404, 404]


def test_lines_about_overload_are_thinned(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    app = App(503, turned_away=True, failure=busy("overloaded", "Too much."))
    middleware = AccessLogMiddleware(app, Metrics(small_service()), [], clock=lambda: now)
    with caplog.at_level("INFO"):
        for _ in range(10):
            send(middleware)
            now += 0.25
    assert [facts["turned_away"] for _, facts in lines(caplog)] == [1, 5, 9]


def test_unexpected_failures_are_errors_with_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(small_service())
    failures = {ZeroDivisionError("x"): 500, OSError("broken off"): 200, busy("overloaded", "Too much."): 503}
    with caplog.at_level("INFO"):
        for failure, status in failures.items():
            send(AccessLogMiddleware(App(status, failure=failure), metrics, []))
    assert [(level, facts["status"]) for level, facts in lines(caplog)] == [
        ("ERROR", 500),
        ("ERROR", 200),
        ("INFO", 503),
    ]


def test_metrics_are_counted_by_path_template() -> None:
    metrics = Metrics(small_service())
    for path, route in (("/v1/promises/p1", "/v1/promises/{promise_id}"), ("/v1/past", ""), ("/x", "")):
        call(AccessLogMiddleware(App(200, route=route), metrics, {"/v1/past"}), http_scope(path=path))
    text = metrics.text().decode()
    for method, path in (("GET", "/v1/promises/{promise_id}"), ("GET", "/v1/past"), ("other", "other")):
        assert f'fairsync_calls_total{{method="{method}",path="{path}",status="200"}} 1.0' in text


def test_a_line_stays_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        send(AccessLogMiddleware(App(404), Metrics(small_service()), []), "/v1/\r\nset-cookie: a=b")
    (record,) = [one for one in caplog.records if one.name == "fairsync.service"]
    assert "\n" not in JsonFormatter().format(record)
