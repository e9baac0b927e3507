import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.requests import Requests, histories_before
from fairsync.errors import InvalidInputError
from fairsync.ragged import PADDING
from sequences import make_ragged

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6)


@given(lists=LISTS, length=st.integers(1, 8), data=st.data())
def test_histories_are_the_last_items_before_a_place(lists: list[list[int]], length: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=6))
    ends = [data.draw(st.integers(0, len(lists[row]))) for row in rows]
    histories = histories_before(
        make_ragged(lists), np.array(rows, dtype=np.int64), np.array(ends, dtype=np.int64), length
    )
    assert histories.dtype == np.int32
    assert histories.shape == (len(rows), length)
    for row, end, history in zip(rows, ends, histories.tolist(), strict=True):
        wanted = lists[row][:end][-length:]
        assert history == wanted + [PADDING] * (length - len(wanted))


def test_requests_must_agree_in_number() -> None:
    with pytest.raises(InvalidInputError, match="same number"):
        Requests(
            np.zeros((2, 3), dtype=np.int32),
            make_ragged([[1]]),
            np.zeros(2, dtype=np.int32),
            np.zeros(2, dtype=np.int64),
        )
