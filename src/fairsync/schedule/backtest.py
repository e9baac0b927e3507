"""How good a forecast would have been on the traffic that it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from fairsync.schedule.forecast import Forecast
    from fairsync.schedule.seasonal_profile import Floats


@dataclass(frozen=True)
class Backtest:
    """What was foreseen at moments of the past, and what came.

    Attributes
    ----------
    expected, cautious, actual : numpy.ndarray
        (n,) requests in the span that began at each moment.
    """

    expected: Floats
    cautious: Floats
    actual: Floats

    @property
    def error(self) -> float:
        """Mean distance between what was expected and what came, as a share of what came."""
        return float(np.abs(self.expected - self.actual).sum() / self.actual.sum())

    @property
    def kept(self) -> float:
        """How often at least the cautious number came."""
        return float((self.actual >= self.cautious).mean())


def backtest(forecast: Forecast, start: datetime, end: datetime, length: timedelta, every: timedelta) -> Backtest:
    """Ask a forecast for spans that are over, each with what was known when the span began.

    Parameters
    ----------
    forecast
        With what it has observed.
    start, end
        Spans lie in between.
    length
        Of a span.
    every
        From the start of one span to the start of the next. Spans that were not observed throughout are left out.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from fairsync.schedule import Forecast
    >>> start, day = datetime(2026, 3, 2, tzinfo=UTC), timedelta(days=1)
    >>> steady = np.arange(start.timestamp(), (start + 28 * day).timestamp(), 30)
    >>> forecast = Forecast(rate=1.0).learn(steady, start, start + 28 * day)
    >>> result = backtest(forecast, start + 7 * day, start + 28 * day, day, day)
    >>> len(result.actual), round(result.error, 3), result.kept
    (21, 0.0, 1.0)
    """
    if length.total_seconds() <= 0 or every.total_seconds() <= 0:
        raise InvalidInputError("length and every must be longer than nothing.")
    rows = []
    while start + length <= end:
        stop = start + length
        if forecast.known(start, stop) == 1.0:
            actual = forecast.expected(start, stop, now=stop)
            rows.append((forecast.expected(start, stop), forecast.cautious(start, stop), actual))
        start += every
    if not rows:
        raise InvalidInputError("no span from start to end was observed throughout: choose others, or learn more.")
    return Backtest(*np.array(rows, dtype=np.float64).T)
