"""Conditions and excluded items as expressions of Milvus."""

import math
from collections.abc import Callable, Mapping, Sequence

from fairsync.catalog.attributes import AttributeLabel, Column, ListColumn
from fairsync.catalog.groups import Label

# What a string literal cannot hold as it is. Milvus Lite knows no escapes by number.
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def literal(value: AttributeLabel | Label | float) -> str:
    r"""Return a value as it is written in an expression.

    Examples
    --------
    >>> print(literal('say "hi" \\'), literal(True), literal(2.5))
    "say \"hi\" \\" true 2.5
    """
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def among(field: str, values: Sequence[Label]) -> str:
    """Return an expression for items with one of these values in a field.

    Examples
    --------
    >>> among("id", ["a", "b"])
    'id in ["a", "b"]'
    """
    return f"{field} in [{', '.join(map(literal, values))}]"


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
    >>> writer = ExpressionWriter({"size": make_column("size", [1, 2], 2)}, str)
    >>> writer.within("size", 1.5, None), writer.one_of("size", (1, 2))
    ('size >= 2', 'size in [1, 2]')
    """

    def __init__(self, columns: Mapping[str, Column], field: Callable[[str], str]) -> None:
        self._columns, self._field = columns, field

    def one_of(self, attribute: str, values: Sequence[AttributeLabel | float]) -> str:
        """Return an expression for items with one of these values."""
        column, field = self._columns[attribute], self._field(attribute)
        if column.kind == "int":
            values = [int(value) for value in values if value == int(value) and _is_written(value)]
        if not values:
            return self._nothing(attribute)
        if isinstance(column, ListColumn):
            return f"array_contains_any({field}, [{', '.join(map(literal, values))}])"
        return among(field, values)  # type: ignore[arg-type]

    def within(self, attribute: str, low: float | None, high: float | None) -> str:
        """Return an expression for items with a number in this range."""
        field, parts = self._field(attribute), []
        for sign, bound, rounded in ((">=", low, math.ceil), ("<=", high, math.floor)):
            if bound is None:
                continue
            if math.isinf(bound):  # above all numbers, or below
                return self._nothing(attribute)
            number: float = bound
            if self._columns[attribute].kind == "int":
                number = rounded(bound)
                if not _is_written(number):
                    if (number > 0) == (sign == ">="):
                        return self._nothing(attribute)
                    continue
            parts.append(f"{field} {sign} {number!r}")
        return " and ".join(parts) or self.negate(self._nothing(attribute))

    def negate(self, clause: str) -> str:
        """Return an expression for the other items."""
        return f"not ({clause})"

    def _nothing(self, attribute: str) -> str:
        """Return an expression that no item meets."""
        column, field = self._columns[attribute], self._field(attribute)
        if isinstance(column, ListColumn):
            return f"array_length({field}) < 0"
        if column.kind == "bool":
            return f"({field} == true and {field} == false)"
        empty, low = ('""', '""') if column.kind == "str" else ("0", "0")
        return f"({field} < {low} and {field} > {empty})"


def _is_written(number: float | str) -> bool:
    """Return whether Milvus reads this integer: it takes the sign for an operator, so that -2**63 is out of range."""
    return isinstance(number, str) or -(2**63) < number < 2**63
