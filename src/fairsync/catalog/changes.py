"""Changes to a catalog: items are added, removed, moved to another group, or get another embedding.

A catalog is immutable. A change makes a new catalog and records which items are the same in both, so that an index can
keep what it has built for them. Group codes are never reused: a label keeps its code, a new label gets the next one,
and a group that has lost its last item stays, with size 0. So arrays by group code (counts, floors, prices)
stay valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog, check_names, check_same_kind
from fairsync.catalog.names import join_names
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog.groups import Label


@dataclass(frozen=True)
class CatalogChange:
    """A catalog after a change, and where the items of the previous catalog are in it.

    Attributes
    ----------
    catalog : Catalog
        The catalog after the change.
    rows : numpy.ndarray
        (items before,) int64, the new row of each item of the previous catalog; -1 if it was removed, moved to another
        group, or got another embedding.
    """

    catalog: Catalog
    rows: NDArray[np.int64]


def upsert_items(
    catalog: Catalog,
    embeddings: ArrayLike,
    groups: Sequence[Label] | NDArray[Any],
    ids: Sequence[Label] | NDArray[Any],
) -> CatalogChange:
    """Add items, or replace those whose ids are known.

    Parameters
    ----------
    catalog
        The catalog before the change.
    embeddings, groups, ids
        The new and changed items; see :class:`Catalog`. The embeddings are converted to the catalog's type.

    Examples
    --------
    >>> catalog = Catalog(np.eye(3, dtype=np.float32), ["a", "a", "b"], ids=["x", "y", "z"])
    >>> change = upsert_items(catalog, [[0, 2, 0], [5, 5, 5]], ["b", "new"], ["y", "w"])
    >>> change.catalog.ids.tolist(), change.catalog.group_of.tolist(), change.rows.tolist()
    (['x', 'y', 'z', 'w'], [0, 1, 1, 2], [0, -1, 2])
    """
    try:
        vectors = np.asarray(embeddings, dtype=catalog.embeddings.dtype)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"embeddings must be one (n, d) array of numbers in equal rows: {error}") from None
    given = Catalog(vectors, groups, ids)
    if given.dim != catalog.dim:
        raise InvalidInputError(
            f"the new embeddings have {given.dim} dimensions, those of the catalog {catalog.dim}: to change the model,"
            " replace all items at once."
        )
    check_same_kind(given.ids, catalog.ids, "ids")
    after = given.under(catalog.labels)  # the same items, in the codes of the catalog
    places = catalog.rows_of(given.ids)
    added = np.flatnonzero(places < 0)
    target = places.copy()
    target[added] = len(catalog) + np.arange(len(added))
    whole = np.concatenate([catalog.embeddings, given.embeddings[added]])
    whole[target] = given.embeddings
    codes = np.concatenate([catalog.group_of, after.group_of[added]])
    codes[target] = after.group_of
    rows = np.arange(len(catalog))
    rows[places[places >= 0]] = -1
    names = join_names([catalog.ids, given.ids[added]]) if len(added) else catalog.ids
    return CatalogChange(Catalog.from_codes(whole, codes, after.labels, names), rows)


def remove_items(catalog: Catalog, ids: Sequence[Label] | NDArray[Any]) -> CatalogChange:
    """Remove items.

    Examples
    --------
    >>> change = remove_items(Catalog(np.eye(3), ["a", "a", "b"], ids=["x", "y", "z"]), ["z", "x"])
    >>> change.catalog.ids.tolist(), change.catalog.group_sizes.tolist(), change.rows.tolist()
    (['y'], [1, 0], [-1, 0, -1])
    """
    names = check_names(ids, None, "ids", "id")
    if not len(names):
        raise InvalidInputError("there are no ids: name at least one item to remove.")
    check_same_kind(names, catalog.ids, "ids")
    places = catalog.rows_of(names)
    if (places < 0).any():
        lost = names[places < 0].tolist()
        raise InvalidInputError(f"there is no item {lost[0]!r} ({len(lost)} unknown in all): nothing was removed.")
    kept = np.ones(len(catalog), dtype=bool)
    kept[places] = False
    if not kept.any():
        raise InvalidInputError("these are all the items there are: a catalog needs at least one.")
    rows = np.where(kept, np.cumsum(kept) - 1, -1)
    left = np.flatnonzero(kept)
    return CatalogChange(
        Catalog.from_codes(catalog.embeddings[left], catalog.group_of[left], catalog.labels, catalog.ids[left]), rows
    )
