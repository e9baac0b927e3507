"""What requests that are limited by exclusions or conditions are asked to show."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairsync.eligibility.eligible_slots import CountedSlots
from fairsync.policies.base import Counts, Terms
from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class AskedSlots:
    """What a forecast asks of one request, as far as its eligible items can give it.

    Attributes
    ----------
    groups : numpy.ndarray
        (G,) exposures of each group.
    total : int
        Exposures that count towards some floor.
    """

    groups: Counts
    total: int

    @classmethod
    def of(cls, due: Counts, own: Counts, counted: CountedSlots, k: int) -> "AskedSlots":
        """Return what is asked of a request that can show ``own`` items of each group.

        Examples
        --------
        >>> asked = AskedSlots.of(np.array([5, 9]), np.array([2, 2]), CountedSlots(np.array([4, 9]), 11), k=3)
        >>> asked.groups.tolist(), asked.total
        ([1, 0], 3)
        """
        possible = min(int(np.minimum(due, own).sum()), k)
        total = max(min(int(due.sum()) - counted.total, possible), 0)
        groups: Counts = np.minimum(np.maximum(due - counted.groups, 0), own)
        if int(groups.sum()) > k:  # more than a list holds: first what is scarcest against what it still misses
            order = np.argsort(-due / (counted.groups + np.maximum(own, 1)), kind="stable")
            upto = np.minimum(np.cumsum(groups[order]), k)
            groups[order] = np.diff(upto, prepend=0)
        return cls(groups, total)

    def has(self, counts: Counts, due: Counts) -> bool:
        """Return whether a list with these counts gives what is asked."""
        return bool((counts >= self.groups).all()) and int(np.minimum(counts, due).sum()) >= self.total


def is_limited(eligible: Eligibility, terms: Terms) -> npt.NDArray[np.bool_]:
    """Return which requests the floors cannot count on: they exclude more than was declared, or have a condition.

    Examples
    --------
    >>> terms = Terms(np.array([4]), np.array([1]), k=1, horizon=9, batch_size=1, max_exclude=1)
    >>> is_limited(Eligibility.of(3, [None, None], [[0], [0, 2]]), terms).tolist()
    [False, True]
    """
    limited: npt.NDArray[np.bool_] = (eligible.selection_of >= 0) | (eligible.lengths > terms.max_exclude)
    return limited
