"""Training samples: positions in sequences, each with a history and the next item; and negative samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.data.requests import histories_before
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fairsync.ragged import Ragged

_POPULARITY = 0.5  # negatives are drawn in proportion to this power of an item's count
_SORTED = 32  # number of batches among which samples are sorted by length


class Samples:
    """All positions of the training sequences except the first ones.

    Samples are made on demand, so that they need no memory beyond the sequences.

    Parameters
    ----------
    sequences
        Items in order of time.
    history
        Number of items before a position that are its history.

    Examples
    --------
    >>> from fairsync.ragged import Ragged
    >>> sequences = Ragged(np.array([5, 6, 7, 8, 9], dtype=np.int32), np.array([0, 3, 4, 5]))
    >>> samples = Samples(sequences, history=2)
    >>> len(samples)
    2
    >>> histories, targets = samples.take(np.array([0, 1]))
    >>> histories.tolist(), targets.tolist()
    ([[5, -1], [5, 6]], [6, 7])
    """

    def __init__(self, sequences: Ragged, history: int) -> None:
        self.sequences = sequences.take(np.flatnonzero(sequences.lengths > 1))
        self.history = history
        # Sample s belongs to the last sequence whose samples start at or before s.
        self._starts = self.sequences.offsets - np.arange(len(self.sequences) + 1)
        if len(self) == 0:
            raise InvalidInputError("no sequence has two items, so there is no next item to learn: give more data.")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (n, length) histories, with as many columns as the longest one has, and (n,) next items."""
        rows = np.searchsorted(self._starts, chosen, side="right") - 1
        ends = chosen - self._starts[rows] + 1
        length = min(int(ends.max()), self.history)
        targets = self.sequences.items[self.sequences.offsets[rows] + ends]
        return histories_before(self.sequences, rows, ends, length), targets

    def batches(self, size: int, most: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield batches of ``size`` samples of an epoch, at most ``most`` samples in all, in random order.

        Samples of similar length share a batch, which saves computation on padding.
        """
        drawn = rng.choice(len(self), min(most, len(self)), replace=False)
        for start in range(0, len(drawn), size * _SORTED):
            piece = drawn[start : start + size * _SORTED]
            rows = np.searchsorted(self._starts, piece, side="right") - 1
            lengths = np.minimum(piece - self._starts[rows] + 1, self.history)
            batches = np.split(piece[np.argsort(lengths, kind="stable")], range(size, len(piece), size))
            for place in rng.permutation(len(batches)):
                yield batches[place]


class Negatives:
    """Negative sampling in proportion to the square root of an item's count.

    Parameters
    ----------
    sequences
        Sequences in which items are counted.
    n_items
        Number of items of the catalog. Items that do not occur in the sequences can be drawn as well.
    number
        Number of items per draw, with replacement.

    Attributes
    ----------
    log_expected : numpy.ndarray
        (n_items,) float32 logarithm of the expected number of occurrences in a draw. Subtracted from the scores, it
        makes the sampled softmax an estimate of the full one (Bengio and Senécal, 2008).
    """

    def __init__(self, sequences: Ragged, n_items: int, number: int) -> None:
        shares = (np.bincount(sequences.items, minlength=n_items) + 1.0) ** _POPULARITY
        shares /= shares.sum()
        self.number = number
        self.log_expected = np.log(shares * number).astype(np.float32)
        self._sums = np.cumsum(shares)
        self._sums[-1] = 1.0  # rounding must not leave a gap at the end

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return ``number`` items."""
        return np.searchsorted(self._sums, rng.random(self.number), side="right")
