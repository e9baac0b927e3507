"""Attributes of the items and their labels, for people who choose what to promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fairsync.catalog.attributes import NumberColumn
from fairsync.service.promises.columns import labels_of
from fairsync.service.schema import AttributeView

if TYPE_CHECKING:
    from fairsync.catalog import Catalog


def attribute_views(catalog: Catalog, text: str = "", limit: int = 100, name: str | None = None) -> list[AttributeView]:
    """Return the attributes of a catalog, the one of the groups first and ids last, with labels that contain a text.

    Parameters
    ----------
    catalog
        The items.
    text
        What labels contain, in upper or lower case.
    limit
        The most labels of each attribute.
    name
        The only attribute to return; all by default.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), {"maker": ["Acme", "Best", "Bob"], "price": [1.0, 2.5, 9.0]})
    >>> [(one.name, one.kind, one.labels, one.total) for one in attribute_views(catalog, "b", limit=1)]
    [('maker', 'labels', ['Best'], 2), ('price', 'numbers', [], 0), ('id', 'labels', [], 0)]
    """
    wanted, views = text.casefold(), []
    for attribute, column in catalog.attributes.items():
        if name is not None and attribute != name:
            continue
        found = [label for label in labels_of(catalog, attribute) if wanted in str(label).casefold()]
        kind: Literal["labels", "numbers"] = "numbers" if isinstance(column, NumberColumn) else "labels"
        views.append(AttributeView(name=attribute, kind=kind, labels=found[:limit], total=len(found)))
    if catalog.weights is not None:  # no promise can be made to single items
        return views
    if "id" not in catalog.attributes and name in (None, "id"):  # items by their ids, unless an attribute has that name
        total = len(catalog)
        ids = catalog.ids.tolist() if wanted else catalog.ids[:limit].tolist()
        if wanted:
            ids = [one for one in ids if wanted in str(one).casefold()]
            total = len(ids)
        views.append(AttributeView(name="id", kind="labels", labels=ids[:limit], total=total))
    return views
