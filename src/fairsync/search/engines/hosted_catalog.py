"""A catalog that only a search engine holds: combinations of labels with their numbers of items, and no item."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import ListColumn, NumberColumn, make_column
from fairsync.catalog.conditions import meets
from fairsync.catalog.names import words_array
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import StoredItems, plain_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.changes import CatalogChange
    from fairsync.catalog.conditions import Condition
    from fairsync.catalog.groups import Label
    from fairsync.search.engines.engine import Engine
    from fairsync.search.engines.item_schema import ItemSchema

# Conditions whose items were counted by the engine: how many are remembered, and for how many seconds.
_MOST_COUNTED, _COUNTED_SECONDS = 256, 60.0


class HostedCatalog(Catalog):
    """The items of an engine as promises see them. Its memory does not grow with the items.

    A row is a combination of labels, and ``weights`` has the number of its items, as they were counted last. Items
    are found by the engine, and known for as long as a request takes (`fairsync.search.engines.hosted_search`). Items
    without a value in one of the attributes belong to no combination: they are never returned.

    Parameters
    ----------
    engine
        The engine.
    attributes
        The attributes that promises may speak of, of labels. The first with one str or int per item is the group.
    filters
        Further attributes, which conditions of requests (``where``) may speak of: labels or numbers.
    writes
        Whether items may be changed in the engine; see `write`.

    Examples
    --------
    >>> import tempfile
    >>> from fairsync.search.engines import make_engine_index
    >>> items = Catalog(np.eye(4, dtype=np.float32), {"kind": ["a", "a", "b", "a"], "new": [1, 0, 0, 0]}, list("wxyz"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     catalog = HostedCatalog(make_engine_index("qdrant", items, url=folder, upload=True).engine, ["kind", "new"])
    >>> catalog, catalog.weights.tolist(), catalog.group_sizes.tolist()
    (HostedCatalog(4 items, 3 combinations, 2 groups, dim 4), [2, 1, 1], [3, 1])
    """

    weights: NDArray[np.int64]

    def __init__(
        self, engine: Engine, attributes: Sequence[str], *, filters: Sequence[str] = (), writes: bool = False
    ) -> None:
        if not attributes:
            raise InvalidInputError("there are no attributes: name those that promises may speak of.")
        names = list(dict.fromkeys(attributes))
        self.engine, self.may_write = engine, writes
        self._schema = engine.schema([*names, *(one for one in dict.fromkeys(filters) if one not in names)])
        for name in names:
            if isinstance(self._schema.columns[name], NumberColumn):
                raise InvalidInputError(
                    f"the attribute {name!r} has numbers with decimals, and promises need labels: name it in filters."
                )
        engine.prepare(self._schema, create=False, writes=writes)
        engine.finish(create=False)
        self._promised, self.unknown_seen = names, threading.Event()
        self._counted: OrderedDict[tuple[Condition, ...], tuple[float, NDArray[np.int64]]] = OrderedDict()
        self._counting = threading.Lock()
        held = engine.count(names)
        known = [one for one in sorted(held, key=repr) if None not in one]
        if not known:
            raise InvalidInputError(f"{engine.place} holds no items with {' and '.join(map(repr, names))}: write some.")
        self.without_labels = sum(count for one, count in held.items() if None in one)
        """Items that lack one of the attributes, and are left out."""
        self._set_rows(known, [held[one] for one in known], [])

    def _set_rows(self, rows: list[tuple[Any, ...]], counts: list[int], labels: Sequence[Label]) -> None:
        """Use these combinations. Labels of the group that are known keep their codes."""
        self._row_of = {one: row for row, one in enumerate(rows)}
        columns: dict[str, Any] = {}
        for at, name in enumerate(self._promised):
            is_list = isinstance(self._schema.columns[name], ListColumn)
            columns[name] = make_column(name, [list(one[at]) if is_list else one[at] for one in rows], len(rows))
        made = Catalog(np.zeros((len(rows), 1), dtype=np.float32), columns)
        if labels:
            made = made.under(labels)
        for name, value in made.__dict__.items():
            if name in ("labels", "_names", "group_of", "_others", "group_attribute"):
                self.__dict__[name] = value
        self.weights = np.array(counts, dtype=np.int64)
        self.group_sizes = np.bincount(self.group_of, self.weights, len(self.labels)).astype(np.int64)
        self.embeddings = np.empty((0, self._schema.dim), dtype=np.float32)
        self.normalized, self.rank = False, None
        self._ids = words_array([]) if self._schema.ids is str else np.empty(0, dtype=np.int64)

    @property
    def schema(self) -> ItemSchema:
        """The form of the items."""
        return self._schema

    @property
    def promised(self) -> list[str]:
        """The attributes that make the combinations."""
        return list(self._promised)

    @property
    def conditioned_attributes(self) -> dict[str, Column]:
        """The attributes that conditions of requests can speak of: also those that no promise can."""
        others = {name: one for name, one in self._schema.columns.items() if name not in self._promised}
        return {**super().conditioned_attributes, **others}

    @property
    def mean_embedding(self) -> NDArray[np.float64]:
        """The mean of some of the embeddings."""
        some = next(iter(self.engine.items()))
        return np.asarray(some.vectors.mean(axis=0, dtype=np.float64))

    def rows_of(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the combination of each item, which the engine is asked for; -1 for an unknown id."""
        names = np.asarray(ids).ravel().tolist()
        stored = self.engine.fetch(list(dict.fromkeys(names))) if names else None
        found = {} if stored is None else dict(zip(stored.ids, self.combinations_of(stored).tolist(), strict=True))
        rows = np.array([found.get(name, -1) for name in names], dtype=np.int64)
        return rows.reshape(np.shape(ids))

    def combinations_of(self, items: StoredItems) -> NDArray[np.int64]:
        """Return the combination of each of some items; -1 if it is not known, which the next count will change."""
        columns = (items.attributes[name] for name in self._promised)
        keys = list(zip(*(map(plain_value, one) for one in columns), strict=True))
        rows = np.array([self._row_of.get(key, -1) for key in keys], dtype=np.int64)
        if any(None not in keys[at] for at in np.flatnonzero(rows < 0).tolist()):
            self.unknown_seen.set()
        return rows

    def selected(self, conditions: tuple[Condition, ...]) -> NDArray[np.int64]:
        """Return (rows,) the number of items of each combination that meet conditions.

        Conditions on attributes that promises cannot speak of are counted by the engine, once in a minute.
        """
        known = [one for one in conditions if one.attribute in self._promised]
        mask = np.ones(self.n_rows, dtype=bool)
        for one in known:
            mask &= meets(one, self.ungrouped.attributes[one.attribute])
        if len(known) == len(conditions):
            return np.where(mask, self.weights, 0)
        now = time.monotonic()
        with self._counting:
            last = self._counted.get(conditions)
        if last is None or last[0] < now - _COUNTED_SECONDS or len(last[1]) != self.n_rows:
            held = self.engine.count(self._promised, conditions)
            sizes = np.zeros(self.n_rows, dtype=np.int64)
            for key, count in held.items():
                if key in self._row_of:
                    sizes[self._row_of[key]] = count
            last = now, sizes
            with self._counting:
                self._counted[conditions] = last
                self._counted.move_to_end(conditions)
                while len(self._counted) > _MOST_COUNTED:
                    self._counted.popitem(last=False)
        return last[1]

    def meeting(self, items: StoredItems, conditions: Sequence[Condition]) -> NDArray[np.bool_]:
        """Return whether each of some items meets conditions."""
        mask = np.ones(len(items), dtype=bool)
        for one in conditions:
            values = list(items.attributes[one.attribute])
            there = np.array([value is not None for value in values], dtype=bool)
            met = np.full(len(values), one.negated)
            if there.any():
                held = make_column(one.attribute, [value for value in values if value is not None], int(there.sum()))
                met[there] = meets(one, held)
            mask &= met
        return mask

    def recounted(self) -> HostedCatalog:
        """Return the catalog with its items counted again; the same object if nothing has changed.

        Combinations keep their rows, also if they have no item any more, and new ones follow.
        """
        self.unknown_seen.clear()
        held = self.engine.count(self._promised)
        known = list(self._row_of)
        new = [one for one in sorted(held, key=repr) if None not in one and one not in self._row_of]
        counts = [held.get(one, 0) for one in [*known, *new]]
        if not new and counts == self.weights.tolist():
            return self
        made = self._copy(("attributes", "conditions", "groups"))
        made.without_labels = sum(count for one, count in held.items() if None in one)
        made._set_rows([*known, *new], counts, self.labels)
        return made

    def write(self, changes: StoredItems, removed: Sequence[Label]) -> HostedCatalog:
        """Add or replace items in the engine, and remove some; return the catalog with its items counted again.

        Parameters
        ----------
        changes
            The items, with all attributes.
        removed
            Ids of items to remove.
        """
        if not self.may_write:
            raise InvalidInputError(
                f"the items are in {self.engine.place}, which this may not write to: change them there, or allow it"
                " with upload."
            )
        self.engine.change(changes, removed)
        return self.recounted()

    def under(self, labels: Sequence[Label]) -> HostedCatalog:
        """Return the same items with group codes in the order of these labels; see `Catalog.under`."""
        made = self._copy(("attributes", "conditions", "groups"))
        made._set_rows(list(self._row_of), self.weights.tolist(), labels)
        return made

    def _copy(self, without: Sequence[str]) -> HostedCatalog:
        made = HostedCatalog.__new__(HostedCatalog)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name not in without})
        return made

    def __len__(self) -> int:
        return int(self.weights.sum())

    def __repr__(self) -> str:
        return (
            f"HostedCatalog({len(self):,} items, {self.n_rows:,} combinations, {self.n_groups:,} groups, dim"
            f" {self.dim})"
        )


def change_of(catalog: HostedCatalog, before: HostedCatalog) -> CatalogChange:
    """Return the change from one count of the items to a later one."""
    from fairsync.catalog.changes import CatalogChange

    return CatalogChange(catalog, np.arange(before.n_rows))


def merged(catalog: HostedCatalog, given: Mapping[str, Sequence[Any]], ids: Sequence[Label]) -> StoredItems:
    """Return items of the engine with other attributes; raise if one of them is not there."""
    stored = catalog.engine.fetch(ids)
    place = {name: at for at, name in enumerate(stored.ids)}
    lost = [name for name in ids if name not in place]
    if lost:
        raise InvalidInputError(f"there is no item {lost[0]!r}, and no embedding to add it with: give embeddings.")
    order = [place[name] for name in ids]
    attributes = {
        name: given[name] if name in given else [held[at] for at in order] for name, held in stored.attributes.items()
    }
    return StoredItems(list(ids), stored.vectors[order], attributes)
