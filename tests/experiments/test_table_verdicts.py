"""Verdicts from tables, on numbers that support a claim and on numbers that refute it."""

from collections.abc import Callable
from typing import Any

import pytest

from fairsync.experiments.claim_verdicts import (
    Verdict,
)
from fairsync.experiments.exhibit import ExhibitTable
from fairsync.experiments.table_verdicts import as_fast, as_in_the_extreme_case, correlated, towards_the_needy


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
