"""Overload, slowness, clients that go away, and the end: quick answers, and nothing lost."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import orjson
import pytest

from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.service.server.json_logging import JsonFormatter
from fairsync.service.settings import parse_settings
from service.running import Running, make_settings, running, small_keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.service.promises.promise_service import PromiseService

BODY = {"vectors": [[1.0] * 8]}


class Held:
    """A keeper whose search waits until it is let go."""

    def __init__(self) -> None:
        self.promise_service: PromiseService = small_keeper()
        self.go, self.entered = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        plain = self.promise_service.retrieve

        def retrieve(users: Any, request_ids: Any, k: Any, deliver: Any) -> Any:
            self.entered.set()
            assert self.go.wait(20)
            self.sizes.append(len(users))
            return plain(users, request_ids, k, deliver)

        vars(self.promise_service)["retrieve"] = retrieve


def post(service: Running, answers: list[httpx.Response]) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{service.url}/v1/retrieve", json=BODY, timeout=20))
    )
    thread.start()
    return thread


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_overload_is_answered_quickly() -> None:
    held = Held()
    with running(held.promise_service, make_settings({"max_waiting": 3})) as service:
        answers: list[httpx.Response] = []
        threads = [post(service, answers) for _ in range(12)]
        until(lambda: len(answers) == 9)  # while the search still stands
        assert {one.status_code for one in answers} == {503}
        assert {one.headers["retry-after"] for one in answers} == {"1"}
        assert answers[0].json()["error"] == "overloaded"
        assert httpx.get(f"{service.url}/health").status_code == 200
        held.go.set()
        for thread in threads:
            thread.join()
        assert sorted(one.status_code for one in answers) == [200] * 3 + [503] * 9
        assert sum(held.sizes) == 3


def test_a_search_that_takes_too_long_is_given_up() -> None:
    held = Held()
    with running(held.promise_service, make_settings({"request_seconds": 0.2})) as service:
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY)
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")
        held.go.set()
        assert httpx.post(f"{service.url}/v1/retrieve", json=BODY).status_code == 200


@pytest.mark.parametrize("path", ["retrieve", "impressions"])
def test_a_body_that_does_not_come_is_not_waited_for(path: str) -> None:
    with (
        running(small_keeper(), make_settings({"request_seconds": 0.2})) as service,
        socket.create_connection(("127.0.0.1", service.port)) as line,
    ):
        line.sendall(
            f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            "content-length: 100\r\n\r\n{".encode()
        )
        line.settimeout(10)
        assert b" 408 " in line.recv(1000)


def test_who_hangs_up_is_not_searched_for() -> None:
    held = Held()
    with running(held.promise_service) as service:
        answers: list[httpx.Response] = []
        first = post(service, answers)
        assert held.entered.wait(10)
        body = orjson.dumps({"vectors": [[1.0] * 8] * 5})
        with socket.create_connection(("127.0.0.1", service.port)) as line:
            line.sendall(
                b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                + f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            time.sleep(0.1)
        time.sleep(0.5)  # it is looked for who has gone only after a while
        second = post(service, answers)
        time.sleep(0.1)
        held.go.set()
        first.join()
        second.join()
    assert [one.status_code for one in answers] == [200, 200]
    assert sum(held.sizes) == 2, "the five of the caller who hung up were not searched"


def test_the_end_waits_for_what_is_in_flight() -> None:
    held = Held()
    service = Running(held.promise_service, make_settings())
    service.start()
    answers: list[httpx.Response] = []
    thread = post(service, answers)
    assert held.entered.wait(10)
    closed = threading.Event()
    close = held.promise_service.close

    def close_and_tell() -> None:
        close()
        closed.set()

    vars(held.promise_service)["close"] = close_and_tell
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    time.sleep(0.2)
    assert not closed.is_set()
    held.go.set()
    thread.join()
    stopping.join()
    assert answers[0].status_code == 200
    assert closed.is_set()
    assert held.promise_service.coordinator.totals().requests == 1


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (BackendUnavailableError("2 of 4 shards are away"), 503, "shards"),
        (FairSyncError("the ledger is full"), 503, "ledger"),
        (OSError("no space left on /secret/path"), 503, "failed"),
        (ZeroDivisionError("secret"), 500, "mistake"),
    ],
)
def test_what_fails_inside_is_told_without_secrets(
    error: Exception, status: int, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    promise_service = small_keeper()

    def fail(*_: Any) -> Any:
        raise error

    vars(promise_service)["retrieve"] = fail
    with running(promise_service) as service, caplog.at_level(logging.INFO):
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY, headers={"x-request-id": "r-7"})
    assert answer.status_code == status
    assert word in answer.text
    assert "secret" not in answer.text
    (record,) = [one for one in caplog.records if one.name == "fairsync.service" and one.levelno == logging.ERROR]
    line = orjson.loads(JsonFormatter().format(record))
    assert (line["request_id"], line["status"]) == ("r-7", status)
    assert str(error) in line["trace"]


def with_tokens(monkeypatch: pytest.MonkeyPatch, http: dict[str, Any], **limits: float) -> Any:
    """Return settings with a token for each name, limited where that is said."""
    tokens = []
    for name in ("flood", "other"):
        monkeypatch.setenv(f"TEST_{name.upper()}", f"{name}-token-that-is-long")
        limit = {"per_second": limits[name]} if name in limits else {}
        tokens.append({"name": name, "roles": ["retrieve"], "env": f"TEST_{name.upper()}", **limit})
    given = {"catalog": {"path": "unused"}, "ledger": {"kind": "memory"}, "tokens": tokens}
    return parse_settings({**given, "http": {"port": 0, "log": "problems", **http}})


def ask_on(service: Running, name: str, end: float, pause: float, tally: list[tuple[int, float]]) -> None:
    """Ask again and again until the time is up, on one connection; note statuses and seconds."""
    body = orjson.dumps(BODY)
    call = (
        f"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {name}-token-that-is-long\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection(("127.0.0.1", service.port)) as line:
        while time.monotonic() < end:
            start = time.monotonic()
            line.sendall(call)
            answer = b""
            while not answer.endswith(b"}"):
                answer += line.recv(65_536)
            tally.append((int(answer[9:12]), time.monotonic() - start))
            time.sleep(pause)


def flood_and_other(service: Running, seconds: float) -> tuple[Counter[int], Counter[int], float]:
    """Have one token ask on 24 connections without a pause, and another every 20 ms.

    Return the statuses of both, and the other's median seconds.
    """
    end = time.monotonic() + seconds
    flood: list[tuple[int, float]] = []
    other: list[tuple[int, float]] = []
    threads = [threading.Thread(target=ask_on, args=(service, "flood", end, 0.001, flood)) for _ in range(24)]
    threads.append(threading.Thread(target=ask_on, args=(service, "other", end, 0.02, other)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [Counter(status for status, _ in tally) for tally in (flood, other)]
    return counts[0], counts[1], float(np.median([took for _, took in other]))


def slow_keeper(seconds: float) -> PromiseService:
    """Return a keeper that takes so long for each request."""
    promise_service = small_keeper()
    plain = promise_service.retrieve

    def retrieve(users: Any, request_ids: Any, k: Any, deliver: Any) -> Any:
        time.sleep(seconds * len(users))
        return plain(users, request_ids, k, deliver)

    vars(promise_service)["retrieve"] = retrieve
    return promise_service


def test_beyond_its_limit_a_token_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"authorization": "Bearer flood-token-that-is-long"}
    with (
        running(small_keeper(), with_tokens(monkeypatch, {}, flood=5.0)) as service,
        httpx.Client(base_url=service.url, headers=headers) as http,
    ):
        many = http.post("/v1/retrieve", json={"vectors": [[1.0] * 8] * 30})
        again = http.post("/v1/retrieve", json=BODY)
        assert (many.status_code, again.status_code, again.json()["error"]) == (200, 429, "too_many")
        assert 3 <= int(again.headers["retry-after"]) <= 4, "30 requests are 6 seconds' worth, of which 2 were saved up"
        assert http.get("/health").status_code == 200
        assert "429" in http.get("/openapi.json").json()["paths"]["/v1/retrieve"]["post"]["responses"]


def test_a_flood_is_held_at_its_limit_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    with running(slow_keeper(0.002), with_tokens(monkeypatch, {}, flood=5.0)) as service:
        flood, other, took = flood_and_other(service, 1.2)
    assert set(other) == {200}
    assert flood[200] <= 5 * (2 + time.monotonic() - start) + 1
    assert flood[429] > flood[200]
    assert took < 0.2


def test_a_flood_without_a_limit_does_not_starve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flood always has as much waiting as it may, and each batch takes 40 ms."""
    settings = with_tokens(monkeypatch, {"max_waiting": 16, "max_batch": 8})
    with running(slow_keeper(0.005), settings) as service:
        flood, other, took = flood_and_other(service, 1.2)
    assert set(other) == {200}
    assert flood[503] > 0
    assert took < 0.3


