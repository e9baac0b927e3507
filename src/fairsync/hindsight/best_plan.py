"""The search for the best plan: descent on the dual, linear programs, and searches where they lead."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.hindsight.dual import polish
from fairsync.hindsight.dual_bound import lower_dual
from fairsync.hindsight.priced_lists import ListSizes
from fairsync.hindsight.whole_plan import integer_program, swap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.hindsight.priced_lists import Floats, PricedLists

_CLOSED = 1e-12  # a gap that is rounding, relative to places times the largest relevance


@dataclass(frozen=True)
class Effort:
    """How much work is put into a plan."""

    sizes: ListSizes = field(default_factory=ListSizes)  #: of the lists that are fetched
    sample: int = 4096  #: with more requests than this, a sample first finds out roughly where the subsidies are
    free: int = 20_000  #: places that the first linear program settles; a problem this small needs nothing else
    rounds: int = 30  #: of search and descent
    steps: int = 40  #: of search and linear program; a handful is usual
    gap: float = 1e-4  #: a gap above which an integer program is tried, where promises overlap
    wider: int = 1  #: times that lists are doubled for the sake of this gap
    whole: tuple[int, ...] = (4_000, 40_000, 400_000)  #: places of integer programs, the next where one finds nothing


@dataclass(frozen=True)
class Found:
    """The best plan that was found, and what proves how good it is, in the unit of the lists."""

    lists: PricedLists
    subsidies: Floats
    upper: float
    lower: float
    plain: float
    rows: NDArray[np.int64] | None
    short: int = 0  #: above 0 if no plan keeps the promises: about what every plan lacks of those that have subsidies

    @property
    def in_unit_of_catalog(self) -> tuple[float, float, float]:
        """The two bounds and the relevance without promises."""
        upper, lower, plain = (
            float(np.ldexp(bound, self.lists.exponent)) for bound in (self.upper, self.lower, self.plain)
        )
        return upper, lower, plain


def find_plan(lists: PricedLists, effort: Effort, worst: float = -np.inf) -> Found:
    """Approach the optimum by descent, settle it by linear programs, and search again until both bounds meet.

    A dual bound below ``worst``, what every plan has at least, proves that no plan keeps the promises.
    """
    requests, n_bounds = len(lists.users), lists.least.size
    subsidies = np.zeros(n_bounds)
    lists.fetch(subsidies)
    lists, subsidies = lists.in_unit(subsidies)
    if lists.limits is not None:
        lists.fill(subsidies)
    if lists.k == lists.rows.shape[1]:  # all items for every request: nothing to decide
        everything = np.isfinite(lists.scores)
        plain = float(lists.scores.sum(where=everything))
        return Found(lists, subsidies, plain, plain, plain, lists.chosen(everything))
    best = lists.pool.best(subsidies)
    plain = float(lists.scores[best.inside].sum())
    if lists.limits is not None:
        plain = replace(lists.pool, limits=None).best(subsidies).value
    if (lists.pool.exposures(best.inside) >= lists.least).all():
        relevance = float(lists.scores[best.inside].sum())
        return Found(lists, subsidies, relevance, relevance, plain, lists.chosen(best.inside))

    if lists.rows.size > effort.free:
        if requests > effort.sample:
            subsidies = lower_dual(lists.sample(effort.sample), subsidies, effort.rounds)
            lists.refresh(subsidies)
        subsidies = lower_dual(lists, subsidies, effort.rounds)

    upper, lower, rows = lists.value(subsidies), -np.inf, None
    worst = float(np.ldexp(worst, -lists.exponent))
    closed = _CLOSED * lists.largest * requests * lists.k
    free, bold = max(effort.free, 20 * n_bounds), 1.0
    for _ in range(effort.steps):
        settled = polish(lists.pool, subsidies, free=free, bold=bold)
        plan: NDArray[np.bool_] | None = settled.plan if settled.short == 0 else None
        if plan is None and settled.final:
            plan = swap(lists.pool, settled.plan, settled.subsidies)
        relevance = -np.inf if plan is None else float(lists.scores[plan].sum())
        if plan is not None and relevance > lower:
            lower, rows = relevance, lists.chosen(plan)
        sound = settled.subsidies.max(initial=0.0) <= lists.farthest
        known = lists.pool.best(settled.subsidies).value
        value = lists.value(settled.subsidies) if sound else np.inf
        better = value < upper
        if better:
            upper, subsidies = value, settled.subsidies
        if upper < worst:
            return Found(lists, subsidies, upper, lower, plain, None, max(settled.short, 1))
        if upper - lower <= closed:
            break
        if settled.final and value <= known + closed:
            break  # no subsidies are better, but the linear program's plan is not one of whole items
        if not better and not lists.widen(subsidies) and bold == 1.0:
            break  # nothing left to learn; the bounds say how far it got
        if not settled.final:
            free = min(2 * free, 200_000)
        # A box that was grown where items tie is far too large once lists differ: then try a usual one.
        bold = 4 * bold if better and not settled.final else 1.0
    if upper - lower > closed:
        lower, rows = _program(lists, subsidies, effort, upper, lower, rows)
    return Found(lists, subsidies, max(upper, lower), lower, plain, rows)


def _program(
    lists: PricedLists,
    subsidies: Floats,
    effort: Effort,
    upper: float,
    lower: float,
    rows: NDArray[np.int64] | None,
) -> tuple[float, NDArray[np.int64] | None]:
    """Solve integer programs if swaps found no plan or a poor one, or if it is small; return the best plan by now."""
    small = lists.rows.size <= max(effort.whole[:1], default=0)
    if rows is not None and not small and upper - lower <= effort.gap * abs(upper):
        return lower, rows
    wider = 0
    while True:
        inside = lists.pool.best(subsidies).inside
        for size in effort.whole[: 1 if rows is not None else None]:
            plan = integer_program(lists.pool, inside, subsidies, size)
            if plan is not None and float(lists.scores[plan].sum()) > lower:
                lower, rows = float(lists.scores[plan].sum()), lists.chosen(plan)
            if rows is not None or size >= inside.size:
                break
        wider += rows is not None  # a plan that is there is not worth any effort
        if upper - lower <= effort.gap * abs(upper) or wider > effort.wider or not lists.widen(subsidies):
            return lower, rows
