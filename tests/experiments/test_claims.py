"""Every claim gets a verdict, and sees each trial once."""

from experiments.trial_results import along, result
from fairsync.experiments.claims import CLAIMS, Evidence, judge_all
from fairsync.experiments.exhibit import Exhibit, ExhibitTable
from fairsync.experiments.verdicts import (
    Verdict,
)


def test_claims_about_experiments_that_were_not_run() -> None:
    judged = judge_all({}, lambda name: [], {"table-2": "no users"})
    rulings = {one.claim.experiment: one.verdict for one in judged}
    assert rulings["table-2"] == Verdict("not comparable", "not possible here: no users")
    assert rulings["batch-size"].ruling == "not run"
    assert len(judged) == len(CLAIMS)


def test_a_claim_about_everything_sees_every_experiment_once() -> None:
    shared, bad = result("guaranteed"), result("guaranteed", esp=0.5, k=50)
    seen = {"a": [shared], "b": [shared, bad]}
    exhibits = {name: Exhibit(name, name, "", ExhibitTable([], [])) for name in seen}
    [one] = [one for one in judge_all(exhibits, seen.__getitem__, {}) if one.claim.experiment is None]
    assert one.verdict == Verdict("does not hold", "all floors met in 1 of 2 trials; lowest ESP 50.0%")
    assert one.claim.ours


def test_batch_sizes_are_judged_with_one_coefficient() -> None:
    """Tuned for each size the claim would hold. It is judged with one coefficient, with which it does not."""
    tuned_each = along("batch_size", {1: 0.5, 8: 0.4, 512: 0.6})
    once = along("batch_size", {1: 0.5, 8: 0.6, 512: 0.7}, coefficient=0.1)
    [claim] = [one for one in CLAIMS if one.sentence.startswith("Accuracy falls")]
    assert claim.judge(Evidence(iter([*tuned_each, *once]), ExhibitTable([], []))).ruling == "does not hold"
