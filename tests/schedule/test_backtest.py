"""The backtest measures the error of a forecast and the coverage of its lower bound."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast, backtest

START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_error_and_coverage_of_noisy_traffic() -> None:
    rng = np.random.default_rng(3)
    forecast = Forecast(1.0, slot=3600)
    for hour in range(10 * 168):
        moment = START + hour * HOUR
        mean = (20 if moment.weekday() == 6 else 100) + (10 * moment.hour if moment.hour < 20 else 0)
        forecast = forecast.observe(moment, int(rng.poisson(mean)))
    result = backtest(forecast, START + 28 * DAY, START + 70 * DAY, 6 * HOUR, 7 * HOUR)
    assert len(result.actual) == 144
    assert result.error < 0.06  # the noise of 900 requests alone is 3 %
    assert result.coverage >= 0.93
    assert 0.8 < result.lower_bound.sum() / result.actual.sum() < 1


def test_spans_that_cannot_be_tested_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"no span .* was fully observed"):
        backtest(Forecast(1.0), START, START + DAY, HOUR, HOUR)
    with pytest.raises(InvalidInputError, match="longer than 0 seconds"):
        backtest(Forecast(1.0), START, START + DAY, HOUR, 0 * HOUR)
