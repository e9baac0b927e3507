"""Changes to a catalog: items are added, removed, moved to another group, or get another embedding or attribute.

A catalog is immutable. A change makes a new catalog and records which items are the same in both, so that an index can
keep what it has built for them. Group codes are never reused: a label keeps its code, a new label gets the next one,
and a group that has lost its last item stays, with size 0. So arrays by group code (counts, floors, prices)
stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog import Catalog, check_names, check_same_kind
from fairsync.catalog.arrays import to_array, to_columns
from fairsync.catalog.attributes import (
    ListColumn,
    NumberColumn,
    as_lists,
    as_numbers,
    first_without_label,
    make_column,
    same_kind,
)
from fairsync.catalog.names import join_names
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog.arrays import DataFrame
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
    embeddings: ArrayLike | None,
    groups: Sequence[Label] | NDArray[Any] | Mapping[str, Any] | DataFrame,
    ids: Sequence[Label] | NDArray[Any],
) -> CatalogChange:
    """Add items, or change those whose ids are known.

    Parameters
    ----------
    catalog
        The catalog before the change.
    embeddings
        The embeddings of the items, which are converted to the catalog's type. None if all ids are known and their
        embeddings stay: then no vector is touched, and unless groups change, an index stays as it is.
    groups
        The group labels, or a dict of attributes; see :class:`Catalog`. An item that is known keeps the attributes that
        are left out; a new item needs all of them, but for the group if there is only one.
    ids
        The ids of the items.

    Examples
    --------
    >>> catalog = Catalog(np.eye(3, dtype=np.float32), ["a", "a", "b"], ids=["x", "y", "z"])
    >>> change = upsert_items(catalog, [[0, 2, 0], [5, 5, 5]], ["b", "new"], ["y", "w"])
    >>> change.catalog.ids.tolist(), change.catalog.group_of.tolist(), change.rows.tolist()
    (['x', 'y', 'z', 'w'], [0, 1, 1, 2], [0, -1, 2])
    >>> catalog = Catalog(np.eye(2), {"category": ["a", "b"], "in_stock": [True, True]}, ids=["x", "y"])
    >>> change = upsert_items(catalog, None, {"in_stock": [False]}, ["y"])
    >>> change.catalog.select({"in_stock": True}).rows.tolist(), change.rows.tolist()
    ([0], [0, 1])
    """
    names = check_names(ids, None, "ids", "id")
    if not len(names):
        raise InvalidInputError("there are no ids: name at least one item.")
    check_same_kind(names, catalog.ids, "ids")
    places = catalog.rows_of(names)
    if embeddings is None and (places < 0).any():
        lost = names[places < 0].tolist()
        raise InvalidInputError(f"there is no item {lost[0]!r}, and no embedding to add it with: give embeddings.")
    columns = _columns(catalog, groups, names, places)
    labels = columns.pop(catalog.group_attribute, None)
    if labels is None:
        labels = catalog.labels_of(np.where(places < 0, 0, catalog.group_of[places]))  # new ones: of a single group
    if embeddings is None:
        vectors = catalog.embeddings[places]
    else:
        try:
            vectors = to_array(embeddings, "embeddings").astype(catalog.embeddings.dtype, copy=False)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"embeddings must be one (n, d) array of numbers in equal rows: {error}") from None
    given = Catalog(vectors, labels, names, normalize=catalog.normalized and embeddings is not None)
    if given.dim != catalog.dim:
        raise InvalidInputError(
            f"the new embeddings have {given.dim} dimensions, those of the catalog {catalog.dim}: to change the model,"
            " replace all items at once."
        )
    after = given.under(catalog.labels)  # the same items, in the codes of the catalog
    added = np.flatnonzero(places < 0)
    target = places.copy()
    target[added] = len(catalog) + np.arange(len(added))
    n = len(catalog) + len(added)
    others = dict(catalog.attributes)
    del others[catalog.group_attribute]
    others.update({name: others[name].put(target, column, n) for name, column in columns.items()})
    rows = np.arange(len(catalog))
    if embeddings is None:
        moved = places[catalog.group_of[places] != after.group_of]
        if not len(moved):
            return CatalogChange(catalog.with_attributes(others), rows)
        rows[moved] = -1
        whole = catalog.embeddings
    else:
        rows[places[places >= 0]] = -1
        whole = np.concatenate([catalog.embeddings, given.embeddings[added]])
        whole[target] = given.embeddings
    codes = np.concatenate([catalog.group_of, after.group_of[added]])
    codes[target] = after.group_of
    kept = join_names([catalog.ids, given.ids[added]]) if len(added) else catalog.ids
    made = Catalog.from_codes(
        whole, codes, after.labels, kept, others, catalog.group_attribute, normalized=catalog.normalized
    )
    return CatalogChange(made, rows)


def _columns(
    catalog: Catalog,
    given: Sequence[Label] | NDArray[Any] | Mapping[str, Any] | DataFrame,
    names: NDArray[Any],
    places: NDArray[np.int64],
) -> dict[str, Any]:
    """Return the given attributes as columns, the group's as its labels; raise for those that do not fit."""
    given = to_columns(given)
    if not isinstance(given, Mapping):
        given = {catalog.group_attribute: given}
    known = catalog.attributes
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), [*known], n=1)
            hint = f"did you mean {close[0]!r}?" if close else "every item needs it: make another Catalog, and replace."
            raise InvalidInputError(f"the catalog has no attribute {name!r}: {hint}")
    lacking = [name for name in known if name not in given]
    if len(catalog.labels) == 1 and catalog.group_attribute in lacking:  # there is no other group to be in
        lacking.remove(catalog.group_attribute)
    if lacking and (places < 0).any():
        new = names[places < 0].tolist()
        raise InvalidInputError(f"the new item {new[0]!r} has no {lacking[0]!r}: give all attributes of new items.")
    columns: dict[str, Any] = {}
    for name, values in given.items():
        if name == catalog.group_attribute:
            columns[name] = values
            continue
        column = make_column(name, values, len(names))
        if isinstance(known[name], NumberColumn):
            column = as_numbers(column)
        if isinstance(known[name], ListColumn):
            column = as_lists(column)
        elif isinstance(column, ListColumn) and (lost := first_without_label(values)) is not None:
            raise InvalidInputError(
                f"attribute {name!r} has one {known[name].kind} per item, and the item {names[lost].item()!r} has none:"
                " give it one, or replace the catalog."
            )
        same_kind(name, column, known[name])
        columns[name] = column
    return columns


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
    others = {name: column.take(left) for name, column in catalog.attributes.items() if name != catalog.group_attribute}
    made = Catalog.from_codes(
        catalog.embeddings[left], catalog.group_of[left], catalog.labels, catalog.ids[left],
        others, catalog.group_attribute, normalized=catalog.normalized,
    )  # fmt: skip
    return CatalogChange(made, rows)
