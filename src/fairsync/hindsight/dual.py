r"""The price of promises over many requests at once, found by its dual: one subsidy per bound.

Choosing k items for every request so that each group reaches its floor is a transport problem.
With :math:`\lambda_g \ge 0`, the subsidy (minus the price) of group g, its dual is

.. math::  \min_{\lambda \ge 0} \; \sum_t \mathrm{TopK}_i\,(r_{ti} + \lambda_{g(i)}) - \sum_g m_g \lambda_g

a convex, piecewise-linear function with as many dimensions as there are groups and as many pieces as
there are ways to choose. From afar it looks smooth and from near it is a linear program; so it is
solved in two steps. :func:`descend` smooths it and takes Newton steps while the smoothing shrinks.
:func:`polish` then settles what lies near the edge of the lists with a linear program: it is exact,
and as the constraint matrix is totally unimodular its answer is a whole plan, not a fractional one.

Bounds are rows over atoms (:mod:`fairsync.hindsight.bound_rows`), with one subsidy per row; without overlap, an atom is
a group. Where promises overlap, all of the above holds but the last: the answer may be fractional, at most in about as
many requests as there are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.hindsight.pool import Best, Pool

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from fairsync.hindsight.pool import Floats

# Shares of an item below this are rounding errors of a linear program.
_FRACTION = 1e-7
# With more rows than this, a Newton step is solved for by conjugate gradients.
_DENSE = 200

__all__ = ["Best", "Pool", "Settled", "descend", "polish"]


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
    gradient: Floats  #: soft exposures minus the least of each bound
    member: Floats

    @classmethod
    def at(cls, pool: Pool, subsidies: Floats, width: float) -> _Smooth:
        priced = pool.priced(subsidies)
        threshold, member = _thresholds(priced, pool.k, width)
        priced -= threshold[:, None]
        soft = np.maximum(priced, 0).sum() + width * np.log1p(np.exp(-np.abs(priced) / width)).sum()
        value = pool.k * threshold.sum() + soft - pool.least @ subsidies
        exposures = np.bincount(pool.atoms.ravel(), member.ravel(), pool.bounds.n_atoms).astype(np.float64)
        return cls(float(value), pool.bounds.delivered(exposures) - pool.least, member)

    def curvature(self, pool: Pool, width: float) -> tuple[sparse.csr_array, Floats]:
        """Return the Hessian as (shared, own): it is ``diag(own) - shared.T @ shared``, by atom.

        It says which atoms trade places at the edge of the lists.
        """
        from scipy import sparse

        weight = self.member * (1 - self.member)
        total = np.maximum(weight.sum(axis=1), 1e-300)
        request, place = np.nonzero(weight > 1e-7)
        atom, weight = pool.atoms[request, place], weight[request, place] / width
        shape = (pool.scores.shape[0], pool.bounds.n_atoms)
        shared = sparse.csr_array((weight / np.sqrt(total[request] / width), (request, atom)), shape=shape)
        return shared, np.bincount(atom, weight, pool.bounds.n_atoms).astype(np.float64)

    def newton(self, pool: Pool, width: float, free: NDArray[np.bool_]) -> Floats:
        """Return the Newton step of the subsidies in ``free``."""
        from scipy import sparse

        shared, own = self.curvature(pool, width)
        of_atom = sparse.csc_array(pool.bounds.by_atom)[:, free]
        shared, weighted = shared @ of_atom, sparse.csc_array(of_atom.multiply(own[:, None]))
        if of_atom.shape[1] > _DENSE:
            return _conjugate_gradient(of_atom, weighted, shared, -self.gradient[free])
        hessian = np.asarray((of_atom.T @ weighted - shared.T @ shared).toarray(), dtype=np.float64)
        hessian += np.eye(len(hessian)) * (1e-6 * np.trace(hessian) / len(hessian) + 1e-12)
        return np.asarray(-np.linalg.solve(hessian, self.gradient[free]), dtype=np.float64)


def _conjugate_gradient(
    of_atom: sparse.csc_array, weighted: sparse.csc_array, shared: sparse.csr_array, target: Floats
) -> Floats:
    """Solve for a Newton step with a Hessian that is too large to be written down."""
    from scipy import sparse
    from scipy.sparse.linalg import LinearOperator, cg

    transposed, shared_transposed = sparse.csr_array(weighted.T), sparse.csr_array(shared.T)
    diagonal = np.asarray(of_atom.multiply(weighted).sum(axis=0) - shared.multiply(shared).sum(axis=0)).ravel()
    ridge = 1e-6 * float(diagonal.mean()) + 1e-12

    def times(step: Floats) -> Floats:
        return np.asarray(transposed @ (of_atom @ step) - shared_transposed @ (shared @ step) + ridge * step)

    size = (len(target), len(target))
    scale = 1 / (np.maximum(diagonal, 0) + ridge)
    hessian, jacobi = LinearOperator(size, times, dtype=np.float64), sparse.diags_array(scale)
    step, _ = cg(hessian, target, rtol=1e-3, maxiter=300, M=jacobi)
    return np.asarray(step, dtype=np.float64)


def descend(pool: Pool, subsidies: Floats, *, reach: float, near: float) -> Floats:
    """Follow the smoothed dual down, by projected Newton steps with less and less smoothing.

    Parameters
    ----------
    pool
        The problem.
    subsidies
        (J,) where to start.
    reach
        How far any subsidy may move: a pool fetched at the start says little about places far from it.
    near
        Stop when no more than this many places at the edge of the lists are still undecided.
    """
    lowest, highest = np.maximum(subsidies - reach, 0), subsidies + reach
    pool = pool.undecided(subsidies)
    if not len(pool.scores):
        return subsidies
    width = pool.spread(subsidies) / 4
    before = np.inf
    while True:
        here = _Smooth.at(pool, subsidies, width)
        for _ in range(12):
            slope = here.gradient
            free = ~(((subsidies <= lowest) & (slope > 0)) | ((subsidies >= highest) & (slope < 0)))
            if np.abs(slope[free]).max(initial=0.0) < 0.3:  # a third of an exposure: whole ones are polished
                break
            move = np.zeros_like(subsidies)
            move[free] = here.newton(pool, width, free)
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
    short: int  #: exposures that the plan lacks (0: it keeps every bound)
    final: bool  #: whether the box did not matter: nothing in the pool is better


def polish(pool: Pool, subsidies: Floats, *, free: int, bold: float = 1.0) -> Settled:
    """Minimise the dual exactly in a box around ``subsidies``, by a linear program.

    An item's *regret* is what swapping it in (or out) costs its request now. If no subsidy moves by more
    than half of W, an item whose regret is at least W need not change sides; so the program holds the items
    below a W that leaves about ``free`` of them, and lets each subsidy move by W/2, or by less where an atom has
    several. In the plan's terms: a bound may fall short, or be exceeded, at the price that the end of its box says.
    A pool that is free as a whole sets no limit to W: then it is ``bold`` times the largest regret.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    best, n_bounds = pool.best(subsidies), pool.least.size
    loose, reach, half = _box(pool, best.regret, pool.spread(subsidies), free, bold)
    request, place = np.nonzero(loose)
    _, row = np.unique(request, return_inverse=True)
    slots = np.bincount(row, best.inside[request, place])
    missing = pool.least - pool.exposures(best.inside & ~loose)

    # Columns: the loose places, then shortfall and surplus of each bound. Rows: requests, then bounds.
    # Gains are measured from the edge of the list, in units of W: the solver's tolerances are then fine.
    items, each = np.arange(request.size), np.arange(n_bounds)
    ones = np.ones(request.size)
    counted, bound, signs = pool.bounds.expand(pool.atoms[request, place])
    matrix = sparse.csr_array(
        (
            np.concatenate([ones, signs, np.ones(n_bounds), -np.ones(n_bounds)]),
            (
                np.concatenate([row, slots.size + bound, slots.size + each, slots.size + each]),
                np.concatenate([items, counted, items.size + each, items.size + n_bounds + each]),
            ),
        )
    )
    edge = (best.last + best.next) / 2
    edge = np.where(np.isfinite(edge), edge, best.priced.max(axis=1))
    gain = (best.priced[request, place] - edge[request]) / reach
    drop = np.minimum(half, subsidies / reach)  # a subsidy never falls below zero
    upper = np.concatenate([ones, np.full(2 * n_bounds, np.inf)])
    solved = linprog(  # type: ignore[call-overload]  # the stubs do not know that A_eq may be sparse
        np.concatenate([-gain, np.full(n_bounds, half), drop]),
        A_eq=matrix,
        b_eq=np.concatenate([slots, missing]),
        bounds=np.stack([np.zeros_like(upper), upper], axis=1),
        **pool.list_rows(best.inside, request, place, upper.size),
        method="highs-ds",  # simplex: a vertex, hence a whole plan
    )
    if solved.x is None:
        lacking = np.maximum(pool.least - pool.exposures(best.inside), 0)
        return Settled(subsidies, best.inside, int(lacking.sum()), final=False)
    plan, moved = best.inside.copy(), np.maximum(subsidies + reach * solved.eqlin.marginals[slots.size :], 0)
    taken, shortfall, surplus = np.split(solved.x, [items.size, items.size + n_bounds])
    shortfall, surplus = np.where(shortfall > _FRACTION, shortfall, 0), np.where(surplus > _FRACTION, surplus, 0)
    plan[request, place] = _largest(taken, row, slots)  # a vertex may be fractional: whole items nearest to it
    if pool.limits is not None:
        shares = np.where(best.inside, 2.0, -np.inf)
        shares[request, place] = solved.x[: items.size]
        plan, _ = pool.limits.best(shares, pool.atoms, pool.k)
    over, floored = surplus > 0, subsidies <= half * reach
    moved[over & floored] = 0  # more than the floor without help: no subsidy, not even a rounding error
    boxed = shortfall.any() or (over & ~floored).any()
    short = np.maximum(pool.least - pool.exposures(plan), 0).sum()
    return Settled(moved, plan, int(short), final=not boxed)


def _box(pool: Pool, regret: Floats, spread: float, free: int, bold: float) -> tuple[NDArray[np.bool_], float, float]:
    """Return the places that a program holds, the regret W of all others at least, and by how much of W prices move."""
    loose = np.isfinite(regret)
    if np.count_nonzero(loose) <= free:
        return loose, bold * max(float(regret.max(initial=0.0, where=loose)), spread), 0.5
    # Ties have no regret: the box must still be large enough to leave them behind.
    untied = float(regret.min(initial=spread, where=regret > 1e-6 * spread))
    reach = max(float(np.partition(regret, free, axis=None)[free]), untied)
    # An item moves with all bounds of its atom.
    return regret < reach, reach, 0.5 / max(pool.bounds.most_rows, 1)


def _largest(shares: Floats, row: NDArray[np.intp], slots: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which shares are the largest of their row, as many as it has slots."""
    order = np.lexsort((-shares, row))
    starts = np.concatenate([[0], np.cumsum(np.bincount(row))])[:-1]
    taken = np.empty(len(shares), dtype=np.bool_)
    taken[order] = np.arange(len(shares)) - starts[row[order]] < slots[row[order]]
    return taken
