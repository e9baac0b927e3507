"""Replayed traffic: a light model learns from earlier interactions, and later visits become requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.data.replay import replay
from fairsync.data.splits import check_clock, moment_after
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.models import SvdSettings, train_svd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.data.dataset import Dataset
    from fairsync.ragged import Ragged

_TENTHS = 8  # tenths of all interactions that come before the replay
_PAST = 3_000  # requests for calibration


@dataclass(frozen=True)
class ReplayedTraffic:
    """A catalog, the visits of a test period in order of time, and visits just before it.

    Attributes
    ----------
    catalog : Catalog
        The items, with vectors that were trained before the test period.
    users : numpy.ndarray
        (n, d) User vectors of the visits in the test period.
    visitors : numpy.ndarray
        (n,) Which user of the data set made each visit.
    past : numpy.ndarray
        (m, d) User vectors of visits before it, for calibration.
    targets : Ragged
        Items that the user took on each visit of the test period.
    times : numpy.ndarray
        (n,) Unix seconds of the visits.
    histories : numpy.ndarray
        (n, length) Items that the user took before each visit, as catalog rows padded with -1.
    """

    catalog: Catalog
    users: NDArray[np.float32]
    visitors: NDArray[np.int32]
    past: NDArray[np.float32]
    targets: Ragged
    times: NDArray[np.int64]
    histories: NDArray[np.int32]


def replay_traffic(dataset: Dataset, requests: int) -> ReplayedTraffic:
    """Replay the last fifth of a data set with a model that is trained on the rest.

    No information leaks: the model is trained on interactions before the replay starts, and the history of a request
    ends before its visit.

    Parameters
    ----------
    dataset
        A data set with clock times.
    requests
        Maximum number of visits to replay, from the start of the test period.

    Examples
    --------
    >>> from fairsync.data import Dataset, Facts, Ragged
    >>> items, offsets = np.tile(np.arange(10, dtype=np.int32), 4), np.arange(0, 41, 10)
    >>> names, groups = np.arange(10).astype(str), np.repeat(["a", "b"], 5)
    >>> facts = Facts("tiny", users=4, items=10, groups=2, interactions=40)
    >>> data = Dataset(facts, np.arange(4).astype(str), names, groups, Ragged(items, offsets), np.arange(40) % 10)
    >>> traffic = replay_traffic(data, requests=5)
    >>> traffic.times.tolist(), [one.tolist() for one in traffic.targets]
    ([8, 8, 8, 8, 9], [[8], [8], [8], [8], [9]])
    """
    check_clock(dataset)
    most = check_positive(requests, "requests")
    start = moment_after(dataset, _TENTHS)
    training = _before(dataset, start)
    visits, earlier = replay(dataset, start), replay(dataset, int(dataset.times.min()), start)
    if len(visits) == 0 or len(earlier) == 0:
        raise InvalidInputError(f"{dataset.facts.name} has too few visits to replay: give a longer log.")
    replayed = visits.take(np.arange(min(most, len(visits))))
    model = train_svd(training, dataset.item_ids, SvdSettings(history=dataset.facts.history))
    return ReplayedTraffic(
        dataset.catalog(model.item_vectors()),
        model.user_vectors(replayed.histories),
        replayed.users,
        model.user_vectors(earlier.histories[-_PAST:]),
        replayed.targets,
        replayed.times,
        replayed.histories,
    )


def _before(dataset: Dataset, moment: int) -> Ragged:
    """Return the part of each sequence before a moment, without the users for whom it is empty."""
    sequences = dataset.sequences
    sums = np.concatenate([[0], np.cumsum(dataset.times < moment, dtype=np.int64)])
    stops = np.diff(sums[sequences.offsets])
    users = np.flatnonzero(stops)
    return sequences.part(users, np.zeros_like(users), stops[users])
