"""Changes to a catalog: items that come, go, move to another group, or get another embedding.

A catalog never changes. A change makes a new one, and says which items are the same in both, so that an index can keep
what it knows about them. Group codes only ever grow: a label keeps its code, a new label gets the next one, and a group
that has lost its last item stays, with size 0. So counts, floors and prices stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog, check_names, check_same_kind
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog.groups import Label


@dataclass(frozen=True)
class CatalogChange:
    """A catalog after a change, and where the items of the one before it are.

    Attributes
    ----------
    catalog : Catalog
        As it is now.
    rows : numpy.ndarray
        (items before,) int64: the row of each item now, -1 if it is gone, or not the same as before: in another group,
        or with another embedding.
    """

    catalog: Catalog
    rows: NDArray[np.int64]


def upsert_items(
    catalog: Catalog,
    embeddings: ArrayLike,
    groups: Sequence[Label] | NDArray[Any],
    ids: Sequence[Label] | NDArray[Any],
) -> CatalogChange:
    """Add items; where an id is known already, replace the item.

    Parameters
    ----------
    catalog
        As it is.
    embeddings, groups, ids
        Of the items that come or change; see :class:`Catalog`. The embeddings get the catalog's type.

    Examples
    --------
    >>> catalog = Catalog(np.eye(3, dtype=np.float32), ["a", "a", "b"], ids=["x", "y", "z"])
    >>> change = upsert_items(catalog, [[0, 2, 0], [5, 5, 5]], ["b", "new"], ["y", "w"])
    >>> change.catalog.ids.tolist(), change.catalog.group_of.tolist(), change.rows.tolist()
    (['x', 'y', 'z', 'w'], [0, 1, 1, 2], [0, -1, 2])
    """
    given = Catalog(np.asarray(embeddings, dtype=catalog.embeddings.dtype), groups, ids)
    if given.dim != catalog.dim:
        raise InvalidInputError(
            f"the new embeddings have {given.dim} dimensions, those of the catalog {catalog.dim}: replace all items"
            " at once where the model is another."
        )
    check_same_kind(given.ids, catalog.ids, "ids")
    check_same_kind(np.asarray(given.labels), np.asarray(catalog.labels), "groups")
    places = find_rows(catalog, given.ids)
    added = np.flatnonzero(places < 0)
    target = places.copy()
    target[added] = len(catalog) + np.arange(len(added))
    whole = np.concatenate([catalog.embeddings, given.embeddings[added]])
    whole[target] = given.embeddings
    after = given.under(catalog.labels)  # the same items, in the codes of the catalog
    codes = np.concatenate([catalog.group_of, after.group_of[added]])
    codes[target] = after.group_of
    rows = np.arange(len(catalog))
    rows[places[places >= 0]] = -1
    names = _joined(catalog.ids, given.ids[added])
    return CatalogChange(Catalog.coded(whole, codes, after.labels, names), rows)


def remove_items(catalog: Catalog, ids: Sequence[Label] | NDArray[Any]) -> CatalogChange:
    """Take items out.

    Examples
    --------
    >>> change = remove_items(Catalog(np.eye(3), ["a", "a", "b"], ids=["x", "y", "z"]), ["z", "x"])
    >>> change.catalog.ids.tolist(), change.catalog.group_sizes.tolist(), change.rows.tolist()
    (['y'], [1, 0], [-1, 0, -1])
    """
    names = check_names(ids, len(ids), "ids", "id")
    if len(names):
        check_same_kind(names, catalog.ids, "ids")
    places = find_rows(catalog, names)
    if (places < 0).any():
        lost = names[places < 0]
        raise InvalidInputError(
            f"there is no item {lost[0].item()!r} ({len(lost)} unknown in all): nothing was removed."
        )
    kept = np.ones(len(catalog), dtype=bool)
    kept[places] = False
    if not kept.any():
        raise InvalidInputError("these are all the items there are: a catalog needs at least one.")
    rows = np.where(kept, np.cumsum(kept) - 1, -1)
    left = np.flatnonzero(kept)
    return CatalogChange(
        Catalog.coded(catalog.embeddings[left], catalog.group_of[left], catalog.labels, catalog.ids[left]), rows
    )


def find_rows(catalog: Catalog, ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row of each id, -1 where there is none.

    Examples
    --------
    >>> find_rows(Catalog(np.eye(2), ["a", "b"], ids=["y", "x"]), np.array(["x", "q"])).tolist()
    [1, -1]
    """
    known = catalog.ids
    order = np.arange(len(known)) if catalog.rank is None else np.argsort(catalog.rank)
    places = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    rows = order[places]
    return np.where(known[rows] == ids, rows, -1).astype(np.int64)


def _joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([first, second]) if len(second) else first
