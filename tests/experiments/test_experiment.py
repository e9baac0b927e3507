"""Floors as shares: the largest is what feasibility allows, and no more."""

from dataclasses import replace

import numpy as np
import pytest

from fairsync import InfeasibleFloorsError, InvalidInputError
from fairsync.catalog import Catalog
from fairsync.experiments.experiment import Lab
from fairsync.promises.floors import check_feasible, resolve_floors


def with_groups(lab: Lab, groups: list[str]) -> Lab:
    return replace(lab, dataset=replace(lab.dataset, item_groups=np.array(groups)))


@pytest.mark.parametrize("k", [1, 5, 10, 20])
@pytest.mark.parametrize("small", [1, 3, 12, 48])
def test_the_largest_can_just_be_met(k: int, small: int, lab: Lab) -> None:
    lab = with_groups(lab, ["small"] * small + ["large"] * (96 - small))
    catalog = Catalog(np.ones((96, 1)), lab.dataset.item_groups)
    requests = len(lab.trials.bases.split.test)
    largest = lab.floor_at_share(k, 1.0)
    check_feasible(resolve_floors(largest, catalog), catalog, k, requests)
    with pytest.raises(InfeasibleFloorsError):
        check_feasible(resolve_floors(largest + 1, catalog), catalog, k, requests)
    assert lab.claimed_share(k, largest) == min(1, 2 * min(small, k) / k)


def test_shares_of_it(lab: Lab) -> None:
    assert len(lab.trials.bases.split.test) == 30
    assert [lab.floor_at_share(8, share) for share in (0.001, 0.1, 0.5, 1.0)] == [
        1,
        3,
        15,
        30,
    ]  # 30 · 8 slots, 8 groups
    assert lab.claimed_share(8, 15) == 0.5


def test_a_floor_is_felt(lab: Lab) -> None:
    assert [lab.binding_floor(k) for k in (4, 8, 16)] == [14, 15, 30]  # the setting's is 14


def test_groups_that_cannot_be_shown_once(lab: Lab) -> None:
    with pytest.raises(InvalidInputError, match="30 requests of 3 candidates cannot show each of 96 groups once"):
        with_groups(lab, [str(item) for item in range(96)]).floor_at_share(3, 1.0)
