"""The items of many promises at once."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.attributes import LabelColumn, ListColumn
from fairsync.catalog.conditions import parse_conditions
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.attributes import AttributeLabel
    from fairsync.catalog.conditions import Condition


class SelectedRows:
    """Finds the items of selections. The items of all labels of an attribute are sorted once.

    Parameters
    ----------
    catalog
        The items.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> rows = SelectedRows(Catalog(np.eye(4), {"brand": ["b", "a", "b", "b"], "price": [1.0, 5.0, 9.0, 4.0]}))
    >>> rows.of({"brand": "b"}).tolist(), rows.of({"brand": "b", "price": {"at_most": 5}}).tolist()
    ([0, 2, 3], [0, 3])
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._sorted: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def of(self, where: Where) -> NDArray[np.int64]:
        """Return the rows of the items that meet all conditions, in ascending order."""
        columns = self._catalog.attributes
        labels: list[Condition] = []
        others: dict[str, object] = {}
        for condition in parse_conditions(where, columns):
            is_label = isinstance(columns[condition.attribute], LabelColumn | ListColumn)
            if is_label and len(condition.values) == 1 and not condition.negated:
                labels.append(condition)
            else:
                others[condition.attribute] = where[condition.attribute]
        found = sorted((self._with_label(one) for one in labels), key=len)
        rows = found[0] if found else None
        for larger in found[1:]:
            assert rows is not None
            rows = rows[_are_in(larger, rows)]
        rest = self._catalog.select(others)
        if rows is None:
            return np.arange(len(self._catalog)) if rest is None else rest.rows
        return rows if rest is None else rows[rest.mask[rows]]

    def check_labels(self, where: Where) -> None:
        """Raise for a label that no item has ever had, and suggest close ones."""
        columns = self._catalog.attributes
        for condition in parse_conditions(where, columns):
            column = columns[condition.attribute]
            if not isinstance(column, LabelColumn | ListColumn):
                continue
            for value in condition.values:
                if value not in column.code_of:
                    raise InvalidInputError(
                        f"no item has {value!r} as its {condition.attribute!r}.{_hint(value, column.labels)}"
                    )

    def labels_in_use(self, attribute: str, where: Where) -> list[AttributeLabel]:
        """Return the labels of an attribute that some item has that meets conditions."""
        column = self._catalog.attributes[attribute]
        assert isinstance(column, LabelColumn | ListColumn)
        if where:
            column = column.take(self.of(where))
        used = np.bincount(column.codes, minlength=len(column.labels)) > 0
        return [column.labels[code] for code in np.flatnonzero(used).tolist()]

    def _with_label(self, condition: Condition) -> NDArray[np.int64]:
        name, column = condition.attribute, self._catalog.attributes[condition.attribute]
        assert isinstance(column, LabelColumn | ListColumn)
        code = column.code_of.get(condition.values[0])  # type: ignore[arg-type]
        if code is None:
            return np.empty(0, dtype=np.int64)
        if name not in self._sorted:
            order = np.argsort(column.codes, kind="stable")
            codes = column.codes[order]
            if isinstance(column, ListColumn):
                owners = np.repeat(np.arange(len(column)), np.diff(column.offsets))[order]
                new = np.ones(len(codes), dtype=bool)  # a label may be in an item's list twice
                new[1:] = (owners[1:] != owners[:-1]) | (codes[1:] != codes[:-1])
                order, codes = owners[new], codes[new]
            edges = np.searchsorted(codes, np.arange(len(column.labels) + 1))
            self._sorted[name] = order, edges
        rows, edges = self._sorted[name]
        return rows[edges[code] : edges[code + 1]]


def _are_in(larger: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each row is among others. Both are in ascending order."""
    place = np.minimum(np.searchsorted(larger, rows), len(larger) - 1)
    found: NDArray[np.bool_] = larger[place] == rows
    return found


def _hint(value: object, known: Sequence[object]) -> str:
    by_text = {str(label).casefold(): label for label in known}
    close = get_close_matches(str(value).casefold(), by_text, n=2, cutoff=0.7)
    if close:
        return f" Did you mean {' or '.join(repr(by_text[text]) for text in close)}?"
    return f" There are {len(known)} labels, such as {', '.join(map(repr, known[:3]))}." if known else ""
