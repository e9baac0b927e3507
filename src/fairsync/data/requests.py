"""Requests: the history of a user as the input of a model, and the items that the user took next as targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING, Ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival.

    Attributes
    ----------
    histories : numpy.ndarray
        (n, length) int32: the last items before the request, oldest first, filled up at the end with
        :data:`PADDING`.
    targets : Ragged
        n lists of the items that the user took next.
    users : numpy.ndarray
        (n,) int32 user of each request, as a row of the data set's ``user_ids``.
    times : numpy.ndarray
        (n,) int64 time of each request.
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
    """Return the last ``length`` items of sequences before given positions.

    Parameters
    ----------
    sequences
        Items in order of time.
    rows
        (n,) The sequence of each history.
    ends
        (n,) The position in that sequence before which each history ends.
    length
        Number of items to keep.

    Returns
    -------
    numpy.ndarray
        (n, length) Items, oldest first, padded at the end.

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
