"""Several replicas, each a process of its own, share their promises in a real Postgres, and survive crashes.

FAIRSYNC_KILLS=100 kills replicas a hundred times and the server fifty times, which takes some minutes, and prints
figures.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError, RefusedError
from fairsync.ledger import SqlLedger
from fairsync.ledger.postgres import LEADER, PostgresDatabase
from fairsync.schedule import Forecast, ScheduledPromise, Window
from fairsync.service.client import Client
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.schema import PastWindow, PromiseRecord, WindowRecord
from postgres_server import PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import ServiceProcess, free_port, is_ready, wait_until
from service.test_run import RUN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairsync.ledger import Totals

KILLS = int(os.environ.get("FAIRSYNC_KILLS", "6"))
K, NAME, PER_SECOND = 3, "shop", 60
_HOLDER = """
SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND granted
"""
CONFIG = f"""
promises = [
    {{group = "toys", floor = 100, window = {{every = "hour"}}}},
    {{group = "wine", floor = 200, window = {{every = "day"}}}},
]
[catalog]
path = "items"
[promise]
k = {K}
batch_size = 16
[traffic]
per_second = {PER_SECOND}
worst_case = 1e-6  # no request can be counted on, so that what is promised comes first, at whatever rate clients ask
"""


def make_catalog() -> Catalog:
    """Return a catalog whose wine is never retrieved without a promise."""
    vectors = np.random.default_rng(7).normal(size=(60, 8))
    vectors[:, 0] += np.repeat([3.0, 2.0, -9.0], 20)
    return Catalog(vectors.astype(np.float32), np.repeat(["books", "toys", "wine"], 20))


class Fleet:
    """Replicas that share a server, and clients that try one after another until they are answered."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.ports = folder, [free_port() for _ in range(number)]
        self.received: dict[str, list[str]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Fleet:
        save_catalog(make_catalog(), self.folder / "items")
        (self.folder / "service.toml").write_text(CONFIG)
        self.server = self._stack.enter_context(PostgresServer())
        self.processes = {port: self._start(port) for port in self.ports}
        self.clients = {
            port: self._stack.enter_context(Client(f"http://127.0.0.1:{port}", attempts=1, timeout=60))
            for port in self.ports
        }
        self.ledger = self._stack.enter_context(SqlLedger(self.server.schema(NAME), 3, shared=True, timeout=120))
        for client in self.clients.values():
            wait_until(lambda: is_ready(client))  # noqa: B023
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self._stack.close()

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "FAIRSYNC_HTTP_PORT": str(port),
            "FAIRSYNC_LEDGER_URL": f"{self.server.schema(NAME)}&application_name={port}",
            "OMP_NUM_THREADS": "1",
        }
        with (self.folder / f"log {port}").open("wb") as log:
            command = [sys.executable, "-c", RUN, str(self.folder / "service.toml")]
            return subprocess.Popen(command, stderr=log, env=environment)

    def leader(self) -> int:
        """Return the port of the leader; 0 if there is none."""
        assert isinstance(self.ledger.database, PostgresDatabase)
        rows = self.server.execute(_HOLDER, *self.ledger.database.advisory_lock(LEADER))
        return int(rows[0][0]) if rows else 0

    def ask(self, number: int) -> None:
        """Send a call of two requests to one replica after another until it is answered."""
        names = [f"{number} {i}" for i in range(2)]
        users = np.random.default_rng(number).normal(size=(2, 8))
        users[:, 0] += 2.0
        for turn in range(1000):
            try:
                found = self.clients[self.ports[(number + turn) % len(self.ports)]].retrieve(users, request_ids=names)
            except BackendUnavailableError:
                time.sleep(0.05)
            else:
                self.received.update(zip(names, found.groups.tolist(), strict=True))
                return
        raise AssertionError("no service answers")

    def totals_list(self) -> list[Totals]:
        return [*self.ledger.past(), self.ledger.totals()]

    def check_counts(self, *, lost_leases: bool = False) -> None:
        """Check that the ledger has counted exactly what the clients have received.

        Leases that the server has lost in a crash are settled without their requests, which were granted again.
        """
        counts = Counter(label for groups in self.received.values() for label in groups)
        counted = np.sum([one.exposures for one in self.totals_list()], axis=0)
        assert dict(zip(["books", "toys", "wine"], counted.tolist(), strict=True)) == {
            label: counts[label] for label in ("books", "toys", "wine")
        }
        requests = sum(one.requests for one in self.totals_list())
        assert requests == len(self.received) or (lost_leases and requests < len(self.received))


