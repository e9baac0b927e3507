"""Floors as shares of what can be promised at all, so that data sets and list lengths compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from fairsync.experiments.experiment import Lab

BINDING_SHARE = 0.5
"""A share that is felt, see :func:`binding_floor`."""


def floor_at_share(lab: Lab, k: int, share: float) -> int:
    """Return the floor, equal for all groups, that is such a share of the largest one, and 1 at least.

    The largest is what can still be met over the test requests: a list has ``k`` places in all, and shows no item of
    a group twice.
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
    """Return the floor of the setting, or a tense one if that is higher.

    Scaled to other data, the paper's floors are often met without being asked for; prices then have nothing to do, and
    a figure about them shows nothing.
    """
    return max(lab.setting.floor, floor_at_share(lab, k, BINDING_SHARE))


def claimed_share(lab: Lab, k: int, floor: int) -> float:
    """Return the share of all places in all lists that equal floors claim."""
    groups = len(np.unique(lab.dataset.item_groups))
    return floor * groups / (len(lab.trials.bases.split.test) * k)
