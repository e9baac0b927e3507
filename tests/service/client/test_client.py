"""Both clients against a real service, and their retries against a busy one."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import httpx
import numpy as np
import pytest
from msgspec.structs import replace

from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.service.client import AccessError, AsyncClient, Client, RefusedError
from fairsync.service.schema import ImpressionReport, PromiseRecord, WindowRecord
from service.running import TOKENS, Running, make_settings, running, shop_catalog, small_catalog, small_service
from service.service_process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairsync.service.schema import PromiseView

USERS = np.random.default_rng(3).normal(size=(6, 2, 8))
PROMISE = PromiseRecord(group="wine", floor=50, window=WindowRecord(every="day"))


@pytest.fixture
def service() -> Iterator[Running]:
    with running(small_service()) as one:
        yield one


def test_the_candidates_are_those_of_the_library(service: Running) -> None:
    promise_service = small_service()
    found = FrontEnd(promise_service.catalog, promise_service.coordinator).retrieve(USERS)
    with Client(service.url) as client:
        answer = client.retrieve(USERS)
        assert answer.ids.tolist() == found.ids.tolist()
        assert answer.groups.tolist() == found.groups.tolist()
        np.testing.assert_array_equal(answer.relevance, found.relevance)
        assert not answer.degraded
        assert len(set(answer.request_ids)) == 6
        again = client.retrieve(USERS, request_ids=answer.request_ids)
        assert again.ids.tolist() == answer.ids.tolist()
        assert client.overview().requests == 6
        assert client.retrieve(USERS.astype(np.float32), k=2).ids.shape == (6, 2)


def test_every_endpoint_has_a_method(service: Running) -> None:
    with Client(service.url) as client:
        assert client.ready()
        assert client.preview(PROMISE).feasible
        made = client.make_promise(PROMISE)
        assert client.change_promise(made.id, replace(PROMISE, floor=60)).floor == 60
        found = client.retrieve(USERS)
        assert repr(found).startswith(f"Retrieved({len(USERS)} requests, k = ")
        impressions = client.impressions(
            [ImpressionReport(request_id=found.request_ids[0], items=found.ids[0].tolist())]
        )
        assert impressions.counted == 3
        assert [view.id for view in client.promises()] == [made.id]
        assert client.pace(made.id).floor == 60
        assert sum(group.retrieved for group in client.groups()) == 18
        assert client.past() == []
        assert client.report().promises == 1
        client.delete_promise(made.id)
        assert client.upsert_items(np.ones((1, 8)), ["wine"], [100]) == 61
        assert client.remove_items([100]) == 60


def test_the_async_client_has_the_same_methods(service: Running) -> None:
    async def work() -> Any:
        async with AsyncClient(service.url) as client:
            found = await asyncio.gather(*(client.retrieve(USERS[i : i + 1]) for i in range(6)))
            made = await client.make_promise(PROMISE)
            await client.delete_promise(made.id)
            return found, await client.overview()

    found, overview = asyncio.run(work())
    scores = (USERS @ small_catalog().embeddings.T.astype(np.float64)).max(axis=1)
    assert [one.ids[0].tolist() for one in found] == np.argsort(-scores, axis=1)[:, :3].tolist()
    assert overview.requests == 6


def test_a_refused_call_is_an_error_with_the_reason(service: Running) -> None:
    with Client(service.url) as client:
        with pytest.raises(RefusedError, match=r"7 dimensions.*8") as refused:
            client.retrieve(np.ones((1, 7)))
        assert (refused.value.status, refused.value.error) == (422, "invalid")
        with pytest.raises(RefusedError, match="cannot be kept") as refused:
            client.make_promise(replace(PROMISE, floor=10**9))
        assert refused.value.status == 409
        with pytest.raises(RefusedError, match="nothing"):
            client.pace("nothing")
        with pytest.raises(InvalidInputError, match="users must be"):
            client.retrieve(np.float64(8))
        assert client.retrieve(np.ones(8)).ids.tolist() == client.retrieve(np.ones((1, 8))).ids.tolist()
    for url in ("localhost:8080", None):
        with pytest.raises(InvalidInputError, match="begins with http://"):
            Client(url)  # type: ignore[arg-type]


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for role, token in TOKENS.items():
        monkeypatch.setenv(f"TEST_{role.upper()}", token)
    with running(small_service(), make_settings(tokens=True)) as service:
        with Client(service.url, TOKENS["retrieve"]) as client:
            assert client.retrieve(USERS).ids.shape == (6, 3)
            with pytest.raises(AccessError, match="'report'"):
                client.overview()
        with Client(service.url) as client, pytest.raises(AccessError, match="token"):
            client.retrieve(USERS)


def test_a_busy_service_is_retried_and_counts_each_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request may wait, and the search does not answer before another request was rejected."""
    promise_service, released = small_service(), threading.Event()
    retrieve = promise_service.retrieve

    def retrieve_when_released(*arguments: Any, **options: Any) -> Any:
        released.wait(60)
        return retrieve(*arguments, **options)

    monkeypatch.setattr(promise_service, "retrieve", retrieve_when_released)
    with running(promise_service, make_settings({"max_waiting": 1})) as service:

        async def work() -> Any:
            async with (
                AsyncClient(service.url, timeout=60, attempts=99) as client,
                httpx.AsyncClient(timeout=60) as http,
            ):
                calls = asyncio.gather(*(client.retrieve(USERS[i : i + 1]) for i in range(6)))
                async with asyncio.timeout(60):
                    while 'path="/v1/retrieve",status="503"' not in (await http.get(f"{service.url}/metrics")).text:
                        await asyncio.sleep(0.01)
                released.set()
                return await calls

        found = asyncio.run(work())
        assert all(one.ids.shape == (1, 3) for one in found)
        assert promise_service.overview().requests == 6


