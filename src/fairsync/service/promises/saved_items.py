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
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.changes import remove_items, upsert_items
from fairsync.coordination.outside_lists import rows_of
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.changes import CatalogChange
    from fairsync.catalog.files import StoredCatalog
    from fairsync.catalog.groups import Label
    from fairsync.ledger.database import Database, Transaction

_log = logging.getLogger(__name__)
_COLUMNS = "number, id, attributes, embedding, catalog, changed_at"
_ITEMS = f"SELECT {_COLUMNS} FROM items WHERE number > :after ORDER BY number"
_KNOWN = f"SELECT {_COLUMNS} FROM items WHERE id IN {{ids}}"


@dataclass(frozen=True)
class _Row:
    """One changed item; without attributes it was removed, and without an embedding it keeps the one that it has."""

    number: int
    id: Label
    attributes: dict[str, Any] | None
    embedding: bytes | None
    catalog: str
    changed_at: float

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> _Row:
        number, name, attributes, embedding, catalog, changed_at = row
        values = None if attributes is None else json.loads(attributes)
        return cls(
            number, json.loads(name), values, None if embedding is None else bytes(embedding), catalog, changed_at
        )

    @property
    def kind(self) -> tuple[int, tuple[str, ...]]:
        """The size of the embedding, and the attributes: rows of the same kind are applied together."""
        return -1 if self.embedding is None else len(self.embedding), tuple(sorted(self.attributes or ()))


class SavedItems:
    """The items that were changed, in the database of a ledger.

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

    def upsert(
        self,
        ids: Sequence[Label],
        attributes: Mapping[str, Sequence[Any]],
        embeddings: NDArray[np.floating[Any]] | None,
    ) -> None:
        """Save items that are added or changed.

        Parameters
        ----------
        ids
            The ids of the items.
        attributes
            The values of each item by attribute: of all attributes with embeddings, and otherwise those that change.
        embeddings
            The embeddings. None if they stay: they are not saved then, so that files with others can take their place.
        """
        values = [dict(zip(attributes, one, strict=True)) for one in zip(*attributes.values(), strict=True)]
        if embeddings is None:
            self._save(ids, lambda transaction, names: self._merged(transaction, names, values))
            return
        vectors = embeddings.astype(np.float64 if embeddings.dtype == np.float64 else np.float32)
        columns: dict[str, Sequence[object]] = {
            "attributes": list(map(json.dumps, values)),
            "embedding": [vector.tobytes() for vector in vectors],
        }
        self._save(ids, lambda _, __: columns)

    def remove(self, ids: Sequence[Label]) -> None:
        """Save that items are removed. One that is named twice is removed once."""
        self._save(list(dict.fromkeys(ids)), lambda _, __: {})

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
        kinds: dict[tuple[int, tuple[str, ...]], list[_Row]] = {}
        for row in found:
            if row.attributes is not None:
                kinds.setdefault(row.kind, []).append(row)
        removed = [row.id for row in found if row.attributes is None]
        changes: list[Callable[[Catalog], CatalogChange | None]] = [partial(_upsert, rows) for rows in kinds.values()]
        if removed:
            changes.append(lambda catalog: _remove(catalog, removed))
        return changes

    def _is_taken_in(self, row: _Row) -> bool:
        if row.catalog == self._catalog:
            return False
        if self._files.changes is not None:
            return row.number <= self._files.changes
        return row.changed_at < self._files.written_at

    def _merged(
        self, transaction: Transaction, names: Sequence[str], values: Sequence[dict[str, Any]]
    ) -> dict[str, Sequence[object]]:
        """Return the rows of items that get other attributes: what was saved of them before stays."""
        rows = [_Row.of(row) for row in transaction.execute(_KNOWN, ids=json.dumps(names))]
        before = {json.dumps(row.id): row for row in rows if row.attributes is not None and not self._is_taken_in(row)}
        known = [before.get(name) for name in names]
        merged = [{**(row.attributes or {} if row else {}), **new} for row, new in zip(known, values, strict=True)]
        embeddings = [None if row is None else row.embedding for row in known]
        return {"attributes": list(map(json.dumps, merged)), "embedding": embeddings}

    def _save(
        self,
        ids: Sequence[Label],
        columns: Callable[[Transaction, Sequence[str]], dict[str, Sequence[object]]],
    ) -> None:
        names = [json.dumps(one) for one in ids]

        def write(transaction: Transaction) -> None:
            rows = {"id": names, "catalog": [self._catalog] * len(names), **columns(transaction, names)}
            transaction.execute("DELETE FROM items WHERE id IN {ids}", ids=json.dumps(names))
            transaction.insert("items", rows, at="changed_at")

        # Exclusive, so that numbers are visible in their order: a change with a lower one never appears later.
        self._database.run(write, "exclusive")


def apply_changes(catalog: Catalog, changes: Sequence[Callable[[Catalog], CatalogChange | None]]) -> Catalog:
    """Return the catalog after some changes."""
    for change in changes:
        changed = change(catalog)
        catalog = catalog if changed is None else changed.catalog
    return catalog


def _upsert(rows: Sequence[_Row], catalog: Catalog) -> CatalogChange | None:
    """Apply changes of one kind. The files may be others by now: those that no longer fit are left out."""
    fitting = [row for row in rows if _fits(row, catalog)]
    try:
        change = _try_upsert(fitting, catalog) if fitting else None
    except InvalidInputError:
        fitting = [row for row in fitting if _is_applicable(row, catalog)]
        change = _try_upsert(fitting, catalog) if fitting else None
    if len(fitting) < len(rows):
        _log.warning(
            "%d changed items are left out: they do not fit the catalog, which has the dimension %d and the attributes"
            " %s",
            len(rows) - len(fitting),
            catalog.dim,
            ", ".join(catalog.attributes),
        )
    return change


def _fits(row: _Row, catalog: Catalog) -> bool:
    if row.embedding is None:
        return bool(_known([row.id], catalog))
    return len(row.embedding) in (4 * catalog.dim, 8 * catalog.dim)


def _is_applicable(row: _Row, catalog: Catalog) -> bool:
    try:
        _try_upsert([row], catalog)
    except InvalidInputError:
        return False
    return True


def _try_upsert(rows: Sequence[_Row], catalog: Catalog) -> CatalogChange:
    vectors = None
    if rows[0].embedding is not None:
        dtype = np.float32 if len(rows[0].embedding) == 4 * catalog.dim else np.float64
        vectors = np.array([np.frombuffer(row.embedding or b"", dtype=dtype) for row in rows])
    values = [row.attributes or {} for row in rows]
    attributes = {name: [one[name] for one in values] for name in values[0]}
    return upsert_items(catalog, vectors, attributes, [row.id for row in rows])


def _remove(catalog: Catalog, ids: Sequence[Label]) -> CatalogChange | None:
    known = _known(ids, catalog)
    return remove_items(catalog, known) if known else None


def _known(ids: Sequence[Label], catalog: Catalog) -> list[Label]:
    """Return the ids that the catalog holds."""
    return [one for one, row in zip(ids, rows_of(ids, catalog).tolist(), strict=True) if row >= 0]
