"""Lists under prices: right for every prices that they were refreshed for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.hindsight.bound_rows import BoundRows
from fairsync.hindsight.priced_lists import ListSizes, PricedLists
from fairsync.search import ExactIndex, Hits
from hindsight.test_hindsight import Case, make

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lists_of(case: Case, sizes: ListSizes) -> PricedLists:
    catalog = Catalog(case.items, case.groups)
    users = case.users[:, None].astype(np.float64)
    bounds = BoundRows.of_groups(case.floors)
    return PricedLists(catalog.group_of, ExactIndex(catalog).search, users, case.k, *bounds, sizes)


def dual_value(case: Case, subsidies: NDArray[np.float64]) -> float:
    priced = np.sort(case.scores + subsidies[case.groups], axis=1)[:, -case.k :]
    return float(priced.sum() - case.floors @ subsidies)


def test_values_are_those_of_the_whole_catalog() -> None:
    case = make(1, requests=50, items=80, groups=5, k=4)
    lists, rng = lists_of(case, ListSizes(fetch=2, least=2, chunk=7)), np.random.default_rng(0)
    lists.fetch(np.zeros(5))
    for scale in (0.01, 0.1, 1.0, 5.0, 0.0):
        subsidies = scale * rng.random(5)
        assert lists.value(subsidies) == pytest.approx(dual_value(case, subsidies))
        assert lists.refresh(subsidies) == 0, "they are right now"


def test_wider_lists_hold_more_until_they_hold_everything() -> None:
    case = make(2, requests=6, items=20, groups=3, k=2)
    lists = lists_of(case, ListSizes(fetch=2, least=2))
    lists.fetch(np.zeros(3))
    widths = [lists.rows.shape[1]]
    while lists.widen(np.zeros(3)):
        widths.append(lists.rows.shape[1])
    assert widths == [4, 8, 16, 20]
    small = lists_of(case, ListSizes(fetch=2, least=2, most=30))
    small.fetch(np.zeros(3))
    assert not small.widen(np.zeros(3)), "no room"


def test_a_sample_has_its_share_of_the_floors() -> None:
    case = make(3, requests=40, items=30, groups=3, k=2)
    lists = lists_of(case, ListSizes())
    lists.fetch(np.zeros(3))
    part = lists.sample(10)
    assert part.least == pytest.approx(lists.least / 4)
    assert part.rows.tolist() == lists.rows[np.linspace(0, 39, 10).astype(int)].tolist()


def test_an_index_that_finds_too_little_is_refused() -> None:
    case = make(4, requests=3, items=30, groups=3, k=2)
    lists = lists_of(case, ListSizes())
    lists.search = lambda users, prices, k: Hits.empty(len(users), k)
    with pytest.raises(InvalidInputError, match="index='exact'"):
        lists.fetch(np.zeros(lists.least.size))
