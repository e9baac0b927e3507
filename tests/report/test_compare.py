"""The cost of a policy relative to hindsight, and hindsights that cannot be compared."""

import math

import pytest

from fairsync.errors import InvalidInputError
from fairsync.hindsight import Hindsight
from report.made import best, report


def test_cost_relative_to_hindsight() -> None:
    # Plain retrieval has 100, the best plan 95, this one 90: twice what had to be given up. The ledger's bound is 11.
    compared = report([20, 20], [20, 20], cost=11.0, hindsight=best())
    assert compared.cost == pytest.approx(10.0)
    assert compared.cost_ratio == pytest.approx(2.0)
    assert "cost 10% of relevance · 2.00 × hindsight" in str(compared)


@pytest.mark.parametrize(("relevance", "ratio"), [(90.0, math.inf), (100.0, 1.0), (100.0 - 1e-12, 1.0)])
def test_ratios_to_a_least_cost_of_0(relevance: float, ratio: float) -> None:
    compared = report([20, 20], [20, 20], relevance=relevance, hindsight=best(relevance=100.0))
    assert compared.cost_ratio == ratio
    assert compared.to_dict()["cost_ratio"] == (None if ratio == math.inf else ratio)
    assert str(compared)


@pytest.mark.parametrize(
    ("hindsight", "requests", "why"),
    [
        (best(requests=9), 10, "computed for 9 requests of 4 candidates, but the horizon is 10 requests of 4"),
        (best(), 9, "Only 9 of the 10 requests"),
        (best(floors={"g0": 20, "other": 20}), 10, "other groups"),
        (best(floors={"g0": 20, "g1": 19}), 10, "a floor of 19 for group 'g1'"),
    ],
)
def test_a_hindsight_of_other_terms_is_refused(hindsight: Hindsight, requests: int, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        report([20, 20], [20, 20], requests=requests, hindsight=hindsight)


def test_a_hindsight_of_other_requests_is_refused_if_detected() -> None:
    with pytest.raises(InvalidInputError, match="more than the 100 that the hindsight has without floors"):
        report([20, 20], [20, 20], relevance=101.0, hindsight=best())
