"""One of several coordinators leads. One that has lost the lead without knowing it cannot write as a leader."""

import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import replicas
from coordination.cutting_proxy import CuttingProxy
from fairsync.catalog import Catalog
from fairsync.coordination import leader_election
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.ledger import SqlLedger
from fairsync.ledger.database import Transaction
from postgres_server import PostgresServer

TWO = Catalog(np.eye(2), ["a", "b"])
Start = Callable[..., Coordinator]


@pytest.fixture(autouse=True)
def _ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.coordination.coordinator._ELECTION_SECONDS", 0.0)


def backend(coordinator: Coordinator) -> int:
    """Return the process of the server that holds the coordinator's session."""
    assert isinstance(coordinator.ledger, SqlLedger)
    return int(coordinator.ledger.database.run(lambda tx: tx.execute("SELECT pg_backend_pid()"), "read")[0][0])


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_first_that_asks_leads_until_it_is_closed(start: Start) -> None:
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    assert [one.lead(), other.lead(), one.lead(), other.lead()] == [True, False, True, False]
    one.close()
    assert other.lead(), "a leader that is closed steps down at once"
    assert Coordinator(TWO, k=1).lead(), "a coordinator that is alone always leads"


def test_a_leader_whose_session_has_ended_is_told_once(server: PostgresServer, start: Start) -> None:
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    assert one.lead()
    server.execute("SELECT pg_terminate_backend(%s)", backend(one))
    assert [one.lead(), one.lead()] == [False, True], "others might have led meanwhile"
    server.execute("SELECT pg_terminate_backend(%s)", backend(one))
    wait_until(other.lead)
    assert [one.lead(), one.lead()] == [False, False]


def test_a_former_leader_can_change_nothing(start: Start) -> None:
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    assert one.lead()
    one.set_targets({"a": 1}, 10, restart_at=100.0)
    one.ledger.save("notes", b"first")
    assert other.lead(take=True)
    other.ledger.save("notes", b"second")
    with pytest.raises(BackendUnavailableError, match="taken the lead"):
        one.set_targets({"a": 2}, 10, restart_at=200.0)
    with pytest.raises(BackendUnavailableError, match="taken the lead"):
        one.ledger.save("notes", b"third")
    assert other.ledger.load("notes") == b"second"
    assert (other.report().completed, other.report().floors["a"]) == (1, 1)
    FrontEnd(TWO, one).retrieve(np.ones((2, 2)))  # requests are answered by all
    assert not one.lead()
    assert one.lead(take=True)
    one.set_targets({"a": 2}, 10, restart_at=200.0)
    assert other.report().completed == 2


def test_a_write_under_way_is_lost_with_the_lead(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead is taken between the check of the leader and the end of its transaction."""
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    assert one.lead()
    assert isinstance(one.ledger, SqlLedger)
    fence = one.ledger.check_fence
    reached, go_on = threading.Event(), threading.Event()

    def check_and_wait(transaction: Transaction) -> None:
        fence(transaction)
        reached.set()
        go_on.wait(30)

    monkeypatch.setattr(one.ledger, "check_fence", check_and_wait)
    raised = list[BaseException]()

    def save() -> None:
        try:
            one.ledger.save("notes", b"first")
        except BackendUnavailableError as error:
            raised.append(error)

    saving = threading.Thread(target=save)
    saving.start()
    reached.wait(30)
    assert other.lead(take=True)
    go_on.set()
    saving.join()
    assert "taken the lead" in str(raised[0])
    assert other.ledger.load("notes") is None


def test_a_suspended_leader_loses_the_lead(
    server: PostgresServer, url: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped keeps its connection: it is ended when it has been silent for long."""
    world = replicas.world()
    other = start(world.catalog, k=world.k, auto_restart=False)
    leader = replicas.start_leader(url)
    assert leader.pid is not None
    try:
        wait_until(lambda: other.ledger.load("leader") is not None)
        os.kill(leader.pid, signal.SIGSTOP)
        monkeypatch.setattr(leader_election, "SILENT_SECONDS", 0.3)
        wait_until(other.lead)
        other.ledger.save("leader", b"other")
        os.kill(leader.pid, signal.SIGCONT)
        wait_until(lambda: other.ledger.load("lost the lead"))
        assert other.ledger.load("leader") == b"other"
        assert other.lead()
    finally:
        os.kill(leader.pid, signal.SIGCONT)
        replicas.end(leader)


def test_a_leader_that_is_busy_keeps_the_lead(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    assert one.lead()
    monkeypatch.setattr(leader_election, "SILENT_SECONDS", 5.0)
    for _ in range(5):
        assert one.lead()
        assert not other.lead()


def test_announcements_are_heard_by_the_others(server: PostgresServer, start: Start) -> None:
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    for coordinator in (one, other):
        coordinator.take_news()
    one.announce()
    other.report()
    assert other.take_news()
    assert not other.take_news()
    one.report()
    assert not one.take_news(), "its own"
    server.execute("SELECT pg_terminate_backend(%s)", backend(other))
    other.report()
    assert other.take_news(), "something may have been announced while it was not connected"


def test_changes_are_read_without_an_announcement(start: Start) -> None:
    """A coordinator reads the counts and the promise each time it asks who leads."""
    one, other = (start(k=1, auto_restart=False) for _ in range(2))
    FrontEnd(TWO, one).retrieve(np.ones((3, 2)))
    one.set_targets({"a": 9}, 20)
    assert (one.totals().requests, other.totals().requests, other.terms.floors.tolist()) == (3, 0, [0, 0])
    other.lead()
    assert (other.totals().requests, other.terms.floors[0]) == (3, one.terms.floors[0])


def test_one_ledger_object_has_one_coordinator(url: str) -> None:
    """Two would hold the same lock, and both would lead."""
    with SqlLedger(url, 2, shared=True) as ledger:
        with (
            Coordinator(TWO, k=1, ledger=ledger) as first,
            pytest.raises(InvalidInputError, match="open another one with shared=True"),
        ):
            Coordinator(TWO, k=1, ledger=ledger)
        assert first.lead() is False, "it is closed"
        with Coordinator(TWO, k=1, ledger=ledger) as second:
            assert second.lead()


def test_nobody_leads_while_the_server_is_away() -> None:
    with (
        PostgresServer() as server,
        Coordinator(TWO, k=1, auto_restart=False, timeout=3.0, ledger=server.url) as coordinator,
    ):
        assert coordinator.lead()
        server.kill()
        assert not coordinator.lead()
        server.start()
        wait_until(coordinator.lead)


def test_the_lead_is_taken_back_if_its_grant_was_not_heard(url: str, start: Start, proxy: CuttingProxy) -> None:
    """The session that got the lock is gone, and with it the lock."""
    one, other = (start(k=1, auto_restart=False, ledger=each) for each in (proxy.through(url), url))
    proxy.lose_answer(b"pg_try_advisory_lock")
    wait_until(one.lead)
    assert proxy.cuts == 1
    assert not other.lead()
    assert one.lead()
