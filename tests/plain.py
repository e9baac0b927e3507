"""The plainest implementations, slow and obvious: what the fast ones must agree with."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog


def dot(user: Sequence[float], item: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(user, item, strict=True):
        total += a * b
    return total


def search(
    catalog: Catalog,
    users: npt.NDArray[np.floating],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    eligible: Sequence[set[int]] | None = None,
) -> tuple[list[list[int]], list[list[float]]]:
    """Score every item that is eligible for a user in float64 and sort by (-priced, position of the id)."""
    ids = catalog.ids.tolist()
    position = {item: place for place, item in enumerate(sorted(ids))}
    price = [0.0] * catalog.n_groups if prices is None else [float(p) for p in prices]
    items = [[float(x) for x in row] for row in catalog.embeddings]
    all_rows, all_relevance = [], []
    for number, user in enumerate(users):
        interests = [[float(x) for x in interest] for interest in user]
        scored = []
        for row, item in enumerate(items):
            mine = price[int(catalog.group_of[row])]
            if mine < math.inf and (eligible is None or row in eligible[number]):
                relevance = max(dot(interest, item) for interest in interests)
                scored.append((-(relevance - mine), position[ids[row]], row, relevance))
        best = sorted(scored)[:k]
        missing = k - len(best)
        all_rows.append([row for _, _, row, _ in best] + [-1] * missing)
        all_relevance.append([relevance for _, _, _, relevance in best] + [-math.inf] * missing)
    return all_rows, all_relevance
