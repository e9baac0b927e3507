"""Splits of a data set into training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fairsync.data.requests import Requests, histories_before
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.data.dataset import Dataset
    from fairsync.ragged import Ragged


@dataclass(frozen=True)
class Split:
    """A data set in three parts that share no target.

    Attributes
    ----------
    train : Ragged
        Training sequences of at least one item, each in order of time.
    validation : Requests
        Requests for model selection.
    test : Requests
        Requests for the reported results, in order of arrival.
    """

    train: Ragged
    validation: Requests
    test: Requests


def split_by_users(dataset: Dataset, seed: int = 0, history: int | None = None) -> Split:
    """Split users at random: 80 % for training, 10 % for validation and 10 % for test.

    Models are tested on users they have never seen, as in the programs of ComiRec [1]_ and of the paper. For a user of
    validation or test, the first 80 % of the sequence (rounded down, at least one item) are the history, and the rest
    are the targets; a user with a single item is left out. The cut is by position and not by time, so it needs no
    clock and may divide a basket.

    Parameters
    ----------
    dataset
        A data set of at least ten users.
    seed
        Random seed of the split and of the order of arrival.
    history
        Number of items of a history to keep. Defaults to that of the data set.

    Returns
    -------
    Split
        The split. The time of a request is that of its first target; the order of requests is random.

    References
    ----------
    .. [1] Cen et al., "Controllable Multi-Interest Framework for Recommendation", KDD 2020.

    Examples
    --------
    >>> from fairsync.data.dataset import Dataset, Facts
    >>> from fairsync.ragged import Ragged
    >>> items = Ragged(np.arange(50, dtype=np.int32), np.arange(0, 51, 5))  # ten users, five items each
    >>> users, names, groups = np.arange(10).astype(str), np.arange(50).astype(str), np.repeat("a", 50)
    >>> dataset = Dataset(Facts("tiny", 10, 50, 1, 50), users, names, groups, items, times=np.arange(50))
    >>> split = split_by_users(dataset, history=3)
    >>> len(split.train), split.test.histories.tolist(), split.test.targets[0].tolist()
    (8, [[6, 7, 8]], [9])
    """
    n_users = len(dataset.sequences)
    if n_users < 10:
        raise InvalidInputError(f"{n_users} users cannot be dealt into 80/10/10: give a data set of 10 or more.")
    lengths = dataset.sequences.lengths
    dealt = np.random.default_rng(seed).permutation(n_users)
    learning, *parts = np.split(dealt, [n_users * 8 // 10, n_users * 9 // 10])
    requests = []
    for users in parts:
        asking = users[lengths[users] > 1]
        total = lengths[asking]
        requests.append(_requests(dataset, asking, np.maximum(total * 8 // 10, 1), total, history))
    seen = np.sort(learning[lengths[learning] > 0])
    return Split(dataset.sequences.take(seen), *requests)


def split_by_time(dataset: Dataset, history: int | None = None) -> Split:
    """Split by time: 80 % of all interactions for training, the next 10 % for validation and the last 10 % for test.

    Training data are older than all test requests, as the paper's text describes. A user with a history before a cut
    and interactions after it makes one request, whose targets are all items of the later part. Interactions with equal
    times stay together in the later part, so the parts may differ slightly from 80/10/10.

    Parameters
    ----------
    dataset
        A data set with clock times.
    history
        Number of items of a history to keep. Defaults to that of the data set.

    Returns
    -------
    Split
        The split, with requests in order of time, which is that of the first target. Histories of test requests
        include the interactions of the validation part.

    Examples
    --------
    >>> from fairsync.data.dataset import Dataset, Facts
    >>> from fairsync.ragged import Ragged
    >>> items = Ragged(np.arange(20, dtype=np.int32), np.array([0, 10, 20]))  # two users, in turns
    >>> users, names, groups = np.arange(2).astype(str), np.arange(20).astype(str), np.repeat("a", 20)
    >>> times = np.concatenate([np.arange(0, 20, 2), np.arange(1, 20, 2)])
    >>> split = split_by_time(Dataset(Facts("tiny", 2, 20, 1, 20), users, names, groups, items, times), history=3)
    >>> [one.tolist() for one in split.train]
    [[0, 1, 2, 3, 4, 5, 6, 7], [10, 11, 12, 13, 14, 15, 16, 17]]
    >>> split.test.histories.tolist(), split.test.targets.items.tolist(), split.test.times.tolist()
    ([[6, 7, 8], [16, 17, 18]], [9, 19], [18, 19])
    """
    check_clock(dataset)
    cuts = [moment_after(dataset, 8), moment_after(dataset, 9)]
    if not dataset.times.min() < cuts[0] < cuts[1]:
        raise InvalidInputError(
            f"too many interactions of {dataset.facts.name} have the same time to cut it 80/10/10: use split_by_users."
        )
    sequences, times = dataset.sequences, dataset.times
    ends = [_how_many(sequences, times < cut) for cut in cuts] + [sequences.lengths]
    requests = []
    for start, stop in pairwise(ends):
        asking = np.flatnonzero((start > 0) & (stop > start))
        asking = asking[np.argsort(times[sequences.offsets[asking] + start[asking]], kind="stable")]
        requests.append(_requests(dataset, asking, start[asking], stop[asking], history))
    seen = np.flatnonzero(ends[0])
    train = sequences.part(seen, np.zeros_like(seen), ends[0][seen])
    return Split(train, *requests)


def check_clock(dataset: Dataset) -> None:
    """Refuse a data set whose times are positions in a sequence, because they do not compare between users."""
    if not dataset.facts.has_clock:
        raise InvalidInputError(
            f"{dataset.facts.name} has no clock (its times are places in each sequence), so it has no periods: use"
            " split_by_users, or prepare it from a source with times."
        )


def moment_after(dataset: Dataset, tenths: int) -> int:
    """Return the time before which the given number of tenths of all interactions happened."""
    times = dataset.times
    if len(times) == 0:
        raise InvalidInputError(f"{dataset.facts.name} has no interactions: prepare one that has.")
    place = len(times) * tenths // 10
    return int(np.partition(times, place)[place])


def _how_many(sequences: Ragged, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the number of chosen interactions of each user."""
    sums: NDArray[np.int64] = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)])
    return sums[sequences.offsets[1:]] - sums[sequences.offsets[:-1]]


def _requests(
    dataset: Dataset,
    users: NDArray[np.int64],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    history: int | None,
) -> Requests:
    """Return one request for each user, with the history before ``starts`` and the targets up to ``stops``."""
    length = check_positive(dataset.facts.history if history is None else history, "history")
    return Requests(
        histories_before(dataset.sequences, users, starts, length),
        dataset.sequences.part(users, starts, stops),
        users.astype(np.int32),
        dataset.times[dataset.sequences.offsets[users] + starts],
    )
