"""``fairsync serve`` in a process of its own, which tests can kill and start again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.files import save_catalog
from fairsync.errors import BackendUnavailableError
from fairsync.service.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess
    from pathlib import Path

K, LABELS = 3, ["books", "toys", "wine"]
# A campaign that has begun, also by a clock that is set to noon, and lasts longer than any test. An hour or a day may
# end during a test.
CAMPAIGN = (datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=9))
WINDOW = f'{{every = "campaign", start = {CAMPAIGN[0]}, end = {CAMPAIGN[1]}}}'
CONFIG = f"""
promises = [
    {{group = "toys", floor = 100, window = {WINDOW}}},
    {{group = "wine", floor = 5_000_000, window = {WINDOW}}},
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
SQLITE = '[ledger]\nurl = "sqlite:///exposures.db"\n'


def make_catalog() -> Catalog:
    """Return a catalog whose wine is never retrieved without a promise."""
    vectors = np.random.default_rng(7).normal(size=(60, 8))
    vectors[:, 0] += np.repeat([3.0, 2.0, -2.0], 20)
    return Catalog(vectors.astype(np.float32), np.repeat(LABELS, 20))


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 240.0, state: Callable[[], object] = str) -> float:
    """Wait for a condition. Returns the seconds that it took; if it does not become true, the error tells the state."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + seconds, f"the condition did not become true: {state()}"
        time.sleep(0.01)
    return time.monotonic() - started


class ServiceProcess:
    """``fairsync serve`` on a fixed port, forked from a process that has imported everything.

    A supervised one is started again if it ends during its start, as systemd does: it ends if its ledger is away.
    """

    def __init__(self, folder: Path, ledger: str = SQLITE, *, supervised: bool = False) -> None:
        self.supervised = supervised
        self.folder, self.config, self.port = folder, folder / "service.toml", free_port()
        save_catalog(make_catalog(), folder / "items")
        self.config.write_text(CONFIG + f"port = {self.port}\n" + ledger)
        self.starts = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["fairsync.service.run", "fairsync.coordination.leader_election"])
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
        """Return the log of all starts."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("log *")))

    def start(self, *, wait: bool = True) -> None:
        log = self.folder / f"log {self.starts:04}"
        self.starts += 1
        self._process = self._context.Process(target=_serve, args=(str(self.config), str(log)), daemon=True)
        self._process.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the service is ready."""

        def is_up() -> bool:
            if self.supervised and not self.is_alive():
                self.start(wait=False)
            return is_ready(client)

        with Client(self.url, attempts=1, timeout=60) as client:
            wait_until(is_up)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Stop the process with SIGTERM, and check that it exits cleanly."""
        assert self._process is not None
        self._process.terminate()
        self._process.join(30)
        assert self._process.exitcode == 0, self.log()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def __enter__(self) -> ServiceProcess:
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


def is_ready(client: Client) -> bool:
    """Return whether the service answers and is ready."""
    try:
        return client.ready()
    except BackendUnavailableError:
        return False
