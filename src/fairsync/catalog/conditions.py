"""Conditions on the attributes of items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.catalog.attributes import LabelColumn, ListColumn, NumberColumn
from fairsync.errors import InvalidInputError
from fairsync.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import AttributeLabel, Column
    from fairsync.catalog.selection import Bounds

Where: TypeAlias = Mapping[str, Any]
"""Conditions by attribute, all of which an item must meet: a value, a list of values (one of them), ``{"not": value or
list}``, or a range ``{"at_least": number, "at_most": number}``. The name ``"id"`` stands for the ids of items."""

ITEM_ID = "id"
"""The name under which conditions speak of the ids of items."""

_RANGE = ("at_least", "at_most")
_ALL = slice(None)


@dataclass(frozen=True)
class IdColumn:
    """The ids of the items of a catalog, for conditions on them.

    Attributes
    ----------
    kind : str
        The type of the ids: ``"str"`` or ``"int"``.
    rows_of : callable
        Returns the row of each id in an array, -1 for an unknown one.
    n : int
        The number of items.
    """

    kind: str
    rows_of: Callable[[NDArray[Any]], NDArray[np.int64]]
    n: int

    def __len__(self) -> int:
        return self.n


@dataclass(frozen=True)
class Condition:
    """A condition on one attribute, in its standard form.

    Attributes
    ----------
    attribute : str
        The name of the attribute.
    values : tuple
        The values, of which an item must have one. Empty for a range.
    negated : bool
        Whether an item must have none of the values instead.
    low, high : float
        The range that an item's number must lie in, bounds included.
    """

    attribute: str
    values: tuple[AttributeLabel | float, ...] = ()
    negated: bool = False
    low: float = -math.inf
    high: float = math.inf

    @property
    def given(self) -> Any:
        """The condition as a caller may give it for its attribute.

        Examples
        --------
        >>> Condition("region", ("AT", "DE"), negated=True).given, Condition("price", high=50.0).given
        ({'not': ['AT', 'DE']}, {'at_least': -inf, 'at_most': 50.0})
        """
        if self.values:
            return {"not": list(self.values)} if self.negated else list(self.values)
        return {"at_least": self.low, "at_most": self.high}


def parse_conditions(where: Where, columns: Mapping[str, Column | IdColumn]) -> tuple[Condition, ...]:
    """Return conditions in a standard form: equal conditions in different words give the same. Raise for others.

    Parameters
    ----------
    where
        The conditions.
    columns
        The attributes of the catalog, and perhaps its ids.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> columns = {"region": make_column("region", ["DE", "AT"], 2)}
    >>> parse_conditions({"region": ["DE", "AT", "DE"]}, columns) == parse_conditions({"region": ["AT", "DE"]}, columns)
    True
    """
    if not isinstance(where, Mapping):
        raise InvalidInputError(f'a condition must be a dict such as {{"region": "DE"}}, got {where!r:.80}.')
    unknown = [name for name in where if name not in columns]
    if unknown:
        raise no_attribute(unknown[0], columns)
    return tuple(_parse(name, where[name], columns[name]) for name in sorted(where))


def no_attribute(name: object, columns: Iterable[str]) -> InvalidInputError:
    """Return the error for a name that is none of the attributes."""
    hint = did_you_mean(str(name), columns, f"There are {', '.join(map(repr, columns))}.")
    return InvalidInputError(f"there is no attribute {name!r}. {hint}")


def unknown_label(where: Where, columns: Mapping[str, Column | IdColumn]) -> str | None:
    """Return a sentence about the first label of conditions that no item has, with close ones; None if items have all.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> unknown_label({"region": "DR"}, {"region": make_column("region", ["DE", "AT"], 2)})
    "no item has 'DR' as its 'region'. There are 2 labels, such as 'AT', 'DE'."
    """
    for condition in parse_conditions(where, columns):
        column = columns[condition.attribute]
        if isinstance(column, IdColumn) and condition.values and not condition.negated:
            lost = [one for one, row in zip(condition.values, _rows(condition, column), strict=True) if row < 0]
            if lost:
                return f"no item has the id {lost[0]!r}."
        if not isinstance(column, LabelColumn | ListColumn):
            continue
        for value in condition.values:
            if value not in column.code_of:
                return f"no item has {value!r} as its {condition.attribute!r}.{_hint(value, column.labels)}"
    return None


def _hint(value: object, known: Sequence[object]) -> str:
    by_text = {str(label).casefold(): label for label in known}
    close = get_close_matches(str(value).casefold(), by_text, n=2, cutoff=0.7)
    if close:
        return f" Did you mean {' or '.join(repr(by_text[text]) for text in close)}?"
    return f" There are {len(known)} labels, such as {', '.join(map(repr, known[:3]))}." if known else ""


def _rows(condition: Condition, column: IdColumn) -> list[int]:
    """Return the rows of the items with the ids of a condition, -1 for unknown ids."""
    rows: list[int] = column.rows_of(np.array(condition.values)).tolist()
    return rows


def _parse(name: str, given: Any, column: Column | IdColumn) -> Condition:
    if not isinstance(given, Mapping):
        return Condition(name, _values(name, given, column))
    keys = set(given)
    if keys == {"not"}:
        return Condition(name, _values(name, given["not"], column), negated=True)
    if not keys or not keys <= set(_RANGE):
        unknown = [str(key) for key in given if key not in (*_RANGE, "not")]
        hint = did_you_mean(unknown[0], (*_RANGE, "not"), "") if unknown else ""
        raise InvalidInputError(
            f"the condition on {name!r} must be a value, a list, {{'not': ...}}, or a range with 'at_least' and"
            f" 'at_most', got {dict(given)!r:.80}. {hint}".rstrip()
        )
    if isinstance(column, ListColumn | IdColumn) or column.kind not in ("int", "float"):
        raise InvalidInputError(f"{name!r} has no numbers, so that it has no range: give a value or a list.")
    bounds = {key: _number(name, key, value) for key, value in given.items()}
    return Condition(name, low=bounds.get("at_least", -math.inf), high=bounds.get("at_most", math.inf))


def _number(name: str, key: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or value != value:
        raise InvalidInputError(f"{key!r} of {name!r} must be a number, got {value!r:.80}.")
    return _as_float(name, value)


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InvalidInputError(f"the condition on {name!r} has a number that is too large.") from None


def _values(name: str, given: Any, column: Column | IdColumn) -> tuple[AttributeLabel | float, ...]:
    many = isinstance(given, list | tuple | set | frozenset | np.ndarray)
    values = [one.item() if isinstance(one, np.generic) else one for one in (given if many else [given])]
    if not values:
        raise InvalidInputError(f"the condition on {name!r} has an empty list, which no item meets: leave it out.")
    allowed = {"float": (float, int), "": (str, int, bool)}.get(column.kind, (_TYPES.get(column.kind, str),))
    for value in values:
        # A bool is an int to Python, but True and 1 are different labels.
        if type(value) not in allowed or (isinstance(value, float) and math.isnan(value)):
            raise InvalidInputError(
                f"{name!r} has {column.kind} values, and the condition has {value!r:.80}: convert it."
            )
    if column.kind == "float":
        values = [_as_float(name, value) for value in values]
    return tuple(sorted(set(values)))


_TYPES = {"str": str, "int": int, "bool": bool}


def meets(condition: Condition, column: Column | IdColumn, rows: NDArray[np.int64] | slice = _ALL) -> NDArray[np.bool_]:
    """Return whether each of some items, or of all, meets a condition, given the values of the attribute.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> meets(Condition("price", low=4.0), make_column("price", [9.5, 3.0, 4.0], 3)).tolist()
    [True, False, True]
    """
    mask: NDArray[np.bool_]
    bounds = bounds_of(condition, column)
    if bounds is not None:
        values, low, high = bounds
        mask = _within(values[rows], low, high)
    elif isinstance(column, IdColumn):
        mask = np.zeros(column.n, dtype=bool)
        mask[[row for row in _rows(condition, column) if row >= 0]] = True
        mask = mask[rows]
    elif isinstance(column, NumberColumn):
        mask = np.isin(column.numbers[rows], condition.values)
    else:
        if condition.values:
            wanted = np.zeros(len(column.labels), dtype=bool)
            wanted[[code for code in _codes(condition, column) if code >= 0]] = True
        else:
            assert isinstance(column, LabelColumn)
            wanted = _within(column.label_numbers, condition.low, condition.high)
        if isinstance(column, LabelColumn):
            mask = np.take(wanted, column.codes[rows], mode="clip")
        else:
            part = column if rows is _ALL else column.take(rows)
            mask = np.zeros(len(part), dtype=bool)
            mask[np.searchsorted(part.offsets, np.flatnonzero(wanted[part.codes]), side="right") - 1] = True
    return ~mask if condition.negated else mask


def bounds_of(condition: Condition, column: Column | IdColumn) -> Bounds | None:
    """Return the bounds of one value of each item that say whether it meets a condition; None if others say it.

    If the condition is negated, items beyond the bounds meet it.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> bounds_of(Condition("region", ("DE",)), make_column("region", ["DE", "AT"], 2))
    (array([1, 0], dtype=int32), 1, 1)
    """
    if isinstance(column, LabelColumn) and len(condition.values) == 1:
        code = _codes(condition, column)[0]
        return column.codes, code, code
    if isinstance(column, NumberColumn) and not condition.values:
        return column.numbers, condition.low, condition.high
    return None


def _codes(condition: Condition, column: LabelColumn | ListColumn) -> list[int]:
    """Return the codes of the labels of a condition, -1 for labels that no item has."""
    return [column.code_of.get(value, -1) for value in condition.values]  # type: ignore[arg-type]


def _within(values: NDArray[Any], low: float, high: float) -> NDArray[np.bool_]:
    """Return which values lie in a range. A bound that is not given takes no time."""
    within: NDArray[np.bool_]
    if low == high:
        within = values == low
    elif low == -math.inf:
        within = values <= high
    else:
        within = values >= low
        if high < math.inf:
            within &= values <= high
    return within
