"""A floor for demonstrations: the exposures that the median group gets without floors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.retriever import FairRetriever

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog


def median_floor(catalog: Catalog, past: NDArray[np.float32], k: int, horizon: int) -> int:
    """Return the median exposures of a group without floors, estimated from past requests, to one digit.

    The floor is at most half of the largest floor that all groups could have.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog(np.eye(3), ["a", "b", "c"])
    >>> median_floor(catalog, np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]]), k=1, horizon=60)
    10
    """
    plain = FairRetriever(catalog, k=k, horizon=len(past), policy="none")
    plain.retrieve(past)
    median = float(np.median(list(plain.report().exposures.values()))) * horizon / len(past)
    possible = min(horizon * k // catalog.n_groups, horizon * min(k, int(catalog.group_sizes.min())))
    return int(min(max(float(f"{median:.1g}"), 1.0), possible // 2))
