"""Engines that are killed, suspended or changed under load: 503 with Retry-After, and nothing is counted twice.

The engine and the service are real processes. FAIRSYNC_KILLS=20 kills each engine twenty times.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import httpx
import numpy as np
import pytest

from fairsync.ledger import SqlLedger
from fairsync.service.client import Client
from postgres_server import PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import SQLITE, ServiceProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("FAIRSYNC_KILLS", "1"))
BODY = {"vectors": [[1.0] * 8]}


class EngineServer(Protocol):
    """A server of an engine."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...


@contextmanager
def pgvector() -> Iterator[tuple[EngineServer, dict[str, str], Callable[[], object], Callable[[], object]]]:
    """Start Postgres; yield it, its settings, and what changes the table so that it does not fit, and back."""
    with PostgresServer() as server:
        server.execute("CREATE EXTENSION vector")
        yield (
            server,
            {"url": server.url},
            lambda: server.execute("ALTER TABLE items RENAME COLUMN embedding TO v"),
            lambda: server.execute("ALTER TABLE items RENAME COLUMN v TO embedding"),
        )


@contextmanager
def milvus(folder: Path) -> Iterator[tuple[EngineServer, dict[str, str], Callable[[], object], Callable[[], object]]]:
    """Start Milvus; see `pgvector`."""
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus")
    from benchmarks.milvus_server import MilvusServer

    server = MilvusServer(folder)
    try:
        server.start()
        yield server, {"url": server.uri}, lambda: None, lambda: None
    finally:
        server.kill()


def settings(engine: str, url: str) -> str:
    return f'request_seconds = 15\n{SQLITE}[search]\nengine = "{engine}"\nurl = "{url}"\ntimeout = 4.0\nupload = true\n'


def refused_call(service: ServiceProcess) -> str:
    """Make a call, which is refused and told to come back; the service is alive. Returns its request id."""
    name = uuid.uuid4().hex
    answer = httpx.post(f"{service.url}/v1/retrieve", json={**BODY, "request_ids": [name]}, timeout=60)
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    for secret in ("127.0.0.1", "postgres", "collection"):
        assert secret not in answer.text
    assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200
    return name


def answered(service: ServiceProcess, clients: RetryingClients, name: str) -> None:
    """Repeat a refused call until it is answered, as a client would, and add it to what was received."""

    with Client(service.url, attempts=200, timeout=240) as client:
        found = client.retrieve(np.ones((1, 8)), request_ids=[name])
    answer = found.ids.tolist()[0], found.groups.tolist()[0]
    assert clients.received.setdefault(name, answer) == answer


def more_received(clients: RetryingClients, requests: int) -> None:
    goal = len(clients.received) + requests
    wait_until(lambda: len(clients.received) >= goal or bool(clients.failures))


def refused_again(clients: RetryingClients) -> None:
    before = sum(clients.refused.values())
    wait_until(lambda: sum(clients.refused.values()) > before or bool(clients.failures))


@pytest.mark.parametrize("engine", ["pgvector", "milvus"])
def test_an_engine_that_is_killed_or_changed_under_load(engine: str, tmp_path: Path) -> None:
    opened = pgvector() if engine == "pgvector" else milvus(tmp_path / "milvus")
    with opened as (server, given, change, change_back):
        folder = tmp_path / "service"
        folder.mkdir()
        with ServiceProcess(folder, settings(engine, given["url"])) as service:
            service.start()
            with RetryingClients(service.url, pause=0.02) as clients:
                more_received(clients, 30)
                for _ in range(KILLS):
                    server.kill()
                    refused_again(clients)
                    name = refused_call(service)
                    server.start()
                    answered(service, clients, name)
                    more_received(clients, 20)
                if engine == "pgvector":  # Milvus ends itself when it was suspended, and comes back as if killed
                    server.suspend()  # slow beyond any timeout
                    refused_again(clients)
                    name = refused_call(service)
                    server.resume()
                    answered(service, clients, name)
                    more_received(clients, 20)
                    change()
                    refused_again(clients)
                    name = refused_call(service)
                    change_back()
                    answered(service, clients, name)
                    more_received(clients, 40)
            service.stop()
            assert "Traceback" not in service.log()
        with SqlLedger(folder / "exposures.db", 3) as ledger:
            counts = check_counts([*ledger.past(), ledger.totals()], clients)
        assert counts["wine"] > 0  # which nobody gets without the promise


def test_a_service_with_qdrant_in_its_process_is_killed_and_its_folder_vanishes(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_edge")
    vectors = tmp_path / "vectors"
    with ServiceProcess(tmp_path, settings("qdrant", str(vectors))) as service:
        service.start()
        with RetryingClients(service.url, pause=0.02) as clients:
            for turn in range(KILLS + 1):
                more_received(clients, 30)
                service.kill()
                if turn == KILLS:
                    shutil.rmtree(vectors)
                service.start()
            more_received(clients, 30)
        service.stop()
    with SqlLedger(tmp_path / "exposures.db", 3) as ledger:
        check_counts([*ledger.past(), ledger.totals()], clients)
