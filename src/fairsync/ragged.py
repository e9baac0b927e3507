"""Ragged lists: lists of items of different lengths in two arrays. Needs numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

PADDING = -1
"""The item of an empty place in a padded list. It has no vector and is never retrieved."""


@dataclass(frozen=True)
class Ragged:
    """Lists of items of different lengths, stored end to end.

    Attributes
    ----------
    items : numpy.ndarray
        int32 catalog rows of all lists, one list after the other.
    offsets : numpy.ndarray
        (n + 1,) int64: list ``i`` is ``items[offsets[i] : offsets[i + 1]]``.

    Examples
    --------
    >>> lists = Ragged(np.array([3, 1, 2], dtype=np.int32), np.array([0, 2, 2, 3]))
    >>> len(lists), [one.tolist() for one in lists], lists.lengths.tolist()
    (3, [[3, 1], [], [2]], [2, 0, 1])
    """

    items: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        offsets = self.offsets
        if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(self.items) or (np.diff(offsets) < 0).any():
            raise InvalidInputError("offsets must rise from 0 to the number of items.")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.items[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.items[start:stop]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) The number of items of each list."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.integer]) -> Ragged:
        """Return the lists at ``rows``, in that order.

        Examples
        --------
        >>> lists = Ragged(np.array([3, 1, 2], dtype=np.int32), np.array([0, 2, 2, 3]))
        >>> [one.tolist() for one in lists.take(np.array([2, 0]))]
        [[2], [3, 1]]
        """
        return self.part(rows, np.zeros(len(rows), dtype=np.int64), self.lengths[rows])

    def part(self, rows: NDArray[np.integer], starts: NDArray[np.integer], stops: NDArray[np.integer]) -> Ragged:
        """Return the slices ``starts`` to ``stops`` (excluded) of the lists at ``rows``.

        Examples
        --------
        >>> lists = Ragged(np.array([3, 1, 2, 5], dtype=np.int32), np.array([0, 3, 4]))
        >>> [one.tolist() for one in lists.part(np.array([0, 1, 0]), np.array([1, 0, 0]), np.array([3, 0, 1]))]
        [[1, 2], [], [3]]
        """
        if (starts < 0).any() or (stops < starts).any() or (stops > self.lengths[rows]).any():
            raise InvalidInputError(
                "a part must start at 0 or later, and stop between its start and the end of the list."
            )
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        indices = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] + starts - offsets[:-1], lengths)
        return Ragged(self.items[indices], offsets)
