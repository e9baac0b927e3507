"""Certificates: found if and only if lists exist that keep all promises."""

import time

import numpy as np
import pytest

from effort import HOURS
from fairsync.promises.certificate import find_certificate, is_certificate, prune, renew
from fairsync.promises.exact_plan import exact_plan
from fairsync.promises.plan_bounds import PlanBounds
from promises.lists_checker import lists_exist, random_terms

CASES = max(300, int(HOURS * 3600 / 0.01 / 4))


@pytest.mark.parametrize("caps", [False, True])
@pytest.mark.parametrize("limits", [False, True])
def test_a_certificate_exists_if_and_only_if_lists_exist(caps: bool, limits: bool) -> None:
    answers = []
    for seed in range(CASES):
        rng = np.random.default_rng([seed, caps, limits])
        terms, left = random_terms(rng, caps=caps, limits=limits, closed=0.3)
        expected = lists_exist(terms, terms.floors, terms.caps, left)
        plan = find_certificate(terms, terms.floors, terms.caps, left)
        assert (plan is not None) == expected, seed
        exact = exact_plan(PlanBounds.of(terms, terms.floors, terms.caps, left), time.monotonic() + 60)
        assert (exact is not None) == expected, seed
        for one in (plan, exact):
            assert one is None or is_certificate(terms, one, terms.floors, terms.caps, left), seed
        if plan is not None:
            pruned = prune(terms, plan, terms.floors)
            assert (pruned <= plan).all()
            assert is_certificate(terms, pruned, terms.floors, terms.caps, left), seed
            renewed = renew(terms, plan, terms.floors, terms.caps, left, rng.random(terms.n_atoms))
            assert is_certificate(terms, renewed, terms.floors, terms.caps, left), seed
        answers.append(expected)
    assert 0.2 < np.mean(answers) < 0.9  # the cases are at the edge
