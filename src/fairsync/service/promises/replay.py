"""Promises tried on past traffic: a keeper as the service runs it, on a clock that goes by the log."""

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
    """(keeper, first request, last request + 1): has these answered."""

# Requests of one second are answered together: a service looks at its clock so often.
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
    """Let past requests come again, each at its time, and return the keeper: it knows how every window ended.

    Parameters
    ----------
    open_keeper
        Makes a keeper that goes by a clock; where it is to outlive being down, each time on the same ledger.
    times
        Unix seconds of the requests, ascending.
    serve
        Answers them. It is also called with no requests, every so often, for whatever else is due.
    start, end
        Of the replay.
    every
        The keeper looks at clock and traffic before all requests, so often, and a second before a window ends. A
        service does so every second; what comes of that shows with the next request or at the end.
    down
        When the service is not there, in order. It does not see it coming, and requests that come then are lost.

    Examples
    --------
    A request every ten minutes; on the second day nobody is there from 6:00 to 22:00.

    >>> from datetime import UTC, datetime
    >>> from fairsync import Catalog, Coordinator, FrontEnd
    >>> from fairsync.ledger import MemoryLedger
    >>> from fairsync.service.promises.promise_service import PromiseService
    >>> from fairsync.schedule import Forecast, Promise, Span, Window
    >>> rng, day = np.random.default_rng(0), datetime(2026, 3, 2, tzinfo=UTC)
    >>> catalog, ledger = Catalog(rng.normal(size=(40, 8)), ["red"] * 20 + ["blue"] * 20), MemoryLedger(2)
    >>> def open_service(clock):
    ...     coordinator = Coordinator(catalog, k=2, horizon=1, ledger=ledger, auto_restart=False)
    ...     promises = [Promise("blue", 200, Window.day("UTC"))]
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
