"""Real traffic with a light model: what came before is learnt from, what came after is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.data.replay import replay
from fairsync.data.splits import check_clock, moment_after
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.models import SvdSettings, train_svd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.data.dataset import Dataset
    from fairsync.ragged import Ragged

_TENTHS = 8  # of all interactions come before the replay
_PAST = 3_000  # requests to calibrate with


@dataclass(frozen=True)
class ReplayedTraffic:
    """A catalog, the visits of a period in order of time, and those just before it.

    Attributes
    ----------
    catalog : Catalog
        The items, with vectors that know nothing of the period.
    users, past : numpy.ndarray
        (n, d) the requests of the period, and some from before it.
    targets : Ragged
        What the users took on each visit of the period.
    times : numpy.ndarray
        (n,) unix seconds.
    """

    catalog: Catalog
    users: NDArray[np.float32]
    past: NDArray[np.float32]
    targets: Ragged
    times: NDArray[np.int64]


def replay_traffic(dataset: Dataset, requests: int) -> ReplayedTraffic:
    """Replay the last fifth of a data set to a model made of the rest.

    Nothing leaks: the model is made of interactions before the replay starts, and the history of a request ends
    before the visit that it stands for.

    Parameters
    ----------
    dataset
        Sequences with a clock.
    requests
        Replay so many visits at most, the first of the period.

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
    learnt = _before(dataset, start)
    visits, earlier = replay(dataset, start), replay(dataset, int(dataset.times.min()), start)
    if len(visits) == 0 or len(earlier) == 0:
        raise InvalidInputError(f"{dataset.facts.name} has too few visits to replay: give a longer log.")
    asked = visits.take(np.arange(min(most, len(visits))))
    model = train_svd(learnt, dataset.item_ids, SvdSettings(history=dataset.facts.history))
    return ReplayedTraffic(
        Catalog(model.item_vectors(), dataset.item_groups, dataset.item_ids),
        model.user_vectors(asked.histories),
        model.user_vectors(earlier.histories[-_PAST:]),
        asked.targets,
        asked.times,
    )


def _before(dataset: Dataset, moment: int) -> Ragged:
    """Return the part of each sequence that happened before a moment, users without any left out."""
    sequences = dataset.sequences
    sums = np.concatenate([[0], np.cumsum(dataset.times < moment, dtype=np.int64)])
    stops = np.diff(sums[sequences.offsets])
    users = np.flatnonzero(stops)
    return sequences.part(users, np.zeros_like(users), stops[users])
