"""Nothing that was acknowledged is lost, and nothing counts twice, through the running service.

The service is killed with -9 at random moments, under load from clients that ask again until they are answered. Each
test does so a few times; FAIRSYNC_KILLS=100 does it a hundred times, which takes some minutes, and prints figures.
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

from coordination.valkey_server import ValkeyServer
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.errors import BackendUnavailableError
from fairsync.ledger import SqliteLedger
from fairsync.service.client import Client
from fairsync.service.schema import PromiseRecord, WindowRecord
from service.storm import FAR, Service, Storm, check_counts, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("FAIRSYNC_KILLS", "3"))
MANY = KILLS >= 20
# As often does a coordinator keep what its policy has learnt.
KEEP_SECONDS = 5.0
FAR_WINDOW = WindowRecord(every="campaign", start=FAR[0], end=FAR[1])


class Promiser:
    """Makes, changes and ends a promise time and again, until the service is gone; knows what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, attempts=1)
        self.name: str | None = None
        self.floors: set[int] = set()  # that may be in force; none: there may be no promise
        self.acknowledged, self._floor = 0, 0

    def work(self) -> None:
        """Go on until nobody answers."""
        try:
            while True:
                self._change()
                self.acknowledged += 1
        except BackendUnavailableError:
            pass

    def _change(self) -> None:
        self._floor += 1
        given = PromiseRecord(group="books", floor=self._floor, window=FAR_WINDOW)
        if self.name is None:
            known = [one for one in self._client.promises() if one.group == "books"]  # one may be made unseen
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
        """Compare what is promised now with what was acknowledged, and what may have been done besides."""
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
    with Client(url) as client:
        return {one.group: one.price for one in client.groups()}


def kill_time_and_again(service: Service, storm: Storm, rng: np.random.Generator, kills: int) -> Promiser:
    """Kill a service that runs, and start it again, so many times; sometimes while it starts."""
    promiser, learnt = Promiser(service.url), prices(service.url)["wine"]
    assert learnt < 0
    for kill in range(kills):
        if kill % 5 == 4:
            service.start(wait=False)
            time.sleep(rng.uniform(0, 0.4))
        else:
            if kill:
                service.start()
            promiser.check()
            found = prices(service.url)["wine"]
            assert found < 0, "prices are cold"
            changing = threading.Thread(target=promiser.work)
            changing.start()
            before = len(storm.received)
            time.sleep(rng.uniform(0, 0.6))
            if kill % 2:  # not before somebody was answered
                until(lambda: len(storm.received) > before)  # noqa: B023
        service.kill()
        if kill % 5 != 4:
            changing.join(30)
    service.start()
    promiser.check()
    return promiser


def test_killed_time_and_again(tmp_path: Path) -> None:
    rng, started = np.random.default_rng(0), time.monotonic()
    with Service(tmp_path) as service:
        service.start()
        with Storm(service.url) as storm:
            until(lambda: len(storm.received) > 150)
            service.stop()  # which keeps prices, as otherwise happens every few seconds
            service.start()
            promiser = kill_time_and_again(service, storm, rng, KILLS)
            if MANY:
                check_that_prices_are_kept(service, storm)
        promiser.close()
        service.kill()
        with SqliteLedger(tmp_path / "exposures.db", 3) as ledger:
            counts = check_counts([*ledger.past(), ledger.totals()], storm)
        assert "Traceback" not in service.log()
    tell("sqlite", storm, promiser, counts, service.starts, started)


def check_that_prices_are_kept(service: Service, storm: Storm) -> None:
    """Let it learn for longer than prices are kept apart, and kill it: they are those of a few seconds before."""
    seen: list[tuple[float, float]] = []
    end = time.monotonic() + 2.5 * KEEP_SECONDS
    while time.monotonic() < end:
        seen.append((time.monotonic(), prices(service.url)["wine"]))
        time.sleep(0.05)
    service.kill()
    service.start()
    found = prices(service.url)["wine"]
    near = [price for at, price in seen if at > end - KEEP_SECONDS - 2]
    slack = 0.25 * abs(np.mean(near))
    assert min(near) - slack <= found <= max(near) + slack, (found, near)


