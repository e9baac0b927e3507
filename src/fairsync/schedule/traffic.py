"""Traffic until each deadline: what is expected, its lower bound, and the worst case that plans rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.schedule.worst_case import best_case_requests, worst_case_requests

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
