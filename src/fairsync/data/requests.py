"""Requests made from histories: what a model sees of a user, and what the user wanted next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

PADDING = -1
"""Stands in a history where there is no item. It is no item: it has no vector and is never shown."""


@dataclass(frozen=True)
class Ragged:
    """Lists of items of different lengths, end to end.

    Attributes
    ----------
    items : numpy.ndarray
        int32 rows of the catalog, list after list.
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

    def __getitem__(self, place: int) -> NDArray[np.int32]:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.items[self.offsets[place] : self.offsets[place + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.items[start:stop]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many items each list has."""
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
        """Return from each list at ``rows`` its items from place ``starts`` up to before place ``stops``.

        Examples
        --------
        >>> lists = Ragged(np.array([3, 1, 2, 5], dtype=np.int32), np.array([0, 3, 4]))
        >>> [one.tolist() for one in lists.part(np.array([0, 1, 0]), np.array([1, 0, 0]), np.array([3, 0, 1]))]
        [[1, 2], [], [3]]
        """
        if (starts < 0).any() or (stops < starts).any() or (stops > self.lengths[rows]).any():
            raise InvalidInputError(
                "a part must start at 0 or later, and stop not before that nor after the list ends."
            )
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] + starts - offsets[:-1], lengths)
        return Ragged(self.items[places], offsets)


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival.

    Attributes
    ----------
    histories : numpy.ndarray
        (n, length) int32: the last items before the request, oldest first, filled up at the end with
        :data:`PADDING`.
    targets : Ragged
        What the user went on to take, n lists: what a good answer contains.
    users : numpy.ndarray
        (n,) int32: who asks, as a row of the data set's ``user_ids``.
    times : numpy.ndarray
        (n,) int64: when.
    """

    histories: NDArray[np.int32]
    targets: Ragged
    users: NDArray[np.int32]
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        n = len(self.histories)
        if not (len(self.targets) == len(self.users) == len(self.times) == n):
            raise InvalidInputError("histories, targets, users and times must be of the same number of requests.")

    def __len__(self) -> int:
        return len(self.histories)

    def take(self, rows: NDArray[np.integer]) -> Requests:
        """Return the requests at ``rows``, in that order."""
        return Requests(self.histories[rows], self.targets.take(rows), self.users[rows], self.times[rows])


def histories_before(
    sequences: Ragged,
    rows: NDArray[np.integer],
    ends: NDArray[np.integer],
    length: int,
) -> NDArray[np.int32]:
    """Return the last ``length`` items of sequences, each up to a place in it.

    Parameters
    ----------
    sequences
        Items in order of time.
    rows
        (n,) which sequence each history is of.
    ends
        (n,) how many items of that sequence have happened: the history ends before this place.
    length
        Items kept.

    Returns
    -------
    numpy.ndarray
        (n, length), oldest first, padded at the end.

    Examples
    --------
    >>> sequences = Ragged(np.array([5, 6, 7, 8, 9], dtype=np.int32), np.array([0, 4, 5]))
    >>> histories_before(sequences, np.array([0, 0, 1]), np.array([4, 1, 1]), length=3).tolist()
    [[6, 7, 8], [5, -1, -1], [9, -1, -1]]
    """
    kept = np.minimum(ends, length)
    histories = np.full((len(rows), length), PADDING, dtype=np.int32)
    histories[np.arange(length) < kept[:, None]] = sequences.part(rows, ends - kept, ends).items
    return histories
