"""An index over a catalog that a search engine holds: the engine ranks, and ties and relevance are settled here."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import LabelColumn, NumberColumn
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import StoredItems, plain_value
from fairsync.search.engines.engine_fetch import EngineFetch
from fairsync.search.engines.item_schema import ItemSchema
from fairsync.search.exact import ExactIndex
from fairsync.search.overlay import Overlay
from fairsync.search.row_encoding import RowEncoding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.attributes import Column
    from fairsync.catalog.changes import CatalogChange
    from fairsync.catalog.files import Watch
    from fairsync.search.base import Hits
    from fairsync.search.eligibility import Eligibility
    from fairsync.search.engines.engine import Engine

# Beyond one item in this many of the catalog, another fetch takes longer than scoring every item here.
_MOST_SHARE, _LEAST_MOST = 16, 1000
# Items that are written at once: a message of some megabytes.
_WRITTEN_VALUES = 1 << 20
# If more than one item in this many has another embedding, the embeddings are those of another model.
_NEW_MODEL = 2


class EngineIndex:
    """Search a catalog that an engine holds.

    The engine nominates candidates, under prices and conditions as far as it can, and the client decides: the items,
    their order and their relevance are settled in float64 on the catalog's own embeddings. With an exact engine the
    answer is that of `ExactIndex`, to the last tie; with an approximate one, items that it misses are missing.
    Requests for which the engine's answers prove nothing are searched in this process.

    When it is made, all items are compared with those of the engine. Items of the engine that are not in the catalog
    are ignored, and never changed.

    Parameters
    ----------
    catalog
        The items to search.
    engine
        The engine; see `fairsync.search.engines.engine.Engine`.
    upload
        Whether to write to the engine: items that are missing or different, and later changes.
    watch
        A progress callback of the upload: called with the number of items written and the total.
    """

    stores_attributes = True
    """A change of attributes concerns the index: conditions are evaluated by the engine."""

    def __init__(self, catalog: Catalog, engine: Engine, *, upload: bool = False, watch: Watch | None = None) -> None:
        self.engine, self.upload = engine, upload
        exact = ExactIndex(catalog)
        self._encoding = RowEncoding.of(exact.items)
        self._stored = tuple(catalog.conditioned_attributes)
        self._prepare(catalog)
        total, missing, moved = self._compare(catalog)
        staged = engine.beside() if moved * _NEW_MODEL > len(catalog) else None
        if staged is not None:  # another model: requests meanwhile must not see a part of it
            self.engine = staged
            self._prepare(catalog)
            total, missing = 0, np.arange(len(catalog))
        self._write(catalog, missing, watch)
        self.engine.finish(create=upload)
        if staged is not None:
            staged.switch()
        found = self.engine.count()[()] if len(missing) else total
        self._use(catalog, exact, min(1.0, len(catalog) / max(found, 1)))

    @property
    def applies_prices(self) -> str:
        """How prices enter the search: ``"bias"`` or ``"over-fetch"``."""
        return self.certified.applies_prices

    def search(
        self,
        users: NDArray[np.floating],
        prices: NDArray[np.float64] | None,
        k: int,
        eligible: Eligibility | None = None,
    ) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`.

        Raises
        ------
        BackendUnavailableError
            The engine did not answer in time. Nothing was changed: search again when it is up.
        """
        return self.certified.search(users, prices, k, eligible)

    def follow(self, change: CatalogChange) -> EngineIndex | Overlay:
        """Return an index over the catalog after a change, and write the change to the engine.

        If writing fails, the call can be repeated. Requests under way in the index before the change may find items as
        they are after it. If the index may not write (``upload=False``), new items are searched in this process
        instead, and conditions on attributes that have changed are evaluated there.

        Parameters
        ----------
        change
            A change of the catalog of this index; see `fairsync.catalog.changes`.
        """
        catalog = change.catalog
        exact = ExactIndex(catalog)
        rows, attributes, is_moved = self._differences(change)
        if not self._encoding.fits(exact.items) or (is_moved and not self.upload):
            return Overlay(self, change.rows, self.catalog.group_sizes, catalog)
        after = copy.copy(self)
        if self.upload:
            gone = np.flatnonzero(catalog.rows_of(self.catalog.ids) < 0)
            if len(rows) or len(gone):
                self.engine.change(self._batch(catalog, rows), self.catalog.ids_of(gone).tolist())
        else:
            after._stored = tuple(name for name in self._stored if name not in attributes)
        after._use(catalog, exact, self.certified.alive)
        return after

    def rebuild(self, catalog: Catalog) -> EngineIndex:
        """Return an index with the same settings over another catalog in the same engine; see `rebuild_index`.

        If it may write, all items are written beside the present ones, and then switched to at one moment. This index
        keeps finding the present items. Where the engine cannot do so, items are replaced in place.
        """
        staged = self.engine.beside() if self.upload else None
        if staged is None:
            return EngineIndex(catalog, self.engine, upload=self.upload)
        index = EngineIndex(catalog, staged, upload=True)
        staged.switch()
        return index

    def _prepare(self, catalog: Catalog) -> None:
        self.engine.prepare(ItemSchema.of(catalog), create=self.upload, writes=self.upload)

    def _use(self, catalog: Catalog, exact: ExactIndex, alive: float) -> None:
        most = min(max(len(catalog) // _MOST_SHARE, _LEAST_MOST), self.engine.abilities.most_results - 1)
        scale = self._encoding.scale(exact.items)
        self.catalog = catalog
        self.certified = EngineFetch(catalog, scale, self.engine, exact, most, alive, self._stored)

    def _compare(self, catalog: Catalog) -> tuple[int, NDArray[np.int64], int]:
        """Compare the engine's items with the catalog.

        Returns
        -------
        tuple
            The number of items of the engine, the rows of those that are missing or different in it, and how many of
            these have another embedding.
        """
        total, moved, wrong, first = 0, 0, np.ones(len(catalog), dtype=bool), ""
        for batch in self.engine.items():
            total += len(batch)
            rows = catalog.rows_of(np.asarray(batch.ids))
            known = np.flatnonzero(rows >= 0)
            mine = rows[known]
            same = (self._encoding.vectors(catalog, mine) == batch.vectors[known]).all(axis=1)
            moved += int((~same).sum())
            different = "embedding" if not same.all() else ""
            for name in self._stored:
                values = catalog.conditioned_attributes[name].take(mine).values()
                held = batch.attributes[name]
                pairs = zip(known.tolist(), values, strict=True)
                equal = np.array([_is_same(held[at], one) for at, one in pairs], dtype=bool)
                if len(equal) and not equal.all():
                    same, different = same & equal, different or repr(name)
            wrong[mine[same]] = False
            if different and not first:
                name = catalog.ids_of(mine[~same][:1]).tolist()[0]
                first = f"; item {name!r} has another {different} there"
        missing = np.flatnonzero(wrong)
        if len(missing) and not self.upload:
            raise InvalidInputError(
                f"{self.engine.place} does not hold {catalog} in full: {len(missing):,} items are missing or"
                f" different{first}. Read the catalog from there, or write it there with upload=True."
            )
        return total, missing, moved

    def _write(self, catalog: Catalog, rows: NDArray[np.int64], watch: Watch | None) -> None:
        for done, batch in self._batches(catalog, rows):
            self.engine.change(batch, [])
            if watch:
                watch(done, len(rows))

    def _batches(self, catalog: Catalog, rows: NDArray[np.int64]) -> Iterator[tuple[int, StoredItems]]:
        step = max(1, _WRITTEN_VALUES // catalog.dim)
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            yield start + len(some), self._batch(catalog, some)

    def _batch(self, catalog: Catalog, rows: NDArray[np.int64]) -> StoredItems:
        attributes = {name: catalog.conditioned_attributes[name].take(rows).values() for name in self._stored}
        return StoredItems(catalog.ids_of(rows).tolist(), self._encoding.vectors(catalog, rows), attributes)

    def _differences(self, change: CatalogChange) -> tuple[NDArray[np.int64], set[str], bool]:
        """Compare the catalog after a change with the present one.

        Returns
        -------
        tuple
            The rows of items that are new or different, the attributes that differ, and whether embeddings do.
        """
        before, after = self.catalog, change.catalog
        old = before.rows_of(after.ids)
        known = np.flatnonzero(old >= 0)
        different = old < 0
        if after.embeddings is not before.embeddings:
            kept = np.zeros(len(after), dtype=bool)
            kept[change.rows[change.rows >= 0]] = True
            at = known[~kept[known]]
            different[at] = (after.embeddings[at] != before.embeddings[old[at]]).any(axis=1)
        names, is_moved = set(), bool(different.any())
        for name in self._stored:
            now, then = after.conditioned_attributes[name], before.conditioned_attributes[name]
            changed = ~_equal(now.take(known), then.take(old[known])) if now is not then else np.zeros(0, dtype=bool)
            if changed.any():
                different[known[changed]] = True
                names.add(name)
        return np.flatnonzero(different), names, is_moved


def _is_same(held: Any, given: Any) -> bool:
    """Return whether an engine holds a value as given: of numbers it may round the last digit, as Qdrant does."""
    if isinstance(given, float) and isinstance(held, float):
        return math.isclose(held, given, rel_tol=1e-15)
    return bool(plain_value(held) == plain_value(given))


def _equal(one: Column, other: Column) -> NDArray[np.bool_]:
    """Return whether two columns of the same kind have the same value in each place."""
    if isinstance(one, LabelColumn) and isinstance(other, LabelColumn):
        places = np.array([other.code_of.get(label, -1) for label in one.labels], dtype=np.int64)
        return np.array(places[one.codes] == other.codes)
    if isinstance(one, NumberColumn) and isinstance(other, NumberColumn):
        return np.array(one.numbers == other.numbers)
    pairs = zip(one.values(), other.values(), strict=True)
    return np.array([first == second for first, second in pairs], dtype=bool)
