"""Safety margin: bring exposures forward so that floors hold even under worst-case traffic.

A forecast gives an expected number of requests and a lower bound (its 5 % quantile). Promises should hold below that
bound too, even if traffic drops as never before. So each plan also checks whether floors would still be met if only
the worst-case number of requests came from now on. If they would, the plan keeps its pace, which costs least.
Otherwise exposures are brought forward until they would: the affected groups get all that requests can hold.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.schedule.allocation import allocate, apportion

if TYPE_CHECKING:
    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints

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
        Worst-case traffic, as a fraction of the expected requests.

    Examples
    --------
    >>> worst_case_requests(9000, lower_bound=8000, worst_case_traffic=1 / 3)
    3000
    >>> worst_case_requests(9000, lower_bound=1000, worst_case_traffic=1 / 3)
    1000
    >>> worst_case_requests(12, lower_bound=12, worst_case_traffic=1.0)
    2
    """
    by_chance = expected - _NORMAL_QUANTILE * math.sqrt(expected) + (_NORMAL_QUANTILE**2 - 1) / 6
    return max(int(min(lower_bound, worst_case_traffic * expected, by_chance)), 0)


def cap_unreachable(requirements: Requirements) -> Requirements:
    """Lower the floors of later windows to what worst-case traffic can deliver to all of them.

    Exposures that later windows cannot get anyway are no reason to bring others forward. Longer promises of a group do
    not rely on later windows whose floors were lowered, nor on any if worst-case traffic is infeasible: it is unknown
    which groups will get the scarce slots, and the longer promise can be met before. If worst-case traffic is
    feasible, relying on later windows is safe and costs less.

    Examples
    --------
    A group is promised 8 exposures each day and 20 by the end of tomorrow; another group 12 each day. With 22 requests
    a day everything fits. With 10, tomorrow's floors do not, so all 20 exposures should come before.

    >>> from fairsync.schedule.requirements import Requirements
    >>> days = Requirements(np.array([0, 0, 1]), np.array([8, 20, 12]), np.array([8, 20, 12]), np.array([0, 1, 0]),
    ...                     later_windows=np.array([[0, 1], [0, 0], [0, 1]]), requests=np.array([22, 44]),
    ...                     capacities=np.array([1, 1]), k=1)
    >>> for requests in ([22, 44], [10, 20]):
    ...     capped = cap_unreachable(replace(days, requests=np.array(requests)))
    ...     print(capped.floor, capped.counts_later, capped.due(1) - capped.reserved(1))
    [ 8 20 12] [ True  True] [12 12]
    [ 4 20  5] [False False] [20 12]
    """
    later, requests = requirements.later_windows, requirements.requests
    after = np.maximum(requests - requests[requirements.deadline][:, None], 0)
    possible = requirements.capacities[requirements.group][:, None] * after // np.maximum(later, 1)
    alone = np.where(later > 0, possible, requirements.floor[:, None]).min(axis=1, initial=np.iinfo(np.int64).max)
    fair = replace(requirements, floor=np.minimum(requirements.floor, alone))
    reserved = np.array([fair.reserved(s).sum() for s in range(len(requests))], dtype=np.int64)
    slots = requirements.k * (requests - requests[0])
    fraction = np.where(later > 0, np.minimum(slots / np.maximum(reserved, 1), 1.0), 1.0).min(axis=1, initial=1.0)
    capped = replace(fair, floor=np.floor(fair.floor * fraction).astype(np.int64))
    is_whole = requirements.per_group(requirements.floor - capped.floor) == 0
    return replace(capped, counts_later=is_whole & bool((capped.slack() >= 0).all()))


def bring_forward(requirements: Requirements, given: Ints, horizon: int) -> tuple[Ints, int]:
    """Return floors and a horizon that hold under worst-case traffic, with a shorter horizon if necessary.

    Parameters
    ----------
    requirements
        The requirements under worst-case traffic.
    given
        (G,) Exposures within the horizon at the usual pace.
    horizon
        Lower bound of the requests until the nearest deadline.

    Examples
    --------
    A group misses 40 exposures. The lower bound is a hundred requests, the worst case ten; each can hold two of it.

    >>> from fairsync.schedule.requirements import Requirements
    >>> requirements = Requirements(np.array([0]), np.array([40]), np.array([40]), np.array([0]),
    ...                 np.zeros((1, 1), dtype=np.int64), requests=np.array([10]), capacities=np.array([2]), k=5)
    >>> bring_forward(requirements, np.array([40]), horizon=100)
    (array([40]), 20)
    """
    worst_case, capacities = int(requirements.requests[0]), requirements.capacities
    nothing = np.zeros_like(requirements.missing)
    mandatory = allocate(requirements, nothing, horizon)
    # A group that gets all that requests can hold gains nothing from a shorter horizon.
    full = mandatory >= capacities * horizon
    rest = np.where(full, 0, mandatory)
    room = requirements.k - min(int(capacities[full].sum()), requirements.k)
    late = rest > capacities * worst_case
    limits = (rest[late] // capacities[late]).tolist()
    if rest.sum() > room * worst_case:  # each group alone might fit, but not all of them together
        late, limits = rest > 0, [*limits, int(rest.sum()) // room]
    if not late.any():
        return given, horizon
    # The longest horizon over which the late groups need all that requests can hold, from the first request on.
    near = max(min(limits), 1)
    first = np.where(late, allocate(requirements, nothing, near), 0)
    others = np.where(late, 0, (2 * given * near + horizon) // (2 * horizon))  # at their pace
    slots = near * requirements.k - int(first.sum())
    return first + np.array(apportion(min(slots, int(others.sum())), others.tolist()), dtype=np.int64), near
