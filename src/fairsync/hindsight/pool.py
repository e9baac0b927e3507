"""What requests may choose from, and what they choose under subsidies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.hindsight.bound_rows import BoundRows
    from fairsync.hindsight.limited_lists import ListLimits

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Best:
    """The k best items of every request under some subsidies."""

    value: float  #: the dual's value there: an upper bound on the relevance of any plan over the pool
    inside: NDArray[np.bool_]  #: (T, N), exactly k true in every row
    priced: Floats  #: (T, N), relevance plus subsidy
    last: Floats  #: (T,), the worst priced score inside
    next: Floats  #: (T,), the best priced score outside
    swaps: Floats | None = None  #: (T, N), the regrets where promises limit their items per list

    @property
    def regret(self) -> Floats:
        """(T, N), what swapping each item in or out costs its request; +inf where no swap is possible."""
        if self.swaps is not None:
            return self.swaps
        return np.where(self.inside, self.priced - self.next[:, None], self.last[:, None] - self.priced)


@dataclass(frozen=True)
class Pool:
    """What every request may choose from, and what promises must get.

    Examples
    --------
    Two requests choose one item each; both prefer group 0, group 1 must get one exposure. The second
    gives up less (0.2), so it takes the other item, and the dual's value is the relevance of that plan.

    >>> from fairsync.hindsight.bound_rows import BoundRows
    >>> from fairsync.hindsight.dual import polish
    >>> scores, groups = np.array([[0.9, 0.1], [0.8, 0.6]]), np.array([[0, 1], [0, 1]])
    >>> bounds, least = BoundRows.of_groups(np.array([0, 1]))
    >>> pool = Pool(scores, groups, 1, bounds, least)
    >>> settled = polish(pool, np.zeros(1), free=4)
    >>> settled.plan.tolist(), round(pool.best(settled.subsidies).value, 6)
    ([[True, False], [False, True]], 1.5)
    """

    scores: Floats  #: (T, N) relevance, N > k; -inf for empty places
    atoms: NDArray[np.intp]  #: (T, N) the atom of each item
    k: int
    bounds: BoundRows  #: the bounds of promises; subsidies are by bound
    least: Floats  #: (J,) the least value of each bound; whole numbers unless the pool is a sample
    limits: ListLimits | None = None  #: the most items of some promises in one list

    def priced(self, subsidies: Floats) -> Floats:
        """Return (T, N) relevance plus subsidy."""
        return self.scores + self.bounds.subsidies(subsidies)[self.atoms]

    def best(self, subsidies: Floats) -> Best:
        """Choose for every request under ``subsidies``."""
        priced = self.priced(subsidies)
        if self.limits is not None:
            inside, regret = self.limits.best(priced, self.atoms, self.k)
            full = inside.sum(axis=1) == self.k
            last = np.where(full, priced.min(axis=1, where=inside, initial=np.inf), -np.inf)
            value = float(priced[inside].sum() - self.least @ subsidies)
            return Best(value, inside, priced, last, last, regret)
        cut = priced.shape[1] - self.k
        order = np.argpartition(priced, (cut - 1, cut), axis=1)
        inside = np.zeros(priced.shape, dtype=np.bool_)
        np.put_along_axis(inside, order[:, cut:], True, axis=1)
        edge = np.take_along_axis(priced, order[:, cut - 1 : cut + 1], axis=1)
        swaps = None
        if (edge == -np.inf).any():  # some requests have no choice
            inside &= priced > -np.inf
            with np.errstate(invalid="ignore"):
                swaps = Best(0.0, inside, priced, edge[:, 1], edge[:, 0]).regret
            swaps = np.where(np.isfinite(swaps), swaps, np.inf)
        value = float(priced[inside].sum() - self.least @ subsidies)
        return Best(value, inside, priced, edge[:, 1], edge[:, 0], swaps)

    def undecided(self, subsidies: Floats) -> Pool:
        """Leave out requests that have no choice, and items that limits per list keep out under ``subsidies``."""
        if self.limits is None and np.isfinite(self.scores).all():
            return self
        best, scores = self.best(subsidies), self.scores
        if self.limits is not None:
            scores = np.where(self.limits.reached(best.inside, self.atoms) & ~best.inside, -np.inf, scores)
        choice = (scores > -np.inf).sum(axis=1) > self.k
        decided = self.exposures(best.inside & ~choice[:, None])
        return Pool(scores[choice], self.atoms[choice], self.k, self.bounds, self.least - decided)

    def list_rows(
        self, inside: NDArray[np.bool_], request: NDArray[np.intp], place: NDArray[np.intp], columns: int
    ) -> dict[str, Any]:
        """Return the limits per list as inequalities of a linear program whose first columns are these places."""
        if self.limits is None:
            return {}
        from scipy import sparse

        rest = inside.copy()
        rest[request, place] = False
        matrix, most = self.limits.inequalities(rest, self.atoms, request, place)
        shape = (len(most), columns)
        return {"A_ub": sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape), "b_ub": most}

    def exposures(self, plan: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return (J,) what every bound gets from a (T, N) plan."""
        return self.bounds.delivered(np.bincount(self.atoms[plan], minlength=self.bounds.n_atoms).astype(np.int64))

    def spread(self, subsidies: Floats) -> float:
        """Return how far the typical list reaches below its k-th item, in priced relevance."""
        priced = self.priced(subsidies)
        cut = priced.shape[1] - self.k
        low = np.partition(priced, (0, cut), axis=1)
        lowest, there = low[:, 0], np.isfinite(priced)
        if not there.all():
            lowest = priced.min(axis=1, where=there, initial=np.inf)
        # Never zero, even where everything ties: steps and smoothing are measured in spreads.
        largest = float(np.abs(priced).max(initial=0.0, where=there))
        return max(float(np.median(low[:, cut] - lowest)), 1e-6 * largest, 1e-12)

    def core(self, subsidies: Floats, margin: int) -> Pool:
        """Keep ``margin`` places on either side of the edge of each list; what is above stays chosen."""
        size = self.scores.shape[1]
        low, high = size - self.k - margin, size - self.k + margin
        if margin >= self.k or low <= 0:
            return self
        order = np.argpartition(self.priced(subsidies), (low, high - 1), axis=1)
        atoms = np.take_along_axis(self.atoms, order[:, low:], axis=1)
        kept = np.bincount(atoms[:, 2 * margin :].ravel(), minlength=self.bounds.n_atoms).astype(np.int64)
        scores = np.take_along_axis(self.scores, order[:, low:high], axis=1)
        nearest = np.ascontiguousarray(atoms[:, : 2 * margin])
        return Pool(scores, nearest, margin, self.bounds, self.least - self.bounds.delivered(kept))
