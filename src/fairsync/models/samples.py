"""What a network learns from: places of sequences, each a history and the item that came next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.data.requests import histories_before
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fairsync.ragged import Ragged

_POPULARITY = 0.5  # how often an item is drawn as a negative grows with this power of its count
_SORTED = 32  # batches among which samples of like length are brought together


class Samples:
    """Every place of the training sequences that has something before it.

    They are never written out: a hundred million samples cost no more than the sequences.

    Parameters
    ----------
    sequences
        Items in order of time.
    history
        How many items before a place are its history.

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
        # Sample number s is of the sequence whose samples start at or before s.
        self._starts = self.sequences.offsets - np.arange(len(self.sequences) + 1)
        if len(self) == 0:
            raise InvalidInputError("no sequence has two items: there is nothing to learn what comes next from.")

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return (n, length) histories, with no more columns than the longest needs, and (n,) next items."""
        rows = np.searchsorted(self._starts, chosen, side="right") - 1
        ends = chosen - self._starts[rows] + 1
        length = min(int(ends.max()), self.history)
        targets = self.sequences.items[self.sequences.offsets[rows] + ends]
        return histories_before(self.sequences, rows, ends, length), targets

    def batches(self, size: int, most: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield the samples of an epoch, ``size`` at a time and at most ``most``, in random order.

        Samples of like length come in the same batch, so that little is computed on padding.
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
    """Items drawn to be set against the right ones: popular ones more often, by the root of their count.

    Parameters
    ----------
    sequences
        What popularity is counted in.
    n_items
        Items of the catalog; those that nobody took can be drawn as well.
    number
        Items in a draw, with replacement.

    Attributes
    ----------
    log_expected : numpy.ndarray
        (n_items,) float32: the logarithm of how often an item is expected in a draw. Taking it off the scores
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
