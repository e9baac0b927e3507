"""The claims of the eligibility benchmark, and that its contenders answer by their rules."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import eligibility


def test_a_claim_is_about_the_worst_of_its_kind() -> None:
    def figure(rules: str, ratio: float) -> eligibility.EligibilityTime:
        return eligibility.EligibilityTime(1, False, rules, 1.0, ratio, None, None, None, None)

    recalls = [eligibility.EligibleRecall("ivf", share, 0.995, 1.0) for share in (0.5, 0.1)]
    good = [figure(eligibility.FEW, 1.04), figure(eligibility.HUNDREDTH, 0.15)]
    assert all(claim.met for claim in eligibility.check_claims(good, recalls))
    slow = eligibility.check_claims([*good, figure(eligibility.FEW, 1.06), figure(eligibility.HUNDREDTH, 0.3)], recalls)
    assert [claim.met for claim in slow] == [False, False, True]


def test_the_contenders_answer_by_their_rules() -> None:
    contest = eligibility.EligibilityContest(3000, 10, 4, seed=0)
    for rules in (eligibility.FEW, eligibility.MANY, eligibility.HALF, eligibility.HUNDREDTH, eligibility.OWN):
        eligible = contest.eligibility(rules, 4)
        assert eligible is not None
        rows = contest.contenders(4, None)[rules](0).rows  # type: ignore[attr-defined]
        there = rows >= 0
        assert eligible.allows(np.nonzero(there)[0], rows[there]).all()
    named = contest.contenders(4, contest.prices)
    same = [named[rules](0).rows.tolist() for rules in (eligibility.MANY, eligibility.IDS_MANY)]  # type: ignore[attr-defined]
    assert same[0] == same[1]
