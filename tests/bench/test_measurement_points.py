"""Measurement points: one variable is scaled, and points that take too long are left out."""

import pytest

from fairsync.bench import MeasurementPoint, make_points
from fairsync.errors import InvalidInputError


def test_one_variable_is_scaled_and_the_others_are_constant() -> None:
    points = make_points(["exact"], ["k", "shards"], base=MeasurementPoint("exact", items=500, groups=5))
    assert [point.k for point in points["k"]] == [10, 50, 200]  # not more than there are items
    assert {(point.items, point.groups, point.shards) for point in points["k"]} == {(500, 5, 1)}
    assert [point.shards for point in points["shards"]] == [1, 2, 4, 8, 16]


def test_points_that_take_too_long_are_left_out() -> None:
    assert MeasurementPoint("hnsw", items=200_000).left_out
    assert MeasurementPoint("one-hot", items=1_000_000, groups=1_000).left_out
    assert MeasurementPoint("exact", items=10**9).left_out is None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'colour'"):
        make_points(["exact"], ["colour"])
    with pytest.raises(InvalidInputError, match="'best'"):
        make_points(["best"])
