"""What goes wrong with a ledger while a service runs is noticed, answered with 503, and never counted wrongly."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import uuid
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import httpx
import numpy as np
import psycopg
import pytest

from coordination.cutting_proxy import CuttingProxy
from fairsync.ledger import SqlLedger
from fairsync.ledger.reader import LedgerReader
from fairsync.service.client import Client
from postgres_server import QUOTED, PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import ServiceProcess, is_ready, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY = {"vectors": [[1.0] * 8]}
# Calls and shutdowns that need not wait long for a server that is away.
IMPATIENT = "request_seconds = 2\nshutdown_seconds = 10\n"
KILLS = int(os.environ.get("FAIRSYNC_KILLS", "6"))


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@contextmanager
def served(folder: Path, url: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(folder, f'{IMPATIENT}[ledger]\nurl = "{url}"\n') as service:
        service.start()
        yield service


def is_refused(service: ServiceProcess, *secrets: object, probes: list[str] | None = None) -> bool:
    """Return whether calls are refused and the service is not ready. Refusals must not reveal secrets.

    The outcome of a call that is refused because of a timeout is unknown: `probes` collects its request id.
    """
    name = uuid.uuid4().hex
    if probes is not None:
        probes.append(name)
    answers = [
        httpx.post(f"{service.url}/v1/retrieve", json={**BODY, "request_ids": [name]}, timeout=30),
        httpx.get(f"{service.url}/ready", timeout=60),
    ]
    for answer in answers:
        assert answer.status_code in (200, 503), answer.text
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
        for secret in ("exposures", "sqlite", "postgres", "127.0.0.1", "/tmp", QUOTED, *secrets):
            assert str(secret) not in answer.text
    assert httpx.get(f"{service.url}/health", timeout=60).status_code == 200
    return all(answer.status_code == 503 for answer in answers)


def repeat(service: ServiceProcess, probes: list[str], clients: RetryingClients) -> None:
    """Repeat calls that were refused, until they are answered, and count them as those of the clients."""
    with Client(service.url, attempts=20, timeout=60) as client:
        found = client.retrieve(np.ones((len(probes), 8)), request_ids=probes)
    answers = zip(found.ids.tolist(), found.groups.tolist(), strict=True)
    clients.received.update(zip(probes, answers, strict=True))


def refusal(service: ServiceProcess) -> str:
    """Start a service that cannot start; return the sentence that it ends with."""
    service.start(wait=False)
    wait_until(lambda: not service.is_alive())
    return " ".join(service.log().split())


def beside(service: ServiceProcess, folder: Path) -> ServiceProcess:
    """Return another service over the same ledger."""
    folder.mkdir()
    path = service.folder / "exposures.db"
    return ServiceProcess(folder, f'{IMPATIENT}[ledger]\nurl = "sqlite:///{path}"\n')


def counted(url: str) -> int:
    with SqlLedger(url, 3, shared=url.startswith("postgresql")) as ledger:
        return sum(one.requests for one in [*ledger.past(), ledger.totals()])


def test_a_deleted_ledger_is_noticed_and_no_other_service_starts_over(tmp_path: Path) -> None:
    with served(tmp_path, "sqlite:///exposures.db") as service, Client(service.url, attempts=1, timeout=60) as client:
        client.retrieve(np.ones((2, 8)))
        for path in tmp_path.glob("exposures.db*"):
            path.unlink()
        wait_until(lambda: not is_ready(client))  # although there are no calls
        assert is_refused(service, tmp_path)
        assert "was deleted or replaced" in service.log()
        assert "Traceback" not in service.log()
        with beside(service, tmp_path / "second") as second:
            assert "in use by another process: stop it first" in refusal(second)
            assert not (tmp_path / "exposures.db").exists()
            service.stop()
            assert "the state since the last save is not" in service.log()
            second.start()  # deliberately, when the first has ended


def test_a_replaced_ledger_is_noticed(tmp_path: Path) -> None:
    """By another ledger, such as a backup that was copied over it."""
    (tmp_path / "other").mkdir()
    SqlLedger(tmp_path / "other" / "exposures.db", 3).close()
    with served(tmp_path, "sqlite:///exposures.db") as service:
        os.replace(tmp_path / "other" / "exposures.db", tmp_path / "exposures.db")
        wait_until(lambda: is_refused(service, tmp_path))
        service.kill()
    assert counted(str(tmp_path / "exposures.db")) == 0


def test_a_file_without_content_is_not_a_new_ledger(tmp_path: Path) -> None:
    (tmp_path / "exposures.db").touch()
    with ServiceProcess(tmp_path) as service:
        assert "has no content, and is no ledger: restore a backup, or delete the file" in refusal(service)
    assert (tmp_path / "exposures.db").stat().st_size == 0


def test_two_services_on_one_file(tmp_path: Path) -> None:
    with served(tmp_path, "sqlite:///exposures.db") as service, Client(service.url, timeout=60) as client:
        with beside(service, tmp_path / "second") as second:
            assert "in use by another process: stop it first, or share a ledger in Postgres" in refusal(second)
        client.retrieve(np.ones((2, 8)))
        service.kill()
    assert counted(str(tmp_path / "exposures.db")) == 2


def test_a_damaged_file(tmp_path: Path) -> None:
    """It is refused at the start, or as soon as the damaged part is read."""
    path = tmp_path / "exposures.db"
    with served(tmp_path, "sqlite:///exposures.db") as service, Client(service.url, timeout=60) as client:
        for number in range(40):
            client.retrieve(np.ones((20, 8)), request_ids=[f"{number} {i}" for i in range(20)])
        service.stop()
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(size // 4 * 3)
            file.write(b"\xff" * (size - size // 4 * 3))
        service.start(wait=False)
        names = [f"{number} 0" for number in range(40)]

        def is_noticed() -> bool:
            if not service.is_alive():
                return True
            body = {"vectors": [[1.0] * 8] * 40, "request_ids": names}
            try:
                answer = httpx.post(f"{service.url}/v1/retrieve", json=body, timeout=60)
            except httpx.TransportError:  # it has not started yet
                return False
            assert answer.status_code == 503, answer.text
            return is_refused(service, tmp_path)

        wait_until(is_noticed)
        assert "damaged" in service.log()


def test_a_ledger_of_a_later_version(tmp_path: Path) -> None:
    SqlLedger(tmp_path / "exposures.db", 3).close()
    with closing(sqlite3.connect(tmp_path / "exposures.db")) as db:
        db.execute("PRAGMA user_version = 99")
    before = (tmp_path / "exposures.db").read_bytes()
    with ServiceProcess(tmp_path) as service:
        assert "was written by a later version of FairSync (format 99" in refusal(service)
    assert (tmp_path / "exposures.db").read_bytes() == before


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a folder read-only: for root, who may write everywhere, by a mount."""
    if os.getuid():
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode:
        pytest.skip("root may write everywhere, and may not mount here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    SqlLedger(tmp_path / "disk" / "exposures.db", 3).close()
    service = ServiceProcess(tmp_path, '[ledger]\nurl = "sqlite:///disk/exposures.db"\n')
    with read_only(tmp_path / "disk"), service:
        assert "must be writable, too. Nothing was changed" in refusal(service)


def test_a_server_that_is_away(tmp_path: Path, postgres: PostgresServer) -> None:
    """It stops, and comes back; then it hangs with its connections open, and goes on."""
    url, probes = postgres.schema("away"), list[str]()
    with served(tmp_path, url) as service, Client(service.url, timeout=60) as client:
        with RetryingClients(service.url) as clients:
            for leave, come in ((postgres.stop, postgres.start), (postgres.suspend, postgres.resume)):
                before = len(clients.received)
                wait_until(lambda: len(clients.received) > before + 20)  # noqa: B023
                leave()
                wait_until(lambda: is_refused(service, postgres.port, probes=probes))
                metrics = httpx.get(f"{service.url}/metrics", timeout=30)
                assert metrics.status_code == 200, metrics.text
                assert 'fairsync_calls_total{method="POST",path="/v1/retrieve",status="503"}' in metrics.text
                assert "fairsync_ready 0.0" in metrics.text
                come()
                wait_until(lambda: is_ready(client))
        repeat(service, probes, clients)
        service.kill()
        assert "Traceback" not in service.log()
        assert "mistake" not in service.log()
    with SqlLedger(url, 3, shared=True) as ledger:
        check_counts([*ledger.past(), ledger.totals()], clients, lost_leases=True)


@pytest.mark.parametrize("how", ["stop", "suspend"])
def test_a_service_ends_while_the_server_is_away(tmp_path: Path, how: str) -> None:
    with PostgresServer() as postgres, served(tmp_path, postgres.url) as service:
        getattr(postgres, how)()
        os.kill(service.pid, signal.SIGTERM)
        wait_until(lambda: not service.is_alive())
        assert "is not" in service.log() or "abandoned" in service.log()
        assert QUOTED not in service.log()
        if how == "suspend":
            postgres.resume()
        else:
            postgres.start()


def test_tables_that_are_dropped(tmp_path: Path, postgres: PostgresServer) -> None:
    with served(tmp_path, postgres.schema("dropped")) as service, Client(service.url, attempts=1, timeout=60) as client:
        client.retrieve(np.ones((2, 8)))
        postgres.execute("DROP SCHEMA dropped CASCADE")
        wait_until(lambda: not is_ready(client))  # although there are no calls
        assert is_refused(service, postgres.port, "dropped")
        assert "the ledger is gone" in service.log()
        assert "Traceback" not in service.log()


def test_a_server_that_is_read_only_for_a_while(tmp_path: Path, postgres: PostgresServer) -> None:
    """As during a failover, while the address still leads to the former primary."""
    url, probes = postgres.schema("reading"), list[str]()
    with served(tmp_path, url) as service, Client(service.url, timeout=60) as client:
        with RetryingClients(service.url) as clients:
            wait_until(lambda: len(clients.received) > 20)
            postgres.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            try:
                end_sessions(postgres)
                wait_until(lambda: is_refused(service, postgres.port, probes=probes))
            finally:
                writing = "-c default_transaction_read_only=off"
                with psycopg.connect(postgres.url, autocommit=True, options=writing) as connection:
                    connection.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
            wait_until(lambda: is_ready(client))
        repeat(service, probes, clients)
        service.kill()
        assert "is read-only: connect to the primary server" in service.log()
    with SqlLedger(url, 3, shared=True) as ledger:
        check_counts([*ledger.past(), ledger.totals()], clients, lost_leases=True)


def test_a_password_that_was_changed_is_not_shown_to_callers(tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute("CREATE ROLE shop LOGIN PASSWORD 'one'")
    postgres.execute("GRANT CREATE ON DATABASE postgres TO shop")
    url = f"postgresql://shop:one@127.0.0.1:{postgres.port}/postgres?schema=rotated"
    with served(tmp_path, url) as service, Client(service.url, timeout=60) as client:
        postgres.execute("ALTER ROLE shop PASSWORD 'two'")
        end_sessions(postgres)
        wait_until(lambda: is_refused(service, postgres.port, "shop", "password"))
        postgres.execute("ALTER ROLE shop PASSWORD 'one'")
        wait_until(lambda: is_ready(client))
        assert "Check user, password and rights" in service.log()


def end_sessions(postgres: PostgresServer) -> None:
    postgres.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename <> ''"
    )


def test_connections_that_are_cut_in_the_middle_of_a_transaction(tmp_path: Path, postgres: PostgresServer) -> None:
    """At any byte, in any direction: often the server has committed, and the service cannot know it."""
    rng, url = np.random.default_rng(4), postgres.schema("cut")
    with CuttingProxy(postgres.port) as proxy, served(tmp_path, proxy.through(url)) as service:
        with RetryingClients(service.url) as clients:
            for _ in range(5 * KILLS):
                before = proxy.cuts
                proxy.cut_after(int(rng.integers(1, 10_000)))
                wait_until(lambda: proxy.cuts > before)  # noqa: B023
            answered = len(clients.received)
            wait_until(lambda: len(clients.received) > answered)
        service.kill()
        assert "Traceback" not in service.log()
    with SqlLedger(url, 3, shared=True) as ledger:
        check_counts([*ledger.past(), ledger.totals()], clients, lost_leases=True)
    with LedgerReader(url) as reader:
        assert reader.check() == []
