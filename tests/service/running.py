"""A service on a real port, in a thread of the test process."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn

from fairsync.catalog import Catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.schedule import Forecast
from fairsync.service.promises.clock import MonotonicClock
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.server.app import make_app
from fairsync.service.settings import Settings, parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator


TOKENS = {role: f"{role}-token-that-is-long" for role in ("retrieve", "report", "admin")}


def make_settings(http: dict[str, Any] | None = None, *, tokens: bool = False, **sections: Any) -> Settings:
    """Return settings. With tokens, there is one per role, in the environment variable of its name."""
    given = [{"name": role, "roles": [role], "env": f"TEST_{role.upper()}"} for role in TOKENS] if tokens else []
    sections = {"catalog": {"path": "unused"}, "ledger": "memory://", **sections}
    return parse_settings({**sections, "http": {"port": 0, "request_seconds": 60.0, **(http or {})}, "tokens": given})


def small_catalog() -> Catalog:
    """Return 60 items in three groups."""
    rng = np.random.default_rng(7)
    return Catalog(rng.normal(size=(60, 8)).astype(np.float32), np.repeat(["books", "toys", "wine"], 20))


def shop_catalog() -> Catalog:
    """Return 60 items with attributes: 20 of each category, every second one in stock."""
    rng = np.random.default_rng(7)
    attributes = {
        "category": np.repeat(["books", "toys", "wine"], 20),
        "region": ["DE", "AT", "CH"] * 20,
        "in_stock": [True, False] * 30,
        "price": np.arange(60.0),
        "tags": [["new"] if row % 10 == 0 else [] for row in range(60)],
    }
    return Catalog(rng.normal(size=(60, 8)).astype(np.float32), attributes, [f"i{row}" for row in range(60)])


class MiddayClock(MonotonicClock):
    """A clock by which all tests of a run begin after noon, so that no hour or day ends during one of them."""

    def __init__(self) -> None:
        super().__init__(lambda: time.time() + UNTIL_NOON)


UNTIL_NOON = 43_260.0 - time.time() % 86_400


def small_service(per_second: float = 1.0, catalog: Catalog | None = None, max_exclude: int = 0) -> PromiseService:
    """Return a promise service with a small catalog and no promises."""
    catalog = catalog or small_catalog()
    coordinator = Coordinator(
        catalog, k=3, floors=0, horizon=1, batch_size=16, auto_restart=False, max_exclude=max_exclude
    )
    front, forecast = FrontEnd(catalog, coordinator), Forecast(rate=per_second)
    return PromiseService(front, coordinator, [], forecast, clock=MiddayClock())


class Running:
    """A service that listens on a port."""

    def __init__(self, promise_service: PromiseService, settings: Settings, refresh_seconds: float = 1.0) -> None:
        self.promise_service = promise_service
        self.app = make_app(promise_service, settings, refresh_seconds)
        config = uvicorn.Config(
            self.app, port=0, http="httptools", ws="none", log_config=None, access_log=False,
            timeout_graceful_shutdown=60,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self.server.serve()), daemon=True)

    def start(self) -> None:
        self._thread.start()
        end = time.monotonic() + 240
        while not self.server.started:
            assert self._thread.is_alive(), "the server stopped during its start"
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.01)

    @property
    def port(self) -> int:
        return int(self.server.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(240)
        assert not self._thread.is_alive(), "the server did not end"


@contextmanager
def running(
    promise_service: PromiseService, settings: Settings | None = None, refresh_seconds: float = 1.0
) -> Iterator[Running]:
    """Run a service as long as it is needed."""
    service = Running(promise_service, settings or make_settings(), refresh_seconds)
    service.start()
    try:
        yield service
    finally:
        service.stop()
