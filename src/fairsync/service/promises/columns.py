"""Columns of the ledger: where the exposures of a promise are counted."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fairsync.catalog.attributes import NumberColumn
from fairsync.coordination import counted
from fairsync.errors import UnknownGroupError
from fairsync.promises.selection import conditions_of, is_selection, selection_name

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.groups import Label
    from fairsync.schedule import ScheduledPromise


def column_of(promise: ScheduledPromise, attribute: str) -> Label:
    """Return the label under which the exposures of a promise are counted: a label, or the name of its selection.

    Parameters
    ----------
    promise
        The promise.
    attribute
        The attribute of the groups, whose labels are always counted.

    Examples
    --------
    >>> from fairsync.promises import Promise
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> column_of(ScheduledPromise.of_group("toys", 5, Window.day("UTC")), "group")
    'toys'
    >>> column_of(ScheduledPromise(Promise({"new": True}, at_least=5), Window.day("UTC")), "group")
    '{"new": true}'
    """
    return _column(promise.selection, attribute)


def group_of(promise: ScheduledPromise, attribute: str) -> Label | None:
    """Return the label that a promise is about; None if it is about another selection."""
    column = column_of(promise, attribute)
    return None if column == promise.selection else column


@lru_cache(maxsize=65_536)
def _column(selection: str, attribute: str) -> Label:
    return counted.column_of(conditions_of(selection), attribute)


@lru_cache(maxsize=65_536, typed=True)
def selection_of(column: Label, attribute: str) -> str:
    """Return the name of the selection that a column counts.

    Examples
    --------
    >>> selection_of("toys", "category"), selection_of('{"new": true}', "category")
    ('{"category": "toys"}', '{"new": true}')
    """
    return str(column) if is_selection(column) else selection_name({attribute: column})


def labels_of(catalog: Catalog, attribute: str) -> list[AttributeLabel]:
    """Return the labels of an attribute; none if it has numbers.

    A catalog whose groups are in the order of a ledger's columns has a group for each of them. Those of selections are
    no labels, and no item is in them.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(2), {"maker": ["acme", "best"]}).under(["acme", '{"new": true}', "gone"])
    >>> catalog.labels, labels_of(catalog, "maker")
    (['acme', '{"new": true}', 'gone', 'best'], ['acme', 'gone', 'best'])
    """
    column = catalog.attributes[attribute]
    if isinstance(column, NumberColumn):
        return []
    if attribute != catalog.group_attribute:
        return list(column.labels)
    sizes = catalog.group_sizes.tolist()
    return [label for label, size in zip(catalog.labels, sizes, strict=True) if size or not is_selection(label)]


def check_group(label: Label, catalog: Catalog) -> None:
    """Raise `UnknownGroupError`, with close labels, for a label that the groups have not."""
    try:
        code = catalog.code_of(label)
    except UnknownGroupError:
        known, attribute = labels_of(catalog, catalog.group_attribute), catalog.attribute_of(label)
        raise UnknownGroupError([label], known, attribute) from None
    if is_selection(label) and not catalog.group_sizes[code]:
        raise UnknownGroupError([label], labels_of(catalog, catalog.group_attribute))
