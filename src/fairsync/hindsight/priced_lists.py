"""The best items of every request under the prices of the moment, fetched again when prices have moved too far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError
from fairsync.hindsight.dual import Pool
from fairsync.search.base import Hits

if TYPE_CHECKING:
    from fairsync.hindsight.bound_rows import BoundRows
    from fairsync.hindsight.limited_lists import ListLimits
    from fairsync.search.eligibility import Eligibility

Floats = npt.NDArray[np.float64]
Search = Callable[..., Hits]
"""(users, prices of all atoms, k) -> Hits: as `Index.search`. With rules, the users' `Eligibility` is the fourth."""
Progress = Callable[[str, int, int], None]
"""(what, done, total): called while work goes on."""

# Scores between these need no other unit: the solver's tolerances suit them.
_ORDINARY = (2.0**-20, 2.0**20)
# Subsidies above this multiple of the largest score leave too few digits for the scores.
_FAR = 2.0**20


@dataclass(frozen=True)
class ListSizes:
    """How much is fetched for each request."""

    fetch: int = 4  #: lists hold this many times k, so that subsidies can move between two searches
    least: int = 40  #: and at least this many items
    chunk: int = 1024  #: requests searched at a time
    most: int = 50_000_000  #: places that all lists together may hold, about 1.5 GB

    def width(self, k: int, n_items: int) -> int:
        """Return the length of the lists."""
        return min(max(self.fetch * k, self.least), n_items)


