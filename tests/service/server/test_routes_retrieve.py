"""Retrieval over HTTP: many callers at once, and clients that disconnect."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np

from service.running import running, small_service
from service.server.held_search import Held, post, until
from service.server.logged import logged

if TYPE_CHECKING:
    import pytest


def test_a_client_that_disconnects_is_not_searched_for(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with running(held.promise_service) as service, caplog.at_level("INFO"):
        answers: list[httpx.Response] = []
        first = post(service, answers)
        assert held.entered.wait(240)
        body = msgspec.json.encode({"vectors": [[1.0] * 8] * 5})
        with socket.create_connection(("127.0.0.1", service.port)) as line:
            line.sendall(
                b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                + f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            until(lambda: "fairsync_waiting_requests 6.0" in httpx.get(f"{service.url}/metrics", timeout=60).text)
        until(lambda: 499 in [facts.get("status") for _, facts in logged(caplog.records)])
        second = post(service, answers)
        held.go.set()
        first.join()
        second.join()
    assert [one.status_code for one in answers] == [200, 200]
    assert sum(held.sizes) == 2, "the five requests of the client that disconnected were not searched"


def test_many_callers_at_once_each_get_their_own() -> None:
    users = np.random.default_rng(1).normal(size=(200, 8))
    promise_service = small_service()
    expected = np.argsort(-(users @ promise_service.catalog.embeddings.T.astype(np.float64)), axis=1)[:, :3]
    with running(promise_service) as service:
        found: dict[int, Any] = {}

        def call(start: int) -> None:
            with httpx.Client(base_url=service.url, timeout=60) as http:
                for i in range(start, 200, 8):
                    answer = http.post("/v1/retrieve", json={"vectors": [users[i].tolist()]})
                    found[i] = answer.json()["answers"][0]["ids"]

        threads = [threading.Thread(target=call, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[i] for i in range(200)] == expected.tolist()
    assert promise_service.overview().requests == 200
