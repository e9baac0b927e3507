"""The readiness probe: it reports a failure as soon as there is one, and recovery as soon as it is over."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError, UnusableLedgerError
from fairsync.ledger import MemoryLedger
from fairsync.schedule import Forecast
from fairsync.service.client import Client
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.readiness import Readiness
from fairsync.service.schema import ShardView
from service.running import make_settings, running, small_catalog, small_service

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"vectors": [[1.0] * 8]}


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def shard(*, up: bool) -> ShardView:
    return ShardView(shard=0, replica=0, items=10, up=up)


def test_it_is_not_ready_without_a_recent_check() -> None:
    now = 100.0
    readiness = Readiness(MemoryLedger(1), lambda: now)
    now += 5
    assert readiness.verdict() == (True, "ready")
    now += 2
    assert readiness.verdict() == (False, "the ledger was last reached, and promises planned, 7 s ago")
    readiness.refresh([])
    assert readiness.verdict()[0]


def test_a_ledger_that_cannot_be_used_is_reported_at_once() -> None:
    ledger = MemoryLedger(1)
    readiness = Readiness(ledger)

    def load(name: str) -> bytes | None:
        raise FairSyncError("/secret/exposures.db was deleted")

    vars(ledger)["load"] = load
    with pytest.raises(FairSyncError):
        readiness.refresh([])
    assert readiness.verdict() == (False, "the ledger cannot be reached, or cannot be used")
    del vars(ledger)["load"]
    readiness.refresh([])
    assert readiness.verdict()[0]


def test_one_shard_is_enough() -> None:
    readiness = Readiness(MemoryLedger(1))
    for shards, ready in (([], True), ([shard(up=False)], False), ([shard(up=False), shard(up=True)], True)):
        readiness.refresh(shards)
        assert readiness.verdict()[0] == ready


def test_invalid_input_is_no_failure() -> None:
    readiness = Readiness(MemoryLedger(1))
    with pytest.raises(InvalidInputError), readiness.serving():
        raise InvalidInputError("k is 0")
    assert readiness.verdict()[0]
    with pytest.raises(OSError, match="full"), readiness.serving():
        raise OSError("the disk is full")
    assert not readiness.verdict()[0]
    with readiness.serving():
        pass
    assert readiness.verdict()[0]
    with pytest.raises(UnusableLedgerError), readiness.serving():
        raise UnusableLedgerError("it is damaged")
    assert not readiness.verdict()[0]
    with readiness.serving():
        pass
    assert readiness.verdict()[0]


class FullDisk(MemoryLedger):
    """A ledger that cannot be written while its disk is full."""

    is_full = False

    def record(self, entries: Any, key: Any = None, answers: Any = None) -> bool:
        self._check()
        return super().record(entries, key, answers)

    def save(self, name: str, value: bytes, audit: object = ()) -> None:
        self._check()
        super().save(name, value)

    def _check(self) -> None:
        if self.is_full:
            raise BackendUnavailableError("no space left on device")


def test_a_full_disk_is_reported_until_there_is_room() -> None:
    """Requests fail and /ready says so; it recovers by itself, although no request comes."""
    catalog = small_catalog()
    ledger = FullDisk(catalog.n_groups)
    coordinator = Coordinator(catalog, k=3, floors=0, horizon=1, batch_size=16, auto_restart=False, ledger=ledger)
    promise_service = PromiseService(FrontEnd(catalog, coordinator), coordinator, [], Forecast(rate=1.0))
    with (
        running(promise_service, refresh_seconds=0.05) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
        Client(service.url, timeout=60) as client,
    ):
        assert http.post("/v1/retrieve", json=BODY).status_code == 200
        assert client.ready()
        ledger.is_full = True
        answer = http.post("/v1/retrieve", json=BODY)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert not client.ready()
        ledger.is_full = False
        until(client.ready)
        assert http.get("/health").status_code == 200
        assert http.post("/v1/retrieve", json=BODY).status_code == 200


def test_a_ledger_out_of_reach() -> None:
    promise_service, away = small_service(), True
    promise_service.readiness.max_age = 0.3

    def kept(name: str) -> bytes | None:
        if away:
            raise BackendUnavailableError("postgresql://secret-host is away")
        return None

    vars(promise_service.coordinator.ledger)["load"] = kept
    with running(promise_service, refresh_seconds=0.02) as service:
        until(lambda: httpx.get(f"{service.url}/ready", timeout=60).status_code == 503)
        answer = httpx.get(f"{service.url}/ready", timeout=60)
        assert (answer.json()["ok"], answer.headers["retry-after"]) == (False, "1")
        assert "secret-host" not in answer.text
        assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200
        away = False
        until(lambda: httpx.get(f"{service.url}/ready", timeout=60).status_code == 200)


def test_shards_that_are_all_down() -> None:
    promise_service = small_service()
    up = False
    health: Callable[[], list[ShardView]] = lambda: [shard(up=False), shard(up=up)]  # noqa: E731
    promise_service.front.index.health = health  # type: ignore[attr-defined]
    with running(promise_service, refresh_seconds=0.02) as service:
        until(lambda: httpx.get(f"{service.url}/ready", timeout=60).status_code == 503)
        assert "shard" in httpx.get(f"{service.url}/ready", timeout=60).json()["message"]
        up = True
        until(lambda: httpx.get(f"{service.url}/ready", timeout=60).status_code == 200)


def test_a_scheduler_that_fails() -> None:
    promise_service = small_service()
    promise_service.readiness.max_age = 0.2

    def refresh() -> None:
        raise FairSyncError("no plan")

    vars(promise_service)["refresh"] = refresh
    with running(promise_service, refresh_seconds=0.02) as service:
        until(lambda: httpx.get(f"{service.url}/ready", timeout=60).status_code == 503)
        assert "planned" in httpx.get(f"{service.url}/ready", timeout=60).json()["message"]


def test_the_probe_answers_while_all_threads_are_busy() -> None:
    promise_service = small_service()
    overview, free = promise_service.overview, threading.Event()

    def stuck() -> Any:
        assert free.wait(60)
        return overview()

    vars(promise_service)["overview"] = stuck
    with running(promise_service, make_settings({"log": "problems", "request_seconds": 60})) as service:

        async def work() -> None:
            async with httpx.AsyncClient(base_url=service.url, timeout=50) as http:
                calls = [asyncio.create_task(http.get("/v1/overview")) for _ in range(80)]
                await asyncio.sleep(0.2)
                assert (await http.get("/ready")).status_code == 200
                assert not any(call.done() for call in calls)
                free.set()
                await asyncio.gather(*calls)

        asyncio.run(work())


def test_a_service_that_drains_is_not_ready() -> None:
    promise_service = small_service()
    promise_service.retrieve(np.ones((1, 8)))
    assert promise_service.ready() == (True, "ready")
    promise_service.close()
    assert promise_service.ready() == (False, "the service is being stopped")