class PricedLists:
    """The best items of every request under some subsidies, and whether they suffice under others.

    Parameters
    ----------
    atom_of
        (n,) the atom of each item.
    search
        Finds the best items under prices; the dual's values are proofs if it is exact.
    users
        (T, interests, d): all requests.
    k
        Items per request.
    bounds, least
        The bounds of promises, and (J,) the least value of each.
    sizes
        How much is fetched.
    progress
        Called after every chunk.
    exponent
        Scores and subsidies are measured in units of ``2**exponent``; see :meth:`in_unit`.
    eligible
        The items that each request may get; None for all items. Then there is one more atom, without a bound, of empty
        places: they fill lists that are longer than the number of eligible items, and their relevance is -inf.
    limits
        Limits per list. If fewer of the items that a request may get keep them than fit into its list, they do not hold
        for it, as for a :class:`fairsync.FairRetriever`: no list is short for the sake of a promise. Its items then
        belong to a second set of atoms, which have the same bounds and no limits.
    """

    def __init__(
        self,
        atom_of: npt.NDArray[np.integer[Any]],
        search: Search,
        users: npt.NDArray[np.floating[Any]],
        k: int,
        bounds: BoundRows,
        least: Floats,
        sizes: ListSizes,
        progress: Progress = lambda what, done, total: None,
        exponent: int = 0,
        eligible: Eligibility | None = None,
        limits: ListLimits | None = None,
    ) -> None:
        self.exponent, self.eligible, self._given = exponent, eligible, (atom_of, bounds)
        self.n_items, self.n_atoms = len(atom_of), bounds.n_atoms
        if eligible is not None:  # row -1 is an empty place
            atom_of, bounds = np.append(atom_of, self.n_atoms), bounds.with_empty(twice=limits is not None)
            if limits is not None:
                limits = limits.with_unlimited(self.n_atoms)
        self.bounds, self.least, self.limits = bounds, least, limits
        self.atom_of, self.search, self.progress, self.sizes = atom_of, search, progress, sizes
        self.users, self.k = users, k
        self._reserve(sizes.width(k, self.n_items))

    def _reserve(self, width: int) -> None:
        shape = (len(self.users), width)
        self.rows: npt.NDArray[np.int64] = np.empty(shape, dtype=np.int64)
        self.scores: Floats = np.empty(shape)
        self.atoms: npt.NDArray[np.intp] = np.empty(shape, dtype=np.intp)
        self._worst: Floats = np.empty(shape[0])  # no item that was left out had a better priced score
        self._under = np.zeros((shape[0],), dtype=np.intp)  # the subsidies it was fetched under
        self._history: list[Floats] = []

    @property
    def pool(self) -> Pool:
        """The lists as a problem for the solver."""
        return Pool(self.scores, self.atoms, self.k, self.bounds, self.least, self.limits)

    @property
    def farthest(self) -> float:
        """The largest subsidy under which a value of the dual is a bound, and not rounding errors."""
        return _FAR * self.largest

    @property
    def largest(self) -> float:
        """The largest relevance, without regard to its sign."""
        return float(np.abs(self.scores).max(initial=0.0, where=np.isfinite(self.scores)))

    def in_unit(self, subsidies: Floats) -> tuple[PricedLists, Floats]:
        """Return lists and subsidies in a unit in which scores are near 1; scores of ordinary size stay as they are.

        The tolerances of the solver are absolute. The unit is a power of two, so that scaling rounds nothing.
        """
        largest = self.largest
        exponent = 0 if largest == 0 or _ORDINARY[0] <= largest <= _ORDINARY[1] else int(np.frexp(largest)[1])
        lists = self
        if exponent:
            lists = PricedLists(
                self._given[0], _scaled(self.search, exponent), self.users, self.k, self._given[1], self.least,
                self.sizes, self.progress, exponent, self.eligible, self.limits,
            )  # fmt: skip
            subsidies = np.ldexp(subsidies, -exponent)
            lists.fetch(subsidies)
        if subsidies.max(initial=0.0) > lists.farthest:
            subsidies = np.minimum(subsidies, lists.farthest)
            lists.fetch(subsidies)
        return lists, subsidies

    def sample(self, size: int) -> PricedLists:
        """Return a copy with `size` of the requests, evenly spread, and bounds reduced in proportion."""
        which = np.linspace(0, len(self.users) - 1, size).astype(np.intp)
        least = self.least * (size / len(self.users))
        eligible = None if self.eligible is None else self.eligible.take(which)
        part = PricedLists(
            self._given[0], self.search, self.users[which], self.k, self._given[1], least, self.sizes, self.progress,
            self.exponent, eligible, self.limits,
        )  # fmt: skip
        part.rows, part.scores, part.atoms = self.rows[which], self.scores[which], self.atoms[which]
        part._worst, part._under, part._history = self._worst[which], self._under[which], [*self._history]
        return part

    def fetch(self, subsidies: Floats, which: npt.NDArray[np.intp] | None = None) -> None:
        """Search for the requests in `which`, or for all of them, and replace their lists."""
        which = np.arange(len(self.users)) if which is None else which
        subsidies = self.bounds.subsidies(subsidies)
        self._history.append(subsidies)
        width = self.rows.shape[1]
        for start in range(0, which.size, self.sizes.chunk):
            chunk = which[start : start + self.sizes.chunk]
            hits, complete = self._search(chunk, subsidies, width)
            self.rows[chunk], self.scores[chunk] = hits.rows, hits.relevance
            atoms = self.atom_of[hits.rows]
            if self.limits is not None:
                atoms = self._unlimited(atoms, hits, complete)
            self.atoms[chunk] = atoms
            self._worst[chunk] = np.where(complete, -np.inf, (hits.relevance + subsidies[atoms]).min(axis=1))
            self._under[chunk] = len(self._history) - 1
            self.progress("searching", start + chunk.size, which.size)

    def _search(self, chunk: npt.NDArray[np.intp], subsidies: Floats, width: int) -> tuple[Hits, npt.NDArray[np.bool_]]:
        """Return the best items of some requests, and whether each list holds all that are eligible."""
        if self.eligible is None:
            hits = self.search(self.users[chunk], -subsidies, width)
            if (hits.rows < 0).any():
                raise InvalidInputError(f"the index finds fewer than {width} items: use index='exact'.")
            return hits, np.zeros(len(chunk), dtype=np.bool_)
        eligible = self.eligible.take(chunk)
        hits = self.search(self.users[chunk], -subsidies[: self.n_atoms], width, eligible)
        empty, counts = hits.rows < 0, eligible.counts
        if (empty.sum(axis=1) != np.maximum(width - counts, 0)).any():
            raise InvalidInputError("the index does not find all eligible items: use index='exact'.")
        # Caps charge items, so that no finite number would be worse than all of them.
        return replace(hits, relevance=np.where(empty, -np.inf, hits.relevance)), counts <= width

    def _unlimited(
        self, atoms: npt.NDArray[np.integer[Any]], hits: Hits, complete: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.integer[Any]]:
        """Return the atoms of places, those without limits where too few of all eligible items keep the limits."""
        assert self.limits is not None
        some, there = np.flatnonzero(complete), hits.rows >= 0
        within, _ = self.limits.best(np.where(there[some], 0.0, -np.inf), atoms[some], self.k)
        short = some[within.sum(axis=1) < np.minimum(there[some].sum(axis=1), self.k)]
        atoms[short] = np.where(there[short], atoms[short] + self.n_atoms + 1, atoms[short])
        return atoms

    def refresh(self, subsidies: Floats) -> int:
        """Search again where an item left out might now be among the best; return for how many requests."""
        if self.rows.shape[1] == self.n_items:
            return 0
        by_atom = self.bounds.subsidies(subsidies)
        raised = np.array([float((by_atom - old).max()) for old in self._history])
        last = self.pool.best(subsidies).last
        unsure = np.flatnonzero(self._worst + raised[self._under] > last)
        self.fetch(subsidies, unsure)
        if self.limits is not None:
            self.fill(subsidies)
        return unsure.size

    def fill(self, subsidies: Floats) -> None:
        """Fetch more while limits per list leave too few items in some list."""
        while ((self.pool.best(subsidies).last == -np.inf) & (self._worst > -np.inf)).any():
            if not self.widen(subsidies):
                raise InvalidInputError(
                    "the limits per list leave too few of the best items of a request: use a higher at_most_per_list."
                )

    def value(self, subsidies: Floats) -> float:
        """Return the value of the dual over the whole catalog."""
        self.refresh(subsidies)
        return self.pool.best(subsidies).value

    def widen(self, subsidies: Floats) -> bool:
        """Fetch twice as much for every request; False if there is no more, or no room."""
        width = min(2 * self.rows.shape[1], self.n_items)
        if width == self.rows.shape[1] or width * len(self.users) > self.sizes.most:
            return False
        self._reserve(width)
        self.fetch(subsidies)
        return True

    def chosen(self, plan: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Turn a plan over the lists into (T, k) rows of the catalog, best first; -1 for an empty place."""
        priced = np.where(plan, self.scores, -np.inf)
        order = np.argsort(-priced, axis=1, kind="stable")[:, : self.k]
        rows = np.take_along_axis(self.rows, order, axis=1)
        return np.where(np.take_along_axis(plan, order, axis=1), rows, -1)


def _scaled(search: Search, exponent: int) -> Search:
    """Return a search whose prices and relevance are in units of ``2**exponent``."""

    def search_scaled(users: npt.NDArray[np.floating[Any]], prices: Floats | None, k: int, *rules: Any) -> Hits:
        hits = search(users, None if prices is None else np.ldexp(prices, exponent), k, *rules)
        return replace(hits, relevance=np.ldexp(hits.relevance, -exponent))

    return search_scaled
