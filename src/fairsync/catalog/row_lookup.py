"""The rows of ids: a hash table in numpy arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairsync.catalog.names import are_words
from fairsync.catalog.word_hash import hash_few_words, hash_numbers, hash_words

_Rows = npt.NDArray[np.int64]
_Hashes = npt.NDArray[np.uint64]

# Words become Python strings this many at a time.
_BLOCK = 1 << 17
# This many ids are found faster one by one.
_FEW = 32


class RowLookup:
    """Finds the rows of ids, many at a time.

    Each slot of the table has a row in its last bits, and the first bits of the hash of its id.

    Parameters
    ----------
    ids
        The distinct ids of a catalog, in row order.

    Examples
    --------
    >>> lookup = RowLookup(np.array(["tea", "jam"]))
    >>> lookup.find(np.array(["jam", "rye", "tea", "teapot"])).tolist(), lookup.find_words([["jam"], ["rye"]]).tolist()
    ([1, -1, 0, -1], [1, -1])
    """

    def __init__(self, ids: npt.NDArray[Any]) -> None:
        self._ids = ids
        size = 1 << (2 * len(ids)).bit_length()
        self._last = np.uint64(size - 1)  # the bits of a row, and of a slot; as a row, it marks an empty slot
        while True:  # another key, should two ids have the same hash
            self._key = np.random.default_rng().integers(1 << 63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            self._key_as_int = int(self._key)
            hashes = self._hash(ids)
            self._table = np.full(size, self._last)
            self._fill(hashes)
            if bool((self._search(hashes) == np.arange(len(ids))).all()):
                break

    def find(self, ids: npt.NDArray[Any]) -> _Rows:
        """Return the row of each id, -1 for an unknown id. The shape is that of ``ids``."""
        if are_words(self._ids) != are_words(ids):
            return np.full(ids.shape, -1, dtype=np.int64)
        rows = self._search(self._hash(ids.ravel())).reshape(ids.shape)
        return np.where(self._ids[rows] == ids, rows, -1)

    def find_words(self, lists: Sequence[Sequence[str]]) -> _Rows:
        """Return the row of each word, list after list, -1 for an unknown one. Raises TypeError if one is no str.

        Words are compared by hashes of 64 bits only: with a million items, an unknown word is taken for a known one
        once in 10^13 times.
        """
        if sum(map(len, lists)) <= _FEW:
            return np.array(self.find_few([one for words in lists for one in words]), dtype=np.int64)
        return self._search(hash_words(lists, self._key))

    def find_few(self, words: Sequence[str]) -> list[int]:
        """Return the row of each of a few words as a number of Python; see `find_words`."""
        return self._search_few(hash_few_words(words, self._key_as_int))

    def _hash(self, ids: npt.NDArray[Any]) -> _Hashes:
        if not are_words(ids):
            return hash_numbers(ids, self._key)
        return hash_words((ids[at : at + _BLOCK].tolist() for at in range(0, len(ids), _BLOCK)), self._key)

    def _fill(self, hashes: _Hashes) -> None:
        """Write all rows to the table. If a slot is taken, the next one is tried."""
        slots = (hashes & self._last).astype(np.int64)
        entries = (hashes & ~self._last) | np.arange(len(hashes), dtype=np.uint64)
        while len(entries):
            free = self._table[slots] == self._last
            self._table[slots[free]] = entries[free]  # if several want a slot, one of them gets it
            moves = self._table[slots] != entries
            slots, entries = (slots[moves] + 1) % len(self._table), entries[moves]

    def _search(self, hashes: _Hashes) -> _Rows:
        """Return the rows of ids with these hashes, -1 for unknown ones."""
        if len(hashes) <= _FEW:
            return np.array(self._search_few(hashes.tolist()), dtype=np.int64)
        last = len(self._table) - 1
        slots = hashes.view(np.int64) & last
        found = self._table.take(slots)
        wrong = np.flatnonzero((found ^ hashes) > self._last)
        wrong = wrong[found[wrong] != self._last]
        others, slots, hashes = wrong, slots[wrong], hashes[wrong]
        while len(others):
            slots = (slots + 1) & last
            found[others] = there = self._table[slots]
            wrong = np.flatnonzero(((there ^ hashes) > self._last) & (there != self._last))
            others, slots, hashes = others[wrong], slots[wrong], hashes[wrong]
        rows = found.view(np.int64) & last
        rows[np.flatnonzero(rows == last)] = -1
        return rows

    def _search_few(self, hashes: Sequence[int]) -> list[int]:
        entry, last, rows = self._table.item, len(self._table) - 1, list[int]()
        for value in hashes:
            slot = value & last
            while (found := entry(slot)) != last and found ^ value > last:
                slot = (slot + 1) & last
            rows.append(-1 if found == last else found & last)
        return rows
