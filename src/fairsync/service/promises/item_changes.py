"""Items that were changed through the API: kept in the ledger's database, and applied over the catalog's files.

A change holds from the next request on, in all services that share the ledger, and after every restart, until the
catalog's files take it in. That is so if the files are others than when the change was made, and

- ``fairsync export`` wrote them, and they include the change; or
- they were written later than it, by whatever made them.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.changes import remove_items, upsert_items

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.changes import CatalogChange
    from fairsync.catalog.files import StoredCatalog
    from fairsync.catalog.groups import Label
    from fairsync.ledger.database import Database, Transaction

_log = logging.getLogger(__name__)
_GROUP = "group"
_ITEMS = """
SELECT number, id, attributes, embedding, catalog, changed_at FROM items WHERE number > :after ORDER BY number
"""


@dataclass(frozen=True)
class _Row:
    """One changed item; without an embedding it was removed."""

    number: int
    id: Label
    group: Label | None
    embedding: bytes | None
    catalog: str
    changed_at: float

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> _Row:
        number, name, attributes, embedding, catalog, changed_at = row
        group = None if attributes is None else json.loads(attributes)[_GROUP]
        return cls(
            number, json.loads(name), group, None if embedding is None else bytes(embedding), catalog, changed_at
        )


class ItemChanges:
    """The changed items in the database of a ledger.

    Parameters
    ----------
    database
        The database of the ledger.
    files
        The catalog as the files have it.
    """

    def __init__(self, database: Database, files: StoredCatalog) -> None:
        self._database, self._files, self._catalog = database, files, str(files.fingerprint)
        self.latest = 0
        """Number of the latest change that `load` has returned."""
        self._is_first = True

    def upsert(self, ids: Sequence[Label], groups: Sequence[Label], embeddings: NDArray[np.floating[Any]]) -> None:
        """Save items that are added or replaced."""
        vectors = embeddings.astype(np.float64 if embeddings.dtype == np.float64 else np.float32)
        attributes = [json.dumps({_GROUP: group}) for group in groups]
        self._save(ids, {"attributes": attributes, "embedding": [vector.tobytes() for vector in vectors]})

    def remove(self, ids: Sequence[Label]) -> None:
        """Save that items are removed."""
        self._save(ids, {})

    def load(self) -> list[Callable[[Catalog], CatalogChange | None]]:
        """Return the changes since the last call, of all services that share the ledger, to be applied in order.

        The first call returns all that the files have not taken in. A change returns None where there is nothing to do.
        """
        rows = self._database.run(lambda transaction: transaction.execute(_ITEMS, after=self.latest), "statement")
        found = [_Row.of(row) for row in rows]
        if found:
            self.latest = found[-1].number
        if self._is_first:
            found = [row for row in found if not self._is_taken_in(row)]
            self._is_first = False
        added = [row for row in found if row.embedding is not None]
        removed = [row.id for row in found if row.embedding is None]
        changes: list[Callable[[Catalog], CatalogChange | None]] = []
        if added:
            changes.append(lambda catalog: _upsert(catalog, added))
        if removed:
            changes.append(lambda catalog: _remove(catalog, removed))
        return changes

    def _is_taken_in(self, row: _Row) -> bool:
        if row.catalog == self._catalog:
            return False
        if self._files.changes is not None:
            return row.number <= self._files.changes
        return row.changed_at < self._files.written_at

    def _save(self, ids: Sequence[Label], columns: dict[str, Sequence[object]]) -> None:
        names = [json.dumps(one) for one in ids]

        def write(transaction: Transaction) -> None:
            transaction.execute("DELETE FROM items WHERE id IN {ids}", ids=json.dumps(names))
            rows = {"id": names, "catalog": [self._catalog] * len(names), **columns}
            transaction.insert("items", rows, at="changed_at")

        # Exclusive, so that numbers are visible in their order: a change with a lower one never appears later.
        self._database.run(write, "exclusive")


def apply_changes(catalog: Catalog, changes: Sequence[Callable[[Catalog], CatalogChange | None]]) -> Catalog:
    """Return the catalog after some changes."""
    for change in changes:
        changed = change(catalog)
        catalog = catalog if changed is None else changed.catalog
    return catalog


def _upsert(catalog: Catalog, rows: Sequence[_Row]) -> CatalogChange | None:
    sizes = {4 * catalog.dim: np.float32, 8 * catalog.dim: np.float64}
    fitting = [row for row in rows if row.embedding is not None and len(row.embedding) in sizes]
    if len(fitting) < len(rows):
        _log.warning(
            "%d changed items are left out: their embeddings do not have the catalog's dimension, %d",
            len(rows) - len(fitting),
            catalog.dim,
        )
    if not fitting:
        return None
    vectors = [np.frombuffer(row.embedding or b"", dtype=sizes[len(row.embedding or b"")]) for row in fitting]
    groups = [row.group for row in fitting if row.group is not None]
    return upsert_items(catalog, np.array(vectors), groups, [row.id for row in fitting])


def _remove(catalog: Catalog, ids: Sequence[Label]) -> CatalogChange | None:
    kind = type(catalog.ids.tolist()[0])
    candidates = [one for one in ids if isinstance(one, kind)]
    known = (
        [one for one, row in zip(candidates, catalog.rows_of(np.array(candidates)), strict=True) if row >= 0]
        if (candidates)
        else []
    )
    return remove_items(catalog, known) if known else None
