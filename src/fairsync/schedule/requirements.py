r"""Requirements: the exposures that promises still need, and whether the requests to come can deliver them.

Promises have different deadlines. Let :math:`R_s` be the requests until deadline s, :math:`D_p` the exposures that
promise p misses, :math:`R_p` the requests until its own deadline, and :math:`c_g` the most exposures of its group that
one request can hold. The requests after the first R can hold at most :math:`(R_p - R) c_g` exposures of the group
before p ends, so the rest must come within the first R. The exposures of group g *due* within the first :math:`R_s`
requests are therefore

.. math::  T_g(s) = \max_{p \in g} \left[ D_p - c_g (R_p - R_s)^+ \right]^+ + n_{p,s} \, m_p

where :math:`n_{p,s}` counts the later windows of a recurring promise, of floor :math:`m_p`, which also end by then.
An exposure counts for all promises of a group, hence the maximum: the exposures that later windows of the group will
get also count towards its longer promises. If those later windows may fail, relying on them is unsafe, and the two
terms are added instead. Everything can be delivered only if

.. math::  D_p \le R_p \, c_g \text{ for every promise,} \qquad \sum_g T_g(s) \le R_s \, K \text{ for every deadline.}

Without later windows the condition is also sufficient: it is the minimum cut of the network of slots
(docs/schedule.md).
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
    """Missing exposures of all promises, and the requests that are to deliver them.

    Attributes
    ----------
    group : numpy.ndarray
        (P,) The group of each promise.
    missing : numpy.ndarray
        (P,) Exposures that each promise misses in its active window.
    floor : numpy.ndarray
        (P,) The floor of each promise.
    deadline : numpy.ndarray
        (P,) Index of each promise's deadline in ``requests``.
    later_windows : numpy.ndarray
        (P, S) Number of later windows of each promise that end by each deadline.
    requests : numpy.ndarray
        (S,) Requests until each deadline, the nearest first.
    capacities : numpy.ndarray
        (G,) The most exposures of each group that one request can hold.
    k : int
        Candidates per request.
    counts_later : numpy.ndarray or bool
        (G,) Whether exposures of later windows of a group count towards its longer promises.

    Examples
    --------
    A request has one slot. Group 0 misses 3 exposures within 4 requests, group 1 misses 9 within 10.

    >>> one, none = np.ones(2, dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    >>> requirements = Requirements(np.array([0, 1]), np.array([3, 9]), np.array([3, 9]), np.array([0, 1]), none,
    ...                 requests=np.array([4, 10]), capacities=one, k=1)
    >>> requirements.due(0).tolist(), requirements.due(1).tolist()  # at the second deadline 12 exposures, and 10 slots
    ([3, 3], [3, 9])
    >>> requirements.slack().tolist()
    [-2, -2]

    A group misses 9 exposures in two days. A promise for each day brings 4 of them on the second day.

    >>> days = Requirements(np.array([0, 0]), np.array([4, 9]), np.array([4, 9]), np.array([0, 1]),
    ...               later_windows=np.array([[0, 1], [0, 0]]), requests=np.array([10, 20]),
    ...               capacities=np.array([1]), k=1)
    >>> days.due(1).tolist(), replace(days, counts_later=False).due(1).tolist()
    ([9], [13])
    """

    group: Ints
    missing: Ints
    floor: Ints
    deadline: Ints
    later_windows: Ints
    requests: Ints
    capacities: Ints
    k: int
    counts_later: npt.NDArray[np.bool_] | bool = True

    def per_group(self, values: Ints) -> Ints:
        """Return (G,) the largest value among the promises of each group, at least 0."""
        most = np.zeros(len(self.capacities), dtype=np.int64)
        np.maximum.at(most, self.group, values)
        return most

    def due_per_promise(self, s: int) -> Ints:
        """Return (P,) the missing exposures of each promise that cannot be delivered after deadline s."""
        after = np.maximum(self.requests[self.deadline] - self.requests[s], 0)
        missing: Ints = np.maximum(self.missing - self.capacities[self.group] * after, 0)
        return missing

    def due(self, s: int) -> Ints:
        """Return (G,) the exposures of each group that must be delivered before deadline s."""
        due = self.due_per_promise(s)
        overlapping = self.per_group(due + self.later_windows[:, s] * self.floor)
        return np.where(self.counts_later, overlapping, self.per_group(due) + self.reserved(s))

    def reserved(self, s: int) -> Ints:
        """Return (G,) the part of :meth:`due` that belongs to later windows and cannot come before they begin."""
        return self.per_group(self.later_windows[:, s] * self.floor)

    def slack(self) -> Ints:
        """Return (S,) the slots until each deadline beyond those that are due. Negative slack is infeasible."""
        due = [int(self.due(s).sum()) for s in range(len(self.requests))]
        slots: Ints = self.requests * self.k
        return slots - np.array(due, dtype=np.int64)

    def after(self, gained: Ints) -> Requirements:
        """Return the requirements after the nearest deadline, given (G,) the exposures gained until then."""
        return replace(
            self,
            missing=np.where(self.deadline > 0, np.maximum(self.missing - gained[self.group], 0), 0),
            deadline=np.maximum(self.deadline - 1, 0),
            later_windows=self.later_windows[:, 1:] - self.later_windows[:, :1],
            requests=self.requests[1:] - self.requests[0],
        )
