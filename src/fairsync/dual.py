r"""The price of floors over many requests at once, found by its dual: one subsidy per group.

Choosing k items for every request so that each group reaches its floor is a transport problem.
With :math:`\lambda_g \ge 0`, the subsidy (minus the price) of group g, its dual is

.. math::  \min_{\lambda \ge 0} \; \sum_t \mathrm{TopK}_i\,(r_{ti} + \lambda_{g(i)}) - \sum_g m_g \lambda_g

a convex, piecewise-linear function with as many dimensions as there are groups and as many pieces as
there are ways to choose. From afar it looks smooth and from near it is a linear program; so it is
solved in two steps. :func:`descend` smooths it and takes Newton steps while the smoothing shrinks.
:func:`polish` then settles what lies near the edge of the lists with a linear program: it is exact,
and as the constraint matrix is totally unimodular its answer is a whole plan, not a fractional one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Best", "Pool", "Settled", "descend", "polish"]


@dataclass(frozen=True)
class Best:
    """The k best items of every request under some subsidies."""

    value: float  #: the dual's value there: an upper bound on the relevance of any plan over the pool
    inside: NDArray[np.bool_]  #: (T, N), exactly k true in every row
    priced: Floats  #: (T, N), relevance plus subsidy
    last: Floats  #: (T,), the worst priced score inside
    next: Floats  #: (T,), the best priced score outside


@dataclass(frozen=True)
class Pool:
    """What every request may choose from, and what the groups must get.

    Examples
    --------
    Two requests choose one item each; both prefer group 0, group 1 must get one exposure. The second
    gives up less (0.2), so it takes the other item, and the dual's value is the relevance of that plan.

    >>> scores, groups = np.array([[0.9, 0.1], [0.8, 0.6]]), np.array([[0, 1], [0, 1]])
    >>> pool = Pool(scores, groups, k=1, floors=np.array([0.0, 1.0]))
    >>> settled = polish(pool, np.zeros(2), free=4)
    >>> settled.plan.tolist(), round(pool.best(settled.subsidies).value, 6)
    ([[True, False], [False, True]], 1.5)
    """

    scores: Floats  #: (T, N) relevance, N > k
    groups: NDArray[np.intp]  #: (T, N) group codes
    k: int
    floors: Floats  #: (G,), whole numbers unless the pool is a sample

    def best(self, subsidies: Floats) -> Best:
        """Choose for every request under ``subsidies``."""
        priced = self.scores + subsidies[self.groups]
        cut = priced.shape[1] - self.k
        order = np.argpartition(priced, (cut - 1, cut), axis=1)
        inside = np.zeros(priced.shape, dtype=np.bool_)
        np.put_along_axis(inside, order[:, cut:], True, axis=1)
        edge = np.take_along_axis(priced, order[:, cut - 1 : cut + 1], axis=1)
        value = float(priced[inside].sum() - self.floors @ subsidies)
        return Best(value, inside, priced, edge[:, 1], edge[:, 0])

    def exposures(self, plan: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count what every group gets from a (T, N) plan."""
        return np.bincount(self.groups[plan], minlength=self.floors.size).astype(np.int64)

    def spread(self, subsidies: Floats) -> float:
        """Return how far the typical list reaches below its k-th item, in priced relevance."""
        priced = self.scores + subsidies[self.groups]
        cut = priced.shape[1] - self.k
        low = np.partition(priced, (0, cut), axis=1)
        # Never zero, even where everything ties: steps and smoothing are measured in spreads.
        return max(float(np.median(low[:, cut] - low[:, 0])), 1e-6 * float(np.abs(priced).max()), 1e-12)

    def core(self, subsidies: Floats, margin: int) -> Pool:
        """Keep ``margin`` places on either side of the edge of each list; what is above stays chosen."""
        size = self.scores.shape[1]
        low, high = size - self.k - margin, size - self.k + margin
        if margin >= self.k or low <= 0:
            return self
        order = np.argpartition(self.scores + subsidies[self.groups], (low, high - 1), axis=1)
        groups = np.take_along_axis(self.groups, order[:, low:], axis=1)
        kept = np.bincount(groups[:, 2 * margin :].ravel(), minlength=self.floors.size)
        scores = np.take_along_axis(self.scores, order[:, low:high], axis=1)
        return Pool(scores, np.ascontiguousarray(groups[:, : 2 * margin]), margin, self.floors - kept)


