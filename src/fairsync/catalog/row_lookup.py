"""The rows of ids: a sorted table of ids, or of their hashes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog.names import are_words

_Rows = npt.NDArray[np.int64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_BLOCK = 1 << 14


class RowLookup:
    """Finds the rows of ids. Words are found by a hash of 64 bits: comparing words would take ten times as long.

    Parameters
    ----------
    ids
        The distinct ids of a catalog, in row order.
    rank
        The position of each item in the order of ids; None when that is the row number.

    Examples
    --------
    >>> ids = np.array(["tea", "jam"])
    >>> RowLookup(ids, np.array([1, 0])).find(np.array(["jam", "rye", "tea", "teapot"])).tolist()
    [1, -1, 0, -1]
    """

    def __init__(self, ids: npt.NDArray[Any], rank: npt.NDArray[np.integer] | None) -> None:
        self._ids = ids
        self._order: npt.NDArray[np.integer] | None = None
        self._hashes: npt.NDArray[np.uint64] | None = None
        if ids.dtype.kind == "U":
            hashes = _hash(ids)
            order = np.argsort(hashes)
            hashes = hashes[order]
            if bool((hashes[1:] != hashes[:-1]).all()):  # two words with the same hash are compared as words
                self._hashes, self._order = hashes, order.astype(_smallest(len(ids)))
                bits = max(1, len(ids).bit_length())
                self._shift = np.uint64(64 - bits)
                edges = np.arange(1 << bits, dtype=np.uint64) << self._shift
                self._starts = np.searchsorted(hashes, edges).astype(_smallest(len(ids)))
        if self._hashes is None and rank is not None:
            self._order = np.argsort(rank).astype(_smallest(len(ids)))

    def find(self, ids: npt.NDArray[Any]) -> _Rows:
        """Return the row of each id, -1 for an unknown id. The shape is that of ``ids``."""
        known = self._ids
        if are_words(known) != are_words(ids):
            return np.full(ids.shape, -1, dtype=np.int64)
        # In the type of the known ids, or numpy would copy all of them into that of the longest given one. An id that
        # is cut off here is found unequal below.
        keys = ids.astype(known.dtype) if are_words(known) else ids
        if self._hashes is not None:
            places = self._place(self._hashes, _hash(keys))
        else:
            places = np.searchsorted(known, keys, sorter=self._order)
        places = np.minimum(places, len(known) - 1)
        rows = places if self._order is None else self._order[places]
        return np.where(known[rows] == ids, rows, -1).astype(np.int64)

    def _place(self, hashes: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]) -> _Rows:
        """Return the first place of a hash that is not smaller, by its first bits: a fraction of a binary search."""
        places = self._starts[(wanted >> self._shift).astype(np.int64)].astype(np.int64)
        while True:
            places = np.minimum(places, len(hashes) - 1)
            behind = (hashes[places] < wanted) & (places < len(hashes) - 1)
            if not behind.any():
                return places
            places += behind


def _hash(words: npt.NDArray[np.str_]) -> npt.NDArray[np.uint64]:
    """Return a hash of each word, all of them in the width of one array: a sum of its letters times random numbers."""
    width = words.dtype.itemsize // 4
    letters = np.ascontiguousarray(words).view(np.uint32).reshape(-1, width)
    factors = np.random.default_rng(0).integers(1 << 63, size=width, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.empty(len(letters), dtype=np.uint64)
    for start in range(0, len(letters), _BLOCK):
        hashes[start : start + _BLOCK] = (letters[start : start + _BLOCK] * factors).sum(axis=1, dtype=np.uint64)
    # The first bits choose a bucket, so that they must depend on all others.
    hashes ^= hashes >> _SHIFT
    hashes *= _MULTIPLIER
    return (hashes ^ (hashes >> _SHIFT)).reshape(words.shape)


def _smallest(n: int) -> type[np.integer]:
    return np.int32 if n <= np.iinfo(np.int32).max else np.int64
