"""Rate limits, and fair shares of the service without them."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from fairsync.service.server.problems import Problem
from fairsync.service.server.rate_limit import RateLimiter
from fairsync.service.settings import parse_settings
from service.running import Running, running, small_service
from service.server.held_search import BODY

if TYPE_CHECKING:
    from fairsync.service.promises.promise_service import PromiseService


def test_a_token_may_ask_for_so_much() -> None:
    now = 0.0
    limiter = RateLimiter(4, lambda: now)
    spent, pauses = 0, []
    for step in range(400):  # ten seconds, ten times as many as it may
        now = step / 40
        try:
            limiter.hit()
            spent += 1
        except Problem as refused:
            pauses.append((refused.status, refused.headers["retry-after"]))
    assert set(pauses) == {(429, "1")}
    assert spent in range(4 * 10 + 8, 4 * 10 + 8 + 3), "so many a second, and two seconds' worth saved up"


def test_a_large_call_is_paid_for_afterwards() -> None:
    now = 0.0
    limiter = RateLimiter(10, lambda: now)
    limiter.hit()
    limiter.charge(99)
    with pytest.raises(Problem) as refused:
        limiter.hit()
    assert refused.value.headers == {"retry-after": "8"}
    now = 8.01
    limiter.hit()


def with_tokens(monkeypatch: pytest.MonkeyPatch, http: dict[str, Any], **limits: float) -> Any:
    """Return settings with a token for each name, limited where that is said."""
    tokens = []
    for name in ("flood", "other"):
        monkeypatch.setenv(f"TEST_{name.upper()}", f"{name}-token-that-is-long")
        limit = {"per_second": limits[name]} if name in limits else {}
        tokens.append({"name": name, "roles": ["retrieve"], "env": f"TEST_{name.upper()}", **limit})
    given = {"catalog": {"path": "unused"}, "ledger": "memory://", "tokens": tokens}
    return parse_settings({**given, "http": {"port": 0, "log": "problems", "request_seconds": 60.0, **http}})


def ask_on(service: Running, name: str, end: float, pause: float, tally: list[int]) -> None:
    """Send requests on one connection until the time is up; note their statuses."""
    body = msgspec.json.encode(BODY)
    call = (
        f"POST /v1/retrieve HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {name}-token-that-is-long\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection(("127.0.0.1", service.port)) as line:
        while time.monotonic() < end:
            line.sendall(call)
            answer = b""
            while not answer.endswith(b"}"):
                answer += line.recv(65_536)
            tally.append(int(answer[9:12]))
            time.sleep(pause)


def flood_and_other(service: Running, seconds: float) -> tuple[Counter[int], Counter[int]]:
    """Have one token ask on 24 connections without a pause, and another every 20 ms; return the statuses of both."""
    end = time.monotonic() + seconds
    flood: list[int] = []
    other: list[int] = []
    threads = [threading.Thread(target=ask_on, args=(service, "flood", end, 0.001, flood)) for _ in range(24)]
    threads.append(threading.Thread(target=ask_on, args=(service, "other", end, 0.02, other)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(flood), Counter(other)


def slow_service(seconds: float) -> PromiseService:
    """Return a promise service that takes this long per request."""
    promise_service = small_service()
    plain = promise_service.retrieve

    def retrieve(users: Any, request_ids: Any, k: Any, deliver: Any, **options: Any) -> Any:
        time.sleep(seconds * len(users))
        return plain(users, request_ids, k, deliver, **options)

    vars(promise_service)["retrieve"] = retrieve
    return promise_service


def test_beyond_its_limit_a_token_is_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"authorization": "Bearer flood-token-that-is-long"}
    with (
        running(small_service(), with_tokens(monkeypatch, {}, flood=1.0)) as service,
        httpx.Client(base_url=service.url, headers=headers, timeout=60) as http,
    ):
        many = http.post("/v1/retrieve", json={"vectors": [[1.0] * 8] * 30})
        again = http.post("/v1/retrieve", json=BODY)
        assert (many.status_code, again.status_code, again.json()["error"]) == (200, 429, "too_many")
        assert 1 <= int(again.headers["retry-after"]) <= 28, "30 seconds' worth, of which 2 were saved up"
        assert http.get("/health").status_code == 200
        assert "429" in http.get("/openapi.json").json()["paths"]["/v1/retrieve"]["post"]["responses"]


@pytest.mark.parametrize(("explain", "counted"), [(False, 3), (True, 6)])
def test_an_explained_request_counts_twice(monkeypatch: pytest.MonkeyPatch, explain: bool, counted: int) -> None:
    with (
        running(small_service(), with_tokens(monkeypatch, {}, flood=0.001)) as service,
        httpx.Client(
            base_url=service.url, headers={"authorization": "Bearer flood-token-that-is-long"}, timeout=60
        ) as http,
    ):
        answered = http.post("/v1/retrieve", json={"vectors": [[1.0] * 8] * 3, "explain": explain})
        again = http.post("/v1/retrieve", json=BODY)
        assert (answered.status_code, again.status_code) == (200, 429)
        assert round(int(again.headers["retry-after"]) / 1000) == counted, "1,000 seconds for each request"


def test_a_flood_is_held_at_its_limit_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.monotonic()
    with running(slow_service(0.002), with_tokens(monkeypatch, {}, flood=5.0)) as service:
        flood, other = flood_and_other(service, 1.2)
    assert set(other) == {200}
    assert flood[200] <= 5 * (2 + time.monotonic() - start) + 1
    assert flood[429] > 0


def test_a_flood_without_a_limit_does_not_starve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flood always has as much waiting as it may, and each batch takes 40 ms."""
    settings = with_tokens(monkeypatch, {"max_waiting": 16, "max_batch": 8})
    with running(slow_service(0.005), settings) as service:
        flood, other = flood_and_other(service, 1.2)
    assert set(other) == {200}
    assert flood[503] > 0
