"""Overload, slowness, clients that go away, and the end: quick answers, and nothing lost."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import orjson
import pytest

from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.service.logs import JsonLines
from service.running import Running, make_settings, running, small_keeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.service.keeper import Keeper

BODY = {"vectors": [[1.0] * 8]}


class Held:
    """A keeper whose search waits until it is let go."""

    def __init__(self) -> None:
        self.keeper: Keeper = small_keeper()
        self.go, self.entered = threading.Event(), threading.Event()
        self.sizes: list[int] = []
        plain = self.keeper.retrieve

        def retrieve(users: Any, request_ids: Any, k: Any) -> Any:
            self.entered.set()
            assert self.go.wait(20)
            self.sizes.append(len(users))
            return plain(users, request_ids, k)

        vars(self.keeper)["retrieve"] = retrieve


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
    with running(held.keeper, make_settings({"max_waiting": 3})) as service:
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
    with running(held.keeper, make_settings({"request_seconds": 0.2})) as service:
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY)
        assert (answer.status_code, answer.json()["error"]) == (503, "timed_out")
        held.go.set()
        assert httpx.post(f"{service.url}/v1/retrieve", json=BODY).status_code == 200


@pytest.mark.parametrize("path", ["retrieve", "shown"])
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
    with running(held.keeper) as service:
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
    service = Running(held.keeper, make_settings())
    service.start()
    answers: list[httpx.Response] = []
    thread = post(service, answers)
    assert held.entered.wait(10)
    closed = threading.Event()
    close = held.keeper.close

    def close_and_tell() -> None:
        close()
        closed.set()

    vars(held.keeper)["close"] = close_and_tell
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    time.sleep(0.2)
    assert not closed.is_set()
    held.go.set()
    thread.join()
    stopping.join()
    assert answers[0].status_code == 200
    assert closed.is_set()
    assert held.keeper.coordinator.standing().requests == 1


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
    keeper = small_keeper()

    def fail(*_: Any) -> Any:
        raise error

    vars(keeper)["retrieve"] = fail
    with running(keeper) as service, caplog.at_level(logging.INFO):
        answer = httpx.post(f"{service.url}/v1/retrieve", json=BODY, headers={"x-request-id": "r-7"})
    assert answer.status_code == status
    assert word in answer.text
    assert "secret" not in answer.text
    (record,) = [one for one in caplog.records if one.name == "fairsync.service" and one.levelno == logging.ERROR]
    line = orjson.loads(JsonLines().format(record))
    assert (line["request_id"], line["status"]) == ("r-7", status)
    assert str(error) in line["trace"]


def test_a_look_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, looks = small_keeper(), []

    def look() -> None:
        looks.append(1)
        raise FairSyncError("the ledger is away")

    vars(keeper)["look"] = look
    monkeypatch.setattr("fairsync.service.app._LOOK_SECONDS", 0.02)
    with running(keeper) as service:
        until(lambda: len(looks) > 2)
        assert httpx.get(f"{service.url}/health").status_code == 200


def test_many_callers_at_once_each_get_their_own() -> None:
    users = np.random.default_rng(1).normal(size=(200, 8))
    keeper = small_keeper()
    expected = np.argsort(-(users @ keeper.catalog.embeddings.T.astype(np.float64)), axis=1)[:, :3]
    with running(keeper) as service:
        found: dict[int, Any] = {}

        def call(start: int) -> None:
            with httpx.Client(base_url=service.url) as http:
                for i in range(start, 200, 8):
                    answer = http.post("/v1/retrieve", json={"vectors": [users[i].tolist()]})
                    found[i] = answer.json()["answers"][0]["ids"]

        threads = [threading.Thread(target=call, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found[i] for i in range(200)] == expected.tolist()
    assert keeper.overview().requests == 200
