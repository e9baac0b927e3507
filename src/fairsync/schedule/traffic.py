"""Traffic until each deadline: what is expected, its lower bound, and the worst case that plans rely on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fairsync.schedule.worst_case import worst_case_requests

if TYPE_CHECKING:
    from fairsync.schedule.active_windows import ActiveWindows
    from fairsync.schedule.forecast import TrafficForecast
    from fairsync.schedule.seasonal_profile import Floats, Ints


SOON = timedelta(hours=12)
"""After this time, traffic may fall to the worst case a second time."""


class Traffic(NamedTuple):
    """Requests from now until each deadline.

    Attributes
    ----------
    expected : numpy.ndarray
        (S,) expected requests.
    lower_bound : numpy.ndarray
        (S,) the lower bound of the period, plus that of the time after it.
    worst_case : numpy.ndarray
        (S,) worst-case requests.
    """

    expected: Floats
    lower_bound: Ints
    worst_case: Ints

    @classmethod
    def of(cls, forecast: TrafficForecast, active: ActiveWindows, worst_case_traffic: float) -> Traffic:
        """Return the traffic until the deadlines of active windows."""
        now = active.now
        expected = [forecast.expected(now, deadline, now) for deadline in active.deadlines]
        first = forecast.lower_bound(now, active.end, now)
        after = [forecast.lower_bound(active.end, deadline, now) for deadline in active.deadlines]
        soon = forecast.expected(now, now + SOON, now)
        worst = [
            worst_case_traffic * min(whole, soon) + worst_case_traffic**2 * max(whole - soon, 0.0) for whole in expected
        ]
        at_once = worst_case_requests(expected[0], first, worst[0])
        worst_case = [
            at_once + worst_case_requests(max(whole - expected[0], 0.0), bound, least - worst[0])
            for whole, bound, least in zip(expected, after, worst, strict=True)
        ]
        return cls(
            np.array(expected),
            np.array([int(first) + int(bound) for bound in after], dtype=np.int64),
            np.array(worst_case, dtype=np.int64),
        )
