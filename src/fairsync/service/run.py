"""From settings to a service that runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import uvicorn

from fairsync.catalog.files import open_catalog
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import MemoryLedger, SqliteLedger
from fairsync.schedule import Forecast
from fairsync.search import ExactIndex, ShardedIndex, make_index
from fairsync.service.promises.conversion import promises_from_records
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.saved_state import SavedState
from fairsync.service.server.app import make_app
from fairsync.service.server.auth import Tokens
from fairsync.service.server.connection import Line
from fairsync.service.server.json_logging import log, start_logs
from fairsync.service.sharing import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.catalog import Catalog
    from fairsync.coordination.base import CoordinatorBase
    from fairsync.ledger import Ledger
    from fairsync.search import Index
    from fairsync.service.settings import HttpSettings, LedgerSettings, SearchSettings, Settings

# The thread that searches and the one that talks to clients hand the interpreter to each other: waiting Python's usual
# 5 ms for it would be most of the time of a request.
_SWITCH_SECONDS = 0.0005
# Hundreds of thousands of objects stay from start to end. Python need not look through them again and again for what
# can be thrown away, which takes a tenth of the time of a call, and stops everything for as long as it lasts.
_COLLECT_AFTER = (10_000, 20, 100)
# Longer than proxies keep idle connections, so that it is they who close them.
_KEEP_ALIVE_SECONDS = 75


def make_promise_service(settings: Settings) -> PromiseService:
    """Open catalog and ledger, and return who keeps the promises."""
    catalog: Catalog = open_catalog(settings.catalog.path)
    forecast = make_forecast(settings)
    promises = promises_from_records(settings.promises, catalog)
    if settings.ledger.kind == "redis":
        coordinator: CoordinatorBase
        catalog, coordinator = join(settings, catalog)
    else:
        promise, ledger = settings.promise, make_ledger(settings.ledger, catalog.n_groups)
        catalog = fit_groups(catalog, ledger)
        coordinator = Coordinator(
            catalog, promise.k, 0, 1, promise.policy, promise.batch_size, ledger=ledger, auto_restart=False
        )
    front = FrontEnd(catalog, coordinator, make_search(settings.search, catalog))
    worst_case_traffic = settings.traffic.worst_case
    return PromiseService(
        front, coordinator, promises, forecast, count=settings.promise.count, worst_case_traffic=worst_case_traffic
    )


def fit_groups(catalog: Catalog, ledger: Ledger) -> Catalog:
    """Return the catalog with its groups in the order in which the ledger counts them.

    Since the last start groups may have come, which follow the others, or gone, which stay without items: counts and
    promises are theirs all the same.
    """
    notes = SavedState.load(ledger)
    if notes is None:
        return catalog
    labels = list(notes.labels)
    fitted = catalog if catalog.labels == labels else catalog.under(labels)
    if len(ledger.totals().exposures) < fitted.n_groups:
        ledger.grow(fitted.n_groups)
    return fitted


def make_forecast(settings: Settings) -> Forecast:
    """Return what is expected as long as nothing was seen."""
    return Forecast(rate=settings.traffic.per_second, zone=settings.traffic.zone)


def make_ledger(settings: LedgerSettings, n_groups: int) -> Ledger:
    """Open a ledger of this process alone."""
    if settings.kind == "memory":
        return MemoryLedger(n_groups)
    assert settings.path is not None, "settings were checked"
    return SqliteLedger(settings.path, n_groups)


def make_search(settings: SearchSettings, catalog: Catalog) -> Index:
    """Return the index that the settings ask for."""
    if settings.ray is not None:
        return _ray_index(settings, catalog)
    if settings.shards > 1:
        return ShardedIndex(catalog, settings.shards, settings.index)
    if settings.index == "exact":
        return ExactIndex(catalog, settings.threads)
    return make_index(settings.index, catalog)


def serve(settings: Settings) -> None:
    """Run the service until it is told to stop (SIGTERM or SIGINT); then what is in flight is finished.

    A second SIGINT ends it at once.
    """
    http = settings.http
    # Whoever cannot start must not have made promises, or taken the lead from another, before it says so.
    Tokens(settings.tokens)
    doors = bind(http)
    start_logs()
    sys.setswitchinterval(_SWITCH_SECONDS)
    service = make_promise_service(settings)
    log.info("%r, promises: %d", service.catalog, len(service.promises()))
    if settings.is_open:
        log.warning("no [[tokens]]: anybody on this machine may do anything")
    app = make_app(service, settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=Line,
        limit_concurrency=http.max_connections,
        ws="none",
        proxy_headers=False,  # nothing here depends on where a call comes from
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        log_level=logging.WARNING,
        timeout_graceful_shutdown=int(http.shutdown_seconds) or 1,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops by these, and when it has stopped, raises them again: that must not end us before the rest.
        signal.signal(number, lambda *_: None)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    server = _Server(config, service, http.drain_seconds)
    server.run(doors)
    app.write_lines()  # of calls that were still given up when the rest had ended
    close: Callable[[], None] | None = getattr(service.coordinator.ledger, "close", None)  # there is none in memory
    if close is not None:
        close()
    if server.force_exit:
        log.warning(
            "stopped at once; what was counted is kept, and what was learnt since it was last written down is not"
        )
    else:
        log.info("stopped; prices and promises are kept")


def bind(http: HttpSettings) -> list[socket.socket]:
    """Return sockets that have the address to themselves, of which a name may have several; nobody can call yet.

    Examples
    --------
    >>> from fairsync.service.settings import HttpSettings
    >>> (door,) = bind(HttpSettings(port=0))
    >>> door.getsockname()[0]
    '127.0.0.1'
    >>> door.close()
    """
    doors: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(http.host, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            doors.append(socket.socket(family, kind, protocol))
            doors[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # that of IPv4 has a door of its own
                doors[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            doors[-1].bind(address)
    except OSError as error:
        for door in doors:
            door.close()
        raise InvalidInputError(
            f"the service cannot listen on {http.host}, port {http.port} ({error.strerror or error}): stop what does,"
            " or set another http.host or http.port."
        ) from error
    return doors


class _Server(uvicorn.Server):
    """Says where it listens, for with port 0 the system has chosen; and, before it stops, that it will.

    Parameters
    ----------
    config
        Of uvicorn.
    keeper
        Told that it ends.
    drain_seconds
        Between that and the end of answers.
    """

    def __init__(self, config: uvicorn.Config, service: PromiseService, drain_seconds: float) -> None:
        super().__init__(config)
        self._keeper, self._drain_seconds = service, drain_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in (line for server in getattr(self, "servers", []) for line in server.sockets):
            host, port = one.getsockname()[:2]
            log.info("listening", extra={"facts": {"host": host, "port": port}})

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._keeper.readiness.drain()
        # Whoever has a connection is asked to go, so that no call is on its way when connections are closed.
        self.config.encoded_headers.append((b"connection", b"close"))
        end = time.monotonic() + self._drain_seconds
        while time.monotonic() < end and not self.force_exit:
            await self.on_tick(0)  # which renews the headers of all answers
            await asyncio.sleep(0.1)
        await super().shutdown(sockets)


def _ray_index(settings: SearchSettings, catalog: Catalog) -> Index:
    try:
        import ray
    except ImportError:
        raise InvalidInputError("search.ray is set, but Ray is not installed: pip install 'fairsync[ray]'.") from None
    from fairsync.search.ray import RayIndex

    if not ray.is_initialized():
        try:
            ray.init(address=settings.ray_address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"there is no Ray cluster at {settings.ray_address!r} ({error}): check search.ray_address."
            ) from error
    return RayIndex.attach(str(settings.ray), catalog)
