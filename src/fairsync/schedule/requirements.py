r"""Demand: what promises still ask of the requests to come, and whether these can carry it.

Promises end at different times. Let :math:`R_s` be the requests until deadline s, :math:`D_p` what promise p still
misses, :math:`R_p` the requests until its own deadline, and :math:`c_g` the most that a request can show of its group.
However exposures are dealt out, the requests after the first R can show the group only :math:`(R_p - R) c_g` times
before p ends; the rest has to come within the first R. So what is *due* of group g within the first :math:`R_s` is

.. math::  T_g(s) = \max_{p \in g} \left[ D_p - c_g (R_p - R_s)^+ \right]^+ + n_{p,s} \, m_p

where :math:`n_{p,s}` counts the later windows of a promise that recurs, of floor :math:`m_p`, which also end by then.
(An exposure counts for all promises of a group, hence the maximum. So a longer promise *leans* on later windows of its
group: what they are going to get serves it too. Where they may fail, it had better not, and both are asked for, one
after the other.) Everything can be delivered only if

.. math::  D_p \le R_p \, c_g \text{ for every promise,} \qquad \sum_g T_g(s) \le R_s \, K \text{ for every deadline,}

and, without later windows, whenever this holds: it is the minimum cut of the network of slots (docs/windows.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fairsync.schedule.seasonal_profile import Ints


@dataclass(frozen=True)
class Requirements:
    """What is asked from a moment on, and the requests that are to carry it.

    Attributes
    ----------
    group : numpy.ndarray
        (P,) group of each promise.
    missing : numpy.ndarray
        (P,) exposures that it misses in the window under way.
    floor : numpy.ndarray
        (P,) its floor.
    place : numpy.ndarray
        (P,) which of the deadlines is its own.
    later : numpy.ndarray
        (P, S) how many later windows of it lie before each deadline.
    requests : numpy.ndarray
        (S,) requests until each deadline, the nearest first.
    caps : numpy.ndarray
        (G,) the most exposures of each group that one request can hold.
    k : int
        Candidates per request.
    leans : numpy.ndarray or bool
        (G,) whether what later windows of a group are going to get is counted on for its longer promises.

    Examples
    --------
    A request shows one item. Group 0 misses 3 within 4 requests, group 1 misses 9 within 10.

    >>> one, none = np.ones(2, dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    >>> requirements = Requirements(np.array([0, 1]), np.array([3, 9]), np.array([3, 9]), np.array([0, 1]), none,
    ...                 requests=np.array([4, 10]), caps=one, k=1)
    >>> requirements.due(0).tolist(), requirements.due(1).tolist()  # at the second deadline 12 exposures, and 10 slots
    ([3, 3], [3, 9])
    >>> requirements.slack().tolist()
    [-2, -2]

    A group misses 9 exposures in two days, of which the second one is going to bring 4, by a promise for each day.

    >>> days = Requirements(np.array([0, 0]), np.array([4, 9]), np.array([4, 9]), np.array([0, 1]),
    ...               later=np.array([[0, 1], [0, 0]]), requests=np.array([10, 20]), caps=np.array([1]), k=1)
    >>> days.due(1).tolist(), replace(days, leans=False).due(1).tolist()
    ([9], [13])
    """

    group: Ints
    missing: Ints
    floor: Ints
    place: Ints
    later: Ints
    requests: Ints
    caps: Ints
    k: int
    leans: npt.NDArray[np.bool_] | bool = True

    def per_group(self, values: Ints) -> Ints:
        """Return for each group the largest of its promises' values, at least 0."""
        most = np.zeros(len(self.caps), dtype=np.int64)
        np.maximum.at(most, self.group, values)
        return most

    def overdue(self, s: int) -> Ints:
        """Return (P,) what each promise misses and cannot get after the deadline s."""
        after = np.maximum(self.requests[self.place] - self.requests[s], 0)
        missing: Ints = np.maximum(self.missing - self.caps[self.group] * after, 0)
        return missing

    def due(self, s: int) -> Ints:
        """Return (G,) the exposures of each group that have to come before the deadline s."""
        overdue = self.overdue(s)
        leaning = self.per_group(overdue + self.later[:, s] * self.floor)
        return np.where(self.leans, leaning, self.per_group(overdue) + self.reserved(s))

    def reserved(self, s: int) -> Ints:
        """Return (G,) those of them that belong to later windows, so that none can come before those begin."""
        return self.per_group(self.later[:, s] * self.floor)

    def slack(self) -> Ints:
        """Return (S,) the slots until each deadline that nothing that is due needs; below 0, some cannot be met."""
        due = [int(self.due(s).sum()) for s in range(len(self.requests))]
        slots: Ints = self.requests * self.k
        return slots - np.array(due, dtype=np.int64)

    def after(self, gained: Ints) -> Requirements:
        """Return what is left to ask after the nearest deadline, if so much of each group was shown until then."""
        return replace(
            self,
            missing=np.where(self.place > 0, np.maximum(self.missing - gained[self.group], 0), 0),
            place=np.maximum(self.place - 1, 0),
            later=self.later[:, 1:] - self.later[:, :1],
            requests=self.requests[1:] - self.requests[0],
        )
