"""Requests that take too long: 408 for a slow body, 503 for a slow answer."""

from __future__ import annotations

import socket
import time

import httpx
import pytest

from service.running import make_settings, running, small_service
from service.server.held_search import BODY, Held, until

HEAD = b"POST /v1/%s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


def test_a_slow_search_is_given_up() -> None:
    held = Held()
    with running(held.promise_service, make_settings({"request_seconds": 0.2})) as service:
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY, timeout=60)
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")
        held.go.set()
        # On a busy machine, other calls may take as long.
        until(lambda: httpx.post(f"{service.url}/v1/retrieve", json=BODY, timeout=60).status_code == 200)


def test_a_slow_handler_is_given_up() -> None:
    held, promise_service = Held(), small_service()
    vars(promise_service)["promises"] = lambda: held.go.wait(240)
    with running(promise_service, make_settings({"request_seconds": 0.2})) as service:
        answer = httpx.get(f"{service.url}/v1/promises", timeout=60)
        held.go.set()
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")


@pytest.mark.parametrize("path", [b"retrieve", b"impressions"])
@pytest.mark.parametrize("body", [b"content-length: 100\r\n\r\n{", CHUNKED, CHUNKED + b"a: b\r\n"])
def test_slow_bodies_and_slow_trailers_end_the_connection(path: bytes, body: bytes) -> None:
    with (
        running(small_service(), make_settings({"request_seconds": 0.2})) as service,
        socket.create_connection(("127.0.0.1", service.port)) as connection,
    ):
        connection.settimeout(240)
        connection.sendall(HEAD % path + body)
        answer = b""
        while more := connection.recv(1000):  # until the server closes it
            answer += more
        assert b" 408 " in answer


def test_endless_trailers_end_the_connection() -> None:
    with (
        running(small_service(), make_settings({"request_seconds": 0.2})) as service,
        socket.create_connection(("127.0.0.1", service.port)) as connection,
    ):
        connection.settimeout(240)
        connection.sendall(HEAD % b"retrieve" + CHUNKED)
        end = time.monotonic() + 240
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # noqa: PT012 - it is not known at which
            while time.monotonic() < end:
                connection.sendall(b"a: b\r\n" * 100)
                time.sleep(0.01)
