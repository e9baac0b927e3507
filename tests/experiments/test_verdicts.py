"""Verdicts from trials and from tables, on numbers that support a claim and on numbers that refute it."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from experiments.trial_results import along, at, result
from fairsync.experiments.exhibit import ExhibitTable
from fairsync.experiments.verdicts import (
    TrialResult,
    Verdict,
    above_at_every_floor,
    as_accurate,
    as_fast,
    as_in_the_extreme_case,
    breaks_beyond,
    compare,
    correlated,
    cost_at_most,
    falls_then_rises,
    floors_cost,
    floors_met,
    floors_missed,
    met_with_more_recall,
    more_accurate,
    towards_the_needy,
)


def sizes(esps: dict[int, float]) -> list[TrialResult]:
    return [result("fairsync", esp=esp, batch_size=size) for size, esp in esps.items()]


plain = [result("none", esp=0.4), result("none", esp=0.4, k=50)]

CASES: list[tuple[Callable[[Iterable[TrialResult]], Verdict], list[TrialResult], list[TrialResult]]] = [
    (
        lambda seen: floors_met(seen, "fairsync"),
        [result("fairsync"), result("ipw", esp=0.5)],
        [result("fairsync"), result("fairsync", esp=0.99, k=50)],
    ),
    (
        lambda seen: floors_missed(seen, ("regularized-fair", "ipw")),
        [
            *plain,
            result("regularized-fair", esp=0.9),
            result("ipw", esp=0.5),
            result("ipw", k=99),
            result("none", k=99),
        ],
        [*plain, result("regularized-fair", esp=0.9), result("ipw", esp=0.5), result("ipw", k=50)],
    ),
    (
        lambda seen: more_accurate(seen, "fairsync", "uncalibrated"),
        at(fairsync=0.5, uncalibrated=0.4),
        [*at([20], fairsync=0.5, uncalibrated=0.4), *at([50], fairsync=0.5, uncalibrated=0.51)],
    ),
    (  # better, but not significantly
        lambda seen: more_accurate(seen, "fairsync", "uncalibrated"),
        at(fairsync=0.5, uncalibrated=0.4),
        at(fairsync=0.5, uncalibrated=0.4999999),
    ),
    (
        lambda seen: as_accurate(seen, "fairsync", ("regularized-fair", "ipw")),
        at(fairsync=0.496, regularized_fair=0.5, ipw=0.5),
        at(fairsync=0.49, regularized_fair=0.5, ipw=0.49),
    ),
    (
        lambda seen: above_at_every_floor(seen, "fairsync", "uncalibrated"),
        along("floor", {1: 0.5, 9: 0.4}) + along("floor", {1: 0.4, 9: 0.3}, "uncalibrated"),
        along("floor", {1: 0.5, 9: 0.4}) + along("floor", {1: 0.4, 9: 0.4}, "uncalibrated"),
    ),
    (
        lambda seen: floors_cost(seen, "fairsync"),
        along("floor", {1: 0.5, 5: 0.51, 9: 0.4}),
        along("floor", {1: 0.5, 9: 0.4}) + along("floor", {1: 0.5, 9: 0.5}, k=50),
    ),
    (
        lambda seen: breaks_beyond(seen, "fairsync", 64),
        sizes({1: 1.0, 64: 1.0, 128: 0.9, 512: 0.99}),
        sizes({1: 1.0, 64: 1.0, 128: 0.9, 512: 1.0}),
    ),
    (
        lambda seen: breaks_beyond(seen, "fairsync", 64),
        sizes({1: 1.0, 64: 1.0, 128: 0.9}),
        sizes({1: 1.0, 64: 0.9, 128: 0.9}),
    ),
    (
        lambda seen: falls_then_rises(seen, "fairsync", 8),
        along("batch_size", {1: 0.5, 8: 0.4, 512: 0.6}),
        along("batch_size", {1: 0.5, 8: 0.4, 512: 0.6}) + along("batch_size", {1: 0.5, 8: 0.6, 512: 0.7}, k=50),
    ),
    (
        lambda seen: met_with_more_recall(seen, "fairsync", ("k-neighbor", "uncalibrated")),
        at([20], fairsync=0.5, k_neighbor=0.1, uncalibrated=0.4),
        at([20], fairsync=0.5, k_neighbor=0.1, uncalibrated=0.6),
    ),
    (
        lambda seen: met_with_more_recall(seen, "fairsync", ("k-neighbor", "uncalibrated")),
        at([20], fairsync=0.5, k_neighbor=0.1, uncalibrated=0.4),
        [result("fairsync", 0.5, esp=0.9), *at([20], k_neighbor=0.1, uncalibrated=0.4)],
    ),
    (
        lambda seen: cost_at_most(seen, "guaranteed", 2.0),
        [result("guaranteed", cost=1.5), result("fairsync", cost=9.0)],
        [result("guaranteed", cost=1.5), result("guaranteed", cost=2.1, k=50)],
    ),
]


@pytest.mark.parametrize(("judge", "good", "bad"), CASES)
def test_both_ways(
    judge: Callable[[Iterable[TrialResult]], Verdict], good: list[TrialResult], bad: list[TrialResult]
) -> None:
    assert judge(iter(good)).ruling == "holds"
    assert judge(iter(bad)).ruling == "does not hold"
    assert judge(iter([result("none")])).ruling == "not comparable"


def test_figures_are_of_the_run() -> None:
    found = [result("fairsync", esp=esp, k=k) for k, esp in ((20, 1.0), (50, 0.875))]
    assert floors_met(found, "fairsync").figures == "all floors met in 1 of 2 trials; lowest ESP 87.5%"
    assert floors_met([*found, result("none", esp=0.3)], "fairsync").figures.endswith("87.5%, without floors 30.0%")
    text = more_accurate(at(fairsync=0.5, uncalibrated=0.4), "fairsync", "uncalibrated").figures
    assert text == "better in 6 of 6 comparisons, significantly in 6; recall 50.00% against 40.00% on average"


def test_the_test_of_significance_is_paired_and_pools_seeds() -> None:
    rng = np.random.default_rng(1)
    mine, theirs = [result("fairsync").outcome, result("ipw").outcome], [result("none").outcome] * 2
    for one in (*mine, theirs[0]):
        one.each["recall"] = rng.random(50).tolist()
    gain, p = compare(mine, theirs, "recall")
    first, second = ([value for one in some for value in one.each["recall"]] for some in (mine, theirs))
    assert gain == pytest.approx(np.mean(first) - np.mean(second))
    assert p == pytest.approx(ttest_rel(first, second).pvalue)
    assert compare(mine, mine, "recall") == (0.0, 1.0)


def test_seeds_meet_their_own_kind() -> None:
    """The second method lists its seeds in another order, and has one that the first has not."""
    mine = [result("fairsync", 0.5 + seed / 10, seed=seed) for seed in (0, 1)]
    theirs = [result("ipw", 0.49 + seed / 10, seed=seed) for seed in (2, 1, 0)]
    for one in (*mine, *theirs):
        one.outcome.each["recall"] = [one.outcome.recall, one.outcome.recall + 0.001]
    verdict = as_accurate([*mine, *theirs], "fairsync", ("ipw",))
    assert "recall 55.00% against 54.00%" in verdict.figures


def table(columns: str, *rows: list[Any]) -> ExhibitTable:
    return ExhibitTable(columns.split(", "), rows)


def extreme(recall: float, esp: float) -> ExhibitTable:
    return table("Method, Recall %, ESP %", ["none", 100.0, 50.0], ["fairsync", recall, esp])


def ranks(needy: list[int]) -> ExhibitTable:
    """Return two groups at two moments; only that of the first at the end matters."""
    columns = "requests, group, without floors, due, rank, rank in dual space"
    end = [[9, "a", 1, 5, *needy], [9, "b", 8, 5, 1, 2]]
    return table(columns, [3, "a", 1, 2, 100, 150], [3, "b", 1, 2, 1, 1], *end)


TABLES: list[tuple[Callable[[ExhibitTable], Verdict], ExhibitTable, ExhibitTable]] = [
    (
        lambda seen: correlated(seen, 0.7),
        table("K, correlation", [20, 0.9], [20, 0.9], [50, 0.7]),
        table("K, correlation", [20, 0.9], [50, -0.8]),
    ),
    (lambda seen: as_in_the_extreme_case(seen, "fairsync", 0.96), extreme(95.9, 100.0), extreme(94.9, 100.0)),
    (
        lambda seen: as_fast(seen, "fairsync", 8, 1.25),
        table("B, fairsync ÷ base", [1, 3.0], [8, 1.4], [16, 1.25], [512, 0.9]),
        table("B, fairsync ÷ base", [1, 1.0], [16, 1.2], [512, 1.26]),
    ),
    (towards_the_needy, ranks([100, 20]), ranks([100, 101])),
    (lambda seen: as_in_the_extreme_case(seen, "fairsync", 0.96), extreme(95.9, 100.0), extreme(96.0, 50.0)),
]


@pytest.mark.parametrize(("judge", "good", "bad"), TABLES)
def test_tables_both_ways(judge: Callable[[ExhibitTable], Verdict], good: ExhibitTable, bad: ExhibitTable) -> None:
    assert judge(good).ruling == "holds"
    assert judge(bad).ruling == "does not hold"


def test_tables_that_do_not_decide() -> None:
    assert as_fast(table("B, fairsync ÷ base", [8, 1.0]), "fairsync", 8, 1.25).ruling == "not comparable"
    nobody = table("requests, group, without floors, due, rank, rank in dual space", [9, "a", 5, 5, 2, 1])
    assert towards_the_needy(nobody).ruling == "not comparable"


def test_a_stage_that_does_not_vary_has_no_correlation() -> None:
    assert correlated(table("K, correlation", [20, None]), 0.7).ruling == "not comparable"