class Traffic:
    """Clients that send calls continuously, at about the expected rate."""

    def __init__(self, fleet: Fleet, first: int, threads: int = 6) -> None:
        self._fleet, self._over, self.failures = fleet, threading.Event(), list[BaseException]()
        self._threads = [threading.Thread(target=self._work, args=(first + mine, threads)) for mine in range(threads)]

    def _work(self, number: int, threads: int) -> None:
        started, calls = time.monotonic(), 0
        while not self._over.is_set():
            try:
                self._fleet.ask(number + calls * threads)
            except BaseException as error:
                self.failures.append(error)
                return
            calls += 1
            self._over.wait(max(started + calls * 2 * threads / PER_SECOND - time.monotonic(), 0))

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(240)
        assert not self.failures, self.failures


def campaign(floor: int, seconds: float, start: datetime | None = None) -> PromiseRecord:
    now = datetime.now(UTC)
    end = (now + timedelta(seconds=seconds)).isoformat()
    window = WindowRecord(every="campaign", start=(start or now).isoformat(), end=end)
    return PromiseRecord(group="wine", floor=floor, window=window)


def exposures(client: Client, promise: str) -> int:
    """Return the exposures of a promise so far; 0 if the service does not answer."""
    try:
        return next((one.exposures for one in client.promises() if one.id == promise), 0)
    except BackendUnavailableError:
        return 0


def end_window(client: Client, promise: str, floor: int, start: datetime) -> PastWindow:
    """End the window of a campaign as soon as possible. Returns what became of it."""
    for doublings in range(10):
        with suppress(RefusedError):  # a slow machine, on which that moment is over when the call arrives
            client.change_promise(promise, campaign(floor, 0.5 * 2**doublings, start))
            break
    wait_until(lambda: outcome(client, promise) is not None)
    ended = outcome(client, promise)
    assert ended is not None
    return ended


def outcome(client: Client, promise: str) -> PastWindow | None:
    return next((one for one in client.past() if one.promise == promise), None)


