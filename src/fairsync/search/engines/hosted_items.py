"""Items that only a search engine holds: what it has found is known here, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import LabelColumn
from fairsync.catalog.groups import Groups
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits
from fairsync.search.engines.engine import Bonus, EngineQuery, Restricted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Engine, Ranking, StoredItems

# Items beyond those asked for: they show how far behind the rest is.
_SPARE = 8
# What a formula ranks, in multiples of the items that it returns.
_FIRST_DEPTH = 4
# Rows for items that are added to the engine after they were counted.
_ADDED_MEANWHILE = 1 << 16
# Rounding of an engine's scores, relative to the largest: it adds in float32, in any order.
_ROUNDING = 1e-5


class HostedItems:
    """The items of an engine as promises see them: the groups by one attribute, with their sizes.

    Parameters
    ----------
    engine
        The engine.
    attribute
        The attribute of the groups: one label per item.
    dim
        The number of dimensions of the embeddings.
    ids, labels
        The types of the ids and of the labels.

    Attributes
    ----------
    groups : Groups
        The labels and sizes, as they were counted last; see `refresh`.
    """

    def __init__(
        self,
        engine: Engine,
        attribute: str,
        dim: int,
        *,
        ids: type[str] | type[int] = str,
        labels: type[str] | type[int] | type[bool] = str,
    ) -> None:
        if not (engine.abilities.fetches and engine.abilities.counts):
            raise InvalidInputError(f"{engine.place} cannot return items by id and count them: give a catalog instead.")
        self.engine, self.attribute, self.dim = engine, attribute, dim
        kind = LabelColumn(np.empty(0, dtype=np.int32), [labels()])
        engine.prepare(dim, ids, {attribute: kind}, create=False, writes=False)
        engine.finish(create=False)
        self.groups = Groups([], np.empty(0, dtype=np.int64))
        self.refresh()

    def refresh(self) -> bool:
        """Count the items of each label again; return whether there are labels that were not known.

        The coordinator must know new labels before their items can be returned: `Coordinator.promise(catalog=groups)`.
        """
        held = self.engine.count(self.attribute)
        known = self.groups.labels
        new = sorted((label for label in held if label is not None and label not in set(known)), key=str)
        labels = [*known, *new]
        self.groups = Groups(labels, np.array([held.get(label, 0) for label in labels], dtype=np.int64))
        return bool(new)


class FoundItems:
    """The items that an engine has found for some requests, in place of a catalog. Rows are in the order of finding.

    It has the members of a catalog that search and guard use.

    Parameters
    ----------
    groups
        The groups of all items of the engine.
    """

    def __init__(self, groups: Groups) -> None:
        self.labels, self.group_sizes, self.n_groups = groups.labels, groups.group_sizes, len(groups.labels)
        self._code = {label: code for code, label in enumerate(groups.labels)}
        self._row: dict[Label, int] = {}
        self._vectors: list[NDArray[np.float64]] = []
        self._rank: NDArray[np.int64] | None = None
        # Long enough for all items, because the guard keeps it while it searches on. Memory that is not written to is
        # not taken from the system.
        self._codes = np.zeros(len(self) + _ADDED_MEANWHILE, dtype=np.int32)

    def __len__(self) -> int:
        return int(self.group_sizes.sum())

    def row_of(self, name: Label) -> int | None:
        """Return the row of an item; -1 if it is of no known group, None if it was not fetched yet."""
        return self._row.get(name)

    def add(self, items: StoredItems, attribute: str) -> None:
        """Add items with their labels and vectors. Those of labels that are not known are left out."""
        for name, vector, label in zip(items.ids, items.vectors, items.attributes[attribute], strict=True):
            code = self._code.get(label)
            row = len(self._vectors)
            if code is None or row == len(self._codes):
                self._row[name] = -1
                continue
            self._row[name], self._codes[row] = row, code
            self._vectors.append(vector.astype(np.float64))
        self._rank = None

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float64]:
        """Return the vectors of some items."""
        return np.array([self._vectors[row] for row in rows])

    @property
    def group_of(self) -> NDArray[np.int32]:
        """The group of each item that was found, and of rows that are free."""
        return self._codes

    @property
    def rank(self) -> NDArray[np.int64]:
        """The place of each item in the order of ids, by which ties are settled."""
        if self._rank is None:
            names = [name for name, row in self._row.items() if row >= 0]
            self._rank = np.empty(len(names), dtype=np.int64)
            self._rank[sorted(range(len(names)), key=lambda row: names[row])] = np.arange(len(names))
        return self._rank

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the ids of some items."""
        return np.array([name for name, row in self._row.items() if row >= 0])[rows]

    def labels_of(self, codes: NDArray[np.integer]) -> NDArray[Any]:
        """Return the labels of some groups."""
        labels: NDArray[Any] = np.array(self.labels)
        return np.asarray(labels[codes])


