"""Replay: every visit of a time period as a request, in order of time."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from fairsync.data.requests import Requests, histories_before
from fairsync.data.splits import check_clock, moment_after
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.ragged import Ragged

if TYPE_CHECKING:
    from fairsync.data.dataset import Dataset


@dataclass(frozen=True)
class Replay(Requests):
    """The visits of a time period as requests in order of time.

    Attributes
    ----------
    newcomers : int
        Number of visits that are left out because the user has no history.
    """

    newcomers: int


def replay(
    dataset: Dataset,
    start: int | None = None,
    stop: int | None = None,
    session_gap: int = 0,
    history: int | None = None,
) -> Replay:
    """Turn every basket or session of a time period into a request.

    :func:`split_by_time` makes one request per user. Real users return at different times, and floors and horizons are
    best tested on such traffic.

    A visit is a run of interactions of one user with gaps of at most ``session_gap``. Its history is everything before
    it, also within the period; its targets are its distinct items. A visit belongs to the period in which it begins.
    The first visit of a user has no history: it is left out and counted in ``newcomers``.

    Parameters
    ----------
    dataset
        A data set with clock times.
    start
        Start of the period in Unix seconds. Defaults to the moment at which the last tenth of all interactions begins.
    stop
        End of the period in Unix seconds. Visits that begin then or later are left out. Defaults to no end.
    session_gap
        Maximum gap within a visit in seconds. With 0, only interactions with equal times are one visit: a basket.
    history
        Number of items of a history to keep. Defaults to that of the data set.

    Returns
    -------
    Replay
        Requests in order of the time of their first item, and in order of users if times are equal.

    Examples
    --------
    >>> from fairsync.data.dataset import Dataset, Facts
    >>> items, times = np.array([4, 0, 1, 1, 2], dtype=np.int32), np.array([10, 50, 50, 70, 90])
    >>> users, names, groups = np.array(["ann"]), np.arange(5).astype(str), np.repeat("a", 5)
    >>> dataset = Dataset(Facts("tiny", 1, 5, 1, 5), users, names, groups, Ragged(items, np.array([0, 5])), times)
    >>> visits = replay(dataset, start=0, session_gap=30, history=3)
    >>> visits.histories.tolist(), visits.targets.items.tolist(), visits.times.tolist(), visits.newcomers
    ([[4, -1, -1]], [0, 1, 2], [50], 1)
    >>> [basket.tolist() for basket in replay(dataset, start=0).targets]
    [[0, 1], [1], [2]]
    """
    check_clock(dataset)
    length = check_positive(dataset.facts.history if history is None else history, "history")
    if isinstance(session_gap, bool) or not isinstance(session_gap, Integral) or session_gap < 0:
        raise InvalidInputError(f"session_gap must be a whole number of seconds, 0 or more, got {session_gap!r}.")
    begin = moment_after(dataset, 9) if start is None else start
    if stop is not None and stop <= begin:
        raise InvalidInputError(f"the period stops at {stop}, not after its start at {begin}: choose a later stop.")

    times, sequences = dataset.times, dataset.sequences
    is_first = np.diff(times, prepend=0) > session_gap
    is_first[sequences.offsets[:-1][sequences.lengths > 0]] = True
    firsts = np.flatnonzero(is_first)
    ends = np.append(firsts[1:], len(times))
    inside = times[firsts] >= begin
    if stop is not None:
        inside &= times[firsts] < stop
    users = np.searchsorted(sequences.offsets, firsts, side="right") - 1
    before = firsts - sequences.offsets[users]
    chosen = np.flatnonzero(inside & (before > 0))
    chosen = chosen[np.argsort(times[firsts[chosen]], kind="stable")]
    users, before, lengths = users[chosen], before[chosen], (ends - firsts)[chosen]
    return Replay(
        histories_before(sequences, users, before, length),
        _distinct(sequences.part(users, before, before + lengths)),
        users.astype(np.int32),
        times[firsts[chosen]],
        newcomers=int(inside.sum()) - len(chosen),
    )


def _distinct(lists: Ragged) -> Ragged:
    """Return the distinct items of each list, in order of their first occurrence."""
    rows = np.repeat(np.arange(len(lists)), lists.lengths)
    order = np.lexsort((lists.items, rows))  # stable, so the first of equal items comes first
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (np.diff(rows[order]) != 0) | (np.diff(lists.items[order]) != 0)
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[is_new]] = True
    lengths = np.bincount(rows[kept], minlength=len(lists))
    return Ragged(lists.items[kept], np.concatenate([[0], np.cumsum(lengths)]))
