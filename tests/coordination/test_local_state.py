"""The state of one coordinator: leases with deadlines over a loop and a ledger. The clock is the test's own."""

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.coordination.coordinated_items import promise_groups
from fairsync.coordination.lease import Lease, Settlement
from fairsync.coordination.local_state import LocalState
from fairsync.coordination.targets import Targets
from fairsync.errors import InvalidInputError
from fairsync.ledger import Entry, MemoryLedger
from fairsync.loop.commitment import Commitment
from fairsync.policies import make_policy
from fairsync.promises import Promise
from fairsync.promises.floors import make_terms

TWO = Catalog(np.eye(2), ["a", "b"])
A = Entry(np.array([1, 0]), 1, 1.0, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def start(ledger: MemoryLedger, clock: Clock, floors: dict[str, int], *, auto_restart: bool = True) -> LocalState:
    terms = make_terms(TWO, 1, floors, 10, 4, auto_restart=auto_restart)
    return LocalState(ledger, TWO.groups, terms, make_policy("guaranteed"), 30.0, clock=clock)


def leased(state: LocalState, n: int = 1) -> Lease:
    lease = state.lease(n)
    assert lease is not None
    return lease


def test_a_lease_expires() -> None:
    """All slots are promised, so that leases are granted one by one."""
    clock, ledger = Clock(), MemoryLedger(2)
    state = start(ledger, clock, {"a": 5, "b": 5})
    lost = leased(state)
    assert state.lease(1) is None
    clock.now += 20
    assert state.retry_delay(0) == pytest.approx(10)
    assert state.lease(1) is None
    clock.now += 10
    second = leased(state)
    assert second.batch.left == 10, "the requests of the first were granted again"
    assert state.settle(second.number, Settlement(A))
    assert state.settle(lost.number, Settlement(A)), "its counts arrive after all"
    assert not state.settle(lost.number, Settlement(A))
    assert (ledger.totals().exposures.tolist(), ledger.totals().requests) == ([2, 0], 1)


def test_it_continues_where_another_has_died() -> None:
    ledger, clock = MemoryLedger(2), Clock()
    first = start(ledger, clock, {"a": 3})
    settled, lost = leased(first), leased(first)
    first.settle(settled.number, Settlement(A))
    second = start(ledger, clock, {"a": 3})
    assert not second.settle(settled.number, Settlement(A)), "the ledger knows its idempotency key"
    assert second.settle(lost.number, Settlement(A))
    assert leased(second).number not in (settled.number, lost.number)
    assert (ledger.totals().exposures.tolist(), ledger.totals().requests) == ([2, 0], 1)


def test_a_failed_write_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = MemoryLedger(2)
    state = start(ledger, Clock(), {"a": 3})
    lease, before = leased(state), state.loop

    def fails(*_: object) -> bool:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "record", fails)
        with pytest.raises(OSError, match="disk full"):
            state.settle(lease.number, Settlement(A))
        with pytest.raises(OSError, match="disk full"):
            state.record(A, "key")
    assert state.loop is before
    assert state.leases.open == {lease.number: 1}
    assert state.settle(lease.number, Settlement(A))


def test_a_promise_waits_for_leases_that_could_break_it() -> None:
    state = start(MemoryLedger(2), Clock(), {})
    lease = leased(state, 4)
    for floor, done in ((6, True), (7, False)):
        terms = make_terms(TWO, 1, {"a": floor}, 10, 4)
        assert state.promise(TWO.groups, terms, may_wait=True) == done
    assert state.terms.floors.tolist() == [6, 0]
    with pytest.raises(InvalidInputError, match="cannot be met"):
        state.promise(TWO.groups, terms, may_wait=False)
    state.release(lease.number)
    assert state.promise(TWO.groups, terms, may_wait=False)


@pytest.mark.parametrize(
    ("promises", "why"),
    [
        ([Promise({"group": "a"}, at_least=8)], "can no longer be kept together"),
        ([Promise({"group": "a"}, at_most=5), Promise({"group": "b"}, at_most=5)], "while no lease is open"),
    ],
)
def test_promises_that_open_leases_could_break_are_refused_when_they_may_not_wait(
    promises: list[Promise], why: str
) -> None:
    before = Commitment.of(TWO, 1, 0, [Promise({"group": "a"}, at_least=1)], 10, 4, 0)
    state = LocalState(MemoryLedger(1), promise_groups(before), before.terms, make_policy("guaranteed"), 30.0)
    state.settle(leased(state).number, Settlement(Entry(np.array([1]), 1, 1.0, 0.0)))
    lease, after = leased(state, 4), before.changed(TWO, None, promises)
    assert not state.promise(promise_groups(after), after.terms, may_wait=True)
    with pytest.raises(InvalidInputError, match=why):
        state.promise(promise_groups(after), after.terms, may_wait=False)
    state.release(lease.number)
    assert state.promise(promise_groups(after), after.terms, may_wait=False)


def test_targets_start_a_new_horizon_and_add_groups() -> None:
    ledger = MemoryLedger(2)
    state = start(ledger, Clock(), {}, auto_restart=False)
    state.settle(leased(state).number, Settlement(A))
    three = Catalog(np.eye(3), ["a", "b", "c"])
    state.set_targets(Targets(state.extended_groups(three), 5, (np.array([0, 0, 9]),)), restart_at=1000.0)
    assert (state.terms.floors.tolist(), state.terms.horizon) == ([0, 0, 5], 5), "no more than the requests can deliver"
    state.settle(leased(state).number, Settlement(A))  # made by a front end that does not know the new group yet
    assert ledger.totals().exposures.tolist() == [1, 0, 0]
    assert (ledger.totals().began, [one.requests for one in ledger.past()]) == (1000.0, [1])
    with pytest.raises(InvalidInputError, match="in their order"):
        state.extended_groups(Catalog(np.eye(3), ["b", "c", "d"]))
