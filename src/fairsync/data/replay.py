"""Traffic as it was: every visit of a period, one after the other."""

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
    """The visits of a period as requests in order of time.

    Attributes
    ----------
    newcomers : int
        Visits of the period that are no requests, because nothing is known of the user before.
    """

    newcomers: int


def replay(
    dataset: Dataset,
    start: int | None = None,
    stop: int | None = None,
    session_gap: int = 0,
    history: int | None = None,
) -> Replay:
    """Turn every basket or session of a period into a request.

    :func:`split_by_time` asks once per user; real users come back, and at their own hours. Floors and horizons
    are best tried on traffic like that.

    A visit is a run of interactions of one user with gaps of at most ``session_gap``. Its history is all that the
    user did before it, also within the period; its targets are its items, each once. A visit counts to the period
    in which it begins, as a whole. A user's first visit has no history for a model to look at: it is left out and
    counted in ``newcomers``.

    Parameters
    ----------
    dataset
        Sequences with a clock.
    start
        Unix seconds; by default the moment at which the last tenth of all interactions begins.
    stop
        Visits that begin at this moment or later are left out; by default none.
    session_gap
        Seconds. With 0, only what has the same time is one visit: a basket.
    history
        How many items of a history are kept; by default what the data set says.

    Returns
    -------
    Replay
        Requests in order of the time of their first item; of the same moment, in order of users.

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
    """Return the lists with each item once, where it came first."""
    rows = np.repeat(np.arange(len(lists)), lists.lengths)
    order = np.lexsort((lists.items, rows))  # stable: of equal items the first comes first
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = (np.diff(rows[order]) != 0) | (np.diff(lists.items[order]) != 0)
    kept = np.zeros(len(order), dtype=np.bool_)
    kept[order[is_new]] = True
    lengths = np.bincount(rows[kept], minlength=len(lists))
    return Ragged(lists.items[kept], np.concatenate([[0], np.cumsum(lengths)]))
