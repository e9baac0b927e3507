"""Replay of past traffic through a promise service, on a clock that follows the log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule.datetimes import check_aware

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from numpy.typing import ArrayLike

    from fairsync.schedule import Span
    from fairsync.service.promises.promise_service import PromiseService

    Clock: TypeAlias = Callable[[], float]
    Serve: TypeAlias = Callable[[PromiseService, int, int], object]
    """(service, first request, last request + 1): answers these requests."""

# Requests of one second are answered together: a service reads its clock every second.
_SECOND = timedelta(seconds=1)


def replay(
    open_service: Callable[[Clock], PromiseService],
    times: ArrayLike,
    serve: Serve,
    start: datetime,
    end: datetime,
    *,
    every: timedelta = timedelta(minutes=5),
    down: Sequence[Span] = (),
) -> PromiseService:
    """Replay past requests, each at its time, and return the promise service, which knows how every window ended.

    Parameters
    ----------
    open_service
        Makes a promise service with a clock, after each outage on the same ledger.
    times
        Unix seconds of the requests, ascending.
    serve
        Answers requests. It is also called without requests, at every refresh.
    start, end
        Start and end of the replay.
    every
        Time between two refreshes of the service, which is also refreshed before every second with requests, and a
        second before a window ends. A running service is refreshed every second.
    down
        Outages, in order. They come unannounced, and requests during them are lost.

    Examples
    --------
    A request every ten minutes; on the second day the service is down from 6:00 to 22:00.

    >>> from datetime import UTC, datetime
    >>> from fairsync import Catalog, Coordinator, FrontEnd
    >>> from fairsync.ledger import MemoryLedger
    >>> from fairsync.service.promises.promise_service import PromiseService
    >>> from fairsync.schedule import Forecast, ScheduledPromise, Span, Window
    >>> rng, day = np.random.default_rng(0), datetime(2026, 3, 2, tzinfo=UTC)
    >>> catalog, ledger = Catalog(rng.normal(size=(40, 8)), ["red"] * 20 + ["blue"] * 20), MemoryLedger(2)
    >>> def open_service(clock):
    ...     coordinator = Coordinator(catalog, k=2, horizon=1, ledger=ledger, auto_restart=False)
    ...     promises = [ScheduledPromise.of_group("blue", 200, Window.day("UTC"))]
    ...     front_end, forecast = FrontEnd(catalog, coordinator), Forecast(rate=1 / 600)
    ...     return PromiseService(front_end, coordinator, promises, forecast, clock=clock)
    >>> times = np.arange(day.timestamp(), (day + timedelta(days=2)).timestamp(), 600)
    >>> down = [Span(day + timedelta(hours=30), day + timedelta(hours=46))]
    >>> def serve(service, first, last):
    ...     return service.retrieve(rng.normal(size=(last - first, 8)))
    >>> end = day + timedelta(days=2)
    >>> service = replay(open_service, times, serve, day, end, every=timedelta(hours=1), down=down)
    >>> [(window.kept, window.requests) for window in service.past()]
    [(False, 48), (True, 144)]
    """
    arrivals = np.asarray(times, dtype=np.float64)
    if np.any(np.diff(arrivals) < 0):
        raise InvalidInputError("times must ascend: sort them.")
    if every <= timedelta(0):
        raise InvalidInputError("every must be longer than nothing.")
    now, end = check_aware(start, "start"), check_aware(end, "end")
    seconds = now.timestamp()

    def clock() -> float:
        return seconds

    service, gaps = open_service(clock), [gap for gap in down if gap.end > now]
    while now < end:
        if gaps and now in gaps[0]:
            now = min(gaps.pop(0).end, end)
            seconds = now.timestamp()
            service = open_service(clock)
            continue
        service.refresh()
        period = service.scheduler.plan.span.end
        edges = [now + every, period - _SECOND, period, end, *(gap.start for gap in gaps[:1])]
        until = min(edge for edge in edges if edge > now)
        first, last = np.searchsorted(arrivals, [now.timestamp(), until.timestamp()]).tolist()
        serve(service, first, first)
        while first < last:
            seconds = max(seconds, float(arrivals[first]))
            stop = min(int(np.searchsorted(arrivals, seconds + _SECOND.total_seconds())), last)
            service.refresh()
            serve(service, first, stop)
            first = stop
        now = until
        seconds = now.timestamp()
    service.refresh()
    return service
