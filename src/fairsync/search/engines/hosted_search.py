"""Search items that only an engine holds: what was found is known for as long as requests are answered."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fairsync.catalog.conditions import Condition
from fairsync.catalog.names import plain_words, words_array
from fairsync.search.base import Hits, check_prices
from fairsync.search.engines.engine import Restricted
from fairsync.search.engines.priced_ranking import PricedRanking
from fairsync.search.over_fetch import OverFetching, PricedSearch, doubled
from fairsync.search.rounding import Float32Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import StoredItems
    from fairsync.search.engines.hosted_catalog import HostedCatalog
    from fairsync.search.engines.hosted_eligibility import HostedEligibility
    from fairsync.search.over_fetch import Eligible, Fetched

# What is fetched by score first, in multiples of the items that are asked for, if prices are subtracted here.
_FIRST = 4
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

    @property
    def longest(self) -> float:
        """The length of the longest vector that was found."""
        return float(np.sqrt(self._held.longest))

    def rows_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each of some items; -1 for one of no known combination, or that was not found."""
        return np.array([self._held.row_of.get(name, -1) for name in ids.tolist()], dtype=np.int64)

    def add(self, items: StoredItems, catalog: HostedCatalog) -> None:
        """Add items that are not known yet. Those of combinations that are not known are left out."""
        held = self._held
        new = [at for at, name in enumerate(items.ids) if name not in held.row_of]
        if not new:
            return
        squares = np.einsum("ij,ij->i", items.vectors, items.vectors, dtype=np.float64)
        held.longest = max(held.longest, float(squares.max()))
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
        self.vectors, self.longest = np.empty((256, dim), dtype=np.float32), 0.0
        self.views: list[FoundItems] = []
        self._sorted: tuple[NDArray[Any], NDArray[np.int64]] | None = None

    def append(self, name: Label, vector: NDArray[np.float32]) -> None:
        row = len(self.names)
        if row == len(self.vectors):
            more = np.empty((2 * row, self.vectors.shape[1]), dtype=np.float32)
            more[:row] = self.vectors
            self.vectors = more
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


class HostedIndex(OverFetching):
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
        self._hosted, self.engine = catalog, catalog.engine
        self._add_to(found)
        self._ranking = PricedRanking(found.hosted, catalog.engine, catalog.promised)
        self.applies_prices = self._ranking.applies_prices

    def over(self, found: FoundItems) -> HostedIndex:
        """Return the same index, which adds what it finds to these items; their groups are the same."""
        made = copy.copy(self)
        made._add_to(found)
        return made

    def _add_to(self, found: FoundItems) -> None:
        self._found, self.catalog = found, cast("Catalog", found)

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
        prices = check_prices(prices, self.catalog.n_groups)
        vectors, ranked = np.asarray(users, dtype=np.float64), prices is None or self._ranking.ranks
        only = None if eligible is None else _Restrictions(eligible.restricted)
        narrowed = () if ranked or prices is None else self._open_labels(prices)
        if narrowed:
            each = [Restricted()] * len(vectors) if only is None else only.each
            only = _Restrictions([replace(one, conditions=(*one.conditions, *narrowed)) for one in each])
        hits, most = Hits.empty(len(vectors), k), self.engine.abilities.most_results
        counts = [*doubled(k if ranked else _FIRST * k, most - 1), most]
        self.deepen(PricedSearch(vectors, prices, k, only), np.arange(len(vectors)), counts, hits)
        return hits

    def queries(
        self, users: NDArray[np.float64], prices: NDArray[np.float64] | None, reference: float
    ) -> Float32Queries:
        """Return users and prices as they are: how long items are is not known before they are found."""
        columns = np.ascontiguousarray(users.transpose(2, 1, 0).reshape(users.shape[2], -1), dtype=np.float32)
        return Float32Queries(columns, None if prices is None else -prices, np.zeros(len(users)), 0)

    def margin(self, queries: Float32Queries) -> NDArray[np.float64]:
        """Return the margin for items as long as the longest that was found; see `rounding`."""
        by_interest = np.linalg.norm(queries.columns, axis=0).reshape(-1, len(queries.margin))
        margin: NDArray[np.float64] = (
            4 * (len(queries.columns) + 8) * _U * self._found.longest * by_interest.max(axis=0)
        )
        if queries.bonus is not None:
            finite = queries.bonus[np.isfinite(queries.bonus)]
            margin += 8 * _U * float(np.abs(finite).max(initial=0.0))
        return margin

    def fetch(self, queries: Float32Queries, count: int, eligible: Eligible | None) -> Fetched:
        """Ask the engine for items with vectors and labels; see `OverFetching`."""
        only = eligible.each if isinstance(eligible, _Restrictions) else None
        return self._ranking.fetch(
            queries, count, only, self.catalog, found=lambda items: self._found.add(items, self._hosted)
        )

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
        for name in self._hosted.promised:
            column = self._hosted.attributes[name].take(open_rows)
            labels = [] if not hasattr(column, "labels") else column.labels
            if not len(labels) or (np.diff(getattr(column, "offsets", [0, 1])) == 0).any():
                continue  # an item without any label meets no such condition
            used = np.unique(column.codes)  # type: ignore[union-attr]
            if len(used) < len(labels) and len(used) <= _MOST_LISTED:
                found.append(Condition(name, tuple(sorted(labels[code] for code in used.tolist()))))
        return tuple(found)


@dataclass(frozen=True)
class _Restrictions:
    """The items that each request may get, for an engine that returns no others."""

    each: Sequence[Restricted]

    def take(self, positions: NDArray[np.integer]) -> _Restrictions:
        return _Restrictions([self.each[at] for at in positions.tolist()])

    def allows(self, owners: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones(len(rows), dtype=bool)
