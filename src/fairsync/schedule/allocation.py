"""Dealing out the slots until the nearest deadline: first what must be, the most urgent first, then what should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.schedule.requirements import Requirements
    from fairsync.schedule.seasonal_profile import Ints


def split(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to weights, exactly: the largest remainders are rounded up.

    Examples
    --------
    >>> split(10, [1, 1, 1]), split(2, [5, 30, 25]), split(3, [0, 0])
    ([4, 3, 3], [0, 1, 1], [0, 0])
    """
    whole = sum(weights)
    if whole == 0:
        return [0] * len(weights)
    parts = [divmod(total * weight, whole) for weight in weights]
    shares = [share for share, _ in parts]
    first = sorted(range(len(parts)), key=lambda place: -parts[place][1])
    for place in first[: total - sum(shares)]:
        shares[place] += 1
    return shares


def allocate(requirements: Requirements, wanted: Ints, requests: int) -> Ints:
    r"""Return (G,) the exposures of each group among the requests until the nearest deadline.

    1. What no later request could carry, :math:`D_p - c_g (R_p - R_0)`, the nearest deadlines first.
    2. For each deadline s, nearest first, as much of what is due by then as the slots after the nearest deadline cannot
       take in: :math:`\sum_g T_g(s) - (R_s - R_0) K` in all.
    3. What is wanted besides, the nearest deadlines first.

    Where slots run out, those that are left are divided in proportion among the groups of that step. If everything can
    be delivered at all, the first two steps fit and leave a demand for which that is still so.

    Parameters
    ----------
    demand
        What is asked, and the requests that are counted on.
    wanted
        (P,) exposures that each promise should get now, if there is room.
    requests
        Whose slots are dealt out.
    """
    given = np.zeros(len(requirements.caps), dtype=np.int64)
    deadlines = range(len(requirements.requests))

    def give(up_to: Ints, how_many: int | None = None) -> None:
        """Give each group so much in all, or so many more together, as far as there is room."""
        wish = np.maximum(np.minimum(up_to, requirements.caps * requests) - given, 0)
        most = min(int(wish.sum()), requests * requirements.k - int(given.sum()))
        given[:] += np.array(split(most if how_many is None else min(how_many, most), wish.tolist()), dtype=np.int64)

    must = requirements.overdue(0) + requirements.later[:, 0] * requirements.floor
    give(requirements.reserved(0))  # windows that lie wholly before the deadline have nearer ones
    for s in deadlines:
        give(requirements.per_group(np.where(requirements.place <= s, must, 0)))
    for s in deadlines[1:]:
        due = requirements.due(s)
        useful = due - requirements.reserved(s)
        after = int(requirements.requests[s] - requirements.requests[0]) * requirements.k
        lacking = int(due.sum()) - after - int(np.minimum(given, useful).sum())
        give(useful, max(lacking, 0))
    for s in deadlines:
        give(requirements.per_group(np.where(requirements.place <= s, wanted, 0)))
    return given


def deliverable(requirements: Requirements) -> Ints:
    """Return (P,) how much of what each promise misses it can still get, if all that comes is dealt out with care.

    Examples
    --------
    >>> from fairsync.schedule.requirements import Requirements
    >>> none = np.zeros((2, 2), dtype=np.int64)
    >>> requirements = Requirements(np.array([0, 1]), np.array([3, 9]), np.array([3, 9]), np.array([0, 1]), none,
    ...                 requests=np.array([4, 10]), caps=np.ones(2, dtype=np.int64), k=1)
    >>> deliverable(requirements).tolist()
    [3, 7]
    """
    left = requirements
    unmet = np.zeros_like(requirements.missing)
    for s in range(len(requirements.requests)):
        given = allocate(left, left.missing, int(left.requests[0]))
        ending = requirements.place == s
        unmet[ending] = np.maximum(left.missing - given[left.group], 0)[ending]
        left = left.after(given)
    return requirements.missing - unmet