def _thresholds(priced: Floats, k: int, width: float) -> tuple[Floats, Floats]:
    """Find each row's threshold such that soft membership sums to k, and that membership."""
    from scipy.special import expit  # here and below, because scipy takes a third of a second to import

    size = priced.shape[1]
    edge = np.partition(priced, (size - k - 1, size - k), axis=1)[:, size - k - 1 : size - k + 1]
    # At these two ends the sum is surely on either side of k (each item beyond counts at most 1/(N+1)).
    low, high = edge[:, 0] - width * np.log(size + 1.0), edge[:, 1] + width * np.log(size + 1.0)
    threshold, unsettled = edge.mean(axis=1), np.arange(len(priced))
    for _ in range(40):
        member = expit((priced[unsettled] - threshold[unsettled, None]) / width)
        excess = member.sum(axis=1) - k
        still = np.abs(excess) > 1e-7
        if not still.any():
            break
        unsettled, excess, member = unsettled[still], excess[still], member[still]
        at = threshold[unsettled]
        low[unsettled] = floor = np.where(excess > 0, at, low[unsettled])
        high[unsettled] = ceiling = np.where(excess > 0, high[unsettled], at)
        newton = at + excess * width / np.maximum((member * (1 - member)).sum(axis=1), 1e-100)
        inside = (newton > floor) & (newton < ceiling)
        threshold[unsettled] = np.where(inside, newton, (floor + ceiling) / 2)
    return threshold, expit((priced - threshold[:, None]) / width)


@dataclass(frozen=True)
class _Smooth:
    """The smoothed dual at one point."""

    value: float
    gradient: Floats  #: soft exposures minus floors
    member: Floats

    @classmethod
    def at(cls, pool: Pool, subsidies: Floats, width: float) -> _Smooth:
        priced = pool.scores + subsidies[pool.groups]
        threshold, member = _thresholds(priced, pool.k, width)
        priced -= threshold[:, None]
        soft = np.maximum(priced, 0).sum() + width * np.log1p(np.exp(-np.abs(priced) / width)).sum()
        value = pool.k * threshold.sum() + soft - pool.floors @ subsidies
        exposures = np.bincount(pool.groups.ravel(), member.ravel(), pool.floors.size)
        return cls(float(value), exposures.astype(np.float64) - pool.floors, member)

    def curvature(self, pool: Pool, width: float) -> Floats:
        """Return the (G, G) Hessian: which groups trade places at the edge of the lists."""
        from scipy import sparse

        weight = self.member * (1 - self.member)
        total = np.maximum(weight.sum(axis=1), 1e-300)
        request, place = np.nonzero(weight > 1e-7)
        group, weight = pool.groups[request, place], weight[request, place] / width
        shape = (pool.scores.shape[0], pool.floors.size)
        shared = sparse.csr_array((weight / np.sqrt(total[request] / width), (request, group)), shape=shape)
        own = np.diag(np.bincount(group, weight, pool.floors.size))
        return np.asarray(own - (shared.T @ shared).toarray(), dtype=np.float64)


def descend(pool: Pool, subsidies: Floats, *, reach: float, near: float) -> Floats:
    """Follow the smoothed dual down, by projected Newton steps with less and less smoothing.

    Parameters
    ----------
    pool
        The problem.
    subsidies
        (G,) where to start.
    reach
        How far any subsidy may move: a pool fetched at the start says little about places far from it.
    near
        Stop when no more than this many places at the edge of the lists are still undecided.
    """
    lowest, highest = np.maximum(subsidies - reach, 0), subsidies + reach
    width = pool.spread(subsidies) / 4
    before = np.inf
    while True:
        here = _Smooth.at(pool, subsidies, width)
        for _ in range(12):
            slope = here.gradient
            free = ~(((subsidies <= lowest) & (slope > 0)) | ((subsidies >= highest) & (slope < 0)))
            if np.abs(slope[free]).max(initial=0.0) < 0.3:  # a third of an exposure: whole ones are polished
                break
            hessian = here.curvature(pool, width)[np.ix_(free, free)]
            hessian += np.eye(len(hessian)) * (1e-6 * np.trace(hessian) / len(hessian) + 1e-12)
            move = np.zeros_like(subsidies)
            move[free] = -np.linalg.solve(hessian, slope[free])
            for shorter in 3.0 ** -np.arange(10):
                target = np.clip(subsidies + shorter * move, lowest, highest)
                there = _Smooth.at(pool, target, width)
                if there.value <= here.value + 1e-4 * float(slope @ (target - subsidies)):
                    break
            else:
                break  # no way down that floating point can see
            subsidies, here = target, there
        undecided = float((here.member * (1 - here.member)).sum())
        if undecided <= near or undecided > 0.9 * before:  # where items tie, less smoothing decides nothing
            return subsidies
        before, width = undecided, width / 4
        # With less smoothing only what is near the edge counts: most of a large pool can be left behind.
        pool = pool.core(subsidies, margin=4 + int(40 * undecided / len(pool.scores)))


