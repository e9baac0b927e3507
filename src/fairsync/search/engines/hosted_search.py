"""Search items that only an engine holds: what was found is known for as long as requests are answered."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.conditions import Condition
from fairsync.catalog.names import plain_words, words_array
from fairsync.search.base import Hits, check_prices
from fairsync.search.engines.engine import Restricted
from fairsync.search.engines.priced_ranking import PricedRanking
from fairsync.search.scoring import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Ranking, StoredItems
    from fairsync.search.engines.hosted_catalog import HostedCatalog
    from fairsync.search.engines.hosted_eligibility import HostedEligibility

# What is fetched by score first, in multiples of the items that are asked for, if prices are subtracted here.
_FIRST = 4
# Items that the engine is asked for at once, for all requests together: they come with their vectors.
_AT_ONCE = 1 << 14
# Rows for items that are added to the engine after they were counted.
_ADDED_MEANWHILE = 1 << 16
# Prices leave few items open: the engine is asked for their labels only, unless these are more than this many.
_FEW_OPEN, _MOST_LISTED = 4, 1000
_U = 2.0**-24


class FoundItems:
    """The items that an engine has found for some requests, in place of a catalog. Rows are in the order of finding.

    It has the members of a catalog that search and guard use.

    Parameters
    ----------
    hosted
        The combinations of labels of all items, with the groups that have prices: labels, or atoms.
    shared
        Items with other groups, to share those that were found with.
    """

    def __init__(self, hosted: Catalog, shared: FoundItems | None = None) -> None:
        self.hosted, self.labels, self.group_sizes = hosted, hosted.labels, hosted.group_sizes
        self.n_groups, self.dim, self.weights = hosted.n_groups, hosted.dim, None
        self._held: _Held = _Held(hosted.dim) if shared is None else shared._held
        # Long enough for all items, because the guard keeps it while it searches on. Memory that is not written to is
        # not taken from the system.
        self.group_of = np.zeros(len(hosted) + _ADDED_MEANWHILE, dtype=np.int32)
        self._held.views.append(self)

    def __len__(self) -> int:
        return len(self.hosted)

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """The vectors of the items, and further rows without a meaning."""
        return self._held.vectors

    def row_of(self, name: Label) -> int:
        """Return the row of an item; -1 if it is of no known combination, or was not found."""
        return self._held.row_of.get(name, -1)

    def add(self, items: StoredItems, catalog: HostedCatalog) -> None:
        """Add items that are not known yet. Those of combinations that are not known are left out."""
        held = self._held
        new = [at for at, name in enumerate(items.ids) if name not in held.row_of]
        if not new:
            return
        kinds = catalog.combinations_of(items)
        for at in dict.fromkeys(new):
            row = len(held.names)
            if kinds[at] < 0 or row == len(self.group_of):
                held.row_of[items.ids[at]] = -1
                continue
            if items.ids[at] in held.row_of:
                continue
            held.append(items.ids[at], items.vectors[at])
            for view in held.views:
                view.group_of[row] = view.hosted.group_of[kinds[at]]

    @property
    def rank(self) -> NDArray[np.int64]:
        """The place of each item in the order of ids, by which ties are settled."""
        return self._held.rank

    def ids_of(self, rows: Any) -> NDArray[Any]:
        """Return the ids of some items."""
        return plain_words(self._held.ids[np.asarray(rows, dtype=np.int64)])

    def labels_of(self, codes: Any) -> NDArray[Any]:
        """Return the labels of some groups."""
        return self.hosted.labels_of(codes)


class _Held:
    """Found items with their vectors, for all groupings of them."""

    def __init__(self, dim: int) -> None:
        self.row_of: dict[Label, int] = {}
        self.names: list[Label] = []
        self.vectors = np.empty((256, dim), dtype=np.float32)
        self.views: list[FoundItems] = []
        self._sorted: tuple[NDArray[Any], NDArray[np.int64]] | None = None

    def append(self, name: Label, vector: NDArray[np.float32]) -> None:
        row = len(self.names)
        if row == len(self.vectors):
            self.vectors = np.concatenate([self.vectors, np.empty_like(self.vectors)])
        self.row_of[name], self.vectors[row] = row, vector
        self.names.append(name)
        self._sorted = None

    @property
    def ids(self) -> NDArray[Any]:
        return self._in_order()[0]

    @property
    def rank(self) -> NDArray[np.int64]:
        return self._in_order()[1]

    def _in_order(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        if self._sorted is None:
            words = [name for name in self.names if isinstance(name, str)]
            ids: NDArray[Any] = words_array(words) if words else np.array(self.names, dtype=np.int64)
            if not len(ids):  # of a list without candidates
                ids = words_array([""])
            rank = np.empty(len(ids), dtype=np.int64)
            rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
            self._sorted = ids, rank
        return self._sorted


class HostedIndex:
    """Search items that only an engine holds, under prices of groups or atoms.

    The engine nominates items, under prices and conditions as far as it can, with their vectors and labels; order and
    relevance are settled in float64. More items are asked for until what was not returned cannot be better, or the
    engine returns no more in one answer. With an exact engine the answer is that of `ExactIndex`.

    Parameters
    ----------
    catalog
        The catalog.
    found
        Where the items that are found are added; its groups have the prices.
    """

    def __init__(self, catalog: HostedCatalog, found: FoundItems) -> None:
        self._catalog, self._found, self.engine = catalog, found, catalog.engine
        self._ranking = PricedRanking(found.hosted, catalog.engine, catalog.promised)
        self.applies_prices = self._ranking.applies_prices

    def over(self, found: FoundItems) -> HostedIndex:
        """Return the same index, which adds what it finds to these items; their groups are the same."""
        made = copy.copy(self)
        made._found = found
        return made

    def search(
        self,
        users: NDArray[np.floating[Any]],
        prices: NDArray[np.float64] | None,
        k: int,
        eligible: HostedEligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            The engine did not answer in time. Nothing was changed: search again when it is up.
        """
        prices = check_prices(prices, self._found.n_groups)
        vectors, waiting = np.asarray(users, dtype=np.float64), np.arange(len(users))
        ranked = prices is None or self._ranking.ranks or not prices.any()
        hits, count = Hits.empty(len(users), k), (1 if ranked else _FIRST) * k
        most = self.engine.abilities.most_results
        narrowed = () if ranked or prices is None else self._open_labels(prices)
        while len(waiting):
            count = min(count, most)
            step, undecided = max(1, _AT_ONCE // (count * vectors.shape[1])), []
            for start in range(0, len(waiting), step):
                here = waiting[start : start + step]
                mine = None if eligible is None else eligible.take(here)
                rankings = self._ask(vectors[here], prices, count, narrowed, mine)
                owners, rows, beyond = self._candidates(rankings, len(here), prices)
                found = settle(self._found, vectors[here], prices, k, owners, rows)  # type: ignore[arg-type]
                done = self._are_certain(vectors[here], prices, found, beyond) | (count == most)
                hits.rows[here[done]], hits.relevance[here[done]] = found.rows[done], found.relevance[done]
                undecided.append(here[~done])
            waiting, count = np.concatenate(undecided), 2 * count
        return hits

    def _ask(
        self,
        users: NDArray[np.float64],
        prices: NDArray[np.float64] | None,
        count: int,
        narrowed: tuple[Condition, ...],
        eligible: HostedEligibility | None,
    ) -> list[Ranking]:
        """Return the engine's rankings for the first interest of each user, then for the second, and so on."""
        n, interests, d = users.shape
        vectors = np.ascontiguousarray(users.transpose(1, 0, 2).reshape(n * interests, d), dtype=np.float32)
        restricted = [Restricted()] * n if eligible is None else eligible.restricted
        if narrowed:
            restricted = [replace(one, conditions=(*one.conditions, *narrowed)) for one in restricted]
        only = list(restricted) * interests if narrowed or eligible is not None else None
        bonus = -prices if prices is not None and prices.any() else None
        rankings, _ = self._ranking.ask(vectors, bonus, count, only, with_items=True)
        for one in rankings:
            assert one.items is not None
            self._found.add(one.items, self._catalog)
        return rankings

    def _open_labels(self, prices: NDArray[np.float64]) -> tuple[Condition, ...]:
        """Return conditions that all items meet that prices leave open, if these are few; otherwise none.

        Without them, an engine that cannot rank under prices would have to return nearly all items to find a few.
        """
        hosted = self._found.hosted
        open_rows = np.flatnonzero((prices < np.inf)[hosted.group_of])
        assert hosted.weights is not None
        if not len(open_rows) or int(hosted.weights[open_rows].sum()) * _FEW_OPEN > len(hosted):
            return ()
        found = []
        for name in self._catalog.promised:
            column = self._catalog.attributes[name].take(open_rows)
            labels = [] if not hasattr(column, "labels") else column.labels
            if not len(labels) or (np.diff(getattr(column, "offsets", [0, 1])) == 0).any():
                continue  # an item without any label meets no such condition
            used = np.unique(column.codes)  # type: ignore[union-attr]
            if len(used) < len(labels) and len(used) <= _MOST_LISTED:
                found.append(Condition(name, tuple(sorted(labels[code] for code in used.tolist()))))
        return tuple(found)

    def _candidates(
        self, rankings: Sequence[Ranking], n: int, prices: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return the pairs of user and item that were found, and (n,) what any other item may have."""
        pairs = {(at % n, self._found.row_of(name)) for at, one in enumerate(rankings) for name in one.ids}
        both = np.array(sorted(pair for pair in pairs if pair[1] >= 0), dtype=np.int64).reshape(-1, 2)
        owners, rows = both[:, 0], both[:, 1]
        if prices is not None:
            kept = prices[self._found.group_of[rows]] < np.inf
            owners, rows = owners[kept], rows[kept]
        beyond = np.array([one.beyond for one in rankings]).reshape(-1, n).max(axis=0)
        return owners, rows, beyond

    def _are_certain(
        self, users: NDArray[np.float64], prices: NDArray[np.float64] | None, found: Hits, beyond: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Return (n,) whether no item that was not returned can be among the best, ties and rounding included."""
        last, row = found.relevance[:, -1].copy(), found.rows[:, -1]
        there = row >= 0
        largest = float(np.square(self._found.embeddings[: len(self._found.rank)], dtype=np.float64).sum(axis=1).max())
        length = np.sqrt(np.square(users).sum(axis=2).max(axis=1) * largest)
        margin = 4 * (users.shape[2] + 8) * _U * length
        if prices is not None:
            finite = prices[np.isfinite(prices)]
            margin += 8 * _U * float(np.abs(finite).max(initial=0.0))
            last[there] -= prices[self._found.group_of[row[there]]]
        return np.asarray((beyond == -np.inf) | (there & (beyond < last - margin)))
