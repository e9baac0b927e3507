from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.metrics import category_diversity

GROUPS = ["toys", "books", "books", "games", "toys", "books"]
LISTS = st.integers(2, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(-1, 5), min_size=k, max_size=k), min_size=1, max_size=5)
)


def plain_diversity(lists: list[list[int]]) -> float | None:
    """Return the mean over lists of the share of pairs that differ; None where there are no pairs."""
    shares = []
    for one in lists:
        pairs = list(combinations([GROUPS[row] for row in one if row >= 0], 2))
        if pairs:
            shares.append(sum(left != right for left, right in pairs) / len(pairs))
    return float(np.mean(shares)) if shares else None


@given(lists=LISTS, k=st.none() | st.just(2))
def test_pairs_are_compared_as_a_plain_loop_compares_them(lists: list[list[int]], k: int | None) -> None:
    wanted = plain_diversity([one[:k] for one in lists])
    if wanted is None:
        with pytest.raises(InvalidInputError, match="no list has two items"):
            category_diversity(lists, GROUPS, k)
    else:
        assert category_diversity(lists, GROUPS, k) == pytest.approx(wanted, abs=1e-12)


def test_ids_are_compared_by_their_labels() -> None:
    assert category_diversity([["a", "b"], ["b", "c"]], {"a": 1, "b": 2, "c": 2}) == 0.5
