"""A real Chromium, and a real service on a port for it to load."""

import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from fairsync.service.server.app import make_app
from fairsync.service.server.operations import Operation
from fairsync.service.settings import parse_settings
from service.dashboard.simulated_shop import SimulatedShop

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the path of the browser. Skip the test if there is none."""
    named = os.environ.get("FAIRSYNC_CHROMIUM")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in FAIRSYNC_CHROMIUM")
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    """Run a headless browser; yields Playwright's Browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class ServedShop:
    """The service of a shop on a port of its own. It can be stopped and started again."""

    def __init__(self, shop: SimulatedShop, operations: Sequence[Operation] = (), **tokens: list[str]) -> None:
        self._shop, self._operations = shop, operations
        self._settings = parse_settings(
            {
                "catalog": {"path": "unused"},
                "ledger": "memory://",
                "http": {"log": "problems"},
                "tokens": [
                    {"name": name, "roles": roles, "sha256": hashlib.sha256(name.encode()).hexdigest()}
                    for name, roles in tokens.items()
                ],
            }
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self) -> None:
        app = make_app(self._shop.promise_service, self._settings, more=self._operations)
        self._server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="error", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 240
        while not self._server.started:
            assert time.monotonic() < until, "the service does not start"
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True  # a browser keeps its connections open
        self._thread.join(10)
