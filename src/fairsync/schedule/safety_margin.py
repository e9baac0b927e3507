"""What a plan is prepared for although nothing foretells it, and what has to be brought forward for that.

A forecast says what to expect, and what came at least nineteen times in twenty. Promises are to hold the twentieth time
too, and when traffic breaks off like never before. So a plan also asks whether floors would still be met if far fewer
requests came from now on. As long as they would, it keeps to its pace, which costs least. Where they would not,
exposures are brought forward until they would: the groups concerned get all that requests can give them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.schedule.allocation import allocate, split

if TYPE_CHECKING:
    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints

# By chance alone, so many standard deviations fewer requests than expected come once in a thousand times.
_CHANCE = 3.09


def worst_case_requests(expected: float, cautious: float, worst_case_traffic: float) -> int:
    """Return the requests for which a plan is prepared.

    Parameters
    ----------
    expected, cautious
        By the forecast.
    worst_case_traffic
        Traffic may fall to this part of what is expected, from one moment to the next.

    Examples
    --------
    >>> worst_case_requests(9000, cautious=8000, worst_case_traffic=1 / 3)
    3000
    >>> worst_case_requests(9000, cautious=1000, worst_case_traffic=1 / 3)
    1000
    >>> worst_case_requests(12, cautious=12, worst_case_traffic=1.0)
    2
    """
    by_chance = expected - _CHANCE * math.sqrt(expected) + (_CHANCE**2 - 1) / 6
    return max(int(min(cautious, worst_case_traffic * expected, by_chance)), 0)


def cap_unreachable(requirements: Requirements) -> Requirements:
    """Return the same demand, of which later windows ask for no more than the least requests could give them all.

    What they cannot get anyway is no reason to bring anything else forward. Nor do longer promises of the group lean on
    such windows, or on any if the least requests do not carry everything: where slots run short it is not known who
    will get them, and the longer promise can be met before. Where all is carried, leaning is safe and costs less.

    Examples
    --------
    Each day 8 exposures of a group are promised, and 20 until the end of tomorrow; of another one 12 each day. With 22
    requests a day all of it fits. With 10, tomorrow's floors do not, so that all 20 should come before.

    >>> from fairsync.schedule.requirements import Requirements
    >>> days = Requirements(np.array([0, 0, 1]), np.array([8, 20, 12]), np.array([8, 20, 12]), np.array([0, 1, 0]),
    ...               later=np.array([[0, 1], [0, 0], [0, 1]]), requests=np.array([22, 44]), caps=np.array([1, 1]), k=1)
    >>> for requests in ([22, 44], [10, 20]):
    ...     least = cap_unreachable(replace(days, requests=np.array(requests)))
    ...     print(least.floor, least.leans, least.due(1) - least.reserved(1))
    [ 8 20 12] [ True  True] [12 12]
    [ 4 20  5] [False False] [20 12]
    """
    after = np.maximum(requirements.requests - requirements.requests[requirements.place][:, None], 0)
    could = requirements.caps[requirements.group][:, None] * after // np.maximum(requirements.later, 1)
    alone = np.where(requirements.later > 0, could, requirements.floor[:, None]).min(
        axis=1, initial=np.iinfo(np.int64).max
    )
    fair = replace(requirements, floor=np.minimum(requirements.floor, alone))
    asked = np.array([fair.reserved(s).sum() for s in range(len(requirements.requests))], dtype=np.int64)
    slots = requirements.k * (requirements.requests - requirements.requests[0])
    part = np.where(requirements.later > 0, np.minimum(slots / np.maximum(asked, 1), 1.0), 1.0).min(axis=1, initial=1.0)
    least = replace(fair, floor=np.floor(fair.floor * part).astype(np.int64))
    is_whole = requirements.per_group(requirements.floor - least.floor) == 0
    return replace(least, leans=is_whole & bool((least.slack() >= 0).all()))


def bring_forward(requirements: Requirements, given: Ints, horizon: int) -> tuple[Ints, int]:
    """Return floors and horizon, nearer ones if it needs that to be prepared for the least requests.

    Parameters
    ----------
    demand
        What is asked, and the least requests.
    given
        (G,) exposures within the horizon, at the usual pace.
    horizon
        Requests that can be counted on until the nearest deadline.

    Examples
    --------
    A group misses 40 exposures. A hundred requests are counted on, and ten might be all; each can hold two of it.

    >>> from fairsync.schedule.requirements import Requirements
    >>> requirements = Requirements(np.array([0]), np.array([40]), np.array([40]), np.array([0]),
    ...                 np.zeros((1, 1), dtype=np.int64), requests=np.array([10]), caps=np.array([2]), k=5)
    >>> bring_forward(requirements, np.array([40]), horizon=100)
    (array([40]), 20)
    """
    least, caps = int(requirements.requests[0]), requirements.caps
    nothing = np.zeros_like(requirements.missing)
    must = allocate(requirements, nothing, horizon)
    # Whoever gets all that requests can hold needs no nearer horizon for it.
    full = must >= caps * horizon
    rest = np.where(full, 0, must)
    room = requirements.k - min(int(caps[full].sum()), requirements.k)
    late = rest > caps * least
    limits = (rest[late] // caps[late]).tolist()
    if rest.sum() > room * least:  # each alone might do, but not all of them
        late, limits = rest > 0, [*limits, int(rest.sum()) // room]
    if not late.any():
        return given, horizon
    # The furthest horizon over which they need all that requests can hold, from the first one on.
    near = max(min(limits), 1)
    first = np.where(late, allocate(requirements, nothing, near), 0)
    others = np.where(late, 0, (2 * given * near + horizon) // (2 * horizon))  # at their pace
    slots = near * requirements.k - int(first.sum())
    return first + np.array(split(min(slots, int(others.sum())), others.tolist()), dtype=np.int64), near
