"""Conversion of candidate lists, targets and groups to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.ragged import PADDING, Ragged

Lists: TypeAlias = npt.NDArray[Any] | Sequence[Sequence[int]] | Sequence[Sequence[str]]
"""(n, k) Items, best first: catalog rows, or ids that are all int or all str."""

Targets: TypeAlias = Ragged | npt.NDArray[Any] | Sequence[Iterable[int]] | Sequence[Iterable[str]]
"""The relevant items of each of n requests. Repeated items count once."""

Groups: TypeAlias = npt.NDArray[Any] | Sequence[Any] | Mapping[Any, Any]
"""The label of each item: a sequence if lists hold catalog rows, else a mapping from id to label."""


def as_lists(lists: Lists, k: int | None) -> npt.NDArray[Any]:
    """Return the first k items of each list as an array, or all items if k is None.

    Examples
    --------
    >>> as_lists([[3, 1, 2], [5, 3, 4]], k=2).tolist()
    [[3, 1], [5, 3]]
    """
    array = lists if isinstance(lists, np.ndarray) else np.asarray(lists, dtype=object)
    if array.ndim != 2:
        raise InvalidInputError(
            "lists must be (n, k): one list of k items for each request. Fill up shorter ones with -1, which is no row."
        )
    if array.size == 0:
        raise InvalidInputError(f"lists are empty (shape {array.shape}): give at least one list with one item.")
    if k is not None and check_positive(k, "k") > array.shape[1]:
        raise InvalidInputError(f"k is {k}, but the lists have {array.shape[1]} items: retrieve more, or lower k.")
    return _as_items(array[:, :k], "lists")


def as_targets(targets: Targets, like: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the distinct targets of all requests as (request, item) pairs in two arrays, sorted by request.

    Examples
    --------
    >>> rows, items = as_targets([[7, 5, 7], [], [5]], like=np.zeros((3, 1), dtype=np.int64))
    >>> rows.tolist(), items.tolist()
    ([0, 0, 2], [5, 7, 5])
    """
    if isinstance(targets, Ragged):
        lengths, items = targets.lengths, targets.items
    else:
        if any(isinstance(one, str) or not isinstance(one, Iterable) for one in targets):
            raise InvalidInputError("targets must be one list for each request: write [[7], [5]] instead of [7, 5].")
        parts = [list(one) for one in targets]
        lengths = np.array([len(one) for one in parts], dtype=np.int64)
        items = _as_items(np.array([item for one in parts for item in one], dtype=object), "targets")
    if len(lengths) != len(like):
        raise InvalidInputError(f"there are {len(like)} lists and {len(lengths)} targets: give one for each request.")
    if len(items) == 0:
        raise InvalidInputError("no request has a target: there is nothing to find.")
    if (items.dtype.kind == "U") != (like.dtype.kind == "U"):
        raise InvalidInputError(
            f"lists hold {like.flat[0]!r} and targets {items[0]!r}: use rows in both, or the same ids in both."
        )
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if items.dtype.kind != "U":  # a rectangular array of targets may be padded
        rows, items = rows[items != PADDING], items[items != PADDING]
    order = np.lexsort((items, rows))
    rows, items = rows[order], items[order]
    is_new = np.ones(len(rows), dtype=np.bool_)
    is_new[1:] = (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])
    return rows[is_new], items[is_new]


def group_codes(lists: npt.NDArray[Any], groups: Groups) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return (n, k) the code of each item's group, -1 for padding, and the labels by code.

    Examples
    --------
    >>> codes, labels = group_codes(np.array([[2, 0, -1]]), ["toys", "books", "books"])
    >>> codes.tolist(), labels
    ([[0, 1, -1]], ['books', 'toys'])
    """
    given = list(groups.values()) if isinstance(groups, Mapping) else groups
    array = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    labels, code_of = np.unique(_as_items(array, "groups"), return_inverse=True)
    if isinstance(groups, Mapping):
        code_of_id = {PADDING: -1, **dict(zip(groups, code_of.tolist(), strict=True))}
        try:
            codes = np.fromiter(map(code_of_id.__getitem__, lists.ravel().tolist()), dtype=np.int64, count=lists.size)
        except KeyError as error:
            raise InvalidInputError(
                f"item {error.args[0]!r} is shown but has no group: give every item its label."
            ) from None
        return codes.reshape(lists.shape), labels.tolist()
    if lists.dtype.kind == "U":
        raise InvalidInputError("lists hold ids: give groups as a mapping from id to label.")
    if lists.min() < PADDING or lists.max() >= len(code_of):
        raise InvalidInputError(
            f"lists hold rows from {lists.min()} to {lists.max()}, but groups are of {len(code_of)} items: give the"
            " label of every row, or, if these are ids, a mapping from id to label."
        )
    return np.append(code_of, -1)[lists], labels.tolist()  # PADDING, which is -1, indexes the last entry


def _as_items(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """Return items or labels as int or str. Mixed types are refused, because numpy would convert 1 to "1"."""
    if array.dtype.kind in "iuU":
        return array
    kinds = set(map(type, array.ravel().tolist()))
    if all(issubclass(kind, str) for kind in kinds):
        return array.astype(str)
    if array.dtype.kind == "O" and all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return array.astype(np.int64)
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise InvalidInputError(f"{what} must be all int or all str, got {names}: convert them.")
