"""The client: numpy in, candidates out, and patience with a service that is busy or away."""

from __future__ import annotations

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.service.client import AccessError, AsyncClient, Client, RefusedError
from fairsync.service.schema import ImpressionReport, PromiseRecord, WindowRecord
from service.running import TOKENS, Running, make_settings, running, small_catalog, small_service

if TYPE_CHECKING:
    from collections.abc import Iterator

USERS = np.random.default_rng(3).normal(size=(6, 2, 8))
PROMISE = PromiseRecord(group="wine", floor=50, window=WindowRecord(every="day"))


@pytest.fixture
def service() -> Iterator[Running]:
    with running(small_service()) as one:
        yield one


def test_candidates_are_those_of_the_library(service: Running) -> None:
    promise_service = small_service()
    found = FrontEnd(promise_service.catalog, promise_service.coordinator).retrieve(USERS)
    with Client(service.url) as client:
        told = client.retrieve(USERS)
        assert told.ids.tolist() == found.ids.tolist()
        assert told.groups.tolist() == found.groups.tolist()
        np.testing.assert_array_equal(told.relevance, found.relevance)
        assert not told.degraded
        assert len(set(told.request_ids)) == 6
        again = client.retrieve(USERS, request_ids=told.request_ids)
        assert again.ids.tolist() == told.ids.tolist()
        assert client.overview().requests == 6
        assert client.retrieve(USERS.astype(np.float32), k=2).ids.shape == (6, 2)


def test_every_call_has_its_method(service: Running) -> None:
    with Client(service.url) as client:
        assert client.ready()
        assert client.preview(PROMISE).feasible
        made = client.make_promise(PROMISE)
        assert client.change_promise(made.id, PROMISE.model_copy(update={"floor": 60})).floor == 60
        found = client.retrieve(USERS)
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


def test_the_same_can_be_awaited(service: Running) -> None:
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


def test_refusals_are_errors_with_the_reason(service: Running) -> None:
    with Client(service.url) as client:
        with pytest.raises(RefusedError, match=r"7 dimensions.*8") as refused:
            client.retrieve(np.ones((1, 7)))
        assert (refused.value.status, refused.value.error) == (422, "invalid")
        with pytest.raises(RefusedError, match="cannot be met") as refused:
            client.make_promise(PROMISE.model_copy(update={"floor": 10**9}))
        assert refused.value.status == 409
        with pytest.raises(RefusedError, match="nothing"):
            client.pace("nothing")
        with pytest.raises(InvalidInputError, match="users must be"):
            client.retrieve(np.ones(8))


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


def test_a_busy_service_is_asked_again_and_counts_once() -> None:
    """One request may wait at a time, and the search is slow: most calls are turned away at first."""
    promise_service = small_service()
    retrieve = promise_service.retrieve

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.02)
        return retrieve(*arguments)

    vars(promise_service)["retrieve"] = slowly
    with running(promise_service, make_settings({"max_waiting": 1})) as service:

        async def work() -> Any:
            async with AsyncClient(service.url, attempts=30) as client:
                return await asyncio.gather(*(client.retrieve(USERS[i : i + 1]) for i in range(6)))

        found = asyncio.run(work())
        assert all(one.ids.shape == (1, 3) for one in found)
        assert promise_service.overview().requests == 6
        with Client(service.url) as client:
            text = client._http.get("/metrics").text
            assert 'path="/v1/retrieve",status="503"' in text


class Refusing(BaseHTTPRequestHandler):
    """Refuses the first calls, and notes when each came."""

    statuses: ClassVar[list[int]] = []
    pause: ClassVar[str] = "1"
    came: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        self.came.append(time.monotonic())
        status = self.statuses.pop(0) if self.statuses else 200
        body = b"[]" if status == 200 else b'{"error": "busy", "message": "Not now.", "hint": "Later."}'
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if status != 200:
            self.send_header("retry-after", self.pause)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    Refusing.statuses, Refusing.pause, Refusing.came = [], "1", []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [429, 503])
def test_the_client_comes_again_when_it_was_told_to(refusing: str, status: int) -> None:
    Refusing.statuses = [status]
    with Client(refusing, timeout=5) as client:
        assert client.promises() == []
    first, second = Refusing.came
    assert 1.0 <= second - first < 2.0


def test_the_client_does_not_wait_beyond_its_time(refusing: str) -> None:
    Refusing.statuses, Refusing.pause = [429] * 9, "30"
    start = time.monotonic()
    with Client(refusing, timeout=5) as client, pytest.raises(BackendUnavailableError, match="Not now"):
        client.promises()
    assert time.monotonic() - start < 1, "it would be asked to wait for longer than it may"
    Refusing.statuses, Refusing.pause, Refusing.came = [503] * 9, "1", []
    start = time.monotonic()
    with Client(refusing, timeout=2.0, attempts=50) as client, pytest.raises(BackendUnavailableError, match="Not now"):
        client.promises()
    assert time.monotonic() - start < 2.1


def test_a_service_that_comes_back_is_waited_for() -> None:
    first = Running(small_service(), make_settings())
    first.start()
    port, url = first.port, first.url
    first.stop()
    second = Running(small_service(), make_settings())
    second.server.config.port = port
    threading.Timer(0.3, second.start).start()
    with Client(url, attempts=12) as client:
        assert client.retrieve(USERS).ids.shape == (6, 3)
    second.stop()
    with Client(url, attempts=2) as client, pytest.raises(BackendUnavailableError, match="is it running"):
        client.overview()
