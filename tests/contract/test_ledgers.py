"""What every ledger must do."""

from collections.abc import Callable

import numpy as np
import pytest

from fairsync.ledger import Entry, Ledger, MemoryLedger

LEDGERS: dict[str, Callable[[int], Ledger]] = {"memory": MemoryLedger}


@pytest.fixture(params=sorted(LEDGERS))
def ledger(request: pytest.FixtureRequest) -> Ledger:
    return LEDGERS[str(request.param)](3)


def entry(*counts: int, requests: int = 1, opens_horizon: bool = False) -> Entry:
    return Entry(np.array(counts), requests, float(sum(counts)), 0.5, forced=1, opens_horizon=opens_horizon)


def test_it_starts_empty(ledger: Ledger) -> None:
    assert ledger.standing().exposures.tolist() == [0, 0, 0]
    assert ledger.standing().requests == 0
    assert list(ledger.past()) == []


def test_it_adds_up(ledger: Ledger) -> None:
    ledger.record([entry(1, 2, 0), entry(0, 1, 4, requests=3)])
    ledger.record([])
    ledger.record([entry(0, 0, 1)])
    standing = ledger.standing()
    assert standing.exposures.tolist() == [1, 3, 5]
    assert (standing.requests, standing.relevance, standing.cost, standing.forced) == (5, 9.0, 1.5, 3)


def test_horizons_follow_each_other(ledger: Ledger) -> None:
    """Also several within one call."""
    ledger.record([entry(1, 0, 0)])
    ledger.record([entry(2, 0, 0), entry(3, 0, 0, opens_horizon=True), entry(4, 0, 0, opens_horizon=True)])
    assert ledger.standing().exposures.tolist() == [4, 0, 0]
    assert [past.exposures.tolist() for past in ledger.past()] == [[3, 0, 0], [3, 0, 0]]


def test_a_standing_is_a_fact_of_its_time(ledger: Ledger) -> None:
    before = ledger.standing()
    ledger.record([entry(1, 1, 1)])
    assert before.exposures.tolist() == [0, 0, 0]


def test_groups_may_be_added(ledger: Ledger) -> None:
    ledger.record([entry(1, 0, 0), entry(2, 0, 0, opens_horizon=True)])
    ledger.grow(5)
    assert ledger.standing().exposures.tolist() == [2, 0, 0, 0, 0]
    assert [past.exposures.tolist() for past in ledger.past()] == [[1, 0, 0, 0, 0]]
    ledger.record([entry(0, 0, 0, 0, 3), entry(0, 0, 0, 1, 0, opens_horizon=True)])
    assert ledger.standing().exposures.tolist() == [0, 0, 0, 1, 0]
    assert ledger.past()[-1].exposures.tolist() == [2, 0, 0, 0, 3]
