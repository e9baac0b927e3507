"""What further exposures of a selection would have cost, on a sample of the requests that were answered.

A promise that was never subsidised has no price that says what its exposures cost. But the requests of the sample say
what they would have lost: beside the best list without promises, the best items of the selection that are not in it
take the places of its worst items of other selections. What is lost grows with every place, so that the cheapest places
of all requests, as many as are missing, are the least that these exposures would have cost if nothing else had been
promised.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.service.promises.costs import Answered

    Floats = NDArray[np.float64]

# Scores computed at once, about ten milliseconds' work.
_SCORES_AT_ONCE = 2_500_000


def exposure_cost(
    catalog: Catalog,
    answered: Answered,
    selected: NDArray[np.int64],
    per_request: float,
    checkpoint: Callable[[], object] = lambda: None,
) -> float | None:
    """Return the mean relevance that an exposure would have cost; None if no answer had a place for one.

    Parameters
    ----------
    catalog
        The items.
    answered
        The requests of the sample, with their best lists without promises.
    selected
        Rows of the items of the selection, in ascending order.
    per_request
        Exposures that are missing, as a number per request.
    checkpoint
        Called every now and then; raises to end the work.

    Examples
    --------
    Item 2 could have replaced item 1 in either answer. It is cheaper in the second.

    >>> from fairsync.catalog import Catalog
    >>> from fairsync.service.promises.costs import Answered
    >>> catalog = Catalog([[0.9, 0.8], [0.5, 0.6], [0.1, 0.5]], groups=["a", "b", "c"])
    >>> answered = Answered(np.eye(2)[:, None], np.array([[0, 1], [0, 1]]), np.array([[0.9, 0.5], [0.8, 0.6]]))
    >>> [round(exposure_cost(catalog, answered, np.array([2]), missing), 6) for missing in (0.5, 1.0)]
    [0.1, 0.25]
    """
    n, most = len(answered.rows), min(answered.rows.shape[1], len(selected))
    if not most:
        return None
    vectors, step = catalog.embeddings[selected], max(_SCORES_AT_ONCE // len(selected), 1)
    parts = []
    for start in range(0, n, step):
        checkpoint()
        parts.append(_costs(answered, np.arange(start, min(start + step, n)), selected, vectors, most))
    every = np.concatenate(parts).ravel()
    every = np.sort(every[np.isfinite(every)])[: max(math.ceil(per_request * n), 1)]
    return float(every.mean()) if len(every) else None


def _costs(
    answered: Answered, here: NDArray[np.intp], selected: NDArray[np.int64], vectors: NDArray[Any], most: int
) -> Floats:
    """Return (m, most) what the first place, the second and so on would cost in each answer; inf if there is none."""
    rows, relevance = answered.rows[here], answered.relevance[here]
    scores = np.einsum("nid,sd->nis", answered.users[here], vectors, optimize=True).max(axis=1).astype(np.float64)
    place = np.minimum(np.searchsorted(selected, rows), len(selected) - 1)
    inside = selected[place] == rows
    scores[np.nonzero(inside)[0], place[inside]] = -np.inf
    if answered.eligible is not None:
        owners = np.repeat(here, len(selected))
        allowed = answered.eligible.allows(owners, np.tile(selected, len(here)))
        scores[~allowed.reshape(scores.shape)] = -np.inf
    gained = -np.partition(-scores, most - 1, axis=1)[:, :most]
    gained = -np.sort(-gained, axis=1)
    lost = np.sort(np.where(inside, np.inf, relevance), axis=1)[:, :most]
    return np.where(np.isfinite(lost) & np.isfinite(gained), np.maximum(lost - gained, 0.0), np.inf)