def test_who_is_cut_off_at_the_end_hears_why() -> None:
    held = Held()
    service = Running(held.promise_service, make_settings())
    service.server.config.timeout_graceful_shutdown = 1
    service.start()
    answers: list[httpx.Response] = []
    thread = post(service, answers)
    assert held.entered.wait(10)
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    thread.join()
    held.go.set()
    stopping.join()
    assert (answers[0].status_code, answers[0].json()["error"]) == (503, "stopping")


def test_large_bodies_are_not_held_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers who have sent nearly all of a body hold it; beyond a few of them others are told to come again."""
    monkeypatch.setattr("fairsync.service.server.request_context._BODIES_AT_ONCE", 3)
    head = (
        b"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 50000\r\n\r\n"
    )
    with running(small_keeper(), make_settings({"max_body_bytes": 50_000})) as service, ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection(("127.0.0.1", service.port))) for _ in range(5)]
        for line in lines:
            line.sendall(head + b" " * 49_000)
            time.sleep(0.05)
        for line in lines[3:]:
            line.settimeout(5)
            answer = line.recv(1000)
            assert b" 503 " in answer
            assert b"retry-after: 1" in answer
        assert httpx.post(f"{service.url}/v1/retrieve", json=BODY).status_code == 200
        for line in lines[:3]:
            line.close()
        time.sleep(0.1)
        assert service.app._bodies.held == 0


def test_a_slow_call_is_given_up_whoever_answers_it() -> None:
    promise_service = small_keeper()
    vars(promise_service)["promises"] = lambda: time.sleep(1.0)
    with running(promise_service, make_settings({"request_seconds": 0.2})) as service:
        start = time.monotonic()
        answer = httpx.get(f"{service.url}/v1/promises")
        assert time.monotonic() - start < 0.8
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")


def test_a_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    promise_service, looks = small_keeper(), []

    def refresh() -> None:
        looks.append(1)
        raise FairSyncError("the ledger is away")

    vars(promise_service)["look"] = refresh
    monkeypatch.setattr("fairsync.service.server.app._LOOK_SECONDS", 0.02)
    with running(promise_service) as service:
        until(lambda: len(looks) > 2)
        assert httpx.get(f"{service.url}/health").status_code == 200


def test_many_callers_at_once_each_get_their_own() -> None:
    users = np.random.default_rng(1).normal(size=(200, 8))
    promise_service = small_keeper()
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
