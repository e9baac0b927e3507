"""Traffic until each deadline: what is expected, its lower bound, and the worst case that plans rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.schedule.worst_case import worst_case_requests

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.seasonal_profile import Floats, Ints


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
    """

    expected: Floats
    lower_bound: Ints
    worst_case_traffic: float

    @classmethod
    def of(cls, forecast: TrafficForecast, active: ActiveWindows, worst_case_traffic: float) -> Traffic:
        """Return the traffic until the deadlines of active windows."""
        now = active.now
        expected = [forecast.expected(now, deadline, now) for deadline in active.deadlines]
        first = forecast.lower_bound(now, active.end, now)
        after = [forecast.lower_bound(active.end, deadline, now) for deadline in active.deadlines]
        lower_bound = np.array([int(first) + int(bound) for bound in after], dtype=np.int64)
        return cls(np.array(expected), lower_bound, worst_case_traffic)

    def worst_case_after(self, requests: int) -> Ints:
        """Return (S,) the requests until each deadline if traffic falls to the worst case after some requests."""
        period, bound = max(float(self.expected[0]) - requests, 0.0), max(int(self.lower_bound[0]) - requests, 0)
        first = worst_case_requests(period, bound, self.worst_case_traffic)
        later = zip(
            np.maximum(self.expected - self.expected[0], 0.0).tolist(),
            (self.lower_bound - self.lower_bound[0]).tolist(),
            strict=True,
        )
        return np.array(
            [first + worst_case_requests(whole, least, self.worst_case_traffic) for whole, least in later],
            dtype=np.int64,
        )
