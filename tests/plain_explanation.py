"""The plainest explanation of an answer: every item is scored, every list is sorted, every rule is applied by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plain import dot

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fairsync.catalog import Catalog


@dataclass
class PlainExplanation:
    """What can be said of one request, by brute force.

    ``relevance`` and ``score`` are by id, of all items; ``plain`` and ``ranks`` are of the eligible ones without
    prices; ``price`` is as it applies under a promise whose floors miss so many exposures.
    """

    relevance: dict[Any, float]
    price: dict[Any, float]
    ranks: dict[Any, int]
    plain: list[Any]
    displaced: dict[Any, Any]
    cut: float | None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        user: npt.NDArray[np.floating],
        prices: Sequence[float],
        missing: Sequence[int] | None,
        eligible: set[Any],
        chosen: list[Any],
        k: int,
    ) -> PlainExplanation:
        ids = catalog.ids.tolist()
        group = dict(zip(ids, catalog.group_of.tolist(), strict=True))
        interests = np.atleast_2d(user).astype(float).tolist()
        items = catalog.embeddings.astype(float).tolist()
        relevance = {
            one: max(dot(interest, item) for interest in interests) for one, item in zip(ids, items, strict=True)
        }
        order = sorted(eligible, key=lambda one: (-relevance[one], one))
        ranks = {one: place for place, one in enumerate(order, 1)}
        plain = order[:k]
        price = {}
        for one in ids:
            price[one] = prices[group[one]]
            if missing is not None and price[one] < 0:
                full = {other: relevance[other] - price[one] for other in eligible | {one}}
                same = [other for other in eligible if group[other] == group[one]]
                if sum((-full[other], other) < (-full[one], one) for other in same) >= missing[group[one]]:
                    price[one] = 0.0
        new = sorted((one for one in chosen if one not in plain), key=lambda one: (-relevance[one], one))
        gone = [one for one in plain if one not in chosen]
        by_score = sorted(eligible, key=lambda one: (-(relevance[one] - price[one]), one))
        cut = None
        for one in by_score:  # the last of those that got a slot before any that got none
            if one not in chosen:
                break
            cut = relevance[one] - price[one]
        if len(chosen) == len(eligible) < k:
            cut = None
        return cls(relevance, price, ranks, plain, dict(zip(new, gone, strict=True)), cut)
