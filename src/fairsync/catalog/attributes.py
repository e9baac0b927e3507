"""Attributes of items as compact columns: one label per item, several labels per item, or one number per item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.catalog.arrays import is_missing, to_values
from fairsync.catalog.names import check_names
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

AttributeLabel: TypeAlias = str | int | bool
"""A label of an attribute. All labels of one attribute are of the same type."""

_ALLOWED = "all str, all int, all bool or all float, or lists of labels"
_NO_NUMBER = "give every item one, or leave the attribute out, because a number cannot be missing"


@dataclass(frozen=True)
class LabelColumn:
    """One label per item.

    Attributes
    ----------
    codes : numpy.ndarray
        (n,) int32, the position of each item's label in ``labels``.
    labels : list
        The labels: all str, all int, or all bool.

    Examples
    --------
    >>> column = make_column("region", ["DE", "AT", "DE"], 3)
    >>> column.codes.tolist(), column.labels, column.values()
    ([1, 0, 1], ['AT', 'DE'], ['DE', 'AT', 'DE'])
    """

    codes: NDArray[np.int32]
    labels: list[AttributeLabel]

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def code_of(self) -> dict[AttributeLabel, int]:
        """The code of each label."""
        return {label: code for code, label in enumerate(self.labels)}

    @cached_property
    def label_numbers(self) -> NDArray[np.float64]:
        """The labels as numbers, if they are numbers."""
        return np.array(self.labels, dtype=np.float64)

    @property
    def kind(self) -> str:
        """The type of the labels: ``"str"``, ``"int"`` or ``"bool"``."""
        return _kind_of(self.labels)

    def take(self, rows: NDArray[np.integer]) -> LabelColumn:
        """Return the column of some items."""
        return LabelColumn(self.codes[rows], self.labels)

    def put(self, rows: NDArray[np.integer], given: LabelColumn, n: int) -> LabelColumn:
        """Return a column of n items in which these rows have the given labels, and others keep theirs."""
        labels, places = _join_labels(self.labels, given.labels)
        codes = np.zeros(n, dtype=np.int32)
        codes[: len(self)] = self.codes
        codes[rows] = places[given.codes]
        return LabelColumn(codes, labels)

    def values(self) -> list[Any]:
        """Return the label of each item."""
        return [self.labels[code] for code in self.codes.tolist()]


@dataclass(frozen=True)
class ListColumn:
    """Several labels per item, or none.

    Attributes
    ----------
    codes : numpy.ndarray
        int32, positions in ``labels``, item by item.
    offsets : numpy.ndarray
        (n + 1,) int64: the labels of item i are ``codes[offsets[i] : offsets[i + 1]]``.
    labels : list
        The labels: all str, all int, or all bool.

    Examples
    --------
    >>> make_column("tags", [["new", "sale"], [], ["new"]], 3).values()
    [['new', 'sale'], [], ['new']]
    """

    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels: list[AttributeLabel]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def code_of(self) -> dict[AttributeLabel, int]:
        """The code of each label."""
        return {label: code for code, label in enumerate(self.labels)}

    @property
    def kind(self) -> str:
        """The type of the labels: ``"str"``, ``"int"`` or ``"bool"``."""
        return _kind_of(self.labels)

    def take(self, rows: NDArray[np.integer] | slice) -> ListColumn:
        """Return the column of some items."""
        starts = self.offsets[:-1][rows]
        lengths = self.offsets[1:][rows] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return ListColumn(self.codes[at], offsets, self.labels)

    def put(self, rows: NDArray[np.integer], given: ListColumn, n: int) -> ListColumn:
        """Return a column of n items in which these rows have the given labels, and others keep theirs."""
        labels, places = _join_labels(self.labels, given.labels)
        both = ListColumn(
            np.concatenate([self.codes, places[given.codes]]).astype(np.int32),
            np.concatenate([self.offsets, self.offsets[-1] + given.offsets[1:]]),
            labels,
        )
        source = np.arange(n)
        source[rows] = len(self) + np.arange(len(rows))
        return both.take(source)

    def values(self) -> list[Any]:
        """Return the list of labels of each item."""
        names = [self.labels[code] for code in self.codes.tolist()]
        edges = self.offsets.tolist()
        return [names[start:stop] for start, stop in pairwise(edges)]


@dataclass(frozen=True)
class NumberColumn:
    """One number per item.

    Attributes
    ----------
    numbers : numpy.ndarray
        (n,) float64, finite.

    Examples
    --------
    >>> make_column("price", [9.5, 3.0], 2).values()
    [9.5, 3.0]
    """

    numbers: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def kind(self) -> str:
        """The type of the values."""
        return "float"

    def take(self, rows: NDArray[np.integer]) -> NumberColumn:
        """Return the column of some items."""
        return NumberColumn(self.numbers[rows])

    def put(self, rows: NDArray[np.integer], given: NumberColumn, n: int) -> NumberColumn:
        """Return a column of n items in which these rows have the given numbers, and others keep theirs."""
        numbers = np.zeros(n)
        numbers[: len(self)] = self.numbers
        numbers[rows] = given.numbers
        return NumberColumn(numbers)

    def values(self) -> list[Any]:
        """Return the number of each item."""
        numbers: list[Any] = self.numbers.tolist()
        return numbers


Column: TypeAlias = LabelColumn | ListColumn | NumberColumn


def make_column(name: str, given: Any, n: int) -> Column:
    """Return the values of an attribute as a column, or say what is wrong with them.

    Parameters
    ----------
    name
        The name of the attribute, for messages.
    given
        n labels (str, int or bool), n lists of labels, n floats, or a column. An item without a value (None, NaN) has
        no label: if there are such items, the attribute has a list of labels for each item.
    n
        The number of items.
    """
    what = f"attribute {name!r}"
    if isinstance(given, LabelColumn | ListColumn | NumberColumn) and len(given) == n:
        return given
    given = to_values(given)
    if isinstance(given, str | bytes | Set | Mapping) or not isinstance(given, Iterable):
        raise InvalidInputError(f"{what} must have {n} values in the order of the items, got {given!r:.80}.")
    array = given if isinstance(given, np.ndarray) else None
    values: Any = list(given) if array is None else array
    if len(values) != n:
        raise InvalidInputError(f"{what} must have {n} values, one per item, got {len(values)}.")
    if array is not None and array.ndim == 1 and array.dtype.kind in "fb":
        return _numbers(what, array) if array.dtype.kind == "f" else _labels(what, array)
    if array is not None and array.ndim == 1 and array.dtype.kind in "iuU":
        return _labels(what, array)
    values = [_plain(value) for value in (values if array is None else array.tolist())]
    missing = [is_missing(value) for value in values]
    if any(missing):
        return _without_some(what, values, missing)
    if values and all(isinstance(value, list) for value in values):
        return _lists(what, values)
    kinds = {type(value) for value in values}
    if float in kinds and kinds <= {float, int}:
        return _numbers(what, np.array(values, dtype=np.float64))
    return _labels(what, values)


def as_lists(column: Column) -> Column:
    """Return one label per item as a list of one label per item; other columns as they are.

    Examples
    --------
    >>> as_lists(make_column("region", ["DE", "AT"], 2)).values()
    [['DE'], ['AT']]
    """
    if isinstance(column, LabelColumn):
        return ListColumn(column.codes, np.arange(len(column) + 1, dtype=np.int64), column.labels)
    return column


def first_without_label(given: Any) -> int | None:
    """Return the first position without a label where items have one each; None if there is none.

    Examples
    --------
    >>> first_without_label(["a", None]), first_without_label(["a", "b"]), first_without_label([["a"], []])
    (1, None, None)
    """
    if isinstance(given, LabelColumn | ListColumn | NumberColumn):
        return None
    values = to_values(given)
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if any(isinstance(_plain(value), list) for value in values):
        return None
    return next((at for at, value in enumerate(values) if is_missing(value)), None)


def _without_some(what: str, values: list[Any], missing: list[bool]) -> ListColumn:
    """Return the column of values some of which are missing: their items have no label."""
    known = [value for value, is_none in zip(values, missing, strict=True) if not is_none]
    kinds, at = {type(value) for value in known}, missing.index(True)
    if float in kinds and kinds <= {float, int}:
        raise InvalidInputError(f"{what} has no number in position {at}: {_NO_NUMBER}.")
    if kinds == {list}:
        return _lists(what, [[] if is_none else value for value, is_none in zip(values, missing, strict=True)])
    # A known label stands in for those that are missing, so that errors name positions in the whole column.
    usual = known[0] if kinds == {bool} else next((one for one in known if type(one) in (str, int)), "")
    labels = _labels(what, [usual if is_none else one for one, is_none in zip(values, missing, strict=True)])
    present = ~np.array(missing)
    offsets = np.concatenate([[0], np.cumsum(present)])
    return ListColumn(labels.codes[present], offsets, labels.labels if known else [])


def _lists(what: str, values: list[list[Any]]) -> ListColumn:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    flat = _labels(what, [_plain(label) for one in values for label in one], one="label")
    return ListColumn(flat.codes, np.concatenate([[0], np.cumsum(lengths)]), flat.labels)


def same_kind(name: str, given: Column, known: Column) -> None:
    """Raise if new values of an attribute are of another kind than the values that it has.

    Examples
    --------
    >>> same_kind("new", make_column("new", [True], 1), make_column("new", ["yes"], 1))
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: attribute 'new' has one str per item, and these are bool: convert them.
    """
    if isinstance(known, ListColumn) != isinstance(given, ListColumn) or not _is_like(given.kind, known.kind):
        shape = "lists of" if isinstance(known, ListColumn) else "one"
        held = "lists of " if isinstance(given, ListColumn) else ""
        each = " per item" if shape == "one" else ""
        raise InvalidInputError(
            f"attribute {name!r} has {shape} {known.kind}{each}, and these are {held}{given.kind}: convert them."
        )


def as_numbers(column: Column) -> Column:
    """Return whole numbers as numbers, for an attribute that has numbers; other columns as they are.

    Examples
    --------
    >>> as_numbers(make_column("price", [3, 5], 2)).values()
    [3.0, 5.0]
    """
    if isinstance(column, LabelColumn) and column.kind == "int":
        return NumberColumn(np.array(column.labels, dtype=np.float64)[column.codes])
    return column


def _is_like(given: str, known: str) -> bool:
    return "" in (given, known) or given == known


def _kind_of(labels: Sequence[AttributeLabel]) -> str:
    return type(labels[0]).__name__ if labels else ""


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple | set | frozenset) else value


def _numbers(what: str, array: NDArray[Any]) -> NumberColumn:
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        at = int(np.flatnonzero(~np.isfinite(numbers))[0])
        if np.isnan(numbers[at]):
            raise InvalidInputError(f"{what} has no number in position {at} (NaN): {_NO_NUMBER}.")
        raise InvalidInputError(f"{what} holds {numbers[at]} in position {at}: give every item a finite number.")
    return NumberColumn(numbers)


def _labels(what: str, given: Any, one: str = "value") -> LabelColumn:
    array = given if isinstance(given, np.ndarray) else None
    is_bool = array.dtype.kind == "b" if array is not None else bool(given) and all(type(v) is bool for v in given)
    if is_bool:
        return LabelColumn(np.asarray(given).astype(np.int32), [False, True])
    names, codes = np.unique(check_names(given, None, f"values of {what}", one, _ALLOWED), return_inverse=True)
    return LabelColumn(codes.astype(np.int32), names.tolist())


def _join_labels(
    known: list[AttributeLabel], given: list[AttributeLabel]
) -> tuple[list[AttributeLabel], NDArray[np.int32]]:
    """Return the labels of both, known ones first, and the place of each given one among them."""
    place = {label: code for code, label in enumerate(known)}
    for label in given:
        place.setdefault(label, len(place))
    return list(place), np.array([place[label] for label in given], dtype=np.int32)
