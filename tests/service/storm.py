"""A service in a process of its own that is killed time and again, and clients that do not give up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.errors import BackendUnavailableError
from fairsync.service.client import Client
from fairsync.service.schema import ImpressionReport
from service.test_run import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from fairsync.ledger import Totals

K, LABELS = 3, ["books", "toys", "wine"]
# Has begun, and goes on for longer than any test.
FAR = (datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(days=9))
CONFIG = f"""
promises = [
    {{group = "toys", floor = 100, window = {{every = "hour"}}}},
    {{group = "wine", floor = 5_000_000, window = {{every = "campaign", start = {FAR[0]}, end = {FAR[1]}}}}},
]
[catalog]
path = "items"
[promise]
k = {K}
batch_size = 16
[traffic]
per_second = 60
[http]
log = "problems"
"""
SQLITE = '[ledger]\nkind = "sqlite"\npath = "exposures.db"\n'


def make_catalog() -> Catalog:
    """Return items of which nobody would be shown wine, unless it was promised."""
    vectors = np.random.default_rng(7).normal(size=(60, 8))
    vectors[:, 0] += np.repeat([3.0, 2.0, -2.0], 20)
    return Catalog(vectors.astype(np.float32), np.repeat(LABELS, 20))


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


class Service:
    """``fairsync serve`` on a port that stays the same, forked off a process that has loaded everything."""

    def __init__(self, folder: Path, ledger: str = SQLITE) -> None:
        self.folder, self.config, self.port = folder, folder / "service.toml", free_port()
        save_catalog(make_catalog(), folder / "items")
        self.config.write_text(CONFIG + f"port = {self.port}\n" + ledger)
        self.starts = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fairsync.service.run", "fairsync.coordination.redis"])
        self._process: BaseProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    def log(self) -> str:
        """Return what it has written down so far, of all starts."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("log *")))

    def start(self, *, wait: bool = True) -> None:
        log = self.folder / f"log {self.starts:04}"
        self.starts += 1
        self._process = self._context.Process(target=_serve, args=(str(self.config), str(log)), daemon=True)
        self._process.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        with Client(self.url, attempts=1) as client:
            until(lambda: _is_ready(client))

    def kill(self) -> None:
        """End it with -9, wherever it is."""
        assert self._process is not None
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Ask it to end."""
        assert self._process is not None
        self._process.terminate()
        self._process.join(30)
        assert self._process.exitcode == 0, self.log()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive():
            self.kill()


def _serve(config: str, log: str) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pathlib import Path

    from fairsync.cli.serve import serve

    serve(Path(config))


def _is_ready(client: Client) -> bool:
    try:
        return client.ready()
    except BackendUnavailableError:
        return False


class Storm:
    """Clients that ask, ask again under the same ids, and report what was shown, until they are answered.

    Attributes
    ----------
    received : dict
        (ids, groups) of each request, by its id.
    shown : Counter
        Items of each group in the reports that were acknowledged, each of which is made twice.
    refused : Counter
        Calls that were not answered, by what was said.
    """

    def __init__(self, url: str, name: str = "", threads: int = 3, pause: float = 0.0) -> None:
        self.received: dict[str, tuple[list[Any], list[Any]]] = {}
        self.impressions, self.refused, self.calls = Counter[str](), Counter[str](), 0
        self.failures: list[BaseException] = []
        self._url, self._name, self._pause, self._over = url, name, pause, threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._work, args=(mine,)) for mine in range(threads)]

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads), "a client was never answered"
        assert not self.failures, self.failures
        assert not [words for words in self.refused if "mistake" in words], self.refused

    def _work(self, mine: int) -> None:
        rng, number = np.random.default_rng(mine), 0
        try:
            with ExitStack() as stack:
                client = stack.enter_context(Client(self._url, attempts=1, timeout=30.0))
                while not self._over.is_set():
                    names = [f"{self._name}{mine} {number} {i}" for i in range(int(rng.integers(1, 4)))]
                    self._one(client, names, number, rng)
                    number += 1
                    self._over.wait(self._pause)
        except BaseException as error:
            self.failures.append(error)

    def _one(self, client: Client, names: Sequence[str], number: int, rng: np.random.Generator) -> None:
        users = rng.normal(size=(len(names), 8)) + np.eye(8)[0] * 2.0
        found = self._insist(lambda: client.retrieve(users, request_ids=names))
        answers = dict(zip(names, zip(found.ids.tolist(), found.groups.tolist(), strict=True), strict=True))
        with self._lock:
            self.received.update(answers)
        if number % 5 == 0:  # also much later, when whoever answered may be dead
            with self._lock:
                earlier = list(self.received)[-200::20]
            again = self._insist(lambda: client.retrieve(np.zeros((len(earlier), 8)) + 1.0, request_ids=earlier))
            for name, ids, groups in zip(earlier, again.ids.tolist(), again.groups.tolist(), strict=True):
                assert (ids, groups) == self.received[name], f"{name} was answered in two ways"
        if number % 2 == 0:
            reports = [ImpressionReport(request_id=name, items=answers[name][0][: number % 3 + 1]) for name in names]
            for _ in range(2):
                self._insist(lambda: client.impressions(reports))
            with self._lock:
                for report in reports:
                    self.impressions.update(answers[report.request_id][1][: len(report.items)])

    def _insist(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                answer = call()
            except BackendUnavailableError as error:
                with self._lock:
                    self.refused[str(error)[:70]] += 1
                time.sleep(0.1)
            else:
                with self._lock:
                    self.calls += 1
                return answer


def check_counts(totals_list: Sequence[Totals], *storms: Storm) -> Mapping[str, int]:
    """Compare what a ledger has with what clients have received; return the exposures."""
    received = [groups for storm in storms for _, groups in storm.received.values()]
    counts = Counter(label for groups in received for label in groups)
    impressions = sum((storm.impressions for storm in storms), Counter())
    assert sum(one.requests for one in totals_list) == len(received)
    assert _named(np.sum([one.exposures for one in totals_list], axis=0)) == {label: counts[label] for label in LABELS}
    reported = [one.impressions for one in totals_list if one.impressions is not None]
    assert _named(np.sum(reported, axis=0)) == {label: impressions[label] for label in LABELS}
    return counts


def _named(counts: Any) -> dict[str, int]:
    return dict(zip(LABELS, counts.tolist(), strict=True))
