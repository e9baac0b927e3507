"""Backtest: the accuracy of a forecast on past traffic."""

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
    """Forecasts made at past moments, and the actual traffic.

    Attributes
    ----------
    expected : numpy.ndarray
        (n,) Expected requests of each span, as forecast at its start.
    lower_bound : numpy.ndarray
        (n,) Lower bound of the requests of each span, as forecast at its start.
    actual : numpy.ndarray
        (n,) Requests that came in each span.
    """

    expected: Floats
    lower_bound: Floats
    actual: Floats

    @property
    def error(self) -> float:
        """Mean absolute error of the expected requests, relative to the mean of the actual ones."""
        return float(np.abs(self.expected - self.actual).sum() / self.actual.sum())

    @property
    def coverage(self) -> float:
        """Fraction of the spans in which at least the lower bound came."""
        return float((self.actual >= self.lower_bound).mean())


def backtest(forecast: Forecast, start: datetime, end: datetime, length: timedelta, every: timedelta) -> Backtest:
    """Forecast past spans, each from what was known when it began, and compare with the actual traffic.

    Parameters
    ----------
    forecast
        A forecast that has observed the past traffic.
    start, end
        All spans lie between these moments.
    length
        Length of a span.
    every
        Time from the start of one span to the start of the next. Spans that were not fully observed are left out.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> from fairsync.schedule import Forecast
    >>> start, day = datetime(2026, 3, 2, tzinfo=UTC), timedelta(days=1)
    >>> steady = np.arange(start.timestamp(), (start + 28 * day).timestamp(), 30)
    >>> forecast = Forecast(rate=1.0).learn(steady, start, start + 28 * day)
    >>> result = backtest(forecast, start + 7 * day, start + 28 * day, day, day)
    >>> len(result.actual), round(result.error, 3), result.coverage
    (21, 0.0, 1.0)
    """
    if length.total_seconds() <= 0 or every.total_seconds() <= 0:
        raise InvalidInputError("length and every must be longer than 0 seconds.")
    rows = []
    while start + length <= end:
        stop = start + length
        if forecast.coverage(start, stop) == 1.0:
            actual = forecast.expected(start, stop, now=stop)
            rows.append((forecast.expected(start, stop), forecast.lower_bound(start, stop), actual))
        start += every
    if not rows:
        raise InvalidInputError(
            "no span from start to end was fully observed: choose other moments, or let the forecast learn more."
        )
    return Backtest(*np.array(rows, dtype=np.float64).T)
