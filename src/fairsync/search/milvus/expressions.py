"""Conditions and excluded items as expressions of Milvus, on attributes that the collection stores."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.catalog.attributes import AttributeLabel, Column, LabelColumn, ListColumn, NumberColumn
from fairsync.catalog.conditions import Condition
from fairsync.search.engines.written_conditions import write_conditions
from fairsync.search.milvus.collection import MOST_LETTERS

KINDS = {"str": "VARCHAR", "int": "INT64", "bool": "BOOL", "float": "DOUBLE"}
"""The type of a field of Milvus, for each kind of values."""
# The condition that no item meets: keys are 64-bit integers, and none is both.
_NOTHING = "(key < 0 and key > 0)"


def stored_columns(catalog: Catalog) -> dict[str, Column]:
    """Return the attributes that a collection can store: one label or one number per item.

    Lists of labels are left to the client, and so are atoms, which no condition speaks of.

    Examples
    --------
    >>> catalog = Catalog(np.eye(2), {"region": ["DE", "AT"], "tags": [["new"], []], "price": [1.5, 2.0]})
    >>> [*stored_columns(catalog)]
    ['region', 'price']
    """
    return {name: column for name, column in catalog.conditioned_attributes.items() if _is_stored(column)}


def _is_stored(column: Column) -> bool:
    if isinstance(column, NumberColumn):
        return True
    if not isinstance(column, LabelColumn):
        return False
    return column.kind != "str" or max(len(str(label).encode()) for label in column.labels) <= MOST_LETTERS


def field_of(attribute: str) -> str:
    """Return the name of the field of an attribute: Milvus takes letters, digits and _ only."""
    return f"a_{hashlib.blake2b(attribute.encode(), digest_size=8).hexdigest()}"


def fields_of(columns: Mapping[str, Column]) -> dict[str, str]:
    """Return the Milvus type of the field of each attribute, by field."""
    return {field_of(name): KINDS[column.kind] for name, column in columns.items()}


def values_of(columns: Mapping[str, Column], rows: npt.NDArray[np.int64]) -> dict[str, list[Any]]:
    """Return the values of some items, by field."""
    return {field_of(name): column.take(rows).values() for name, column in columns.items()}


class ExpressionWriter:
    """Writes conditions as expressions of Milvus; see `fairsync.search.engines.written_conditions.ConditionWriter`.

    Parameters
    ----------
    columns
        The attributes that the collection stores.
    field
        Returns the name of the field of an attribute.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> writer = ExpressionWriter({"size": make_column("size", [1, 2], 2)})
    >>> writer.within("size", 1.5, None).split(maxsplit=1)[1], writer.one_of("size", (1, 2)).split(maxsplit=1)[1]
    ('>= 2', 'in [1, 2]')
    """

    def __init__(self, columns: Mapping[str, Column], field: Callable[[str], str] = field_of) -> None:
        self._columns, self._field = columns, field

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> str:
        """Return an expression for items with one of these values."""
        kind, field = self._columns[attribute].kind, self._field(attribute)
        if kind == "int":
            values = [value for value in values if -(2**63) <= value < 2**63]  # type: ignore[operator]
        elif kind == "float":
            values = [value for value in values if math.isfinite(value)]  # type: ignore[arg-type]
        if not values:
            return _NOTHING
        literals = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        if isinstance(self._columns[attribute], ListColumn):
            return f"array_contains_any({field}, [{literals}])"
        return f"{field} in [{literals}]"

    def within(self, attribute: str, low: float | None, high: float | None) -> str:
        """Return an expression for items with a number in this range."""
        field, parts = self._field(attribute), []
        nothing = f"({field} < 0 and {field} > 0)"
        for sign, bound, rounded in ((">=", low, math.ceil), ("<=", high, math.floor)):
            if bound is None:
                continue
            if math.isinf(bound):  # above all numbers, or below
                return nothing
            number: float = bound
            if self._columns[attribute].kind == "int":
                number = rounded(bound)
                if not -(2**63) <= number < 2**63:
                    if (number > 0) == (sign == ">="):
                        return nothing
                    continue
            parts.append(f"{field} {sign} {number!r}")
        return " and ".join(parts) or f"not {nothing}"

    def negate(self, clause: str) -> str:
        """Return an expression for the other items."""
        return f"not ({clause})"


def write_expression(conditions: Sequence[Condition], columns: Mapping[str, Column]) -> str:
    """Return an expression that all items meet that meet the conditions; empty if all items might.

    Conditions on attributes that are not stored are left out: what Milvus returns is checked by the client.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> columns = {"region": make_column("region", ["DE", "AT"], 2)}
    >>> some = (Condition("region", ("DE",), negated=True), Condition("tags", ("new",)))
    >>> write_expression(some, columns).replace(field_of("region"), "region")
    'not (region in ["DE"])'
    """
    stored = [one for one in conditions if one.attribute in columns]
    parts = write_conditions(stored, ExpressionWriter(columns))
    return parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
