"""Engines that are killed, suspended or changed under load: 503 with Retry-After, nothing counted twice, floors kept.

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

from fairsync.errors import BackendUnavailableError
from fairsync.ledger import SqlLedger
from fairsync.service.client import Client
from postgres_server import PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import SQLITE, K, ServiceProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.milvus_server import MilvusServer

KILLS = int(os.environ.get("FAIRSYNC_KILLS", "1"))
BODY = {"vectors": [[1.0] * 8]}
# Requests before the first fault, and after each. The lists before cannot hold the floor of wine: the rest is due
# when the engine is back.
FIRST, LATER = 30, 20
FLOORS = {"toys": 40, "wine": K * FIRST + 1}


class EngineServer(Protocol):
    """A server of an engine."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def revive(self) -> None: ...


@contextmanager
def pgvector() -> Iterator[tuple[EngineServer, str, Callable[[], object], Callable[[], object]]]:
    """Start Postgres; yield it, its URL, and what changes the table so that it does not fit, and back."""
    with PostgresServer() as server:
        server.execute("CREATE EXTENSION vector")
        yield (
            server,
            server.url,
            lambda: server.execute("ALTER TABLE items RENAME COLUMN embedding TO v"),
            lambda: server.execute("ALTER TABLE items RENAME COLUMN v TO embedding"),
        )


@contextmanager
def milvus(server: MilvusServer) -> Iterator[tuple[EngineServer, str, Callable[[], object], Callable[[], object]]]:
    """Clear Milvus, which loads all collections when it starts; see `pgvector`."""
    server.clear()
    held: list[str] = []

    def change() -> None:
        client = server.client()
        held.append(client.describe_collection("items")["collection_name"])
        client.release_collection(held[0])

    yield server, server.uri, change, lambda: server.client().load_collection(held[0])


def service_of(folder: Path, engine: str, url: str) -> ServiceProcess:
    """Return a service with floors that are due at once: no request to come can be counted on."""
    search = f'[search]\nengine = "{engine}"\nurl = "{url}"\ntimeout = 4.0\nupload = true\n'
    service = ServiceProcess(folder, f"request_seconds = 15\n{SQLITE}{search}")
    settings = service.config.read_text().replace("per_second = 60\n", "per_second = 60\nworst_case = 1e-9\n")
    settings = settings.replace("floor = 100,", f"floor = {FLOORS['toys']},")
    service.config.write_text(settings.replace("floor = 5_000_000,", f"floor = {FLOORS['wine']},"))
    return service


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


def answered(service: ServiceProcess, server: EngineServer, clients: RetryingClients, name: str) -> None:
    """Repeat a refused call until it is answered, as a client would, and add it to what was received."""
    found, refused = None, ""

    def is_answered() -> bool:
        nonlocal found, refused
        server.revive()
        try:
            found = client.retrieve(np.ones((1, 8)), request_ids=[name])
        except BackendUnavailableError as error:
            refused = str(error)
            return False
        return True

    with Client(service.url, attempts=1, timeout=60) as client:
        wait_until(is_answered, state=lambda: f"{refused}\n{service.log()[-3000:]}")
    assert found is not None
    answer = found.ids.tolist()[0], found.groups.tolist()[0]
    assert clients.received.setdefault(name, answer) == answer


def more_received(clients: RetryingClients, requests: int, server: EngineServer | None = None) -> None:
    """Wait for more answers. A suspended server may end after it has answered again: a supervisor starts it then."""
    goal = len(clients.received) + requests

    def are_received() -> bool:
        if server is not None:
            server.revive()
        return len(clients.received) >= goal or bool(clients.failures)

    wait_until(are_received)


def refused_again(clients: RetryingClients) -> None:
    before = sum(clients.refused.values())
    wait_until(lambda: sum(clients.refused.values()) > before or bool(clients.failures))


def floors_kept(service: ServiceProcess, clients: RetryingClients, server: EngineServer | None = None) -> None:
    """Wait until the service says that its floors are kept."""

    def are_kept() -> bool:
        if server is not None:
            server.revive()
        found = {one.group: one.exposures for one in client.promises()}
        return all(found[group] >= floor for group, floor in FLOORS.items()) or bool(clients.failures)

    with Client(service.url, attempts=20, timeout=60) as client:
        wait_until(are_kept)


def check_ledger(folder: Path, clients: RetryingClients) -> None:
    """Check that the ledger has counted what clients received, once, and that floors were kept."""
    with SqlLedger(folder / "exposures.db", 3) as ledger:
        counts = check_counts([*ledger.past(), ledger.totals()], clients)
    assert all(counts[group] >= floor for group, floor in FLOORS.items()), counts


@pytest.mark.parametrize("engine", ["pgvector", "milvus"])
def test_an_engine_that_is_killed_or_changed_under_load(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    opened = pgvector() if engine == "pgvector" else milvus(request.getfixturevalue("milvus_server"))
    with opened as (server, url, change, change_back):
        faults: list[tuple[Callable[[], object], Callable[[], object]]] = [(server.kill, server.start)] * KILLS
        faults.append((change, change_back))
        faults.append((server.suspend, server.resume))  # slow beyond any timeout
        with service_of(tmp_path, engine, url) as service:
            service.start()
            with RetryingClients(service.url, pause=0.02) as clients:
                more_received(clients, FIRST)
                for break_it, mend_it in faults:
                    break_it()
                    refused_again(clients)
                    name = refused_call(service)
                    mend_it()
                    answered(service, server, clients, name)
                    more_received(clients, LATER, server)
                floors_kept(service, clients, server)
            service.stop()
            assert "Traceback" not in service.log()
        check_ledger(tmp_path, clients)


def test_a_service_with_qdrant_in_its_process_is_killed_and_its_folder_vanishes(tmp_path: Path) -> None:
    pytest.importorskip("qdrant_edge")
    vectors = tmp_path / "vectors"
    with service_of(tmp_path, "qdrant", str(vectors)) as service:
        service.start()
        with RetryingClients(service.url, pause=0.02) as clients:
            for turn in range(KILLS + 1):
                more_received(clients, FIRST)
                service.kill()
                if turn == KILLS:
                    shutil.rmtree(vectors)
                service.start()
            more_received(clients, LATER)
            floors_kept(service, clients)
        service.stop()
    check_ledger(tmp_path, clients)
