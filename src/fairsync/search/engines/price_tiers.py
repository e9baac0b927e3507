"""Labels with similar bonuses as conditions: an engine that ranks without prices is asked for each tier by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fairsync.catalog.attributes import AttributeLabel


@dataclass(frozen=True)
class PriceTier:
    """Items whose bonuses are close to each other.

    Attributes
    ----------
    condition : Condition or None
        What items of the tier meet; None for all items.
    highest : float
        The highest bonus of them.
    """

    condition: Condition | None
    highest: float


def price_tiers(
    attribute: str, labels: Sequence[AttributeLabel], bonuses: npt.NDArray[np.floating], most: int
) -> list[PriceTier]:
    """Return tiers that cover all labels but those with a bonus of -inf.

    What was not fetched in a tier gains at most the highest bonus of this tier, so that far fewer items decide a
    request than if all items may gain the highest bonus of all.

    Parameters
    ----------
    attribute
        The attribute of the labels.
    labels, bonuses
        The labels, and what is added to the scores of the items of each.
    most
        The most tiers. They are of the same width.

    Examples
    --------
    >>> for tier in price_tiers("brand", ["a", "b", "c", "d"], np.array([0.0, 0.1, 1.0, -np.inf]), 2):
    ...     print(tier.condition.values, tier.condition.negated, tier.highest)
    ('a', 'b') False 0.1
    ('c',) False 1.0
    """
    kept = bonuses > -np.inf
    finite = bonuses[kept].astype(np.float64)
    low, width = float(finite.min()), float(finite.max() - finite.min())
    if width == 0:
        if kept.all():
            return [PriceTier(None, low)]
        width = 1.0
    places = np.full(len(labels), -1, dtype=np.int64)
    places[kept] = np.minimum((finite - low) / width * most, most - 1).astype(np.int64)
    tiers = []
    for tier in np.unique(places[kept]).tolist():
        inside = np.flatnonzero(places == tier)
        # The shorter of two forms: those that are in it, or those that are not.
        negated = 2 * len(inside) > len(labels)
        named = np.flatnonzero(places != tier) if negated else inside
        values = tuple(labels[at] for at in named.tolist())
        condition = Condition(attribute, values, negated) if values else None
        tiers.append(PriceTier(condition, float(bonuses[inside].max())))
    return tiers
