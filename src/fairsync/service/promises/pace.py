"""The pace of promises: exposures over the present window, what was expected, and what is projected."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from fairsync.errors import UnknownPromiseError
from fairsync.schedule import Span, active_spans
from fairsync.service.schema import Pace, PacePoint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from fairsync.schedule import ScheduledPromise, TrafficForecast
    from fairsync.service.promises.projections import Projections

# Points of a pace that are kept, and points of the line that the forecast expects.
_MOST_POINTS, _LINE_POINTS = 240, 24
# Points of all promises together, as far as each may have as many as the line: a hundred bytes each.
_MOST_POINTS_OF_ALL = 240_000


class PaceHistory:
    """The exposures of each promise over its present window, thinned out as the window grows long."""

    def __init__(self) -> None:
        self._points: dict[tuple[str, str, datetime], deque[PacePoint]] = {}

    @property
    def points(self) -> int:
        """The number of points of all promises."""
        return sum(map(len, self._points.values()))

    def record(
        self,
        now: datetime,
        promises: Collection[ScheduledPromise],
        exposures: Mapping[ScheduledPromise, int],
        prices: Mapping[ScheduledPromise, float],
        requests: int,
    ) -> None:
        """Add a point for every promise. Promises about the same selection and window share their points.

        Parameters
        ----------
        now
            The time.
        promises
            All promises; those without a present window are skipped.
        exposures
            Exposures of promises in their present windows.
        prices
            Prices in force of promises.
        requests
            Requests in the present period.
        """
        kept: dict[tuple[str, str, datetime], deque[PacePoint]] = {}
        most = min(max(_MOST_POINTS_OF_ALL // max(len(promises), 1), _LINE_POINTS), _MOST_POINTS)
        for promise, span in active_spans(promises, now).items():
            key = _key(promise, span)
            if key in kept:
                continue
            points = self._points.get(key) or deque[PacePoint]()
            points.append(
                PacePoint(
                    at=now,
                    exposures=exposures.get(promise, 0),
                    requests=requests,
                    price=prices.get(promise, 0.0),
                )
            )
            if len(points) > most:  # every second one of those before is enough
                points = deque([*list(points)[:-1:2], points[-1]])
            kept[key] = points
        self._points = kept

    def pace(self, name: str, promise: ScheduledPromise, projections: Projections, forecast: TrafficForecast) -> Pace:
        """Return the pace of a promise in its present window."""
        view, ahead = projections.view(name, promise), projections.ahead(promise)
        if view is None:
            raise UnknownPromiseError(f"the last window of {name!r} is over, and too long ago to be known.")
        span = Span(view.start, view.end)
        return Pace(
            promise=name,
            name=view.name,
            group=view.group,
            floor=view.floor,
            cap=view.cap,
            slots=float(projections.slots(span)),
            start=span.start,
            end=span.end,
            points=list(self._points.get(_key(promise, span), ())),
            expected=_expected_line(forecast, span, view.floor, projections.now),
            projected=ahead.projected,
            low=ahead.low,
            high=ahead.high,
            cost_share=view.cost_share,
        )


def _key(promise: ScheduledPromise, span: Span) -> tuple[str, str, datetime]:
    return promise.selection, str(promise.window), span.start


def _expected_line(forecast: TrafficForecast, span: Span, floor: int, now: datetime) -> list[tuple[datetime, float]]:
    """Return the pace that reaches the floor at the end if exposures come in proportion to the traffic."""
    length = span.end - span.start
    moments = [span.start + length * (step / _LINE_POINTS) for step in range(_LINE_POINTS + 1)]
    requests = [0.0]
    for before, after in itertools.pairwise(moments):
        requests.append(requests[-1] + forecast.expected(before, after, now))
    whole = requests[-1] or 1.0
    return [(moment, floor * so_far / whole) for moment, so_far in zip(moments, requests, strict=True)]
