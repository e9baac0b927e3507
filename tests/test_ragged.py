"""Slices of ragged lists equal slices of Python lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.ragged import Ragged
from sequences import make_ragged

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6)


@given(lists=LISTS, data=st.data())
def test_take_and_part_are_slices_of_lists(lists: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=6))
    stops = [data.draw(st.integers(0, len(lists[row]))) for row in rows]
    starts = [data.draw(st.integers(0, stop)) for stop in stops]
    ragged = make_ragged(lists)
    assert [one.tolist() for one in ragged.take(np.array(rows, dtype=np.int64))] == [lists[row] for row in rows]
    parts = ragged.part(*(np.array(numbers, dtype=np.int64) for numbers in (rows, starts, stops)))
    wanted = [lists[row][start:stop] for row, start, stop in zip(rows, starts, stops, strict=True)]
    assert [one.tolist() for one in parts] == wanted
    assert parts.items.dtype == np.int32


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 3)])
def test_a_part_never_reaches_into_the_next_list(start: int, stop: int) -> None:
    with pytest.raises(InvalidInputError, match="a part must"):
        make_ragged([[1, 2], [3]]).part(np.array([0]), np.array([start]), np.array([stop]))


@pytest.mark.parametrize("offsets", [[], [0, 1], [1, 2], [0, 2, 1, 2]])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="offsets"):
        Ragged(np.array([5, 6], dtype=np.int32), np.array(offsets, dtype=np.int64))
