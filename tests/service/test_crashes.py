"""No acknowledged call is lost and none is counted twice when the service crashes.

The service is killed with SIGKILL at random moments, under load from clients that retry. Each test does so a few
times. FAIRSYNC_KILLS=100 does it a hundred times, which takes some minutes, and prints figures.
"""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from fairsync.errors import BackendUnavailableError
from fairsync.ledger import SqlLedger
from fairsync.service.client import Client
from fairsync.service.schema import PromiseRecord, WindowRecord
from postgres_server import PostgresServer
from service.retrying_clients import RetryingClients, check_counts
from service.service_process import CAMPAIGN, ServiceProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("FAIRSYNC_KILLS", "3"))
MANY = KILLS >= 20
# A coordinator saves the state of its policy this often.
SAVE_SECONDS = 5.0
CAMPAIGN_WINDOW = WindowRecord(every="campaign", start=CAMPAIGN[0].isoformat(), end=CAMPAIGN[1].isoformat())


class PromiseEditor:
    """Creates, changes and deletes a promise until the service stops, and records what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, attempts=1, timeout=60)
        self.name: str | None = None
        self.floors: set[int] = set()  # floors that may be in force; empty: there may be no promise
        self.acknowledged, self._floor = 0, 0

    def work(self) -> None:
        """Continue until the service does not answer."""
        try:
            while True:
                self._change()
                self.acknowledged += 1
        except BackendUnavailableError:
            pass

    def _change(self) -> None:
        self._floor += 1
        given = PromiseRecord(group="books", floor=self._floor, window=CAMPAIGN_WINDOW)
        if self.name is None:
            known = [
                one for one in self._client.promises() if one.group == "books"
            ]  # a creation may have succeeded without an answer
            if known:
                self.name, self.floors = known[0].id, {known[0].floor}
            else:
                made = self._client.make_promise(given)
                self.name, self.floors = made.id, {made.floor}
        elif self._floor % 10 == 0:
            self.floors = {*self.floors, 0}
            self._client.delete_promise(self.name)
            self.name, self.floors = None, set()
        else:
            self.floors = {*self.floors, self._floor}
            assert self._client.change_promise(self.name, given).floor == self._floor
            self.floors = {self._floor}

    def check(self) -> None:
        """Check that the promise is as acknowledged, or as a call without an answer may have left it."""
        found = {one.id: one.floor for one in self._client.promises() if one.group == "books"}
        if self.name is not None:
            assert found.get(self.name, 0) in self.floors, (found, self.floors)
            if self.name not in found:
                self.name = None
        assert len(found) <= 1
        self.floors = set(found.values())

    def close(self) -> None:
        self._client.close()


def prices(url: str) -> dict[object, float]:
    with Client(url, timeout=60) as client:
        return {one.group: one.price for one in client.groups()}


def requests_counted(url: str) -> int:
    with Client(url, timeout=60) as client:
        return client.overview().requests


def kill_repeatedly(
    service: ServiceProcess, clients: RetryingClients, rng: np.random.Generator, kills: int
) -> PromiseEditor:
    """Kill a running service and start it again, several times; sometimes during its start."""
    editor, learnt = PromiseEditor(service.url), prices(service.url)["wine"]
    assert learnt < 0
    requests = requests_counted(service.url)
    for kill in range(kills):
        if kill % 5 == 4:
            service.start(wait=False)
            time.sleep(rng.uniform(0, 0.4))
        else:
            if kill:
                service.start()
            editor.check()
            found = prices(service.url)["wine"]
            assert found < 0, "prices were lost"
            counted = requests_counted(service.url)
            assert counted >= requests > 0, "the campaign is one period, which continues"
            requests = counted
            changing = threading.Thread(target=editor.work)
            changing.start()
            before = len(clients.received)
            time.sleep(rng.uniform(0, 0.6))
            if kill % 2:  # wait for at least one answer
                wait_until(lambda: len(clients.received) > before)  # noqa: B023
        service.kill()
        if kill % 5 != 4:
            changing.join(30)
    service.start()
    editor.check()
    return editor


def test_a_service_that_is_killed_repeatedly(tmp_path: Path) -> None:
    rng, started = np.random.default_rng(0), time.monotonic()
    with ServiceProcess(tmp_path) as service:
        service.start()
        with RetryingClients(service.url) as clients:
            wait_until(lambda: len(clients.received) > 150)
            service.stop()  # a clean stop saves the prices, which otherwise happens every few seconds
            service.start()
            editor = kill_repeatedly(service, clients, rng, KILLS)
            if MANY:
                check_that_prices_are_saved(service, clients)
        editor.close()
        service.kill()
        with SqlLedger(tmp_path / "exposures.db", 3) as ledger:
            counts = check_counts([*ledger.past(), ledger.totals()], clients)
        assert "Traceback" not in service.log()
    print_figures("sqlite", clients, editor, counts, service.starts, started)


def check_that_prices_are_saved(service: ServiceProcess, clients: RetryingClients) -> None:
    """Kill the service after it has saved its prices: the restored ones are a few seconds old at most."""
    seen: list[tuple[float, float]] = []
    end = time.monotonic() + 2.5 * SAVE_SECONDS
    while time.monotonic() < end:
        seen.append((time.monotonic(), prices(service.url)["wine"]))
        time.sleep(0.05)
    service.kill()
    service.start()
    found = prices(service.url)["wine"]
    near = [price for at, price in seen if at > end - SAVE_SECONDS - 2]
    slack = 0.25 * abs(np.mean(near))
    assert min(near) - slack <= found <= max(near) + slack, (found, near)


def test_a_service_and_its_postgres_server_that_are_killed_repeatedly(tmp_path: Path) -> None:
    rng, started = np.random.default_rng(1), time.monotonic()
    over, deaths = threading.Event(), [0]
    with PostgresServer() as server:

        def kill_server() -> None:
            while not over.wait(rng.uniform(0.5, 2.5) if MANY else 1.0):
                (server.stop if deaths[0] % 2 else server.kill)()
                time.sleep(rng.uniform(0, 0.3))
                server.start()
                deaths[0] += 1

        with ServiceProcess(tmp_path, f'[ledger]\nurl = "{server.url}"\n', supervised=True) as service:
            service.start()
            with RetryingClients(service.url) as clients:
                wait_until(lambda: len(clients.received) > 150)
                service.stop()
                service.start()
                killing = threading.Thread(target=kill_server)
                killing.start()
                try:
                    editor = kill_repeatedly(service, clients, rng, KILLS if MANY else 2)
                finally:
                    over.set()
                    killing.join()
            editor.close()
            service.kill()
            with SqlLedger(server.url, 3, shared=True) as ledger:
                counts = check_counts([*ledger.past(), ledger.totals()], clients, lost_leases=True)
    print_figures(f"postgres, itself ended {deaths[0]} times", clients, editor, counts, service.starts, started)


def print_figures(
    ledger: str, clients: RetryingClients, editor: PromiseEditor, counts: object, starts: int, started: float
) -> None:
    print(
        f"\n{ledger}: {starts} starts in {time.monotonic() - started:.0f} s; {clients.calls} calls answered,"
        f" {sum(clients.refused.values())} tried again; {len(clients.received)} requests, exposures {dict(counts)},"  # type: ignore[call-overload]
        f" impressions {dict(clients.impressions)}, {editor.acknowledged} changes of promises acknowledged"
    )


class Disk:
    """A folder for a ledger, on a disk that can be filled."""

    def __init__(self, folder: Path, service: Callable[[], int]) -> None:
        self.folder, self._service = folder, service
        self._ballast = folder / "ballast"
        self.is_mounted = False

    def mount(self) -> None:
        """Mount a disk of four megabytes, if the test may do so."""
        self.folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(self.folder)]
        with suppress(FileNotFoundError):
            self.is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Fill the disk. Without a mount, limit the size of the files of the service instead."""
        if not self.is_mounted:
            sizes = [path.stat().st_size for path in self.folder.iterdir()]
            hard = resource.prlimit(self._service(), resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self._service(), resource.RLIMIT_FSIZE, (max(sizes) + 4096, hard))
            return
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:  # full
                pass

    def clear(self) -> None:
        """Free the space."""
        if self.is_mounted:
            self._ballast.unlink()
        else:
            hard = resource.prlimit(self._service(), resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self._service(), resource.RLIMIT_FSIZE, (hard, hard))

    def unmount(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", str(self.folder)], check=True)


@contextmanager
def disk(folder: Path, service: Callable[[], int]) -> Iterator[Disk]:
    made = Disk(folder, service)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()


def test_a_full_disk(tmp_path: Path) -> None:
    """Calls fail with a retryable status, and are not counted. The service recovers when there is space again."""
    service = ServiceProcess(tmp_path, '[ledger]\nurl = "sqlite:///disk/exposures.db"\n')
    with disk(tmp_path / "disk", lambda: service.pid) as full, service:
        service.start()
        with RetryingClients(service.url) as clients, Client(service.url, attempts=1, timeout=60) as client:
            wait_until(lambda: len(clients.received) > 50)
            full.fill()
            wait_until(lambda: sum(clients.refused.values()) > 8)  # leases granted before may still be used
            body = {"vectors": [[1.0] * 8], "request_ids": ["by hand"]}
            refused = httpx.post(f"{service.url}/v1/retrieve", json=body, timeout=60)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), refused.text
            assert "The ledger or a disk failed." in refused.text
            with pytest.raises(BackendUnavailableError):
                client.make_promise(PromiseRecord(group="books", floor=5, window=CAMPAIGN_WINDOW))
            assert [one.group for one in client.promises()] == ["toys", "wine"]
            assert service.is_alive()
            pid, answered = service.pid, len(clients.received)
            full.clear()
            wait_until(lambda: len(clients.received) > answered + 50)
            made = client.make_promise(PromiseRecord(group="books", floor=5, window=CAMPAIGN_WINDOW))
            assert service.pid == pid
        service.kill()
        with SqlLedger(tmp_path / "disk" / "exposures.db", 3) as ledger:
            check_counts([*ledger.past(), ledger.totals()], clients)
            assert not ledger.answers(["by hand"])
        service.start()
        with Client(service.url, timeout=60) as client:
            assert made.id in {one.id for one in client.promises()}
