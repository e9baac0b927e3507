"""Previews over HTTP: few at a time, and none for clients that have gone; changes whose time ran out."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from fairsync.service.promises.preview import PreviewLimit
from service.running import Running, make_settings, running, small_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.service.promises.promise_service import PromiseService

PROMISE = {"group": "wine", "floor": 5, "window": {"every": "day"}}


class HeldPreviews:
    """A promise service whose previews, one at a time, go on until the test lets them go or they are cancelled."""

    def __init__(self) -> None:
        self.promise_service: PromiseService = small_service()
        self.entered, self.go, self.cancelled = threading.Event(), threading.Event(), threading.Event()
        plain, limit = self.promise_service.editor.preview, PreviewLimit(1)

        def preview(promise: Any, replacing: Any, is_cancelled: Callable[[], bool]) -> Any:
            with limit:
                self.entered.set()
                while not self.go.wait(0.01):
                    if is_cancelled():
                        self.cancelled.set()
                        break
                return plain(promise, replacing, is_cancelled)

        vars(self.promise_service.editor)["preview"] = preview


def ask(service: Running, answers: list[httpx.Response]) -> threading.Thread:
    url = f"{service.url}/v1/promises/preview"
    thread = threading.Thread(target=lambda: answers.append(httpx.post(url, json=PROMISE, timeout=240)))
    thread.start()
    return thread


def test_previews_beyond_the_limit_are_told_to_come_again() -> None:
    held, answers = HeldPreviews(), list[httpx.Response]()
    with running(held.promise_service) as service:
        first = ask(service, answers)
        assert held.entered.wait(240)
        refused = httpx.post(f"{service.url}/v1/promises/preview", json=PROMISE, timeout=240)
        assert httpx.get(f"{service.url}/v1/promises", timeout=60).status_code == 200
        held.go.set()
        first.join()
    assert (refused.status_code, refused.json()["error"], refused.headers["retry-after"]) == (503, "overloaded", "1")
    assert answers[0].json()["feasible"]


def test_a_preview_ends_with_its_caller() -> None:
    held, body = HeldPreviews(), msgspec.json.encode(PROMISE)
    with running(held.promise_service) as service:
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            head = b"POST /v1/promises/preview HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            assert held.entered.wait(240)
        assert held.cancelled.wait(240)


def test_a_preview_ends_with_its_time() -> None:
    held, answers = HeldPreviews(), list[httpx.Response]()
    with running(held.promise_service, make_settings({"request_seconds": 3.0})) as service:
        ask(service, answers).join()
        assert held.cancelled.wait(240)
    assert (answers[0].status_code, answers[0].json()["error"]) == (503, "timed_out")


def test_a_preview_does_not_keep_the_service_from_ending() -> None:
    held, answers = HeldPreviews(), list[httpx.Response]()
    service = Running(held.promise_service, make_settings())
    service.server.config.timeout_graceful_shutdown = 1
    service.start()
    caller = ask(service, answers)
    assert held.entered.wait(240)
    service.stop()
    caller.join()
    assert held.cancelled.wait(240)
    assert (answers[0].status_code, answers[0].json()["error"]) == (503, "stopping")


@pytest.mark.parametrize("path", ["/v1/promises", "/v1/promises/bulk"])
def test_a_promise_whose_time_ran_out_is_not_made(path: str) -> None:
    """The caller was told to send it again: it must not come into being later."""
    promise_service, ended = small_service(), threading.Event()
    plain = promise_service.editor._set_promises

    def watched(*arguments: Any) -> Any:
        try:
            return plain(*arguments)
        finally:
            ended.set()

    vars(promise_service.editor)["_set_promises"] = watched
    before = promise_service.scheduler.state.promises
    body = {"promises": [PROMISE]} if path.endswith("bulk") else PROMISE
    with running(promise_service, make_settings({"request_seconds": 0.2})) as service:
        with promise_service.scheduler.lock:
            answer = httpx.post(service.url + path, json=body, timeout=240)
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")
        assert ended.wait(240)
    assert promise_service.scheduler.state.promises == before
