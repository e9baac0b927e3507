"""Floors as fractions of the largest feasible floor, which makes data sets and list lengths comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from fairsync.experiments.experiment import Lab

BINDING_SHARE = 0.5
"""The fraction of a binding floor; see :func:`binding_floor`."""


def floor_at_share(lab: Lab, k: int, share: float) -> int:
    """Return the floor, equal for all groups, that is a fraction of the largest feasible one, and at least 1.

    The largest one is limited by the test requests: a list has ``k`` slots in all, and holds no item twice.
    """
    _, sizes = np.unique(lab.dataset.item_groups, return_counts=True)
    requests = len(lab.trials.bases.split.test)
    largest = min(requests * k // len(sizes), requests * min(k, int(sizes.min())))
    if largest < 1:
        raise InvalidInputError(
            f"{requests} requests of {k} candidates cannot show each of {len(sizes)} groups once: merge small groups"
            " (fairsync prepare --least-items)."
        )
    return max(1, round(share * largest))


def binding_floor(lab: Lab, k: int) -> int:
    """Return the floor of the setting, or half of the largest feasible floor if that is higher.

    Scaled to other data, the paper's floors are often met without any policy. Prices are then 0, and a figure about
    them would show nothing.
    """
    return max(lab.setting.floor, floor_at_share(lab, k, BINDING_SHARE))


def claimed_share(lab: Lab, k: int, floor: int) -> float:
    """Return the fraction of all slots that equal floors claim."""
    groups = len(np.unique(lab.dataset.item_groups))
    return floor * groups / (len(lab.trials.bases.split.test) * k)
