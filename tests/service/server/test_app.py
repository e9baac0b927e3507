"""The API over a real port: what it answers is what the library answers."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import numpy as np
import pytest

from fairsync.errors import FairSyncError
from fairsync.service.schema import NumberArray, RetrieveColumns, RetrieveRequest
from fairsync.service.server.json_logging import JsonFormatter
from service.running import Running, make_settings, running, small_catalog, small_service
from service.server.held_search import Held, post, until

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = {"every": "day", "zone": "Europe/Berlin"}
RNG = np.random.default_rng(0)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with running(small_service()) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


def best(users: Any, k: int = 3) -> Any:
    """Return the most relevant items by the plainest search, for (n, interests, d) users."""
    scores = np.einsum("nid,md->nim", users, small_catalog().embeddings.astype(np.float64)).max(axis=1)
    return np.argsort(-scores, axis=1)[:, :k], -np.sort(-scores, axis=1)[:, :k]


def test_json_gets_the_best_items(http: httpx.Client) -> None:
    users = RNG.normal(size=(5, 8))
    told = http.post("/v1/retrieve", json={"vectors": users.tolist()}).json()["answers"]
    ids, relevance = best(users[:, None])
    assert [one["ids"] for one in told] == ids.tolist()
    np.testing.assert_allclose([one["relevance"] for one in told], relevance, rtol=1e-12)
    assert {(one["request_id"], one["searched"], one["degraded"]) for one in told} == {(None, 1.0, False)}
    assert told[0]["groups"] == [["books", "toys", "wine"][item // 20] for item in told[0]["ids"]]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_msgpack_gets_the_same(http: httpx.Client, dtype: str) -> None:
    users = RNG.normal(size=(4, 2, 8)).astype(dtype)
    body = msgspec.msgpack.encode(RetrieveRequest(vectors=NumberArray.of(users), k=2))
    answer = http.post("/v1/retrieve", content=body, headers={"content-type": "application/msgpack"})
    found = msgspec.msgpack.decode(answer.content, type=RetrieveColumns)
    assert answer.headers["content-type"] == "application/msgpack"
    assert isinstance(found.ids, NumberArray)
    assert isinstance(found.relevance, NumberArray)
    assert found.ids.to_numpy().tolist() == best(users.astype(np.float64), 2)[0].tolist()
    assert found.request_ids == [None] * 4
    told = http.post("/v1/retrieve", json={"vectors": users.tolist(), "k": 2}).json()["answers"]
    assert [one["ids"] for one in told] == found.ids.to_numpy().tolist()
    assert isinstance(found.relevance, NumberArray)
    assert [one["relevance"] for one in told] == found.relevance.to_numpy().tolist()


def test_a_request_that_comes_again_is_counted_once(http: httpx.Client) -> None:
    body = {"vectors": RNG.normal(size=(2, 8)).tolist(), "request_ids": ["a", "b"]}
    first, second = (http.post("/v1/retrieve", json=body).json() for _ in range(2))
    assert first == second
    assert http.get("/v1/overview").json()["requests"] == 2


def test_a_promise_is_made_kept_changed_and_ended(http: httpx.Client) -> None:
    promise = {"group": "wine", "floor": 50, "window": DAY}
    made = http.post("/v1/promises", json=promise)
    assert made.status_code == 201
    name = made.json()["id"]
    for _ in range(10):
        http.post("/v1/retrieve", json={"vectors": RNG.normal(size=(20, 8)).tolist()})
    (view,) = http.get("/v1/promises").json()
    groups = {one["group"]: one["retrieved"] for one in http.get("/v1/groups").json()}
    assert view["exposures"] == groups["wine"]
    assert sum(groups.values()) == 600
    assert http.get(f"/v1/promises/{name}/pace").json()["floor"] == 50
    assert http.put(f"/v1/promises/{name}", json={**promise, "floor": 60}).json()["floor"] == 60
    assert http.get("/v1/report").json()["promises"] == 1
    assert http.delete(f"/v1/promises/{name}").status_code == 204
    assert http.get("/v1/promises").json() == []
    for method, path in (("GET", "/pace"), ("PUT", ""), ("DELETE", "")):
        gone = http.request(method, f"/v1/promises/{name}{path}", json=promise if method == "PUT" else None)
        assert (gone.status_code, gone.json()["error"]) == (404, "not_found")


def test_a_campaign_is_given_by_its_days_or_by_moments(http: httpx.Client) -> None:
    def send(start: str, end: str) -> httpx.Response:
        window = {"every": "campaign", "zone": "Europe/Berlin", "start": start, "end": end}
        return http.post("/v1/promises/preview", json={"group": "wine", "floor": 1, "window": window})

    assert send("2099-03-28", "2099-03-29").json()["feasible"]
    refused = send("2099-03-28T10:00:00", "2099-03-29")
    assert refused.status_code == 422
    assert refused.json()["message"].startswith("start is 2099-03-28T10:00:00 without its offset from UTC")
    assert "2099-03-28T10:00:00+01:00" in refused.json()["message"]
    for start, end in (("2099-03-30", "2099-03-29"), ("9999-12-31", "9999-12-31"), ("0001-01-01", "0001-01-01")):
        assert send(start, end).status_code == 422


def test_a_promise_that_cannot_be_kept_is_refused_with_what_could(http: httpx.Client) -> None:
    promise = {"group": "wine", "floor": 10_000_000, "window": DAY}
    refused = http.post("/v1/promises", json=promise)
    preview = http.post("/v1/promises/preview", json=promise).json()
    assert refused.status_code == 409
    assert refused.headers["content-type"] == "application/problem+json"
    assert not preview["feasible"]
    assert f"{preview['largest']:,}" in refused.json()["message"]
    assert http.post("/v1/promises", json={**promise, "floor": preview["largest"]}).status_code == 201


def test_reports_of_what_was_shown_count_once(http: httpx.Client) -> None:
    answer = http.post("/v1/retrieve", json={"vectors": [[1.0] * 8], "request_ids": ["visit"]}).json()["answers"][0]
    report = {"request_id": "visit", "items": answer["ids"][:2]}
    counted = [http.post("/v1/impressions", json={"reports": [report]}).json() for _ in range(2)]
    assert [one["counted"] for one in counted] == [2, 0]
    assert [one["repeated"] for one in counted] == [0, 1]
    assert sum(one["impressions"] for one in http.get("/v1/groups").json()) == 2


def test_items_come_and_go(http: httpx.Client) -> None:
    giant = [[9.0] * 8]
    assert http.put("/v1/items", json={"ids": [99], "groups": ["new"], "embeddings": giant}).json() == {"items": 61}
    ask = {"vectors": [[1.0] * 8], "k": 1}
    assert http.post("/v1/retrieve", json=ask).json()["answers"][0] | {"relevance": 0} == {
        "request_id": None, "ids": [99], "groups": ["new"], "relevance": 0, "searched": 1.0, "degraded": False,
        "short": False, "unknown_excluded": 0, "cold": False,
    }  # fmt: skip
    assert http.request("DELETE", "/v1/items", json={"ids": [99]}).json() == {"items": 60}
    assert http.post("/v1/retrieve", json=ask).json()["answers"][0]["ids"] != [99]


def test_metrics_are_those_of_the_overview(http: httpx.Client) -> None:
    http.post("/v1/retrieve", json={"vectors": [*RNG.normal(size=(5, 8)).tolist(), [0.0] * 8, [0.0] * 8]})
    answer = http.get("/metrics")
    lines = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert answer.headers["content-type"].startswith("text/plain")
    for group in http.get("/v1/groups").json():
        assert float(lines[f'fairsync_group_retrieved{{group="{group["group"]}"}}']) == group["retrieved"]
    assert float(lines["fairsync_requests"]) == 7
    assert float(lines["fairsync_batch_requests_sum"]) == 7
    assert float(lines["fairsync_cold_requests_total"]) == 2
    assert float(lines["fairsync_limited_requests_total"]) == 0
    assert float(lines['fairsync_calls_total{method="POST",path="/v1/retrieve",status="200"}']) == 1


def test_metrics_have_no_name_of_thousands_of_labels(http: httpx.Client) -> None:
    ids = list(range(50))
    made = [
        {"where": {"id": ids[:number]}, "at_most": 50, "window": {"every": "day", "zone": "UTC"}} for number in (40, 50)
    ]
    for promise in made:
        assert http.post("/v1/promises", json=promise).status_code == 201
    lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith("fairsync_promise_cap{")]
    assert len({line.split('promise="')[1].split('"')[0] for line in lines}) == 2
    assert all(len(line.split('name="')[1].split('"')[0]) == 100 for line in lines)


def test_the_pages_are_there(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"ok": True, "message": "alive"}
    assert http.get("/ready").json()["ok"]
    page = http.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert http.get("/openapi.json").json()["info"]["title"] == "FairSync"


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "malformed"),
        (b"[1]", 422, "invalid"),
        (b"{}", 422, "vectors"),
        (b'{"vectors": []}', 422, "users"),
        (b'{"vectors": [[1, 2]]}', 422, "dimensions"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, "8"]]}', 422, "vectors[0][7]: Expected `float | array`, got `str`"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8], [1]]}', 422, "same length"),
        (b'{"vectors": [1, 2, 3, 4, 5, 6, 7, 8]}', 422, "vectors[0]: Expected `array`, got `int`"),
        (b'{"vectors": [[1e39, 2, 3, 4, 5, 6, 7, 8]]}', 422, "scale"),
        (b'{"vectors": [[NaN, 2, 3, 4, 5, 6, 7, 8]]}', 400, "JSON"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "k": 0}', 422, "k: Expected `int` >= 1"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "k": true}', 422, "k: Expected `int | null`, got `bool`"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "k": 61}', 422, "60 items"),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "request_ids": []}', 422, "request_ids"),
        (
            b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "request_ids": [""]}',
            422,
            "request_ids[0]: Expected `str`",
        ),
        (b'{"vectors": [[1, 2, 3, 4, 5, 6, 7, 8]], "more": 1}', 422, "more"),
        (b'{"histories": [["a"]]}', 422, "model"),
    ],
)
def test_what_is_wrong_is_said(http: httpx.Client, body: bytes, status: int, word: str) -> None:
    answer = http.post("/v1/retrieve", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) == {"error", "message", "hint"}
    assert word in answer.json()["message"] + answer.json()["error"] + answer.json()["hint"]
    assert http.get("/v1/overview").json()["requests"] == 0


def test_paths_methods_and_types_that_are_not_known(http: httpx.Client) -> None:
    assert http.get("/v1/nothing").status_code == 404
    wrong = http.patch("/v1/promises/x")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE, PUT")
    assert http.post("/v1/retrieve", content=b"x", headers={"content-type": "text/plain"}).status_code == 415


def test_bodies_that_are_too_large_are_not_read() -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(2_000):
            sent += 65_536
            yield b" " * 65_536

    with running(small_service(), make_settings({"max_body_bytes": 100_000})) as service:
        with httpx.Client(base_url=service.url, headers={"content-type": "application/json"}, timeout=60) as http:
            told = http.post("/v1/retrieve", content=b" " * 100_001)
            assert (told.status_code, told.json()["error"]) == (413, "too_large")
        with httpx.Client(base_url=service.url, headers={"content-type": "application/json"}, timeout=60) as http:
            try:
                status = http.post("/v1/impressions", content=endless()).status_code
            except httpx.TransportError:  # it was cut off while still sending
                status = 413
            assert status == 413
    assert sent < 100_000_000


@pytest.mark.parametrize(
    ("limits", "vectors", "k", "word"),
    [
        ({"max_interests": 2}, [[[1.0] * 8] * 3], 2, "2 vectors"),
        ({"max_candidates": 10}, [[1.0] * 8] * 4, 3, "10 candidates, got 12"),
        ({"max_candidates": 10}, [[1.0] * 8] * 4, None, "10 candidates, got 12"),
        ({"max_users": 3}, [[1.0] * 8] * 4, 1, "1 to 3 users"),
    ],
)
def test_what_one_call_may_ask_for_has_limits(limits: dict[str, int], vectors: Any, k: int | None, word: str) -> None:
    settings = make_settings(limits, promise={"k": 3})
    with running(small_service(), settings) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        answer = http.post("/v1/retrieve", json={"vectors": vectors, "k": k})
        assert (answer.status_code, answer.json()["error"]) == (422, "invalid")
        assert word in answer.json()["message"]
        assert http.post("/v1/retrieve", json={"vectors": [[[1.0] * 8] * 2], "k": 3}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/impressions", "/v1/promises"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"reports": 1' + b"0" * 5_000 + b"}",
        b'{"group": "\\ud800"}',
        b'{"where": {"category": ' + b"[" * 700 + b"]" * 700 + b'}, "at_least": 5, "window": {"every": "day"}}',
        b"\xff\xfe{}",
    ],
)
def test_json_that_is_meant_badly_is_refused(http: httpx.Client, path: str, body: bytes) -> None:
    answer = http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_what_a_page_elsewhere_may_send_unasked_changes_nothing(http: httpx.Client, kind: str | None) -> None:
    """Browsers send these types to any address, from any page."""
    body = b'{"group": "wine", "floor": 5, "window": {"every": "day"}}'
    headers = {} if kind is None else {"content-type": kind}
    assert http.post("/v1/promises", content=body, headers=headers).status_code in (400, 415, 422)
    assert http.get("/v1/promises").json() == []


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/../v1/overview",
        "/dashboard/%2e%2e/v1/overview",
        "/dashboard/..%2f..%2fpyproject.toml",
        "/dashboard//",
    ],
)
def test_no_path_leads_out_of_the_dashboard(http: httpx.Client, path: str) -> None:
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        assert b" 404 " in line.recv(1000)


def test_nothing_can_be_put_into_headers_or_logs(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("INFO"),
        socket.create_connection((http.base_url.host, http.base_url.port or 80)) as line,
    ):
        line.sendall(
            b"GET /v1/%0d%0aset-cookie:%20a=b%0a{} HTTP/1.1\r\nhost: localhost\r\nx-request-id: a\tb\r\n"
            b"connection: close\r\n\r\n"
        )
        answer = line.recv(2000)
        until(lambda: any(record.name == "fairsync.service" for record in caplog.records))
    assert b" 404 " in answer
    assert b"set-cookie" not in answer.lower().partition(b"\r\n\r\n")[0]
    lines = [JsonFormatter().format(record) for record in caplog.records if record.name == "fairsync.service"]
    assert len(lines) == 1
    assert "\n" not in lines[0]


def test_the_end_waits_for_what_is_in_flight() -> None:
    held = Held()
    service = Running(held.promise_service, make_settings())
    service.start()
    answers: list[httpx.Response] = []
    thread = post(service, answers)
    assert held.entered.wait(240)
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


def test_who_is_cut_off_at_the_end_hears_why() -> None:
    held = Held()
    service = Running(held.promise_service, make_settings())
    service.server.config.timeout_graceful_shutdown = 1
    service.start()
    answers: list[httpx.Response] = []
    thread = post(service, answers)
    assert held.entered.wait(240)
    stopping = threading.Thread(target=service.stop)
    stopping.start()
    thread.join()
    held.go.set()
    stopping.join()
    assert (answers[0].status_code, answers[0].json()["error"]) == (503, "stopping")


def test_a_refresh_that_fails_is_retried() -> None:
    promise_service, refreshes = small_service(), []

    def refresh() -> None:
        refreshes.append(1)
        raise FairSyncError("the ledger is away")

    vars(promise_service)["refresh"] = refresh
    with running(promise_service, refresh_seconds=0.02) as service:
        until(lambda: len(refreshes) > 2)
        assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200
