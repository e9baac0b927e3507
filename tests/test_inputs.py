"""Validation: good arguments in their standard form, bad ones refused with a message that says why."""

from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_counts, check_k, check_positive, check_request_ids, check_users

CATALOG = Catalog(np.eye(5), list(range(5)))


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (np.full((2, 5), np.nan), "request 0"),
        (np.array([[0.0] * 5, [0, 0, np.inf, 0, 0]]), "request 1"),
        (np.ones((2, 4)), "4 dimensions"),
        (np.ones(4), "4 dimensions"),
        (np.float64(5), "shape"),
        (None, "float32"),
        (np.ones((2, 0, 5)), "no interest"),
        (np.ones((1, 2, 3, 5)), "shape"),
        (np.array([["a"] * 5]), "float32"),
        ([[1.0, 2.0], [3.0]], "users"),
        (np.ones((2, 5), dtype=complex), "float32"),
        (np.full((2, 5), 1e39), r"request 0 \(and 1 others\) has a value of 1e\+39: scale users below 1e\+38"),
    ],
)
def test_bad_users_are_refused(users: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_users(users, CATALOG)


def test_users_become_interests_of_floats() -> None:
    for users in (np.ones((2, 5), dtype=np.int8), [[1, 0, 0, 0, 0]] * 2, np.ones((2, 1, 5), dtype=np.float16)):
        checked = check_users(users, CATALOG)
        assert (checked.shape, checked.dtype.kind) == ((2, 1, 5), "f")


@pytest.mark.parametrize("value", [0, -1, 2.5, "3", None, True, 10**19])
def test_numbers_that_are_no_counts_are_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match="horizon"):
        check_positive(value, "horizon")


def test_k_is_at_most_the_number_of_items() -> None:
    assert check_k(5, CATALOG) == 5
    with pytest.raises(InvalidInputError, match="only 5 items"):
        check_k(6, CATALOG)


@pytest.mark.parametrize("counts", [[1, 2, 3], [1, -1], [1.5, 2.0], "ab", None, [[1, 2]], [1, [2]], 7])
def test_counts_are_whole_numbers_by_group(counts: Any) -> None:
    with pytest.raises(InvalidInputError, match="counts must be"):
        check_counts(counts, 2)


@pytest.mark.parametrize(
    ("ids", "says"), [("ab", "a list"), (7, "a list"), ([1, 2], "string or None"), (["a"], "2 requests, and 1")]
)
def test_request_ids_are_one_string_for_each_request(ids: Any, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        check_request_ids(ids, 2)