@dataclass(frozen=True)
class Settled:
    """The exact best subsidies within a box, and the plan that goes with them."""

    subsidies: Floats
    plan: NDArray[np.bool_]  #: (T, N), exactly k true in every row
    short: int  #: exposures that the plan lacks (0: it meets every floor)
    final: bool  #: whether the box did not matter: nothing in the pool is better


def polish(pool: Pool, subsidies: Floats, *, free: int, bold: float = 1.0) -> Settled:
    """Minimise the dual exactly in a box around ``subsidies``, by a linear program.

    An item's *regret* is what swapping it in (or out) costs its request now. If no subsidy moves by more
    than half of W, an item whose regret is at least W need not change sides; so the program holds the items
    below a W that leaves about ``free`` of them, and lets each subsidy move by W/2. In the plan's terms: a
    group may fall short of its floor, or overshoot it, at the price that the end of its box says.
    A pool that is free as a whole sets no limit to W: then it is ``bold`` times the largest regret.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    best, groups = pool.best(subsidies), pool.floors.size
    regret = np.where(best.inside, best.priced - best.next[:, None], best.last[:, None] - best.priced)
    spread = pool.spread(subsidies)
    if regret.size <= free:
        reach, loose = bold * max(float(regret.max()), spread), np.ones(regret.shape, dtype=np.bool_)
    else:
        # Ties have no regret: the box must still be large enough to leave them behind.
        untied = float(regret.min(initial=spread, where=regret > 1e-6 * spread))
        reach = max(float(np.partition(regret, free, axis=None)[free]), untied)
        loose = regret < reach
    request, place = np.nonzero(loose)
    group = pool.groups[request, place]
    _, row = np.unique(request, return_inverse=True)
    slots = np.bincount(row, best.inside[request, place])
    missing = pool.floors - pool.exposures(best.inside & ~loose)

    # Columns: the loose places, then shortfall and surplus of each group. Rows: requests, then groups.
    # Gains are measured from the edge of the list, in units of W: the solver's tolerances are then fine.
    items, each = np.arange(request.size), np.arange(groups)
    ones = np.ones(request.size)
    matrix = sparse.csr_array(
        (
            np.concatenate([ones, ones, np.ones(groups), -np.ones(groups)]),
            (
                np.concatenate([row, slots.size + group, slots.size + each, slots.size + each]),
                np.concatenate([items, items, items.size + each, items.size + groups + each]),
            ),
        )
    )
    edge = (best.last + best.next) / 2
    gain = (best.priced[request, place] - edge[request]) / reach
    drop = np.minimum(0.5, subsidies / reach)  # a subsidy never falls below zero
    upper = np.concatenate([ones, np.full(2 * groups, np.inf)])
    solved = linprog(  # type: ignore[call-overload]  # the stubs do not know that A_eq may be sparse
        np.concatenate([-gain, np.full(groups, 0.5), drop]),
        A_eq=matrix,
        b_eq=np.concatenate([slots, missing]),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        method="highs-ds",  # simplex: a vertex, hence a whole plan
    )
    if solved.x is None:
        lacking = np.maximum(pool.floors - pool.exposures(best.inside), 0)
        return Settled(subsidies, best.inside, int(lacking.sum()), final=False)
    whole = np.rint(solved.x).astype(np.int64)
    taken, shortfall, surplus = np.split(whole, [items.size, items.size + groups])
    plan = best.inside.copy()
    plan[request, place] = taken > 0
    moved = np.maximum(subsidies + reach * solved.eqlin.marginals[slots.size :], 0)
    over, floored = surplus > 0, subsidies <= 0.5 * reach
    moved[over & floored] = 0  # more than the floor without help: no subsidy, not even a rounding error
    boxed = shortfall.any() or (over & ~floored).any()
    return Settled(moved, plan, int(shortfall.sum()), final=not boxed)
