"""Arrays of other libraries as numpy arrays or lists: torch tensors; columns and tables of polars, pandas, pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 1 << 14


class DataFrame(Protocol):
    """A data frame of polars, pandas or pyarrow, none of which is imported."""

    @property
    def columns(self) -> Any:
        """The names of the columns, or the columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""


def to_array(given: Any, what: str) -> NDArray[Any]:
    """Return a numpy array of what is given, without a copy where that is possible.

    Parameters
    ----------
    given
        Anything that numpy takes; a torch tensor of any device and float type, also one that requires grad; a column of
        lists of polars, pandas or pyarrow, one list per row; or a list of these.
    what
        The name of the argument, for messages.

    Examples
    --------
    >>> to_array([[1, 2], [3, 4]], "users").shape
    (2, 2)
    >>> to_array(np.array([[1.0], [2.0, 3.0]], dtype=object), "users")
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: users must be rows of equal length: row 0 has 1 value, row 1 has 2.
    """
    if isinstance(given, np.ndarray) and given.dtype.kind != "O":
        return given
    try:
        if is_tensor(given):
            return _from_tensor(given)
        if isinstance(given, Sequence) and len(given) and is_tensor(given[0]):
            return _stack([_from_tensor(one) for one in given], what)
        array = _from_lists_of_polars(given)
        if array is None:
            array = np.asarray(given)
    except InvalidInputError:
        raise
    except Exception as error:  # another library's: it may raise anything
        raise InvalidInputError(f"{what} cannot be read as an array of numbers in equal rows: {error}") from error
    if array.dtype.kind == "O" and array.ndim == 1 and len(array):
        return _stack(array, what)
    return array


def to_values(given: Any) -> Any:
    """Return the values of a tensor or of a column as a numpy array or a list; anything else as it is.

    Examples
    --------
    >>> import polars as pl
    >>> to_values(pl.Series([["new"], ["sale", "new"]])), to_values("other")
    ([['new'], ['sale', 'new']], 'other')
    """
    if isinstance(given, list | tuple | str | np.ndarray):
        return given
    if is_tensor(given):
        return to_array(given, "values")
    for convert in ("to_pylist", "to_list"):  # pyarrow; polars and pandas
        if callable(method := getattr(given, convert, None)):
            return method()
    return given


def to_columns(given: Any) -> Any:
    """Return a data frame as a dict of its columns; anything else as it is.

    Examples
    --------
    >>> import polars as pl
    >>> columns = to_columns(pl.DataFrame({"category": ["toys", "books"], "new": [True, False]}))
    >>> [*columns], to_columns(["toys", "books"])
    (['category', 'new'], ['toys', 'books'])
    """
    if isinstance(given, Mapping | np.ndarray | list | tuple | str):
        return given
    if callable(getattr(given, "collect", None)) and hasattr(given, "collect_schema"):  # a lazy frame of polars
        return to_columns(given.collect())
    names = getattr(given, "column_names", None)  # pyarrow
    if names is None and len(getattr(given, "shape", ())) == 2:
        names = getattr(given, "columns", None)
    if names is None:
        return given
    names = list(names)
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise InvalidInputError(f"the data frame has two columns {twice!r}: rename one of them.")
    return {name: given[name] for name in names}


def is_missing(value: object) -> bool:
    """Return whether a value stands for none: None, NaN, or the NA and NaT of pandas.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0), is_missing("")
    (True, True, False, False)
    """
    if value is None or isinstance(value, str):
        return value is None
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return type(value).__name__ in ("NAType", "NaTType")


def to_unit_length(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Return vectors (along the last axis) divided by their length, so that inner products are cosines.

    Zero vectors stay as they are, and so do vectors that have length 1 up to rounding.

    Examples
    --------
    >>> to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    made = np.array(vectors)
    flat = made.reshape(-1, vectors.shape[-1])
    tolerance = 4 * float(np.finfo(made.dtype).eps)
    for start in range(0, len(flat), _BLOCK):
        block = flat[start : start + _BLOCK].astype(np.float64)
        # Scaled first: the square of a very small or a very large value has no float64.
        scale = np.abs(block).max(axis=1, keepdims=True)
        np.divide(block, scale, out=block, where=scale > 0)
        length = np.linalg.norm(block, axis=1, keepdims=True)
        changed = (np.abs(length * scale - 1) > tolerance)[:, 0] & (scale > 0)[:, 0]
        flat[start : start + _BLOCK][changed] = (block / np.where(length > 0, length, 1))[changed]
    return made


def is_tensor(value: object) -> bool:
    """Return whether a value is a torch tensor. torch is not imported."""
    return any(one.__module__.partition(".")[0] == "torch" and one.__name__ == "Tensor" for one in type(value).__mro__)


def _from_tensor(tensor: Any) -> NDArray[Any]:
    dense = tensor.detach().to_dense()
    try:
        array: NDArray[Any] = dense.numpy(force=True)
    except TypeError:
        if not dense.is_floating_point() or dense.device.type == "meta":
            raise
        array = dense.float().numpy(force=True)  # bfloat16 and narrower, which numpy does not have
    return array


def _from_lists_of_polars(given: Any) -> NDArray[Any] | None:
    """Return a column of lists of equal length, thousands of times faster than row by row; None for anything else."""
    if type(given).__module__.partition(".")[0] != "polars" or str(getattr(given, "dtype", ""))[:5] != "List(":
        return None
    lengths = given.list.len()
    if len(given) == 0 or given.null_count() or lengths.min() != lengths.max():
        return None
    array: NDArray[Any] = given.explode().to_numpy().reshape(len(given), -1)
    return array


def _stack(rows: Sequence[Any] | NDArray[Any], what: str) -> NDArray[Any]:
    """Return rows of equal length as one array; rows that are no lists as they are."""
    if not all(isinstance(row, list | tuple | np.ndarray) for row in rows):
        return np.asarray(rows)
    lengths = [len(row) for row in rows]
    if lengths.count(lengths[0]) != len(lengths):
        other = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise InvalidInputError(
            f"{what} must be rows of equal length: row 0 has {lengths[0]} value{'' if lengths[0] == 1 else 's'}, row"
            f" {other} has {lengths[other]}."
        )
    return np.array(list(rows))