class HostedIndex:
    """Search items that only an engine holds, under prices of groups.

    The engine nominates items, under prices as far as it can; their vectors and labels are read by id, and order and
    relevance are settled in float64. More items are asked for until what was not returned cannot be better, or the
    engine returns no more in one answer. With an exact engine the answer is that of `ExactIndex`, but for items that
    float32 cannot tell apart.

    Parameters
    ----------
    items
        The items of the engine.
    found
        Where the items that are found are added.
    excluded
        Ids that must not be returned.
    """

    def __init__(self, items: HostedItems, found: FoundItems, excluded: Sequence[Label] = ()) -> None:
        self._items, self._found, self._excluded = items, found, list(excluded)
        self.applies_prices = "bias" if items.engine.abilities.prices == "bias" else "over-fetch"

    def search(self, users: NDArray[np.floating[Any]], prices: NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        by_group = np.zeros(self._found.n_groups) if prices is None else np.asarray(prices, dtype=np.float64)
        hits, waiting, count = Hits.empty(len(users), k), np.arange(len(users)), k + _SPARE
        most = self._items.engine.abilities.most_results
        while len(waiting):
            count = min(count, most)
            answers = self._ask(users[waiting], by_group, count)
            undecided = []
            for at, rankings in zip(waiting.tolist(), answers, strict=True):
                rows, relevance, beyond = self._settle(users[at], by_group, rankings)
                if count < most and not _is_certain(relevance - by_group[self._found.group_of[rows]], beyond, k):
                    undecided.append(at)
                    continue
                hits.rows[at, : len(rows[:k])], hits.relevance[at, : len(rows[:k])] = rows[:k], relevance[:k]
            waiting, count = np.array(undecided, dtype=np.int64), 2 * count
        return hits

    def _ask(self, users: NDArray[np.floating[Any]], prices: NDArray[np.float64], count: int) -> list[list[Ranking]]:
        """Return the engine's rankings for each interest of each user, and read the items in them."""
        engine, found = self._items.engine, self._found
        n, interests = users.shape[:2]
        vectors = np.ascontiguousarray(users.reshape(n * interests, -1), dtype=np.float32)
        bonus, ranks = None, engine.abilities.prices != "none" and found.n_groups <= engine.abilities.most_labels
        if ranks and prices.any():
            labels: list[AttributeLabel] = list(found.labels)
            bonus = Bonus(self._items.attribute, dict(zip(labels, (-prices).tolist(), strict=True)))
        depth = min(_FIRST_DEPTH * count, engine.abilities.most_results)
        restricted = [Restricted((), self._excluded)] * len(vectors) if self._excluded else None
        rankings = engine.search(EngineQuery(vectors, count, depth, bonus, restricted))
        names = dict.fromkeys(name for one in rankings for name in one.ids)
        new = [name for name in names if found.row_of(name) is None]
        if new:
            found.add(engine.fetch(new), self._items.attribute)
        if bonus is None and prices.any():
            highest = float(-prices.min())
            rankings = [type(one)(one.ids, one.scores, one.beyond + highest) for one in rankings]
        return [rankings[at * interests : (at + 1) * interests] for at in range(n)]

    def _settle(
        self, user: NDArray[np.floating[Any]], prices: NDArray[np.float64], rankings: Sequence[Ranking]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
        """Return the items of one user by relevance minus price, and what an item that was not returned may have."""
        names = dict.fromkeys(name for one in rankings for name in one.ids)
        known = [row for row in map(self._found.row_of, names) if row is not None and row >= 0]
        rows = np.array(known, dtype=np.int64)
        beyond = max(one.beyond for one in rankings)
        rows = rows[prices[self._found.group_of[rows]] < np.inf]
        if not len(rows):
            return rows, np.empty(0), beyond
        relevance = (self._found.vectors(rows.tolist()) @ user.astype(np.float64).T).max(axis=1)
        order = np.lexsort((self._found.rank[rows], prices[self._found.group_of[rows]] - relevance))
        return rows[order], relevance[order], beyond


def _is_certain(priced: NDArray[np.float64], beyond: float, k: int) -> bool:
    """Return whether the best k items are known: no other can be above them."""
    if beyond == -np.inf:
        return True
    if len(priced) < k:
        return False
    return bool(priced[k - 1] >= beyond - _ROUNDING * max(abs(beyond), float(np.abs(priced[:k]).max())))
