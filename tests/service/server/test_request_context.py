"""Request ids, and backpressure on connections whose requests were turned away."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import Response

from fairsync.service.server.request_context import RequestContextMiddleware, context_of
from service.running import make_settings, running
from service.server.asgi import call, http_scope
from service.server.held_search import Held, post, until

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Response("ok")(scope, receive, send)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    context_of(scope).turned_away = True
    await Response("busy", 503)(scope, receive, send)


@pytest.mark.parametrize(("given", "taken"), [(b"abc-1", True), (b'a"b c', False), (b"a\tb", False), (b"", False)])
def test_a_harmless_request_id_is_taken_and_another_replaced(given: bytes, taken: bool) -> None:
    (start, _) = call(RequestContextMiddleware(answer), http_scope(headers=[(b"x-request-id", given)]))
    request_id = dict(start["headers"])[b"x-request-id"]
    assert request_id == given if taken else re.fullmatch(rb"[0-9a-f]{16}", request_id)


def test_while_draining_clients_are_asked_to_close_their_connections() -> None:
    app = RequestContextMiddleware(answer)
    assert (b"connection", b"close") not in call(app, http_scope())[0]["headers"]
    app.draining = True
    assert (b"connection", b"close") in call(app, http_scope())[0]["headers"]


def test_a_refusal_is_sent_whole_before_the_connection_is_paused() -> None:
    messages = call(RequestContextMiddleware(refuse, pause_seconds=0.0), http_scope())
    bodies = [(one.get("body", b""), one.get("more_body", False)) for one in messages[1:]]
    assert bodies == [(b"busy", True), (b"", False)]


def test_overload_is_answered_at_once_and_then_the_connection_is_not_read() -> None:
    held = Held()
    with running(held.promise_service, make_settings({"max_waiting": 3})) as service:
        answers: list[httpx.Response] = []
        threads = [post(service, answers) for _ in range(12)]
        until(lambda: len(answers) == 9)  # while the search is held
        assert {one.status_code for one in answers} == {503}
        assert {one.headers["retry-after"] for one in answers} == {"1"}
        assert answers[0].json()["error"] == "overloaded"
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.settimeout(240)
            start, statuses = time.monotonic(), []
            for _ in range(2):
                connection.sendall(b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
                got = b""
                while not got.endswith(b"}"):
                    got += connection.recv(1000)
                statuses.append(got[9:12])
                assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200, "other connections are read"
            assert statuses == [b"503", b"503"]
            assert time.monotonic() - start > 0.9, "the second request is read after the pause"
        held.go.set()
        for thread in threads:
            thread.join()
        assert sorted(one.status_code for one in answers) == [200] * 3 + [503] * 9
        assert sum(held.sizes) == 3
