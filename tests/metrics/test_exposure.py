from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.metrics import count_exposures, coverage, entropy, esp, gini, smallest_share

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any)
LISTS = st.integers(1, 4).flatmap(
    lambda k: st.lists(st.lists(st.integers(-1, 6), min_size=k, max_size=k), min_size=1, max_size=5)
)
GROUPS = ["toys", "books", "books", "games", "toys", "books", "films"]


@given(lists=LISTS)
def test_exposures_are_counted_as_a_plain_loop_counts_them(lists: list[list[int]]) -> None:
    wanted = Counter(dict.fromkeys(GROUPS, 0))
    wanted.update(GROUPS[row] for one in lists for row in one if row >= 0)
    assert count_exposures(lists, GROUPS) == wanted
    assert list(count_exposures(np.array(lists, dtype=np.int32), np.array(GROUPS))) == sorted(set(GROUPS))
    first = Counter(GROUPS[one[0]] for one in lists if one[0] >= 0)
    assert +Counter(count_exposures(lists, GROUPS, k=1)) == first


@given(lists=LISTS.filter(lambda lists: all(row >= 0 for one in lists for row in one)))
def test_ids_count_as_their_rows_do(lists: list[list[int]]) -> None:
    names = [[f"item {row}" for row in one] for one in lists]
    by_name = {f"item {row}": group for row, group in enumerate(GROUPS)}
    assert count_exposures(names, by_name) == count_exposures(lists, GROUPS)
    assert count_exposures(lists, dict(enumerate(GROUPS))) == count_exposures(lists, GROUPS)


@given(counts=COUNTS)
def test_inequality_agrees_with_its_definition(counts: list[int]) -> None:
    n, total = len(counts), sum(counts)
    differences = sum(abs(one - other) for one, other in product(counts, counts))
    assert gini(counts) == pytest.approx(differences / (2 * n * total), abs=1e-12)
    assert entropy(counts) == pytest.approx(stats.entropy(counts), abs=1e-12)
    assert smallest_share(counts) == pytest.approx(min(counts) / total)
    assert coverage(counts) == sum(count > 0 for count in counts) / n
    by_label = dict(enumerate(counts))
    for metric in (gini, entropy, smallest_share, coverage):
        assert metric(by_label) == metric(np.array(counts)) == metric(counts)


@given(counts=COUNTS, floor=st.integers(0, 50))
def test_a_floor_is_reached_when_it_is_equalled(counts: list[int], floor: int) -> None:
    wanted = sum(count >= floor for count in counts) / len(counts)
    by_label = dict(enumerate(counts))
    assert esp(counts, floor) == esp(by_label, floor) == esp(by_label, dict.fromkeys(by_label, floor)) == wanted
    assert esp(counts, counts) == 1
    assert esp(counts, [count + 1 for count in counts]) == 0
    assert esp(by_label, {}) == 1


def test_groups_without_a_floor_do_not_count_in_esp() -> None:
    assert esp({"a": 3, "b": 9, "c": 0}, {"a": 4}) == 0
    assert esp({"a": 3, "b": 9, "c": 0}, {"a": 4, "b": 9}) == 0.5
    assert esp([3, 9, 0], [4, 9, 0]) == 0.5


def test_no_exposure_is_lost() -> None:
    rng = np.random.default_rng(0)
    lists, groups = rng.integers(0, 500, (200, 20)), rng.integers(0, 30, 500)
    assert sum(count_exposures(lists, groups).values()) == 4_000
    assert sum(count_exposures(lists, groups, k=7).values()) == 1_400


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="rows from 0 to 7, but groups are of 7"):
        count_exposures([[0, 7]], GROUPS)
    with pytest.raises(InvalidInputError, match="rows from -2"):
        count_exposures([[0, -2]], GROUPS)
    with pytest.raises(InvalidInputError, match="a mapping from id"):
        count_exposures([["a"]], GROUPS)
    with pytest.raises(InvalidInputError, match="'b' is shown but has no group"):
        count_exposures([["a", "b"]], {"a": "toys"})
    with pytest.raises(InvalidInputError, match="k is 3"):
        count_exposures([[0, 1]], GROUPS, k=3)
    wrong: list[Any] = [[], {}, [[1, 2]], [1, -1], [1, float("nan")], ["many"], 5]
    for exposures in wrong:
        with pytest.raises(InvalidInputError, match="exposures must be"):
            coverage(exposures)
    for metric in (gini, entropy, smallest_share):
        with pytest.raises(InvalidInputError, match="nothing was shown"):
            metric([0, 0])


def test_floors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnknownGroupError, match="toyz"):
        esp({"toys": 3}, {"toyz": 2})
    with pytest.raises(InvalidInputError, match="give both by label"):
        esp([3, 4], {"toys": 2})
    with pytest.raises(InvalidInputError, match="2 groups and 3 floors"):
        esp([3, 4], [1, 2, 3])
    with pytest.raises(InvalidInputError, match="floors must be"):
        esp([3, 4], -1)
