"""The lease table: which leases are open, which were lost, and what may be granted beside them."""

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.lease_table import LeaseTable
from fairsync.ledger import Entry, Totals
from fairsync.loop.loop_state import LoopState
from fairsync.policies import make_policy
from fairsync.promises.floors import make_terms

TWO = Catalog(np.eye(2), ["a", "b"])
ENTRY = Entry(np.array([2, 0]), 2, 1.0, 0.0)


def grant(table: LeaseTable, floors: dict[str, int], n: int, policy: str = "guaranteed") -> LeaseTable | None:
    """Lease up to n of ten requests with one slot each."""
    made, terms = make_policy(policy), make_terms(TWO, 1, floors, 10, 10)
    batch = LoopState.open(terms, made, Totals.zero(2)).next_batch(terms, made, n, leased=table.requests)
    granted = table.grant(batch)
    return None if granted is None else granted[0]


def test_leases_are_granted_side_by_side_while_the_rest_suffices() -> None:
    """Eight of ten slots are promised: two leases may deliver nothing, a third one may not."""
    floors = {"a": 5, "b": 3}
    first = grant(LeaseTable(), floors, 1)
    assert first is not None
    second = grant(first, floors, 1)
    assert second is not None
    assert (second.open, second.requests, second.issued) == ({1: 1, 2: 1}, 2, 2)
    assert grant(second, floors, 1) is None
    assert grant(second, floors, 1, policy="none") is not None, "without a guard nothing is promised"
    assert grant(second.release(1), floors, 1) is not None


def test_a_lease_that_is_alone_may_take_all() -> None:
    alone = grant(LeaseTable(), {"a": 5, "b": 5}, 10)
    assert alone is not None
    assert alone.open == {1: 10}
    assert grant(alone, {}, 1, policy="none") is None, "no request is left"


def test_settling_is_idempotent() -> None:
    table = LeaseTable({1: 2, 2: 2}, issued=2)
    settled = table.settle(1, ENTRY)
    assert settled is not None
    after, entry = settled
    assert (after.open, entry.requests) == ({2: 2}, 2)
    assert after.settle(1, ENTRY) is None


def test_a_lost_lease_counts_its_exposures_and_not_its_requests() -> None:
    table = LeaseTable({1: 2}, issued=1).release(1)
    assert (table.open, table.lost, table.release(1)) == ({}, (1,), table)
    settled = table.settle(1, ENTRY)
    assert settled is not None
    after, entry = settled
    assert (entry.counts.tolist(), entry.requests, after.lost) == ([2, 0], 0, ())
    assert after.settle(1, ENTRY) is None


@pytest.mark.parametrize("number", [5, 100, 108])
def test_leases_of_another_coordinator_are_left_to_the_ledger(number: int) -> None:
    settled = LeaseTable(first=100, issued=107).settle(number, ENTRY)
    assert settled is not None
    assert settled[1].requests == 0