class BusyHandler(BaseHTTPRequestHandler):
    """Answers with the statuses of a list, then with 200, and records the time of each call."""

    statuses: ClassVar[list[int]] = []
    calls: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        self.calls.append(time.monotonic())
        status = self.statuses.pop(0) if self.statuses else 200
        body = b"[]" if status == 200 else b'{"error": "busy", "message": "Not now.", "hint": "Later."}'
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if status != 200:
            self.send_header("retry-after", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Do not log."""


@contextmanager
def busy_server(port: int = 0, statuses: Sequence[int] = ()) -> Iterator[str]:
    """Run a server that is busy at first; yields its URL."""
    BusyHandler.statuses, BusyHandler.calls = list(statuses), []
    with ThreadingHTTPServer(("127.0.0.1", port), BusyHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [429, 503])
def test_a_call_is_retried_after_the_time_that_the_service_asks_for(status: int) -> None:
    with busy_server(statuses=[status]) as url, Client(url, timeout=60) as client:
        assert client.promises() == []
    first, second = BusyHandler.calls
    assert second - first >= 1.0


def test_a_call_fails_after_its_last_attempt() -> None:
    with (
        busy_server(statuses=[429] * 9) as url,
        Client(url, attempts=1) as client,
        pytest.raises(BackendUnavailableError, match="Not now"),
    ):
        client.promises()
    assert len(BusyHandler.calls) == 1


def test_a_call_is_retried_until_the_service_is_up() -> None:
    port, tried = free_port(), threading.Event()

    def call() -> list[PromiseView]:
        with Client(f"http://127.0.0.1:{port}", timeout=60) as client:
            tried.set()
            return client.promises()

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(call)
        tried.wait()
        with busy_server(port):
            assert answer.result() == []
    with (
        Client(f"http://127.0.0.1:{port}", timeout=0.5) as client,
        pytest.raises(BackendUnavailableError, match="is it running"),
    ):
        client.overview()


def test_numpy_values_are_sent_as_plain_ones() -> None:
    with running(small_service(catalog=shop_catalog())) as service, Client(service.url) as client:
        users = USERS[:2]

        def same(given: dict[str, Any], plain: dict[str, Any]) -> None:
            found, expected = client.retrieve(users, **given), client.retrieve(users, **plain)
            assert found.ids.tolist() == expected.ids.tolist()

        same({"k": np.int64(2), "explain": np.True_}, {"k": 2, "explain": True})
        same({"where": {"price": {"at_most": np.float64(20.5)}}}, {"where": {"price": {"at_most": 20.5}}})
        same({"where": {"category": np.str_("wine")}}, {"where": {"category": "wine"}})
        same({"where": {np.str_("in_stock"): np.True_}}, {"where": {"in_stock": True}})
        same({"where": {"region": np.array(["DE", "AT"])}}, {"where": {"region": ["DE", "AT"]}})
        same(
            {"where": [{"price": {"at_least": np.float32(0.1)}}, None]}, {"where": [{"price": {"at_least": 0.1}}, None]}
        )
        same({"exclude": np.array([["i1"], ["i2"]])}, {"exclude": [["i1"], ["i2"]]})
        same({"exclude": [None, ["i2", np.str_("i3")]]}, {"exclude": [[], ["i2", "i3"]]})
        named = client.retrieve(users, request_ids=np.array(["a", "b"]))
        assert named.request_ids == ["a", "b"]
        shown = ImpressionReport(request_id=named.request_ids[0], items=named.ids[0])
        assert client.impressions([shown]).counted == 3
        day = WindowRecord(every="day")
        where = {"region": np.str_("AT"), "category": np.array(["wine", "toys"])}
        numbers: dict[str, Any] = {"at_least": np.int64(10), "priority": np.int64(2)}
        made = client.make_promise(PromiseRecord(where=where, window=day, **numbers))
        assert (made.where, made.at_least, made.priority) == ({"region": "AT", "category": ["wine", "toys"]}, 10, 2)
        share: Any = np.float32(0.1)
        assert client.preview(PromiseRecord(where={}, at_least=share, window=day)).feasible
        number: Any = np.int64(1)
        assert client.lease(number).requests == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"where": {"group": object()}}, "cannot be sent"),
        ({"where": {"group": 2**70}}, "cannot be sent"),
        ({"k": 1j}, "cannot be sent"),
        ({"exclude": "i1"}, "exclude must be a list"),
        ({"exclude": ["i1"] * 6}, "exclude must have a list of ids for each user, got 'i1'"),
        ({"exclude": [[1]]}, "there are 6 requests, and exclude has 1"),
        ({"where": "wine"}, "where must be a dict"),
        ({"request_ids": ["a"]}, "6 requests, and 1 request_ids"),
    ],
)
def test_values_that_cannot_be_sent_are_refused_by_the_client(wrong: dict[str, Any], words: str) -> None:
    with Client("http://localhost:1") as client, pytest.raises(InvalidInputError, match=words):
        client.retrieve(USERS, **wrong)


def test_a_closed_client_says_so(service: Running) -> None:
    client = Client(service.url)
    assert client.ready()
    client.close()
    with pytest.raises(FairSyncError, match="The client is closed: make another one"):
        client.retrieve(USERS)

    async def work() -> None:
        other = AsyncClient(service.url)
        await other.close()
        await other.ready()

    with pytest.raises(FairSyncError, match="The client is closed"):
        asyncio.run(work())
    with pytest.raises(InvalidInputError, match="is no URL"):
        Client("http://[::1")


def test_an_answer_that_is_not_from_the_service_is_an_error_of_the_backend() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Sign in</html>")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with (
                Client(f"http://127.0.0.1:{server.server_port}", attempts=1) as client,
                pytest.raises(BackendUnavailableError, match=r"GET /v1/promises cannot be read.*FairSync service"),
            ):
                client.promises()
        finally:
            server.shutdown()


def test_mistakes_are_told_with_the_remedy_and_without_hints_for_http(service: Running) -> None:
    day = WindowRecord(every="day")
    for given, words in (
        ({"where": {}, "window": day}, "needs a bound"),
        (
            {"where": {}, "at_least": 5.0, "window": day},
            r"at_least is 5.0: a share .* whole number, such as 5, without",
        ),
        (
            {"where": {}, "at_most": np.float64(1.5), "window": day},
            r"at_most is 1.5: a share of all slots is at most 1",
        ),
    ):
        with pytest.raises(InvalidInputError, match=words):
            PromiseRecord(**given)  # type: ignore[arg-type]
    with Client(service.url) as client:
        with pytest.raises(RefusedError, match=r"use 'hour', 'day', 'week' or 'campaign'\.$"):
            client.preview(replace(PROMISE, window=WindowRecord(every="month")))  # type: ignore[arg-type]
        with pytest.raises(RefusedError, match=r"its labels are 'books', 'toys', 'wine'\.$"):
            client.statement("group", "wines", "2026-11")
    body = {"where": {}, "at_least": 5.0, "window": {"every": "day"}}
    answer = httpx.post(f"{service.url}/v1/promises", json=body, timeout=60)
    assert answer.status_code == 422
    assert "a share of all slots is at most 1.0, and a number of exposures is a whole number, such as 5" in answer.text
    assert "/openapi.json" in answer.json()["hint"]
