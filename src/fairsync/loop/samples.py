"""Samples: the part of lists that a policy learns from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies import Sample
from fairsync.search import Hits

if TYPE_CHECKING:
    from numpy.typing import NDArray


def make_sample(k: int, groups: NDArray[np.int32], hits: Hits, prices: NDArray[np.float64] | None = None) -> Sample:
    """Return the part of the lists that a policy may see: groups and relative relevance, no items."""
    beyond_last = hits.relevance - hits.relevance[:, k - 1, None]
    within = np.minimum(np.maximum(beyond_last, -1e30), 1e30)  # the range of float32
    if hits.rows[:, -1].min(initial=0) < 0:  # there was no further item
        within[hits.rows < 0] = -np.inf
    return Sample(groups.astype(np.intp), within.astype(np.float32), prices)


def priced_sample(
    k: int, groups: NDArray[np.int32], hits: Hits, prices: NDArray[np.float64], fixed: NDArray[np.bool_] | None
) -> Sample | None:
    """Return the sample without the requests that have a fixed list, which prices did not make."""
    if fixed is None:
        return make_sample(k, groups, hits, prices)
    if fixed.all():
        return None
    return make_sample(k, groups[~fixed], Hits(hits.rows[~fixed], hits.relevance[~fixed]), prices)
