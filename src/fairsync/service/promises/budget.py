"""The budget: what all promises together may cost, and which priorities give way when they cost more.

Cost and relevance are those of the longest window under way. While promises have cost more than the budget, the floors
of the lowest priority in force give way, and then those of the next, unless the requests since the last one gave way
cost no more than the budget. They come back one by one, the highest priority first, when the cost has fallen to four
fifths of the budget, after a pause that doubles each time. Caps cost nothing that a budget could save, and stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairsync.schedule import ScheduledPromise

# Requests between two steps, at least: what the last step changed has to be seen first.
_STEP = 64
# Floors come back when the cost has fallen to this part of the budget.
_BACK = 0.8


@dataclass(frozen=True)
class Spent:
    """What promises have cost in a window so far.

    Attributes
    ----------
    cost : float
        Relevance given up; an upper bound.
    base : float
        Relevance that there would have been without promises.
    requests : int
        Requests.
    """

    cost: float
    base: float
    requests: int

    @property
    def share(self) -> float:
        """The cost as a share of the relevance without promises."""
        return self.cost / self.base if self.base > 0 else 0.0

    def since(self, before: Spent) -> Spent:
        """Return what was spent since an earlier moment."""
        return Spent(self.cost - before.cost, self.base - before.base, self.requests - before.requests)


@dataclass(frozen=True)
class Budget:
    """The budget, and what has given way to it.

    Attributes
    ----------
    share : float
        The part of the relevance that promises may cost.
    cut : int or None
        Floors of this priority, and of those after it, give way; None if none does.
    at : Spent
        What had been spent at the last step.
    pause : int
        Requests for which floors stay away.
    rate : float
        The cost share before the first step, with all floors in force.

    Examples
    --------
    >>> budget = Budget(0.01).after(Spent(2.0, 100.0, 100), [1, 3])
    >>> budget.cut, budget.after(Spent(4.5, 200.0, 200), [1, 3]).cut
    (3, 1)
    >>> budget.after(Spent(2.1, 200.0, 200), [1, 3]).cut  # what has given way suffices
    3
    >>> budget.after(Spent(2.1, 400.0, 400), [1, 3]).cut is None
    True
    """

    share: float
    cut: int | None = None
    at: Spent = Spent(0.0, 0.0, 0)
    pause: int = _STEP
    rate: float = 0.0

    def after(self, spent: Spent, priorities: Iterable[int]) -> Budget:
        """Return the state after more requests of the same window.

        Parameters
        ----------
        spent
            What was spent in the window so far.
        priorities
            The priorities of the floors that are missing exposures.
        """
        if spent.requests < self.at.requests:  # another window
            return Budget(self.share).after(spent, priorities)
        since = spent.since(self.at)
        if not math.isfinite(spent.cost) or since.requests < _STEP:
            return self
        known = sorted(set(priorities))
        if spent.share > self.share:
            if self.cut is not None and since.share <= self.share:
                return self  # what has given way suffices
            below = [one for one in known if self.cut is None or one < self.cut]
            if not below:
                return self
            rate = since.share if self.cut is None else self.rate
            return replace(self, cut=below[-1], at=spent, rate=rate)
        if self.cut is None or spent.share > _BACK * self.share or since.requests < self.pause:
            return self
        above = [one for one in known if one > self.cut]
        return replace(self, cut=above[0] if above else None, at=spent, pause=2 * self.pause)

    def gives_way(self, promise: ScheduledPromise) -> bool:
        """Return whether the floor of a promise is given up."""
        return self.cut is not None and promise.promise.priority >= self.cut and promise.promise.at_least is not None

    def in_force(self, promises: Iterable[ScheduledPromise]) -> dict[ScheduledPromise, ScheduledPromise]:
        """Return the promises as they are kept, without the floors that give way, each with what was promised."""
        kept = {}
        for one in promises:
            if not self.gives_way(one):
                kept[one] = one
            elif one.promise.at_most is not None or one.promise.at_most_per_list is not None:
                kept[replace(one, promise=replace(one.promise, at_least=None, max_price=None))] = one
        return kept

    def text(self, spent: Spent) -> str:
        """Return which floors give way, why, and what they would have cost; empty if none does.

        Examples
        --------
        >>> Budget(0.01, cut=2, at=Spent(2.0, 100.0, 100), rate=0.02).text(Spent(2.5, 200.0, 200))
        'Promises have cost 1.25 % of relevance, and the budget is 1 %: floors of priority 2 and after give way. Keeping
        them would cost about 1.5 % more.'
        """
        if self.cut is None:
            return ""
        since = spent.since(self.at)
        more = self.rate - since.share if since.requests else 0.0
        cost = f" Keeping them would cost about {100 * more:.2g} % more." if more > 0 else ""
        return (
            f"Promises have cost {100 * spent.share:.3g} % of relevance, and the budget is {100 * self.share:g} %:"
            f" floors of priority {self.cut} and after give way.{cost}"
        )
