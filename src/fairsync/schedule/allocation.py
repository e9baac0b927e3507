"""Allocation: divide the slots until the nearest deadline among groups, mandatory exposures first."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide an integer in proportion to weights by the largest remainder method.

    Examples
    --------
    >>> apportion(10, [1, 1, 1]), apportion(2, [5, 30, 25]), apportion(3, [0, 0])
    ([4, 3, 3], [0, 1, 1], [0, 0])
    """
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    if total == whole:
        return list(weights)
    parts = [divmod(total * weight, whole) for weight in weights]
    shares = [share for share, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda index: -parts[index][1])
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def allocate(requirements: Requirements, wanted: Ints, requests: int) -> Ints:
    r"""Return (G,) the exposures of each group among the requests until the nearest deadline.

    Slots are allocated in three steps:

    1. Exposures that no later request can deliver, :math:`D_p - c_g (R_p - R_0)`, the nearest deadlines first.
    2. For each deadline s, nearest first, the part of the due exposures that the slots after the nearest deadline
       cannot hold: :math:`\sum_g T_g(s) - (R_s - R_0) K` in all.
    3. Wanted exposures, the nearest deadlines first.

    When slots run out, the remaining ones are apportioned among the groups of that step. If the requirements are
    feasible, the first two steps fit, and the requirements that remain are feasible too.

    Parameters
    ----------
    requirements
        The requirements, with the requests to rely on.
    wanted
        (P,) Exposures that each promise should get now if there is room.
    requests
        Number of requests whose slots are allocated.
    """
    given = np.zeros(len(requirements.capacities), dtype=np.int64)
    deadlines = range(len(requirements.requests))

    def wish_for(up_to: Ints) -> Ints:
        wish: Ints = np.maximum(np.minimum(up_to, requirements.capacities * requests) - given, 0)
        return wish

    def room() -> int:
        return requests * requirements.k - int(given.sum())

    def give(up_to: Ints, extra: int | None = None) -> None:
        """Raise each group to ``up_to``, or add ``extra`` exposures in total towards it, as far as there is room."""
        wish = wish_for(up_to)
        most = min(int(wish.sum()), room())
        most = most if extra is None else min(extra, most)
        if most > 0:
            given[:] += np.array(apportion(most, wish.tolist()), dtype=np.int64)

    def give_in_order(exposures: Ints) -> None:
        """Raise each group to the exposures of its promises, the nearest deadlines first."""

        def up_to(s: int) -> Ints:
            return requirements.per_group(np.where(requirements.deadline <= s, exposures, 0))

        # All deadlines before the first that does not fit are served whole, whatever the order: no need to go through
        # them one by one.
        first = bisect_left(deadlines, True, key=lambda s: int(wish_for(up_to(s)).sum()) > room())
        for s in (first - 1, first):
            if s in deadlines:
                give(up_to(s))

    mandatory = requirements.due_per_promise(0) + requirements.later_windows[:, 0] * requirements.floor
    give(requirements.reserved(0))  # windows that lie wholly before the deadline have earlier deadlines of their own
    give_in_order(mandatory)
    missing = int(requirements.per_group(requirements.missing).sum())
    for s in deadlines[1:]:
        after = int(requirements.requests[s] - requirements.requests[0]) * requirements.k
        if missing + int(requirements.reserved(s).sum()) <= after:
            continue  # no more than this is due
        due = requirements.due(s)
        useful = due - requirements.reserved(s)
        lacking = int(due.sum()) - after - int(np.minimum(given, useful).sum())
        give(useful, max(lacking, 0))
    give_in_order(wanted)
    return given


def deliverable(requirements: Requirements) -> Ints:
    """Return (P,) the part of each promise's missing exposures that can still be delivered.

    Examples
    --------
    >>> from fairsync.schedule.requirements import Requirements
    >>> none = np.zeros((2, 2), dtype=np.int64)
    >>> requirements = Requirements(np.array([0, 1]), np.array([3, 9]), np.array([3, 9]), np.array([0, 1]), none,
    ...                 requests=np.array([4, 10]), capacities=np.ones(2, dtype=np.int64), k=1)
    >>> deliverable(requirements).tolist()
    [3, 7]
    """
    left = requirements
    unmet = np.zeros_like(requirements.missing)
    for s in range(len(requirements.requests)):
        if not left.missing.any():
            break
        given = allocate(left, left.missing, int(left.requests[0]))
        ending = requirements.deadline == s
        unmet[ending] = np.maximum(left.missing - given[left.group], 0)[ending]
        left = left.after(given)
    return requirements.missing - unmet
