"""Run the service: from settings to a server that listens."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.urls import is_postgres
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.service.arms.arm_settings import check_same_arms, make_assignment, settings_of_arms
from fairsync.service.arms.router import ArmObserver, ArmRouter
from fairsync.service.catalog_settings import open_items
from fairsync.service.check import check_start
from fairsync.service.ledger_settings import fit_ledger, open_service_ledger, read_groups
from fairsync.service.promises.conversion import promises_from_records
from fairsync.service.promises.promise_service import PromiseService
from fairsync.service.promises.saved_items import SavedItems
from fairsync.service.search_settings import make_search
from fairsync.service.server.app import make_app
from fairsync.service.server.json_logging import log, start_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.catalog import Catalog
    from fairsync.ledger import Ledger
    from fairsync.service.server.request_context import RequestContextMiddleware
    from fairsync.service.settings import HttpSettings, Settings

# The search thread and the event loop hand the interpreter lock to each other. Python's default interval of 5 ms would
# be most of the latency of a request.
_SWITCH_SECONDS = 0.0005
# Hundreds of thousands of objects live as long as the process. Collecting garbage less often saves a tenth of the time
# of a call, and the pauses.
_GC_THRESHOLD = (10_000, 20, 100)
# Longer than proxies keep idle connections, so that the proxy closes them first.
_KEEP_ALIVE_SECONDS = 75
# Share of the time to shut down that calls in flight have. The rest is for saving.
_SHARE_OF_CALLS = 0.8


def make_promise_service(settings: Settings, files: Catalog | None = None) -> PromiseService:
    """Open the ledger, and return the promise service over items, which are opened unless they are given."""
    files = open_items(settings) if files is None else files
    promises = promises_from_records(settings.promises, read_groups(settings, files))
    promise, http, ledger = settings.promise, settings.http, open_service_ledger(settings, files.n_groups)
    catalog = fit_ledger(files, ledger)
    coordinator = Coordinator(
        catalog,
        k=promise.k,
        floors=0,
        horizon=1,
        policy=promise.policy,
        batch_size=promise.batch_size,
        max_exclude=promise.max_exclude,
        ledger=ledger,
        lease_seconds=http.request_seconds / 2,  # a call may have to wait for a replica that died
        auto_restart=False,
        replica=f"{socket.gethostname()}:{http.port or os.getpid()}" if is_postgres(settings.ledger.url) else "",
    )
    front = FrontEnd(
        catalog,
        coordinator,
        # Not an index over the catalog: under the promises that the ledger holds, items have other groups.
        index="exact" if isinstance(catalog, HostedCatalog) else partial(make_search, settings.search),
        cold=promise.cold,
        count_cold=promise.count_cold,
    )
    worst_case_traffic = settings.traffic.worst_case
    return PromiseService(
        front,
        coordinator,
        promises,
        settings.traffic.forecast,
        count=settings.promise.count,
        worst_case_traffic=worst_case_traffic,
        budget=settings.promise.budget,
        saved_items=_saved_items(ledger, files),
    )


def _saved_items(ledger: Ledger, files: Catalog) -> SavedItems | None:
    """Return the changes of items that the ledger keeps. Items that only an engine holds are changed there."""
    if isinstance(files, HostedCatalog) or not isinstance(ledger, SqlLedger):
        return None
    from fairsync.catalog.files import StoredCatalog

    return SavedItems(ledger.database, files) if isinstance(files, StoredCatalog) else None


def make_services(
    settings: Settings, files: Catalog
) -> tuple[list[PromiseService], RequestContextMiddleware | ArmRouter]:
    """Return the promise service of each arm, or the only one without arms, and the application over them."""
    if not settings.arms:
        service = make_promise_service(settings, files)
        return [service], make_app(service, settings)
    assignment, parts = make_assignment(settings), settings_of_arms(settings)
    services = [make_promise_service(part, files) for part in parts]
    for service in services:
        check_same_arms(service, assignment)
        service.experiment = settings.experiment
    observer = ArmObserver(assignment, services)
    apps = [make_app(service, part, more=observer.operations()) for service, part in zip(services, parts, strict=True)]
    return services, ArmRouter(assignment, apps, observer)


def serve(settings: Settings) -> None:
    """Run the service until SIGTERM or SIGINT, then drain it and answer the requests in flight.

    A second SIGINT stops it at once.
    """
    # All that can be checked by reading, then the address: a process that cannot start must not open a port, make
    # promises, or become the leader.
    start = check_start(settings)
    if start.problems or start.catalog is None:
        raise InvalidInputError("\n".join(start.problems))
    sockets = bind(settings.http)
    try:
        _serve(settings, start.catalog, sockets)
    finally:
        for one in sockets:
            one.close()


def _serve(settings: Settings, files: Catalog, sockets: list[socket.socket]) -> None:
    """Make the services, and run them on these sockets until a signal."""
    http = settings.http
    start_logging()
    sys.setswitchinterval(_SWITCH_SECONDS)
    services, app = make_services(settings, files)
    for service in services:
        log.info("%r, promises: %d", service.catalog, len(service.promises()))
    if settings.is_open:
        log.warning("no [[tokens]]: anybody on this machine may do anything")
    for warning in settings.warnings:
        log.warning("%s", warning)
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing depends on the address of the client
        limit_concurrency=http.max_connections,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(math.floor(_SHARE_OF_CALLS * http.shutdown_seconds), 1),
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    server = uvicorn.Server(config)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_run(server, app, services, sockets, http))
    for service in services:
        service.coordinator.ledger.close()
    if server.force_exit or not all(service.is_saved for service in services):
        how = "stopped at once" if server.force_exit else "stopped"
        log.warning("%s; counts are saved, the state since the last save is not", how)
    else:
        log.info("stopped; prices and promises are saved")


async def _run(
    server: uvicorn.Server,
    app: RequestContextMiddleware | ArmRouter,
    services: Sequence[PromiseService],
    sockets: list[socket.socket],
    http: HttpSettings,
) -> None:
    """Run the server; on a signal, report not ready for the drain period, then have it shut down in time."""
    stop = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        server.force_exit = stop.is_set() and number == signal.SIGINT
        stop.set()

    async def drain() -> None:
        await stop.wait()
        for service in services:
            service.readiness.drain()
        app.draining = True
        deadline = time.monotonic() + http.drain_seconds
        while time.monotonic() < deadline and not server.force_exit:
            await asyncio.sleep(0.05)
        exit_after(max(http.shutdown_seconds, 2.0))
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    # The handlers of uvicorn know no drain period, and raise the signal again at the end, before the last lines here.
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    draining = asyncio.create_task(drain())
    serving = asyncio.create_task(server.serve(sockets))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    for one in sockets:
        host, port = one.getsockname()[:2]
        log.info("listening", extra={"facts": {"host": host, "port": port}})
    await serving
    draining.cancel()


def exit_after(seconds: float, leave: Callable[[int], object] = os._exit) -> threading.Timer:
    """End the process after a time if it still runs: a thread that hangs would keep it alive for ever.

    Every count is in the ledger before its request is answered. What is lost is the state since the last save.

    Parameters
    ----------
    seconds
        Seconds to wait.
    leave
        Ends the process with an exit code, without waiting for threads.

    Returns
    -------
    threading.Timer
        May be cancelled.
    """

    def end() -> None:
        log.error("work in progress was abandoned: it did not end within http.shutdown_seconds")
        leave(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def bind(http: HttpSettings) -> list[socket.socket]:
    """Return bound sockets, one per address of the host name. They do not listen yet.

    Examples
    --------
    >>> from fairsync.service.settings import HttpSettings
    >>> (one,) = bind(HttpSettings(port=0))
    >>> one.getsockname()[0]
    '127.0.0.1'
    >>> one.close()
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(http.host, http.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(socket.socket(family, kind, protocol))
            sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # IPv4 has a socket of its own
                sockets[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sockets[-1].bind(address)
    except OSError as error:
        for one in sockets:
            one.close()
        raise InvalidInputError(
            f"the service cannot listen on {http.host}, port {http.port} ({error.strerror or error}): stop what does,"
            " or set another http.host or http.port."
        ) from error
    return sockets
