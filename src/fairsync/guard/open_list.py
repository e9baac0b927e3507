"""A list of candidates that is being filled: which items it admits, and at which score."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.policies.base import Counts, Floats
    from fairsync.search.base import Hits


class OpenList:
    """Candidates of one request, filled one by one, in order of score, as far as list limits and caps admit them.

    The score of an item is its relevance minus the prices of its promises. A subsidy ends with its floor: of a promise
    that misses D exposures, the first D items of the list carry the subsidy.

    Parameters
    ----------
    catalog
        The items; their groups are atoms.
    certificate
        What promises miss, and what is reserved of the caps.
    prices
        (P,) the price of each promise.
    k
        Number of candidates.
    keeps_caps
        Whether items are refused that would break a cap.
    """

    def __init__(
        self, catalog: Catalog, certificate: LiveCertificate, prices: Floats, k: int, *, keeps_caps: bool = True
    ) -> None:
        self.catalog, self.k, self.links = catalog, k, certificate.links
        self.prices = prices
        self.certificate, self.plan = certificate, certificate.plan
        self.missing = certificate.missing.copy()
        self.home = certificate.terms.home
        limits = certificate.terms.limits_of_any_list
        self.limits = None if limits is None else limits.copy()
        self.slack = certificate.slack if keeps_caps else None
        self.room = certificate.room
        self.relevance: dict[int, float] = {}
        self.counts: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are k candidates."""
        return len(self.relevance) >= self.k

    def admits(self, atom: int) -> bool:
        """Return whether an item of this atom breaks no list limit and no cap."""
        mine = self.links.of_atom(atom)
        if self.limits is not None and (self.limits[mine] <= 0).any():
            return False
        if self.slack is None or self._has_plan(atom) or self._has_plan(self._home_of(atom)):
            return True
        return bool((self.slack[mine] > 0).all())

    def admitted(self) -> NDArray[np.bool_]:
        """Return (A,) whether an item of each atom breaks no list limit and no cap."""
        free = np.ones(self.links.n_atoms, dtype=bool)
        if self.slack is not None:
            planned = self.counts_by_atom() < self.plan
            free = ~self.links.in_any(self.slack <= 0) | planned
            if self.home is not None:
                free |= planned[self.home]
        if self.limits is not None:
            free &= ~self.links.in_any(self.limits <= 0)
        return free

    def add(self, row: int, relevance: float) -> None:
        """Add a candidate."""
        atom = int(self.catalog.group_of[row])
        mine = self.links.of_atom(atom)
        if self.slack is not None and not self._has_plan(atom):
            if self._has_plan(self._home_of(atom)):
                self.exchange(self._home_of(atom), atom)
            else:
                self.slack[mine] -= 1
        if self.limits is not None:
            self.limits[mine] -= 1
        self.missing[mine] -= 1
        self.relevance[row] = relevance
        self.counts[atom] = self.counts.get(atom, 0) + 1

    def exchange(self, planned: int, atom: int) -> None:
        """Plan an item of one atom in the place of one of another."""
        self.certificate.add(np.array([planned, atom]), np.array([-1, 1]))
        if self.slack is not None:
            self.slack[self.links.of_atom(planned)] += 1
            self.slack[self.links.of_atom(atom)] -= 1

    def _has_plan(self, atom: int) -> bool:
        """Return whether more items of an atom are planned than the list has."""
        return self.counts.get(atom, 0) < int(self.plan[atom])

    def _home_of(self, atom: int) -> int:
        return atom if self.home is None else int(self.home[atom])

    def price(self, atom: int) -> float:
        """Return the price of an atom without subsidies that have ended."""
        mine = self.links.of_atom(atom)
        active = (self.prices[mine] >= 0) | (self.missing[mine] > 0)
        return sum(self.prices[mine[active]].tolist(), 0.0)

    def atom_prices(self) -> Floats:
        """Return (A,) the price of every atom without subsidies that have ended; +inf for atoms that are refused."""
        active = np.where((self.prices < 0) & (self.missing <= 0), 0.0, self.prices)
        return np.where(self.admitted(), self.links.atom_prices(active), np.inf)

    def fill(
        self, rows: NDArray[np.int64], relevance: Floats, prices: Floats, search: Callable[[Floats, int], Hits]
    ) -> None:
        """Add the best items that are admitted until the list is full or no item is left.

        Parameters
        ----------
        rows, relevance
            (width,) the best items under ``prices``, best first.
        prices
            (A,) the prices of atoms under which they were found.
        search
            (prices of atoms, number of items) -> hits of this request.
        """
        group_of, n_items = self.catalog.group_of, len(self.catalog)
        while not self.is_full:
            complete = len(rows) >= n_items or rows[-1] < 0
            rows, relevance = rows[rows >= 0], relevance[rows >= 0]
            beyond = -np.inf if complete else float(relevance[-1] - prices[group_of[rows[-1]]])
            if self._take_best(rows, relevance, prices, beyond) or complete:
                return
            prices = self.atom_prices()
            found = search(prices, min(max(2 * len(rows), len(self.relevance) + self.k), n_items))
            rows, relevance = found.rows[0], found.relevance[0]

    def _take_best(self, rows: NDArray[np.int64], relevance: Floats, prices: Floats, beyond: float) -> bool:
        """Add items while their score exceeds that of all items outside the rows; return whether the list is full."""
        atoms = self.catalog.group_of[rows]
        ranks = rows if self.catalog.rank is None else self.catalog.rank[rows]
        scores = relevance - prices[atoms]
        heap = list(zip((-scores).tolist(), ranks.tolist(), range(len(rows)), strict=True))
        heapq.heapify(heap)
        while heap and not self.is_full:
            cost, rank, at = heapq.heappop(heap)
            row, atom = int(rows[at]), int(atoms[at])
            if row in self.relevance or not self.admits(atom):
                continue
            now = self.price(atom) - float(relevance[at])
            if now > cost:
                heapq.heappush(heap, (now, rank, at))
            elif -cost <= beyond:
                return False
            else:
                self.add(row, float(relevance[at]))
        return self.is_full

    def counts_by_atom(self) -> Counts:
        """Return (A,) the number of items of each atom."""
        return self.shown().up_to(len(self.plan))

    def shown(self) -> Shown:
        """Return the atoms of the list."""
        order = sorted(self.counts)
        return Shown(np.array(order, dtype=np.int64), np.array([self.counts[a] for a in order], dtype=np.int64))

    def add_admitted(self, rows: NDArray[np.int64], relevance: Floats) -> None:
        """Add the items of another list, in their order, as far as they are admitted."""
        for row, score in zip(rows.tolist(), relevance.tolist(), strict=True):
            is_new = row >= 0 and row not in self.relevance
            if is_new and not self.is_full and self.admits(int(self.catalog.group_of[row])):
                self.add(row, score)

    def relax(self) -> bool:
        """Drop a rule for the rest of this list; return whether there was one left.

        List limits go first, then what the certificate reserves of the caps, then the caps. Where limits gave way and
        that was not enough, they hold again for what the next rule lets in. Only for requests whose eligible items are
        too few to fill a list by the rules.
        """
        if self.limits is not None:
            self.limits = None
            return True
        if self.slack is None:
            return False
        exposures, limits = self.links.exposures(self.counts_by_atom()), self.certificate.terms.limits_of_any_list
        if self.room is not None:
            self.slack, self.room = self.room - exposures, None
            self.plan = np.zeros_like(self.plan)
        else:
            self.slack = None
        self.limits = None if limits is None else limits - exposures
        return True

    def write(self, rows: NDArray[np.int64], relevance: Floats) -> None:
        """Write the candidates into (k,) arrays, in the order in which they were added; empty places come last."""
        rows[:], relevance[:] = -1, -np.inf
        rows[: len(self.relevance)] = list(self.relevance)
        relevance[: len(self.relevance)] = list(self.relevance.values())
