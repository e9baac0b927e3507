"""A cache of the items that meet conditions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.conditions import IdColumn, meets, parse_conditions
from fairsync.catalog.lazy_selection import LazySelection
from fairsync.catalog.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column
    from fairsync.catalog.conditions import Condition, Where

CACHE_BYTES = 1 << 26
"""The most memory that the cached selections of one catalog take together, in bytes."""

# Approximate memory of an entry of the cache beside the selection's arrays, and of each value of a condition, in bytes.
_ENTRY_BYTES, _VALUE_BYTES = 1_000, 100
# With fewer items all are compared about as fast as a few are looked up.
_FEW_ITEMS = 1 << 14
_SAMPLE = 512


def _size(conditions: tuple[Condition, ...], selection: Selection) -> int:
    """Return the memory of an entry of the cache: in a small catalog the conditions take more than the selection."""
    values = [value for one in conditions for value in one.values]
    letters = sum(4 * len(value) for value in values if isinstance(value, str))
    return _ENTRY_BYTES * len(conditions) + _VALUE_BYTES * len(values) + letters + selection.nbytes


class ConditionCache:
    """The selections of the conditions that were used last, up to a number of bytes.

    It belongs to one catalog, which never changes: a changed catalog is another one, with an empty cache. It is
    thread-safe.

    Parameters
    ----------
    columns
        The attributes of the catalog, and perhaps its ids.
    most_bytes
        The most memory that the selections and their conditions take. The last one is kept in any case.

    Examples
    --------
    >>> from fairsync.catalog.attributes import make_column
    >>> cache = ConditionCache({"region": make_column("region", ["DE", "AT", "DE"], 3)})
    >>> cache.select({"region": "DE"}), cache.select({"region": ["DE"]}) is cache.select({"region": "DE"})
    (Selection(2 of 3 items), True)
    """

    def __init__(self, columns: Mapping[str, Column | IdColumn], most_bytes: int = CACHE_BYTES) -> None:
        self._columns, self._most_bytes = columns, most_bytes
        self._kept: OrderedDict[tuple[Condition, ...], tuple[Selection, int]] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()
        self._sample: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def select(self, where: Where) -> Selection | None:
        """Return the items that meet all conditions; None where there are none."""
        conditions = parse_conditions(where, self._columns)
        if not conditions:
            return None
        with self._lock:
            found = self._kept.get(conditions)
            if found is not None:
                self._kept.move_to_end(conditions)
                return found[0]
        made = self._evaluate(conditions)
        size = _size(conditions, made)
        with self._lock:
            found = self._kept.setdefault(conditions, (made, size))
            if found[0] is made:
                self._bytes += size
                while self._bytes > self._most_bytes and len(self._kept) > 1:
                    self._bytes -= self._kept.popitem(last=False)[1][1]
        return found[0]

    def _evaluate(self, conditions: tuple[Condition, ...]) -> Selection:
        columns = [self._columns[one.attribute] for one in conditions]
        attributes = [column for column in columns if not isinstance(column, IdColumn)]
        n = len(columns[0])
        if n < _FEW_ITEMS or len(attributes) < len(columns):
            masks = [meets(one, column) for one, column in zip(conditions, columns, strict=True)]
            return Selection(np.logical_and.reduce(masks) if len(masks) > 1 else masks[0], conditions)
        if self._sample is None:
            self._sample = np.sort(np.random.default_rng(0).choice(n, _SAMPLE, replace=False))
        return LazySelection(conditions, attributes, self._sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConditionCache, (dict(self._columns), self._most_bytes)
