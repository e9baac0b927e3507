"""The paper's floor on smaller data, and marks that tell data apart."""

from dataclasses import replace

import numpy as np
import pytest

from fairsync.data.dataset import Dataset, Facts
from fairsync.experiments.reproduction_setting import Setting, fingerprint_of, paper_floor


def facts(least_items: int) -> Facts:
    return Facts("x", users=1, items=1, groups=1, interactions=1, least_items=least_items)


@pytest.mark.parametrize(("least_items", "groups", "users"), [(50, 165, 459_133), (200, 1_246, 976_779)])
def test_the_papers_own_data_have_its_floor(least_items: int, groups: int, users: int) -> None:
    assert paper_floor(facts(least_items), users // 10, groups) == 200


@pytest.mark.parametrize(
    ("least_items", "share"), [(50, 165 * 200 / (45_913 * 20)), (200, 1_246 * 200 / (97_677 * 20))]
)
def test_smaller_data_claim_the_same_share_of_slots(least_items: int, share: float) -> None:
    for requests, groups in ((2_237, 65), (245, 153), (30, 8)):
        floor = paper_floor(facts(least_items), requests, groups)
        assert abs(floor * groups / (requests * 20) - share) <= max(0.5, 1 - share) * groups / (requests * 20)
    assert paper_floor(facts(least_items), 1, 100) == 1  # never nothing
    assert paper_floor(facts(least_items), 10**7, 10) == 200  # never more than the paper's


def test_a_mark_sees_all_that_outcomes_depend_on(dataset: Dataset) -> None:
    mark = fingerprint_of(dataset)
    assert fingerprint_of(replace(dataset, item_groups=dataset.item_groups.copy())) == mark
    changed = [
        replace(dataset, item_groups=np.roll(dataset.item_groups, 1)),
        replace(dataset, facts=replace(dataset.facts, history=7)),
        replace(dataset, times=dataset.times[::-1].copy()),
        replace(dataset, item_ids=dataset.item_ids[::-1].copy()),
    ]
    assert len({mark, *(fingerprint_of(one) for one in changed)}) == 5
    renamed = replace(dataset, facts=replace(dataset.facts, name="the same under another name"))
    assert fingerprint_of(renamed) == mark


def test_a_setting_is_plain_values() -> None:
    plain = Setting("x", "mark", seeds=(0, 1)).to_dict()
    assert (plain["seeds"], plain["ks"], plain["floor"]) == ([0, 1], [20, 50], 200)
