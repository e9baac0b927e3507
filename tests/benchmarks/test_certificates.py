"""The benchmark of certificates measures promises that leave as many slots as it says."""

import sys
from pathlib import Path

import pytest

from fairsync.promises.certificate import find_certificate

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import certificates


@pytest.mark.parametrize("slack", [0.1, 0.0])
def test_the_promises_fit_and_leave_the_slots_that_are_said(slack: float) -> None:
    terms = certificates.make_terms(20, 50, 400, 1_000, slack, seed=0)
    total = terms.horizon * terms.k
    assert terms.floors[:20].sum() == pytest.approx((1 - slack) * total)
    assert find_certificate(terms, terms.floors, None, terms.horizon) is not None
    line = certificates.measure(terms, slack, seed=0)
    assert 1 - slack <= line.total <= 1
    assert certificates.to_table([line]).rows[0][0] == f"{slack:.1%}"