def test_killed_time_and_again_with_a_server(tmp_path: Path) -> None:
    """The same with a ledger on a server, which is killed as well."""
    rng, started = np.random.default_rng(1), time.monotonic()
    over, deaths = threading.Event(), [0]
    with ValkeyServer() as server:

        def kill_server() -> None:
            while not over.wait(rng.uniform(0.5, 2.5) if MANY else 1.0):
                server.kill()
                time.sleep(rng.uniform(0, 0.3))
                server.start()
                deaths[0] += 1

        ledger_of = f'[ledger]\nkind = "redis"\nurl = "{server.url}"\nname = "shop"\n'
        with Service(tmp_path, ledger_of) as service:
            service.start()
            with Storm(service.url) as storm:
                until(lambda: len(storm.received) > 150)
                service.stop()
                service.start()
                killing = threading.Thread(target=kill_server)
                killing.start()
                try:
                    promiser = kill_time_and_again(service, storm, rng, KILLS if MANY else 2)
                finally:
                    over.set()
                    killing.join()
            promiser.close()
            service.kill()
            with RedisLedger(server.url, 3, "shop") as ledger:
                counts = check_counts([*ledger.past(), ledger.totals()], storm)
    tell(f"valkey, itself killed {deaths[0]} times", storm, promiser, counts, service.starts, started)


def tell(ledger: str, storm: Storm, promiser: Promiser, counts: object, starts: int, started: float) -> None:
    print(
        f"\n{ledger}: {starts} starts in {time.monotonic() - started:.0f} s; {storm.calls} calls answered,"
        f" {sum(storm.refused.values())} tried again; {len(storm.received)} requests, exposures {dict(counts)},"  # type: ignore[call-overload]
        f" shown {dict(storm.impressions)}, {promiser.acknowledged} changes of promises acknowledged"
    )


class Disk:
    """A place for a ledger that can be filled."""

    def __init__(self, folder: Path, service: Callable[[], int]) -> None:
        self.folder, self._service = folder, service
        self._ballast = folder / "ballast"
        self.is_mounted = False

    def mount(self) -> None:
        """Make it a disk of its own, of four megabytes, where that is allowed."""
        self.folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(self.folder)]
        with suppress(FileNotFoundError):
            self.is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> None:
        """Take all room; where there is no disk of its own, forbid files of the service to grow."""
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
        """Make room again."""
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


def test_the_disk_is_full(tmp_path: Path) -> None:
    """Calls are refused and can be made again; nothing refused counts; when there is room, it goes on by itself."""
    where = '[ledger]\nkind = "sqlite"\npath = "disk/exposures.db"\n'
    service = Service(tmp_path, where)
    with disk(tmp_path / "disk", lambda: service.pid) as full, service:
        service.start()
        with Storm(service.url) as storm, Client(service.url, attempts=1) as client:
            until(lambda: len(storm.received) > 50)
            full.fill()
            until(lambda: sum(storm.refused.values()) > 8)  # what had been reserved may still be used
            body = {"vectors": [[1.0] * 8], "request_ids": ["by hand"]}
            refused = httpx.post(f"{service.url}/v1/retrieve", json=body)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5"), refused.text
            assert "Nothing was changed" in refused.text
            with pytest.raises(BackendUnavailableError):
                client.make_promise(PromiseRecord(group="books", floor=5, window=FAR_WINDOW))
            assert [one.group for one in client.promises()] == ["toys", "wine"]
            assert service.is_alive()
            pid, answered = service.pid, len(storm.received)
            full.clear()
            until(lambda: len(storm.received) > answered + 50)
            made = client.make_promise(PromiseRecord(group="books", floor=5, window=FAR_WINDOW))
            assert service.pid == pid
        service.kill()
        with SqliteLedger(tmp_path / "disk" / "exposures.db", 3) as ledger:
            check_counts([*ledger.past(), ledger.totals()], storm)
            assert ledger.answer("by hand") is None
        service.start()
        with Client(service.url) as client:
            assert made.id in {one.id for one in client.promises()}
