r"""What promises may cost: a budget for all of them, a highest price for each, and the floors that give way.

**Budget.** Let C be the relevance given up in the horizon so far, beyond what limits per list alone have cost, and B
the relevance that there would have been under these limits only. While :math:`C > \beta B` for a budget :math:`\beta`,
the floors of the lowest priority in force give way, and then those of the next, unless the requests since the last one
gave way cost no more than the budget. They come back, the highest priority first, as soon as what they still miss would
fit into the budget of the horizon, at the cost per exposure that they had when they gave way, beside what is in force;
but not before a pause that doubles each time, and not if they would need exposures at more than 1.5 times the pace of a
whole horizon.

**Highest prices.** A subsidy is at most ``max_price`` times the mean relevance of the last candidate of plain
retrieval, a running mean over the latest full lists, so that it means the same under another model. The guard fills no
slot for a floor at a higher cost: the floor leaves the certificate for the rest of the horizon, and rests on its price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.ledger import Totals
    from fairsync.policies import Terms
    from fairsync.policies.base import Counts, Floats
    from fairsync.promises.certificate import Certified

# Floors do not come back when they would need exposures at more than this many times the pace of a whole horizon: in a
# hurry they cost more than before.
_PACE = 1.5
# Full lists over which the mean relevance of the last candidate is taken, about.
_MEMORY = 2048
# A price within this part of its limit is at the limit.
_CLOSE = 0.05


@dataclass(frozen=True, eq=False)
class Spending:
    """The limits on what promises cost, and the floors that give way to them in the horizon under way.

    Attributes
    ----------
    budget : float or None
        The part of the relevance that all promises together may cost; None for no limit.
    last_relevance, seen : float
        Mean relevance of the last candidate, and the number of full lists it is the mean of, at most 2,048.
    cut : int or None
        Floors of this priority, and of those after it, have given way to the budget; None if none has.
    since : numpy.ndarray or None
        (P,) requests of the horizon when each floor gave way, or its price reached the limit; -1 if neither.
    unit_costs : numpy.ndarray or None
        (P,) the relevance given up for one exposure of each floor when it gave way to the budget.
    too_dear : numpy.ndarray or None
        (P,) floors that left the certificate, because a slot for them would cost more than their highest price.
    cost, base, requests
        Relevance given up, relevance without promises, and requests in the horizon when floors last gave way or came
        back.
    pause, back_at : int
        Requests for which floors stay away the next time, and when they may come back.
    has_changed : bool
        Whether other floors give way than when the terms in force were last made.
    """

    budget: float | None = None
    last_relevance: float = 0.0
    seen: float = 0.0
    cut: int | None = None
    since: Counts | None = None
    unit_costs: Floats | None = None
    too_dear: NDArray[np.bool_] | None = None
    cost: float = 0.0
    base: float = 0.0
    requests: int = 0
    pause: int = 0
    back_at: int = 0
    has_changed: bool = False

    def recorded(
        self, last_relevance: tuple[float, int] | None, certified: Certified | None, totals: Totals
    ) -> Spending:
        """Return the state after requests that were served, and counted in these totals.

        Parameters
        ----------
        last_relevance, certified
            As in :class:`fairsync.loop.batch.Outcome`.
        totals
            The totals of the horizon after these requests.
        """
        spending = self if last_relevance is None else self.observed(*last_relevance)
        if certified is None or certified.too_dear is None:
            return spending
        return spending.refused(grow(certified.too_dear, len(totals.exposures)), totals.requests)

    def observed(self, last_relevance: float, lists: int) -> Spending:
        """Return the state after a number of full lists whose last candidates have this mean relevance."""
        seen = self.seen + lists
        mean = self.last_relevance + (last_relevance - self.last_relevance) * (lists / seen)
        return replace(self, last_relevance=mean, seen=min(seen, _MEMORY))

    def highest(self, terms: Terms) -> Floats | None:
        """Return (P,) the highest subsidies, inf where there is no limit; None if there are none.

        Examples
        --------
        >>> from fairsync.policies import Terms
        >>> terms = Terms(np.array([5, 5]), np.array([2, 2]), 2, 9, 1, max_prices=np.array([0.5, np.inf]))
        >>> Spending().observed(0.8, 10).highest(terms).tolist()
        [0.4, inf]
        """
        if terms.max_prices is None or not self.seen:
            return None
        return terms.max_prices * max(abs(self.last_relevance), np.finfo(np.float64).tiny)

    def restarted(self) -> Spending:
        """Return the state of a new horizon."""
        return Spending(self.budget, self.last_relevance, self.seen)

    def forgetful(self) -> Spending:
        """Return the state under another model, of whose scores nothing is known."""
        return replace(self, last_relevance=0.0, seen=0.0)

    def under(self, terms: Terms) -> Spending:
        """Return the state under other terms, which may have more promises. Without a limit, none is too dear."""
        n, highest = len(terms.floors), terms.max_prices
        is_limited = np.zeros(n, dtype=bool) if highest is None else np.isfinite(highest)
        since, too_dear = _fitting(self.since, n, -1), _fitting(self.too_dear, n, False)
        return replace(
            self,
            since=None if since is None else np.where(is_limited | self.gave_way(terms), since, -1),
            unit_costs=_fitting(self.unit_costs, n, 0.0),
            too_dear=None if too_dear is None else too_dear & is_limited,
        )

    def within(self, budget: float | None) -> Spending:
        """Return the state under another budget. Without one, no floor gives way to it."""
        return replace(self, budget=budget, cut=None if budget is None else self.cut)

    @property
    def given_way(self) -> tuple[int | None, bytes]:
        """Which floors have given way, as a value to compare."""
        return self.cut, b"" if self.too_dear is None or not self.too_dear.any() else self.too_dear.tobytes()

    def gave_way(self, terms: Terms) -> NDArray[np.bool_]:
        """Return (P,) the floors that have given way to the budget."""
        if self.cut is None:
            return np.zeros(len(terms.floors), dtype=bool)
        return (terms.order >= self.cut) & (terms.floors > 0)

    def affordable(self, terms: Terms) -> Terms:
        """Return the terms without the floors that have given way; those that are too dear are no longer certain."""
        if self.cut is not None:
            terms = replace(terms, floors=np.where(self.gave_way(terms), 0, terms.floors))
        if self.too_dear is not None and self.too_dear.any():
            certain = ~self.too_dear if terms.certain is None else terms.certain & ~self.too_dear
            terms = replace(terms, certain=certain)
        return terms

    def priced(self, terms: Terms, prices: Floats, totals: Totals) -> Spending:
        """Return the state under new prices: it notes since when floors that are not reached are at their limit."""
        highest = self.highest(terms)
        if highest is None:
            return self
        at_limit = (-prices >= highest * (1 - _CLOSE)) & (totals.exposures < terms.floors)
        if self.too_dear is not None:
            at_limit |= self.too_dear
        since = np.full(len(prices), -1) if self.since is None else self.since
        is_new, has_ended = at_limit & (since < 0), ~at_limit & (since >= 0) & ~self.gave_way(terms)
        if not is_new.any() and not has_ended.any():
            return self
        return replace(self, since=np.where(is_new, totals.requests, np.where(has_ended, -1, since)))

    def refused(self, too_dear: NDArray[np.bool_], requests: int | Counts) -> Spending:
        """Return the state after the guard has refused to fill slots for some floors at their cost.

        Parameters
        ----------
        too_dear
            (P,) the floors.
        requests
            The requests of the horizon when that happened, also by floor.
        """
        known = np.zeros_like(too_dear) if self.too_dear is None else self.too_dear
        since = np.full(len(too_dear), -1) if self.since is None else self.since
        since = np.where(too_dear & (since < 0), requests, since)
        return replace(self, too_dear=known | too_dear, since=since, has_changed=True)

    def checked(
        self, terms: Terms, totals: Totals, unit_costs: Callable[[], Floats], of_limits: float = 0.0
    ) -> Spending:
        """Return the state after a comparison with the budget: floors may give way, or come back.

        Parameters
        ----------
        terms, totals
            The promises, and the totals of the horizon.
        unit_costs
            Returns (P,) the relevance given up for one exposure of each promise.
        of_limits
            The part of the cost that limits per list alone have: floors that give way could not bring it down.
        """
        if self.budget is None or not math.isfinite(totals.cost):
            return self
        totals = replace(totals, cost=totals.cost - of_limits)
        cost, base = totals.cost, abs(totals.relevance + totals.cost)
        order, missing = terms.order, np.maximum(terms.floors - totals.exposures, 0)
        if cost > self.budget * base:
            if self.cut is not None and cost - self.cost <= self.budget * (base - self.base):
                return self  # what has given way suffices
            below = order[(missing > 0) & (order < (math.inf if self.cut is None else self.cut)) & (order > 0)]
            return self._cut_at(int(below.max()), terms, totals, unit_costs()) if len(below) else self
        if self.cut is None or totals.requests < self.back_at or self.unit_costs is None:
            return self
        back = (missing > 0) & (order == order[(missing > 0) & (order >= self.cut)].min(initial=2**62))
        left, since = terms.horizon - totals.requests, max(totals.requests - self.requests, 1)
        at_end = cost + (cost - self.cost) * left / since + float((missing * self.unit_costs)[back].sum())
        is_late = (missing[back] * terms.horizon > _PACE * left * terms.floors[back]).any()
        if is_late or at_end > self.budget * base * (terms.horizon / totals.requests):
            return self
        later = order[(missing > 0) & (order >= self.cut) & ~back]
        return self._cut_at(int(later.min()) if len(later) else None, terms, totals, unit_costs())

    def _cut_at(self, cut: int | None, terms: Terms, totals: Totals, unit_costs: Floats) -> Spending:
        pause = max(self.pause, terms.batch_size)
        is_more = self.cut is None or (cut is not None and cut < self.cut)
        made = replace(
            self,
            cut=cut,
            cost=totals.cost,
            base=abs(totals.relevance + totals.cost),
            requests=totals.requests,
            pause=2 * pause if is_more else pause,
            back_at=totals.requests + pause,
            has_changed=True,
        )
        before, now = self.gave_way(terms), made.gave_way(terms)
        since = np.full(len(before), -1) if self.since is None else self.since
        since = np.where(now & ~before, totals.requests, np.where(before & ~now, -1, since))
        known = np.zeros(len(before)) if self.unit_costs is None else self.unit_costs
        return replace(made, since=since, unit_costs=np.where(now & ~before, unit_costs, known))


def check_budget(budget: object) -> float | None:
    """Return a budget as a plain number, or say what is wrong with it."""
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < float(budget) < 1:
        raise InvalidInputError(f"budget must be a share of the relevance, above 0 and below 1, got {budget!r:.80}.")
    return float(budget)


def _fitting(values: NDArray[Any] | None, n: int, fill: float) -> NDArray[Any] | None:
    """Return the values of n promises, of which the last may be new."""
    if values is None:
        return None
    return np.concatenate([values[:n], np.full(max(n - len(values), 0), fill, dtype=values.dtype)])


# What promises may cost without limits, at the start of a horizon.
NO_LIMITS = Spending()