def test_windows_that_end_without_a_leader_are_counted_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader dies in the last hour of a day, and its successor takes over on the next day."""
    monkeypatch.setattr("fairsync.coordination.coordinator._ELECTION_SECONDS", 0.0)
    catalog, rng, retrieved = make_catalog(), np.random.default_rng(0), Counter[Any]()
    now = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    promises = [
        ScheduledPromise.of_group("wine", 200, Window.day("UTC")),
        ScheduledPromise.of_group("toys", 5, Window.hour("UTC")),
    ]
    with PostgresServer() as server, ExitStack() as stack:

        def started() -> PromiseService:
            coordinator = stack.enter_context(
                Coordinator(catalog, ledger=server.url, k=K, horizon=1, auto_restart=False)
            )
            front = FrontEnd(catalog, coordinator)
            forecast = Forecast(rate=0.01)
            return PromiseService(front, coordinator, promises, forecast, clock=lambda: now[0])

        first, second = started(), started()
        for hour in range(24):
            for promise_service in (first, second):
                promise_service.refresh()
                retrieved.update(promise_service.retrieve(rng.normal(size=(18, 8))).groups.ravel().tolist())
            assert second.promises()[0].exposures == retrieved["wine"], hour
            now[0] += 3600
        ledger = first.coordinator.ledger
        assert isinstance(ledger, SqlLedger)
        ((pid,),) = ledger.database.run(lambda transaction: transaction.execute("SELECT pg_backend_pid()"), "read")
        server.execute("SELECT pg_terminate_backend(%s, 5000)", pid)
        second.refresh()
        second.refresh()
        day = next(one for one in second.past() if one.group == "wine")
        assert (day.exposures, day.kept) == (retrieved["wine"], True)
        assert sum(one.group == "toys" for one in second.past()) == 24
        assert second.promises()[0].exposures == 0


def test_a_promise_that_could_not_be_saved_is_not_made() -> None:
    catalog = make_catalog()
    with PostgresServer() as server:
        coordinator = Coordinator(catalog, ledger=server.url, k=K, horizon=1, auto_restart=False, timeout=4.0)
        front = FrontEnd(catalog, coordinator)
        promise_service = PromiseService(front, coordinator, [], Forecast(rate=10.0))
        server.kill()
        with pytest.raises(BackendUnavailableError, match="out of reach"):
            promise_service.editor.set_promise(promise_from_record(campaign(5, 60), catalog))
        server.start()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(coordinator.ledger, "write_saved", _cut_off)
            with pytest.raises(BackendUnavailableError, match="cut off"):
                promise_service.editor.set_promise(promise_from_record(campaign(5, 60), catalog))
        assert promise_service.promises() == []
        made = promise_service.editor.set_promise(promise_from_record(campaign(6, 60), catalog))
        assert [promise.id for promise in promise_service.promises()] == [made.id]
        coordinator.close()


def _cut_off(*_: object) -> None:
    raise BackendUnavailableError("cut off")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("two"), 2) as fleet:
        yield fleet


def test_an_estimate_of_the_cost_names_its_replica(two: Fleet) -> None:
    """Each replica estimates from the requests that it answered itself."""
    names = {port: client.overview().least.replica for port, client in two.clients.items()}
    assert [name.rsplit(":")[-1] for name in names.values()] == [str(port) for port in names]


def test_a_request_gets_one_answer_from_all_replicas(two: Fleet) -> None:
    """Sequentially and concurrently."""
    one, other = two.clients.values()
    users = np.random.default_rng(0).normal(size=(8, 8))
    before = sum(totals.requests for totals in two.totals_list())
    names = [f"first {i}" for i in range(8)]
    found, again = (client.retrieve(users, request_ids=names) for client in (one, other))
    assert found.ids.tolist() == again.ids.tolist()
    names = [f"second {i}" for i in range(8)]
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda client=client: answers.append(client.retrieve(users, request_ids=names)))
        for client in (one, other) * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answer.ids.tolist() == answers[0].ids.tolist() for answer in answers)
    assert sum(totals.requests for totals in two.totals_list()) - before == 16
    two.received |= {
        f"{turn} {i}": groups
        for turn, answer in (("first", found), ("second", answers[0]))
        for i, groups in enumerate(answer.groups.tolist())
    }
    two.check_counts()


def test_a_promise_changed_at_one_replica_changes_at_all(two: Fleet) -> None:
    one, other = two.clients.values()
    assert {promise.id for promise in one.promises()} == {promise.id for promise in other.promises()}
    made = one.make_promise(campaign(50, 600))
    changed = other.change_promise(
        made.id, campaign(70, 600)
    )  # at once: the replica reads the latest state before it changes a promise
    assert changed.floor == 70
    day = next(promise for promise in one.promises() if promise.window.every == "day")
    one.change_promise(day.id, PromiseRecord(group="wine", floor=300, window=day.window))
    for client in (one, other):
        wait_until(lambda: {70, 100, 300} == {promise.floor for promise in client.promises()})  # noqa: B023
    other.delete_promise(made.id)
    wait_until(lambda: made.id not in {promise.id for promise in one.promises()})


def test_the_server_is_killed_during_traffic(two: Fleet) -> None:
    """Clients retry with the same ids: no request is lost or counted twice, and the promise is kept."""
    one, other = two.clients.values()
    start, floor = datetime.now(UTC), 150
    made = one.make_promise(campaign(floor, 3600, start))
    with Traffic(two, 10_000):
        for _ in range(2):
            before = len(two.received)
            wait_until(lambda: len(two.received) > before + 15)  # noqa: B023
            two.server.kill()
            time.sleep(0.2)
            two.server.start()
        wait_until(lambda: exposures(other, made.id) >= floor)
        ended = end_window(other, made.id, floor, start)
    two.check_counts(lost_leases=True)
    assert ended.kept, ended


def test_a_leader_that_stops_hands_over(two: Fleet) -> None:
    wait_until(lambda: two.leader() != 0)
    stopped = two.leader()
    two.processes[stopped].terminate()
    assert two.processes[stopped].wait(120) == 0
    wait_until(lambda: two.leader() not in (0, stopped))


def test_another_leader_is_elected_when_the_leader_is_killed(tmp_path: Path) -> None:
    """Four replicas: the new leader keeps the promise, and records the window when it ends."""
    with Fleet(tmp_path, 4) as fleet:
        start, floor = datetime.now(UTC), 300
        made = fleet.clients[fleet.ports[0]].make_promise(campaign(floor, 3600, start))
        killed = fleet.leader()
        assert killed == fleet.ports[0], "the replica that makes a promise leads"
        alive = [client for port, client in fleet.clients.items() if port != killed]
        with Traffic(fleet, 0):
            wait_until(lambda: len(fleet.received) > 30)
            fleet.processes[killed].kill()
            wait_until(lambda: fleet.leader() not in (0, killed))
            wait_until(lambda: exposures(alive[0], made.id) >= floor)
            ended = end_window(alive[0], made.id, floor, start)
        fleet.check_counts()
        # The clock decides to which window the last request belongs, so compare with the ledger.
        assert ended.kept, ended
        wine = sum(
            int(one.exposures[2])
            for one in fleet.ledger.past()
            if ended.start.timestamp() <= one.began < ended.end.timestamp()
        )
        assert ended.exposures == wine
        assert wine < 600, "the promise, not relevance, brought them"


class Replicas:
    """Services in processes of their own that share a ledger in Postgres, to be killed and started again."""

    def __init__(self, folder: Path, number: int, url: str) -> None:
        self.services = []
        for i in range(number):
            (folder / str(i)).mkdir()
            self.services.append(ServiceProcess(folder / str(i), f'[ledger]\nurl = "{url}"\n'))

    @property
    def urls(self) -> list[str]:
        return [service.url for service in self.services]

    def __enter__(self) -> Replicas:
        for service in self.services:
            service.start()
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.services:
            service.__exit__()

    def check(self, ledger_url: str, clients: RetryingClients, *, lost_leases: bool = False) -> dict[str, int]:
        """Kill all, and check that the ledger has counted exactly what clients have received."""
        for service in self.services:
            service.kill()
            assert "Traceback" not in service.log()
        with SqlLedger(ledger_url, 3, shared=True) as ledger:
            return dict(check_counts([*ledger.past(), ledger.totals()], clients, lost_leases=lost_leases))


def test_replicas_that_are_killed_at_random(tmp_path: Path) -> None:
    """No answer is lost or counted twice. Clients turn to another replica, and some kills hit a replica that starts."""
    rng, started = np.random.default_rng(2), time.monotonic()
    with PostgresServer() as server, Replicas(tmp_path, 3, server.url) as replicas:
        with RetryingClients(*replicas.urls) as clients:
            for kill in range(KILLS):
                before = len(clients.received)
                wait_until(lambda: len(clients.received) > before)  # noqa: B023
                time.sleep(rng.uniform(0, 0.3))
                killed = replicas.services[rng.integers(3)]
                killed.kill()
                killed.start(wait=kill % 3 == 0)
            for service in replicas.services:
                service.wait()
        counts = replicas.check(server.url, clients)
    print_figures(f"{KILLS} kills of replicas", clients, counts, started)


def test_a_server_that_is_ended_at_random_under_replicas(tmp_path: Path) -> None:
    """By an immediate shutdown, or by a kill of all its processes. The replicas go on by themselves."""
    rng, started, ends = np.random.default_rng(3), time.monotonic(), KILLS // 2
    with PostgresServer() as server, Replicas(tmp_path, 2, server.url) as replicas:
        pids = [service.pid for service in replicas.services]
        with RetryingClients(*replicas.urls) as clients:
            for end in range(ends):
                before = len(clients.received)
                wait_until(lambda: len(clients.received) > before)  # noqa: B023
                time.sleep(rng.uniform(0, 0.5))
                (server.stop if end % 2 else server.kill)()
                time.sleep(rng.uniform(0, 0.3))
                server.start()
            before = len(clients.received)
            wait_until(lambda: len(clients.received) > before + 20)
        assert [service.pid for service in replicas.services] == pids
        assert all(service.is_alive() for service in replicas.services)
        counts = replicas.check(server.url, clients, lost_leases=True)
    print_figures(f"{ends} ends of the server", clients, counts, started)


def print_figures(what: str, clients: RetryingClients, counts: dict[str, int], started: float) -> None:
    print(
        f"\n{what} in {time.monotonic() - started:.0f} s: {clients.calls} calls answered,"
        f" {sum(clients.refused.values())} tried again; {len(clients.received)} requests, exposures {counts},"
        f" impressions {dict(clients.impressions)}"
    )
