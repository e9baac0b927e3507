"""Traffic until each deadline: what is expected, its lower bound, and the worst case that plans rely on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.seasonal_profile import Floats, Ints

# The 99.9 % quantile of the normal distribution: by chance alone, traffic falls further below its mean than this many
# standard deviations once in a thousand times.
_NORMAL_QUANTILE = 3.09


class Traffic(NamedTuple):
    """Requests from now until each deadline.

    Attributes
    ----------
    expected : numpy.ndarray
        (S,) expected requests.
    lower_bound : numpy.ndarray
        (S,) the lower bound of the period, plus that of the time after it.
    worst_case_traffic : float
        Worst-case traffic, as a fraction of the expected requests.
    sustained : numpy.ndarray
        (S,) requests if traffic stays as low as it is; at most those expected.
    """

    expected: Floats
    lower_bound: Ints
    worst_case_traffic: float
    sustained: Floats

    @classmethod
    def of(cls, forecast: TrafficForecast, active: ActiveWindows, worst_case_traffic: float) -> Traffic:
        """Return the traffic until the deadlines of active windows."""
        now = active.now
        expected = [forecast.expected(now, deadline, now) for deadline in active.deadlines]
        first = forecast.lower_bound(now, active.end, now)
        after = [forecast.lower_bound(active.end, deadline, now) for deadline in active.deadlines]
        lower_bound = np.array([int(first) + int(bound) for bound in after], dtype=np.int64)
        sustained = np.minimum([forecast.sustained(deadline, now) for deadline in active.deadlines], expected)
        return cls(np.array(expected), lower_bound, worst_case_traffic, sustained)

    @property
    def best_case(self) -> Ints:
        """(S,) The most requests that the expected traffic may bring by chance until each deadline."""
        return np.array([best_case_requests(whole) for whole in self.expected.tolist()], dtype=np.int64)

    @property
    def worst_case(self) -> Ints:
        """(S,) The requests until each deadline if traffic falls to the worst case now."""
        first = worst_case_requests(float(self.sustained[0]), int(self.lower_bound[0]), self.worst_case_traffic)
        later = zip(
            np.maximum(self.sustained - self.sustained[0], 0.0).tolist(),
            (self.lower_bound - self.lower_bound[0]).tolist(),
            strict=True,
        )
        return np.array(
            [first + worst_case_requests(whole, least, self.worst_case_traffic) for whole, least in later],
            dtype=np.int64,
        )


def worst_case_requests(expected: float, lower_bound: float, worst_case_traffic: float) -> int:
    """Return the number of requests under worst-case traffic.

    Parameters
    ----------
    expected
        Expected requests, by the forecast.
    lower_bound
        The lower bound of the forecast.
    worst_case_traffic
        The part of the expected requests that come in the worst case.

    Examples
    --------
    >>> worst_case_requests(9000, lower_bound=8000, worst_case_traffic=1 / 3)
    3000
    >>> worst_case_requests(9000, lower_bound=1000, worst_case_traffic=1 / 3)
    1000
    >>> worst_case_requests(12, lower_bound=12, worst_case_traffic=1)
    2
    """
    return max(int(min(lower_bound, worst_case_traffic * expected, _by_chance(expected, -_NORMAL_QUANTILE))), 0)


def best_case_requests(expected: float) -> int:
    """Return the number of requests that chance alone would exceed once in a thousand times, at least 1.

    Examples
    --------
    >>> best_case_requests(0.0), best_case_requests(12.0)
    (2, 25)
    """
    return math.ceil(_by_chance(expected, _NORMAL_QUANTILE))


def _by_chance(expected: float, deviations: float) -> float:
    """Return the requests that are some standard deviations from their mean, if they come independently."""
    return expected + deviations * math.sqrt(expected) + (deviations**2 - 1) / 6
