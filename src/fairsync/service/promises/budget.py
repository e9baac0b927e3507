"""The budget: what all promises together may cost, and which priorities give way when they cost more.

Cost and relevance are those of the longest window under way. As soon as promises have cost more than the budget, the
floors of the lowest priority give way, and those before it as far as what is left would not fit into the budget of the
whole window, either: what it has cost so far, and what the floors in force still miss at their subsidies. Later ones
give way if the requests since then cost more than the budget, too. They come back one by one, the highest priority
first, when they would fit, after a pause that doubles each time. Caps cost relevance too, and count, but do not give
way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairsync.schedule import active_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from fairsync.ledger import Totals
    from fairsync.schedule import ScheduledPromise, Span

# Requests between two steps, at least: what the last step changed has to be seen first.
_STEP = 64


def longest_window(promises: Iterable[ScheduledPromise], now: datetime) -> Span | None:
    """Return the longest window under way, over which the budget holds; None if no window is under way.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> promises = [ScheduledPromise.of_group("toys", 5, window) for window in (Window.hour("UTC"), Window.day("UTC"))]
    >>> longest_window(promises, datetime(2026, 3, 4, 9, tzinfo=UTC)).seconds
    86400.0
    """
    return max(active_spans(promises, now).values(), key=lambda span: span.seconds, default=None)


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

    @classmethod
    def of(cls, periods: Sequence[Totals]) -> Spent:
        """Return what promises have cost in some periods."""
        cost, relevance = (sum(getattr(one, name) for one in periods) for name in ("cost", "relevance"))
        return cls(float(cost), abs(float(relevance + cost)), sum(one.requests for one in periods))

    @property
    def share(self) -> float:
        """The cost as a share of the relevance without promises."""
        return self.cost / self.base if self.base > 0 else 0.0

    def since(self, before: Spent) -> Spent:
        """Return what was spent since an earlier moment."""
        return Spent(self.cost - before.cost, self.base - before.base, self.requests - before.requests)


@dataclass(frozen=True)
class RelevanceBudget:
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
    >>> budget = RelevanceBudget(0.01).after(Spent(2.0, 100.0, 100), {1: 0.5, 3: 9.0}, 1000.0)
    >>> budget.cut, budget.after(Spent(9.9, 200.0, 200), {1: 0.5, 3: 9.0}, 1000.0).cut
    (3, 1)
    >>> budget.after(Spent(4.5, 200.0, 200), {1: 0.5, 3: 9.0}, 1000.0).cut  # the rest fits into the budget
    3
    >>> budget.after(Spent(2.1, 400.0, 400), {1: 0.4, 3: 7.0}, 1000.0).cut is None
    True
    """

    share: float
    cut: int | None = None
    at: Spent = Spent(0.0, 0.0, 0)
    pause: int = _STEP
    rate: float = 0.0

    def after(self, spent: Spent, ahead: Mapping[int, float], whole: float) -> RelevanceBudget:
        """Return the state after more requests of the same window.

        Parameters
        ----------
        spent
            What was spent in the window so far.
        ahead
            About what the floors of each priority will still cost, by priority; those that miss exposures only.
        whole
            The relevance without promises that the whole window is expected to have.
        """
        if spent.requests < self.at.requests:  # another window
            return RelevanceBudget(self.share).after(spent, ahead, whole)
        since = spent.since(self.at)
        if not math.isfinite(spent.cost) or since.requests < _STEP:
            return self

        def fits(cut: int | None) -> bool:
            in_force = sum(cost for priority, cost in ahead.items() if cut is None or priority < cut)
            return spent.cost + in_force <= self.share * max(whole, spent.base)

        if spent.share > self.share:
            below = sorted(priority for priority in ahead if self.cut is None or priority < self.cut)
            if not below or (self.cut is not None and (since.share <= self.share or fits(self.cut))):
                return self  # what has given way suffices
            cut = next((priority for priority in reversed(below) if fits(priority)), below[0])
            return replace(self, cut=cut, at=spent, rate=since.share if self.cut is None else self.rate)
        if self.cut is None or since.requests < self.pause:
            return self
        away = [*sorted(priority for priority in ahead if priority >= self.cut), None]
        following = away[min(1, len(away) - 1)]
        if not fits(following):
            return self
        return replace(self, cut=following, at=spent, pause=2 * self.pause)

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
        >>> RelevanceBudget(0.01, cut=2, at=Spent(2.0, 100.0, 100), rate=0.02).text(Spent(2.5, 200.0, 200))
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
