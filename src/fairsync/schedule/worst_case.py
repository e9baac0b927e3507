"""Worst-case traffic: the requests that plans rely on."""

from __future__ import annotations

import math

# The 99.9 % quantile of the normal distribution: by chance alone, traffic falls further below its mean than this many
# standard deviations once in a thousand times.
_NORMAL_QUANTILE = 3.09


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
    return max(int(min(lower_bound, worst_case_traffic * expected, by_chance(expected, -_NORMAL_QUANTILE))), 0)


def best_case_requests(expected: float) -> int:
    """Return the number of requests that chance alone would exceed once in a thousand times, at least 1.

    Examples
    --------
    >>> best_case_requests(0.0), best_case_requests(12.0)
    (2, 25)
    """
    return math.ceil(by_chance(expected, _NORMAL_QUANTILE))


def by_chance(expected: float, deviations: float) -> float:
    """Return the requests that are some standard deviations from their mean, if they come independently."""
    return expected + deviations * math.sqrt(expected) + (deviations**2 - 1) / 6
