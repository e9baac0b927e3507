"""The items of many promises at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.attributes import LabelColumn, ListColumn
from fairsync.catalog.conditions import ITEM_ID, parse_conditions, unknown_label
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.attributes import AttributeLabel, Column
    from fairsync.catalog.conditions import Condition, IdColumn


class SelectedRows:
    """Finds the items of selections. The items of all labels of an attribute are sorted once.

    Conditions may also name items by their ``"id"``, one or several.

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
        self._columns: dict[str, Column | IdColumn] = {**catalog.attributes}
        if catalog.weights is None:
            self._columns = {**catalog.condition_columns, **self._columns}
        self._sorted: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self._row_of: dict[object, int] = {}
        self._met: dict[str, NDArray[np.bool_] | None] = {}

    def speaks_of_ids(self, attribute: str | None) -> bool:
        """Return whether a name stands for the ids of items."""
        return attribute == ITEM_ID and ITEM_ID not in self._catalog.attributes

    def count(self, rows: NDArray[np.int64]) -> int:
        """Return the number of items in some rows."""
        return len(rows) if self._catalog.weights is None else int(self._catalog.weights[rows].sum())

    def _check_ids_known(self) -> None:
        if self._catalog.weights is not None:
            raise InvalidInputError("promises to single items need a copy of the catalog: name an attribute.")

    def look_up(self, selections: Iterable[Where]) -> None:
        """Find the rows of all items that selections name by their id at once, which is faster than one by one.

        Conditions on ids that are none are refused by :meth:`of`, which is called for one selection.
        """
        if ITEM_ID in self._catalog.attributes or self._catalog.weights is not None:
            return
        ids = [one for where in selections for one in _as_list(where.get(ITEM_ID, [])) if _is_id(one)]
        for kind in (str, int):
            same = [one for one in ids if isinstance(one, kind)]
            if same:
                self._row_of.update(zip(same, self._catalog.rows_of(np.array(same)).tolist(), strict=True))

    def _with_ids(self, where: Where) -> NDArray[np.int64]:
        """Return the rows of the items with given ids that meet the other conditions."""
        self._check_ids_known()
        given = _as_list(where[ITEM_ID])
        if not given or not all(map(_is_id, given)):
            raise InvalidInputError(f"the condition on {ITEM_ID!r} must be an id or a list of ids, got {given!r:.80}.")
        if any(one not in self._row_of for one in given):
            self.look_up([where])
        rows = np.unique([self._row_of[one] for one in given])
        rows = rows[rows >= 0]
        others = {name: one for name, one in where.items() if name != ITEM_ID}
        key = repr(others)
        if key not in self._met:
            self._met[key] = None
            if others:
                self._met[key] = met = np.zeros(self._catalog.n_rows, dtype=bool)
                met[self.of(others)] = True
        met_here = self._met[key]
        return rows if met_here is None else rows[met_here[rows]]

    def of(self, where: Where) -> NDArray[np.int64]:
        """Return the rows of the items that meet all conditions, in ascending order."""
        if _names_ids(where) and self.speaks_of_ids(ITEM_ID):
            return self._with_ids(where)
        columns = self._columns
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
            return np.arange(self._catalog.n_rows) if rest is None else rest.rows
        return rows if rest is None else rows[rest.mask[rows]]

    def check_labels(self, where: Where) -> None:
        """Raise for a label that no item has ever had, and suggest close ones."""
        if _names_ids(where) and self.speaks_of_ids(ITEM_ID):
            self._with_ids(where)
            unknown = [one for one in _as_list(where[ITEM_ID]) if self._row_of[one] < 0]
            if unknown:
                raise InvalidInputError(f"no item has the id {unknown[0]!r}.")
            where = {name: one for name, one in where.items() if name != ITEM_ID}
        why = unknown_label(where, self._columns)
        if why is not None:
            raise InvalidInputError(why)

    def labels_in_use(self, attribute: str, where: Where) -> list[AttributeLabel]:
        """Return the labels of an attribute, or the ids, that items have that meet conditions."""
        if self.speaks_of_ids(attribute):
            self._check_ids_known()
            found: list[AttributeLabel] = self._catalog.ids_of(self.of(where)).tolist()
            return found
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


def _names_ids(where: Where) -> bool:
    """Return whether conditions name items by their ids: one or several, not all but some."""
    return ITEM_ID in where and not isinstance(where[ITEM_ID], Mapping)


def _as_list(given: object) -> list[Any]:
    return list(given) if isinstance(given, list | tuple | set | frozenset) else [given]


def _is_id(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, str)


def _are_in(larger: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each row is among others. Both are in ascending order."""
    place = np.minimum(np.searchsorted(larger, rows), len(larger) - 1)
    found: NDArray[np.bool_] = larger[place] == rows
    return found
