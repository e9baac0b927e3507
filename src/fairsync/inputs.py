"""Validation of arguments: each check returns the value in its standard form, or says what is wrong with it."""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog import LARGEST_VALUE, Catalog
from fairsync.catalog.arrays import to_array, to_unit_length
from fairsync.catalog.groups import Grouped
from fairsync.errors import InvalidInputError


def check_catalog(catalog: object) -> Catalog:
    """Return a catalog, or say what was given in its place."""
    if not isinstance(catalog, Catalog):
        raise InvalidInputError(
            f"this needs a fairsync.Catalog, got {type(catalog).__name__}: Catalog(embeddings, groups) makes one."
        )
    return catalog


def check_users(users: npt.ArrayLike, catalog: Catalog, what: str = "users") -> npt.NDArray[np.floating[Any]]:
    """Return user vectors as (n, interests, d) floats, or say what is wrong with them.

    They are divided by their length if the catalog's relevance is the cosine. ``what`` is their name in messages.

    Examples
    --------
    >>> catalog = Catalog(np.eye(8), list(range(8)))
    >>> check_users(np.ones((5, 8), dtype=np.float32), catalog).shape
    (5, 1, 8)
    >>> check_users(np.ones((5, 4, 8)), catalog).shape
    (5, 4, 8)
    >>> check_users(np.ones(8), catalog).shape
    (1, 1, 8)
    """
    shapes = "(n, d) or (n, interests, d), or (d,) for one request"
    array, catalog = to_array(users, what), check_catalog(catalog)
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InvalidInputError(f"{what} must be float16, float32 or float64, got dtype {array.dtype}.")
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim not in (2, 3):
        raise InvalidInputError(f"{what} must be {shapes}, got shape {array.shape}.")
    if array.shape[-1] != catalog.dim:
        raise InvalidInputError(f"{what} have {array.shape[-1]} dimensions, but the items have {catalog.dim}.")
    if array.ndim == 2:
        array = array[:, None, :]
    if array.shape[1] == 0:
        raise InvalidInputError(f"{what} have no interest vectors: each request needs at least one.")
    largest = float(np.abs(array).max(initial=0.0))
    if largest <= LARGEST_VALUE:  # false for NaN, too
        return to_unit_length(array) if catalog.normalized else array
    is_finite = np.isfinite(array).all(axis=(1, 2))
    bad = np.flatnonzero((np.abs(array) > LARGEST_VALUE).any(axis=(1, 2)) if is_finite.all() else ~is_finite)
    which = f"the vector of request {bad[0]}{f' (and {len(bad) - 1} others)' if len(bad) > 1 else ''}"
    if not is_finite.all():
        raise InvalidInputError(f"{which} has a NaN or an infinite value.")
    raise InvalidInputError(f"{which} has a value of {largest:g}: scale {what} below {LARGEST_VALUE:g}.")


def check_seconds(value: object, what: str, *, above: float = -1e-300) -> float:
    """Return a time in seconds above a bound, infinity included, or say what is wrong with it.

    Examples
    --------
    >>> check_seconds("x", "save_seconds")
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: save_seconds must be a number of seconds, 0 or more, got 'x'.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not float(value) > above:
        least = "above 0" if above >= 0 else "0 or more"
        raise InvalidInputError(f"{what} must be a number of seconds, {least}, got {value!r}.")
    return float(value)


def check_positive(value: object, what: str) -> int:
    """Return a whole number above 0, or say what is wrong with it.

    Examples
    --------
    >>> check_positive(np.int64(3), "horizon")
    3
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < 1:
        raise InvalidInputError(f"{what} must be a whole number, 1 or more, got {value!r}.")
    if int(value) > 2**40:
        raise InvalidInputError(f"{what} is {value}: more than can be counted; choose 2^40 at most.")
    return int(value)


def check_k(k: object, catalog: Grouped) -> int:
    """Return the number of candidates per request, or say what is wrong with it."""
    number = check_positive(k, "k")
    if number > len(catalog):
        raise InvalidInputError(f"k is {number}, but the catalog has only {len(catalog)} items: choose a smaller k.")
    return number


def check_floors(floors: Any) -> Any:
    """Return floors as a number or a dict; a pandas Series has them by the labels of its index.

    Examples
    --------
    >>> import pandas as pd
    >>> check_floors(pd.Series({"toys": 5, "books": 7})), check_floors(3)
    ({'toys': 5, 'books': 7}, 3)
    """
    if isinstance(floors, Mapping) or not callable(pairs := getattr(floors, "items", None)):
        return floors
    by_label: dict[object, object] = {}
    for label, floor in pairs():
        if label in by_label:
            raise InvalidInputError(f"floors name the group {label!r} twice: give each one floor.")
        by_label[label] = floor
    return by_label


def check_max_exclude(value: object, k: int, catalog: Grouped) -> int:
    """Return the declared number of excluded items, or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or int(value) < 0:
        raise InvalidInputError(f"max_exclude must be a whole number of items, 0 or more, got {value!r}.")
    if len(catalog) - int(value) < k:
        raise InvalidInputError(
            f"max_exclude is {value}: of {len(catalog)} items that leaves {max(len(catalog) - int(value), 0)}, fewer"
            f" than k = {k}. Declare fewer."
        )
    return int(value)


def check_counts(counts: npt.ArrayLike, n_groups: int) -> npt.NDArray[np.int64]:
    """Return counts by group as int64, or say what is wrong with them.

    Examples
    --------
    >>> check_counts([3, 0], 2)
    array([3, 0])
    """
    try:
        array = np.asarray(counts)
    except ValueError as error:
        raise InvalidInputError(f"counts must be one whole number per group: {error}") from None
    if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) > n_groups or (array < 0).any():
        raise InvalidInputError(f"counts must be whole numbers, 0 or more, for {n_groups} groups, got {counts!r:.80}.")
    return array.astype(np.int64)


def check_request_ids(request_ids: object, n: int) -> list[str | None]:
    """Return the request ids of n requests as a list, or say what is wrong with them.

    Examples
    --------
    >>> check_request_ids(None, 2), check_request_ids(("a", None), 2)
    ([None, None], ['a', None])
    """
    if request_ids is None:
        return [None] * n
    if isinstance(request_ids, str | bytes) or not isinstance(request_ids, Iterable):
        raise InvalidInputError(f"request_ids must be a list, one for each request, got {request_ids!r:.80}.")
    ids = list(request_ids)
    if len(ids) != n:
        raise InvalidInputError(f"there are {n} requests, and {len(ids)} request_ids.")
    for request_id in ids:
        if not isinstance(request_id, str | None):
            raise InvalidInputError(f"a request id must be a string or None, got {request_id!r:.80}.")
    return ids
