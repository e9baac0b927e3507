"""Changes of items that only a search engine holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import check_values
from fairsync.catalog.arrays import to_array
from fairsync.catalog.attributes import NumberColumn, as_numbers, make_column, same_kind
from fairsync.catalog.names import check_names, check_same_kind
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import StoredItems
from fairsync.search.engines.hosted_catalog import merged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog.groups import Label
    from fairsync.search.engines.hosted_catalog import HostedCatalog


def upsert_hosted(
    catalog: HostedCatalog,
    embeddings: ArrayLike | None,
    groups: Sequence[Label] | NDArray[Any] | Mapping[str, Any],
    ids: Sequence[Label] | NDArray[Any],
) -> StoredItems:
    """Return items to be written to an engine, or say what is wrong with them; see `Catalog` and `upsert_items`.

    Items without new embeddings keep what is not given. With embeddings, all attributes are needed.
    """
    names = check_names(ids, None, "ids", "id")
    if not len(names):
        raise InvalidInputError("there are no ids: name at least one item.")
    check_same_kind(names, catalog.ids, "ids")
    if len(set(names.tolist())) < len(names):
        raise InvalidInputError("an id is there twice: give each item once.")
    given = groups if isinstance(groups, Mapping) else {catalog.group_attribute: groups}
    attributes: dict[str, Sequence[Any]] = {}
    for name, values in given.items():
        known = catalog.schema.columns.get(name)
        if known is None:
            has = ", ".join(map(repr, catalog.schema.columns))
            raise InvalidInputError(f"the items have no attribute {name!r}; they have {has}.")
        column = make_column(name, values, len(names))
        column = as_numbers(column) if isinstance(known, NumberColumn) else column
        same_kind(name, column, known)
        attributes[name] = column.values()
    if embeddings is None:
        return merged(catalog, attributes, names.tolist())
    vectors = to_array(embeddings, "embeddings").astype(np.float64)
    if vectors.shape != (len(names), catalog.dim):
        raise InvalidInputError(
            f"embeddings must be {len(names)} rows of {catalog.dim} numbers, got the shape {vectors.shape}."
        )
    check_values(vectors)
    lacking = [name for name in catalog.schema.columns if name not in attributes]
    if lacking:
        raise InvalidInputError(f"the items have no {lacking[0]!r}: give all attributes with embeddings.")
    return StoredItems(
        names.tolist(), vectors.astype(np.float32), {name: attributes[name] for name in catalog.schema.columns}
    )


def removed_hosted(catalog: HostedCatalog, ids: Sequence[Label] | NDArray[Any]) -> list[Label]:
    """Return the ids of items to be removed from an engine, or say which is not there."""
    names = check_names(ids, None, "ids", "id")
    if not len(names):
        raise InvalidInputError("there are no ids: name at least one item to remove.")
    check_same_kind(names, catalog.ids, "ids")
    held = set(catalog.engine.fetch(names.tolist()).ids)
    lost = [name for name in names.tolist() if name not in held]
    if lost:
        raise InvalidInputError(f"there is no item {lost[0]!r} ({len(lost)} unknown in all): nothing was removed.")
    if len(held) >= len(catalog):
        raise InvalidInputError("these are all the items there are: a catalog needs at least one.")
    return list(names.tolist())


def nothing_written(catalog: HostedCatalog) -> StoredItems:
    """Return no items, for a change that only removes some."""
    return StoredItems([], np.empty((0, catalog.dim), dtype=np.float32), {name: [] for name in catalog.schema.columns})
