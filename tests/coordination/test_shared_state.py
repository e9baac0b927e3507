"""Several coordinators share a promise in a real Postgres: counts, leases and the promise are common."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest

from coordination.cutting_proxy import COMMIT, SETTLED, CuttingProxy
from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.lease import Settlement
from fairsync.coordination.shared_join import join_ledger
from fairsync.coordination.shared_state import SharedState
from fairsync.errors import (
    BackendUnavailableError,
    ExpiredRequestError,
    FairSyncError,
    InvalidInputError,
    RepeatedRequestError,
)
from fairsync.ledger import Entry, Retention, SqlLedger
from fairsync.ledger.postgres import EXCLUSIVE
from fairsync.ledger.sql_ledger import DELETE_EVERY
from fairsync.policies import POLICIES, make_policy
from fairsync.promises.floors import make_terms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from postgres_server import PostgresServer
from worlds import World, make_world

TWO = Catalog(np.eye(2), ["a", "b"])
A, B = Entry(np.array([1, 0]), 1, 1.0, 0.0), Entry(np.array([0, 1]), 1, 1.0, 0.0)
Start = Callable[..., Coordinator]


def execute(coordinator: Coordinator, query: str, **values: object) -> list[tuple[Any, ...]]:
    """Run a query in the coordinator's database."""
    assert isinstance(coordinator.ledger, SqlLedger)
    return coordinator.ledger.database.run(lambda transaction: transaction.execute(query, **values))


def open_leases(coordinator: Coordinator) -> dict[int, int]:
    rows = execute(coordinator, "SELECT number, requests FROM leases WHERE requests > 0")
    assert len(dict(rows)) == len(rows), "a lease has two rows"
    return dict(rows)


def expire(coordinator: Coordinator, number: int) -> None:
    execute(coordinator, "UPDATE leases SET expires_at = {now} WHERE number = :number", number=number)


def labelled(world: World, returned: Counter[Any]) -> dict[Any, int]:
    return {label: returned[label] for label in world.catalog.labels}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("batch", [1, 7])
def test_one_coordinator_is_a_retriever(start: Start, policy: str, batch: int) -> None:
    """Also across the end of a horizon, and for any size of calls."""
    world = make_world(3, horizon=60, tightness=0.5)
    settings: dict[str, Any] = {"k": world.k, "floors": world.floors, "horizon": 40}
    alone = FairRetriever(world.catalog, policy=policy, batch_size=batch, **settings)
    coordinator = start(world.catalog, policy=policy, batch_size=batch, **settings)
    front = FrontEnd(world.catalog, coordinator)
    for part in np.split(world.users, [1, 20, 45]):
        assert front.retrieve(part).ids.tolist() == alone.retrieve(part).ids.tolist()
    one, other = coordinator.report(), alone.report()
    assert (one.exposures, one.requests, one.completed) == (other.exposures, other.requests, other.completed)


def serve_side_by_side(world: World, coordinators: list[Coordinator], calls: int) -> Counter[Any]:
    """Let a front end of each coordinator answer its share of the requests, all at once; return the exposures."""
    counts: list[Counter[Any]] = [Counter() for _ in coordinators]
    failures: list[BaseException] = []

    def work(mine: int) -> None:
        front = FrontEnd(world.catalog, coordinators[mine])
        try:
            for part in np.array_split(world.users[mine :: len(coordinators)], calls):
                counts[mine].update(front.retrieve(part).groups.ravel().tolist())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(len(coordinators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
    assert not failures, failures
    return sum(counts, Counter())


@pytest.mark.parametrize("tightness", [0.3, 0.97])
def test_horizons_follow_each_other_for_all(start: Start, tightness: float) -> None:
    """Three coordinators, each with two front ends, over three horizons: each horizon keeps its floors."""
    horizon = 160
    world = make_world(7, items=60, horizon=3 * horizon, tightness=tightness)
    floors = {label: floor // 3 for label, floor in world.floors.items()}
    sharing = [start(world.catalog, k=world.k, floors=floors, horizon=horizon, batch_size=8) for _ in range(3)]
    returned = serve_side_by_side(world, [*sharing, *sharing], calls=8)
    horizons = [*sharing[0].ledger.past(), sharing[1].ledger.totals()]
    assert [one.requests for one in horizons] == [horizon] * 3
    assert all((one.exposures >= list(floors.values())).all() for one in horizons)
    assert np.sum([one.exposures for one in horizons], axis=0).tolist() == list(labelled(world, returned).values())
    assert [one.report().completed for one in sharing] == [2, 2, 2]


def test_entries_are_added_to_the_totals_beside_settlements(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are settled while a lease adds the others stay, and all count once."""
    monkeypatch.setattr("fairsync.coordination.shared_rows._MAX_ENTRIES", 2)
    sharing = [start(k=1, horizon=10**6, batch_size=1) for _ in range(3)]

    def work(mine: int) -> None:
        for _ in range(60):
            sharing[mine].settle(sharing[mine].lease(1).number, Settlement(A))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.report().exposures for one in sharing] == [{"a": 180, "b": 0}] * 3
    assert [one.report().requests for one in sharing] == [180] * 3
    assert execute(sharing[0], "SELECT requests FROM horizons")[0][0] > 0, "some were added"
    assert open_leases(sharing[0]) == {}


def test_threads_of_a_process_do_not_overwrite_what_each_has_counted(url: str) -> None:
    interval = sys.getswitchinterval()
    with SqlLedger(url, 2, shared=True) as ledger:

        def work() -> None:
            for _ in range(50):
                ledger.record([A])

        threads = [threading.Thread(target=work) for _ in range(4)]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert (ledger.totals().exposures.tolist(), ledger.totals().requests) == ([200, 0], 200)


def test_a_server_that_was_replaced_is_not_told_what_it_has_forgotten(server: PostgresServer, start: Start) -> None:
    """As after a failover to a copy that lags behind: counts and requests of later entries stay together."""
    mine, other = (start(k=1, horizon=100) for _ in range(2))
    for _ in range(3):
        mine.settle(mine.lease(1).number, Settlement(A))
    ((pid,),) = execute(mine, "SELECT pg_backend_pid()")
    before = np.array([1, 0]).astype("<i8").tobytes()
    execute(other, "UPDATE entries SET requests = 1, exposures = :before", before=before)
    server.execute("SELECT pg_terminate_backend(%s)", pid)
    mine.settle(mine.lease(1).number, Settlement(B))
    mine.settle(mine.lease(1).number, Settlement(B))
    report = other.report()
    assert (report.exposures, report.requests) == ({"a": 1, "b": 2}, 3)


def test_horizons_begin_beside_settlements(start: Start) -> None:
    """Counts that are settled while a horizon ends are in it or in the next one, and all count once."""
    sharing = [start(k=1, horizon=10**6, batch_size=1, auto_restart=False) for _ in range(3)]
    n_settled, n_horizons = 60, 20

    def work(mine: int) -> None:
        for _ in range(n_settled):
            sharing[mine].settle(sharing[mine].lease(1).number, Settlement(A))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(2)]
    for thread in threads:
        thread.start()
    for began in range(n_horizons):
        sharing[2].set_targets(0, 10**6, restart_at=1.0 + began)
    for thread in threads:
        thread.join()
    horizons = [*sharing[2].ledger.past(), sharing[2].ledger.totals()]
    assert len(horizons) == n_horizons + 1
    assert np.sum([one.exposures for one in horizons], axis=0).tolist() == [2 * n_settled, 0]
    assert sum(one.requests for one in horizons) == 2 * n_settled
    assert open_leases(sharing[0]) == {}


def test_rows_do_not_grow_with_the_number_of_leases(start: Start) -> None:
    sharing = [start(k=1, horizon=10**6, batch_size=1) for _ in range(3)]
    for _ in range(20):
        leases = [one.lease(1) for one in sharing]
        for one, lease in zip(sharing, leases, strict=True):
            one.settle(lease.number, Settlement(A))
    assert execute(sharing[0], "SELECT count(*) FROM leases")[0][0] == 3
    assert execute(sharing[0], "SELECT count(*) FROM entries")[0][0] == 3
    assert sharing[1].ledger.totals().exposures.tolist() == [60, 0]


def test_a_dead_coordinator_is_not_waited_for(start: Start) -> None:
    """All slots are promised, so that leases are granted one by one; one coordinator dies with its lease."""
    dead, alive = (
        start(k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=1, lease_seconds=seconds) for seconds in (0.3, 30)
    )
    lost = dead.lease(1)
    assert alive.try_lease(1) is None
    FrontEnd(TWO, alive).retrieve(np.ones((10, 2)))
    assert alive.report().exposures == {"a": 5, "b": 5}
    for _ in range(2):
        dead.settle(lost.number, Settlement(A))  # it was only slow
        alive.settle(lost.number, Settlement(A))
        assert alive.report().exposures == {"a": 6, "b": 5}
    assert alive.report().requests == 10


def test_leases_expire_by_the_clock_of_the_server(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        start(k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=1, lease_seconds=seconds) for seconds in (50, 1)
    )
    lease = first.lease(1)
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: 1e12)
        assert second.try_lease(1, timeout=0.05) is None
    ((left,),) = execute(first, "SELECT expires_at - {now} FROM leases WHERE requests > 0")
    assert 0 < left <= 50
    expire(first, lease.number)
    assert second.try_lease(1) is not None


def test_a_lease_that_is_settled_while_it_expires_counts_with_its_requests(start: Start, url: str) -> None:
    """The settlement has deleted its row, and is not committed, when another coordinator deletes what has expired."""
    slow, mine = (start(k=1, horizon=100, batch_size=5) for _ in range(2))
    late = slow.lease(5)
    expire(slow, late.number)
    granted, holding, done = list[Any](), threading.Event(), threading.Event()
    assert isinstance(slow.ledger, SqlLedger)

    def settle(transaction: Any) -> None:
        assert transaction.execute("UPDATE leases SET requests = 0 RETURNING number") == [(late.number,)]
        transaction.execute(
            "INSERT INTO entries (requests, relevance, cost, forced, exposures) VALUES (5, 1.0, 0.0, 0, :counts)",
            counts=np.array([5, 0]).astype("<i8").tobytes(),
        )
        holding.set()
        done.wait(0.3)

    settling = threading.Thread(target=slow.ledger.database.run, args=(settle,))
    settling.start()
    holding.wait()
    granted.append(mine.lease(5))
    settling.join()
    assert granted[0].batch.left == 95
    assert mine.totals().requests == 5


def test_a_lease_that_expires_while_others_are_deleted_is_deleted_too(server: PostgresServer, start: Start) -> None:
    """Otherwise its requests would be granted again, and count twice when it is settled."""
    mine, other = (start(k=1, horizon=100, batch_size=5) for _ in range(2))
    first, second = other.lease(5), other.lease(5)
    expire(other, first.number)
    assert isinstance(other.ledger, SqlLedger)
    schema = other.ledger.database.address.rpartition(" ")[2].rstrip(")")
    with psycopg.connect(server.url) as holder:
        holder.execute(f"SELECT * FROM {schema}.leases WHERE number = %s FOR UPDATE".encode(), (first.number,))
        granted = list[Any]()
        leasing = threading.Thread(target=lambda: granted.append(mine.lease(5)))
        leasing.start()
        while not server.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            time.sleep(0.01)
        holder.execute(f"UPDATE {schema}.leases SET expires_at = 0 WHERE number = %s".encode(), (second.number,))
    leasing.join()
    assert granted[0].batch.left == 100
    assert open_leases(mine) == {granted[0].number: 5}
    other.settle(second.number, Settlement(Entry(np.array([5, 0]), 5, 1.0, 0.0)))
    assert (mine.report().requests, mine.report().exposures["a"]) == (0, 5)


@pytest.mark.parametrize("others_were_faster", [False, True])
def test_a_grant_whose_outcome_is_unknown_is_taken_back(
    url: str, start: Start, proxy: CuttingProxy, others_were_faster: bool
) -> None:
    mine, other = (start(k=1, floors={"a": 2}, horizon=10, ledger=each) for each in (proxy.through(url), url))
    theirs = other.lease(1)
    proxy.lose_answer(COMMIT)
    lease = mine.lease(1)
    assert proxy.cuts == 1
    if others_were_faster:
        other.settle(theirs.number, Settlement(B))
    assert open_leases(other) == {lease.number: 1, **({} if others_were_faster else {theirs.number: 1})}
    mine.settle(lease.number, Settlement(A))
    assert (other.report().exposures["a"], other.report().requests) == (1, 1 + others_were_faster)


def test_a_horizon_whose_begin_has_an_unknown_outcome_begins_once(url: str, start: Start, proxy: CuttingProxy) -> None:
    mine, other = (start(k=1, floors={"a": 1}, horizon=2, ledger=each) for each in (proxy.through(url), url))
    FrontEnd(TWO, mine).retrieve(np.ones((2, 2)))
    proxy.lose_answer(COMMIT)
    lease = mine.lease(1)
    assert proxy.cuts == 1
    assert open_leases(other) == {lease.number: 1}
    assert (other.report().completed, lease.batch.left) == (1, 2)


def test_a_settlement_whose_outcome_is_unknown_counts_once(url: str, start: Start, proxy: CuttingProxy) -> None:
    """It is known to be this coordinator's own, so that its policy learns from it."""
    mine, other = (start(k=1, floors={"a": 2}, horizon=10, ledger=each) for each in (proxy.through(url), url))
    lease = mine.lease(1)
    proxy.lose_answer(SETTLED)
    mine.settle(lease.number, Settlement(A, answers={"one": b"answer"}))
    assert proxy.cuts == 1
    assert mine.totals().requests == 1
    mine.settle(lease.number, Settlement(A, answers={"one": b"answer"}))
    proxy.lose_answer(SETTLED)
    assert mine.record_impressions([1, 0], "shown"), "this call has recorded it"
    assert not mine.record_impressions([1, 0], "shown")
    assert proxy.cuts == 2
    assert (other.report().exposures, other.report().requests) == ({"a": 1, "b": 0}, 1)


def test_a_single_writer_counts_a_settlement_whose_outcome_is_unknown(url: str, proxy: CuttingProxy) -> None:
    with SqlLedger(proxy.through(url), 2) as ledger, Coordinator(TWO, k=1, horizon=10, ledger=ledger) as coordinator:
        lease = coordinator.lease(1)
        proxy.lose_answer(COMMIT)
        coordinator.settle(lease.number, Settlement(A))
        assert proxy.cuts == 1
        assert coordinator.report().requests == ledger.totals().requests == 1


def make_state(ledger: SqlLedger, floors: dict[str, int]) -> SharedState:
    return join_ledger(ledger, TWO.groups, make_terms(TWO, 1, floors, 10, 16), make_policy("guaranteed"), 30.0)


def test_a_promise_that_is_repeated_does_not_undo_that_of_another(url: str, start: Start) -> None:
    """The connection is lost when the first attempt has read what another coordinator has promised meanwhile."""
    with SqlLedger(url, 2, shared=True) as ledger, pytest.MonkeyPatch.context() as patched:
        mine = make_state(ledger, {"a": 1})
        other, before = start(k=1, floors={"a": 1}, horizon=10), mine.terms
        other.promise({"a": 5})
        run, cuts = ledger.database.run, list[int]()

        def cut_once(action: Callable[[Any], Any], lock: Any = "entries", **settings: Any) -> Any:
            def cut(transaction: Any) -> Any:
                result = action(transaction)
                if not cuts:
                    cuts.append(1)
                    raise psycopg.OperationalError("cut")
                return result

            return run(cut, lock, **settings)

        patched.setattr(ledger.database, "run", cut_once)
        assert not mine.promise(TWO.groups, replace(before, horizon=20), may_wait=True), "it was decided by old terms"
    assert cuts
    assert (other.report().floors["a"], other.terms.horizon) == (5, 10)


def test_of_two_first_coordinators_one_makes_the_promise(url: str, start: Start) -> None:
    """The other one has seen that there is none, and finds it when it writes its own."""
    with SqlLedger(url, 2, shared=True) as ledger, pytest.MonkeyPatch.context() as patched:
        load, started = ledger.load, list[Coordinator]()

        def load_and_wait(name: str) -> bytes | None:
            data = load(name)
            if not started:
                started.append(start(k=1, floors={"a": 2}, horizon=10))
            return data

        patched.setattr(ledger, "load", load_and_wait)
        with pytest.raises(InvalidInputError, match="differs in floors"):
            make_state(ledger, {"a": 9})
    assert started[0].report().floors["a"] == 2


def test_groups_are_added_while_a_coordinator_joins(url: str, start: Start) -> None:
    """A coordinator of targets has read them, and reads counts of more groups than they have."""
    first, three = start(k=1, auto_restart=False), Catalog(np.eye(3), ["a", "b", "c"])
    first.set_targets({"a": 4}, 10)
    with SqlLedger(url, 2, shared=True) as ledger, pytest.MonkeyPatch.context() as patched:
        load, calls = ledger.load, list[int]()

        def load_and_wait(name: str) -> bytes | None:
            data = load(name)
            if not calls:
                calls.append(1)
                first.set_targets({"a": 4}, 10, groups=three.groups)
            return data

        patched.setattr(ledger, "load", load_and_wait)
        joined = Coordinator(Catalog(np.eye(4), ["a", "b", "c", "d"]), k=1, auto_restart=False, ledger=ledger)
        assert joined.terms.floors.tolist() == [4, 0, 0, 0]
        joined.close()


def test_an_entry_of_unknown_groups_is_refused(start: Start) -> None:
    """Such an entry in the ledger would stop all coordinators."""
    mine, other = (start(k=1, horizon=10) for _ in range(2))
    lease, three = mine.lease(1), Entry(np.array([0, 0, 1]), 1, 1.0, 0.0)
    with pytest.raises(InvalidInputError, match="add the groups to the promise first"):
        mine.settle(lease.number, Settlement(three))
    assert open_leases(other) == {lease.number: 1}
    other.promise(catalog=Catalog(np.eye(3), ["a", "b", "c"]))
    # They are known now, though this coordinator has not heard of them yet.
    mine.settle(lease.number, Settlement(three))
    assert mine.totals().exposures.tolist() == [0, 0, 1]
    assert other.report().exposures == {"a": 0, "b": 0, "c": 1}


def test_a_promise_reaches_all(start: Start) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    catalog = Catalog(vectors[:40], ["a"] * 20 + ["b"] * 20, ids=list(range(40)))
    sharing = [start(catalog, k=4, floors={"b": 100}, horizon=100, batch_size=5) for _ in range(3)]
    fronts = [FrontEnd(catalog, one) for one in sharing]
    returned: Counter[Any] = Counter()

    def serve_some(n: int) -> None:
        for front in fronts:
            returned.update(front.retrieve(rng.normal(size=(n, 8))).groups.ravel().tolist())

    serve_some(5)
    late = sharing[2].lease(1)  # with the groups of before
    new = (vectors[40:], ["c"] * 20, list(range(40, 60)))
    after = upsert_items(catalog, *new).catalog
    sharing[0].promise({"b": 110, "c": 60}, catalog=after)
    lease = sharing[1].lease(1)
    assert lease.batch.terms.floors.tolist() == [0, 110, 60]
    sharing[1].release(lease.number)
    sharing[2].settle(late.number, Settlement(Entry(np.array([4, 0]), 1, 1.0, 0.0)))
    returned["a"] += 4
    fronts[0].upsert(*new)
    serve_some(5)
    fronts[1].upsert(*new)
    fronts[2].replace(after)
    serve_some(20)
    returned.update(fronts[0].retrieve(rng.normal(size=(9, 8))).groups.ravel().tolist())
    for one in sharing:
        report = one.report()
        assert (report.requests, report.esp, report.exposures) == (100, 1, dict(returned))
    with pytest.raises(FairSyncError, match="cannot be met"):
        sharing[1].promise({"b": 1000})
    with pytest.raises(InvalidInputError, match="in their order"):
        sharing[1].promise(catalog=Catalog(np.eye(8), ["b", "c"] * 4))
    assert sharing[2].report().floors == report.floors


def test_a_promise_waits_for_leases_that_could_break_it(start: Start) -> None:
    """Five of ten requests are leased, and may deliver nothing of it."""
    mine, other = (start(k=1, floors=0, horizon=10, batch_size=5) for _ in range(2))
    lease = other.lease(5)
    mine.promise({"a": 5})
    settled = threading.Timer(0.2, other.settle, (lease.number, Settlement(Entry(np.array([0, 5]), 5, 1.0, 0.0))))
    settled.start()
    with pytest.raises(InvalidInputError, match="cannot be met"):
        mine.promise({"a": 6})
    settled.join()
    assert other.report().floors == {"a": 5, "b": 0}
    FrontEnd(TWO, other).retrieve(np.ones((5, 2)))
    assert mine.report().exposures == {"a": 5, "b": 5}


def test_a_promise_waits_if_all_requests_that_are_left_are_leased(url: str) -> None:
    """The horizon is not over: its leases may deliver nothing of the new promise."""
    with SqlLedger(url, 2, shared=True) as ledger:
        state = make_state(ledger, {})
        lease = state.lease(10)
        assert lease is not None
        assert lease.batch.requests == 10
        terms = replace(state.terms, floors=np.array([5, 0]))
        assert not state.promise(TWO.groups, terms, may_wait=True)
        with pytest.raises(InvalidInputError, match="cannot be met"):
            state.promise(TWO.groups, terms, may_wait=False)
        state.release(lease.number)
        assert state.promise(TWO.groups, terms, may_wait=True)


def test_coordinators_must_agree(start: Start) -> None:
    first = start(k=1, floors={"a": 2}, horizon=10)
    FrontEnd(TWO, first).retrieve(np.ones((3, 2)))
    differing: list[tuple[dict[str, Any], str]] = [
        ({"horizon": 20}, r"horizon \(20 here, 10 there\)"),
        ({"floors": {"a": 3}}, "floors"),
        ({"catalog": Catalog(np.eye(2), ["a", "c"])}, "labels"),
        ({"k": 2}, r"k \(2 here, 1 there\)"),
        ({"policy": "none"}, "keeps_floors"),
        ({"catalog": Catalog(np.eye(4), ["a", "a", "b", "b"]), "max_exclude": 1}, r"max_exclude \(1 here, 0 there\)"),
    ]
    for changed, what in differing:
        with pytest.raises(InvalidInputError, match=f"differs in.*{what}.*follow or take over"):
            start(**{"k": 1, "floors": {"a": 2}, "horizon": 10, **changed})
    more = Catalog(np.eye(9), ["a"] * 4 + ["b"] * 5)
    start(more, k=1, floors={"a": 2}, horizon=10, batch_size=3)  # more items, and price batches of its own
    assert start(k=1, floors=0, horizon=99, if_differs="follow").report().floors == {"a": 2, "b": 0}
    with pytest.raises(InvalidInputError, match="has had 3 requests already, more than 2"):
        start(k=1, floors={"a": 2}, horizon=2, if_differs="take over")
    with pytest.raises(InvalidInputError, match="cannot be met"):
        start(k=1, floors={"b": 7}, horizon=9, if_differs="take over")
    second = start(k=1, floors={"a": 6}, horizon=9, if_differs="take over")
    assert first.lease(1).batch.terms.horizon == 9
    assert first.report().floors == second.report().floors == {"a": 6, "b": 0}
    start(k=1, policy="none", if_differs="take over")
    with pytest.raises(InvalidInputError, match="a policy of another kind"):
        first.lease(1)


def test_prices_are_saved_for_each_coordinator(start: Start) -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    settings: dict[str, Any] = {"k": world.k, "floors": world.floors, "horizon": 200}
    first = start(world.catalog, replica="one", **settings)
    FrontEnd(world.catalog, first).retrieve(world.users[:100])
    first.lease(1)  # starts the next price batch
    first.save()
    again, other = (start(world.catalog, replica=name, **settings) for name in ("one", "two"))
    assert any(again.report().prices.values())
    assert again.report().prices == first.report().prices
    assert not any(other.report().prices.values())
    other.calibrate(world.users, world.catalog, ExactIndex(world.catalog))
    assert any(other.report().prices.values())


def test_a_request_is_answered_once_by_all(start: Start) -> None:
    world = make_world(3, items=60, horizon=40, tightness=0.6)
    sharing = [start(world.catalog, k=world.k, floors=world.floors, horizon=40) for _ in range(2)]
    fronts = [FrontEnd(world.catalog, one) for one in sharing]
    names = [f"request {number}" for number in range(10)]
    found = fronts[0].retrieve(world.users[:10], request_ids=names)
    again = fronts[1].retrieve(world.users[5:15], request_ids=[*names[5:], *(f"later {name}" for name in names[:5])])
    assert again.ids[:5].tolist() == found.ids[5:].tolist()
    assert sharing[0].report().requests == 15
    lease, nothing = sharing[1].lease(1), np.zeros(4, dtype=np.int64)
    settlement = Settlement(Entry(nothing, 1, 0.0, 0.0), answers={"request 3": b"x", "new": b"y"})
    with pytest.raises(RepeatedRequestError) as repeated:
        sharing[1].settle(lease.number, settlement)
    assert repeated.value.request_ids == ("request 3",)
    assert sharing[0].report().requests == 15
    assert sharing[0].answers(["new"]) == {}
    assert open_leases(sharing[0]) == {lease.number: 1}


def test_a_request_that_two_answer_at_once_counts_once(start: Start) -> None:
    world = make_world(3, items=60, horizon=400, tightness=0.6)
    sharing = [start(world.catalog, k=world.k, floors=world.floors, horizon=400, batch_size=5) for _ in range(3)]
    names = [f"request {number}" for number in range(40)]
    found: dict[int, Any] = {}

    def work(mine: int) -> None:
        order = np.random.default_rng(mine).permutation(40)
        answer = FrontEnd(world.catalog, sharing[mine]).retrieve(
            world.users[order], request_ids=[names[number] for number in order]
        )
        found[mine] = answer.take(np.argsort(order))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0].ids.tolist() == found[1].ids.tolist() == found[2].ids.tolist()
    report = sharing[0].report()
    assert (report.requests, sum(report.exposures.values())) == (40, 40 * world.k)
    assert open_leases(sharing[0]) == {}


def test_a_request_answered_too_long_ago_is_refused(url: str) -> None:
    world = make_world(3, items=60, horizon=10_000, tightness=0.1)
    retention = Retention(seconds=1e-6)
    with SqlLedger(url, world.catalog.n_groups, shared=True, retention=retention) as ledger:
        front = FrontEnd(world.catalog, Coordinator(world.catalog, k=world.k, ledger=ledger, batch_size=DELETE_EVERY))
        front.retrieve(world.users[:1], request_ids=["old"])
        front.retrieve(world.users[:DELETE_EVERY], request_ids=[str(number) for number in range(DELETE_EVERY)])
        with pytest.raises(ExpiredRequestError, match="old"):
            front.retrieve(world.users[:1], request_ids=["old"])


def test_targets_are_those_of_a_coordinator_alone(start: Start) -> None:
    """Through horizons, new plans within one, more traffic than planned, and a new group."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    catalog = Catalog(vectors[:40], ["a"] * 20 + ["b"] * 20, ids=list(range(40)))
    changed = upsert_items(catalog, vectors[40:], ["c"] * 20, list(range(40, 60)))
    alone = Coordinator(catalog, k=4, floors=0, horizon=1, auto_restart=False)
    shared = start(catalog, k=4, floors=0, horizon=1, auto_restart=False)
    fronts = FrontEnd(catalog, alone), FrontEnd(catalog, shared)

    def set_targets(more: dict[str, int], requests: int, restart_at: float | None = None, groups: Any = None) -> None:
        for one in (alone, shared):
            one.set_targets(more, requests, restart_at, groups)

    def serve_some(n: int) -> None:
        users = rng.normal(size=(n, 8))
        one, other = (front.retrieve(users) for front in fronts)
        assert one.ids.tolist() == other.ids.tolist()
        assert alone.totals().exposures.tolist() == shared.totals().exposures.tolist()
        assert (alone.totals().requests, alone.totals().began) == (shared.totals().requests, shared.totals().began)
        assert alone.terms.floors.tolist() == shared.terms.floors.tolist()
        assert (alone.terms.horizon, alone.terms.auto_restart) == (shared.terms.horizon, shared.terms.auto_restart)
        assert alone.prices().tolist() == shared.prices().tolist()

    set_targets({"b": 90}, 30, restart_at=100.0)
    serve_some(20)
    set_targets({"b": 1000}, 30)  # as many as there is room for
    serve_some(40)
    set_targets({"a": 30, "c": 60}, 40, restart_at=200.0, groups=changed.catalog.groups)
    for front in fronts:
        front.follow(changed)
    serve_some(40)
    assert (shared.totals().exposures >= [30, 0, 60]).all()
    with pytest.raises(InvalidInputError, match="requests"):
        shared.set_targets(0, 0)


def test_horizons_by_the_clock_begin_once_for_all(start: Start) -> None:
    sharing = [start(k=1, batch_size=4, auto_restart=False) for _ in range(2)]
    FrontEnd(TWO, sharing[0]).retrieve(np.ones((3, 2)))
    assert sharing[1].record_impressions([1, 1], key="first")
    assert not sharing[0].record_impressions([1, 1], key="first")
    out = sharing[0].lease(2)
    for one in sharing:
        one.set_targets({"b": 3}, 8, restart_at=100.0)
    sharing[0].set_targets({"b": 5}, 8, restart_at=99.0)  # by a clock that is behind
    report = sharing[1].report()
    assert (report.requests, report.completed, report.floors) == (0, 1, {"a": 0, "b": 3})
    impressions = sharing[0].ledger.past()[0].impressions
    assert impressions is not None
    assert impressions.tolist() == [1, 1]
    assert sharing[1].terms.horizon == 8 + 2, "a lease of the horizon before is answered in the new one"
    sharing[1].settle(out.number, Settlement(Entry(np.array([2, 0]), 2, 1.0, 0.0)))
    FrontEnd(TWO, sharing[1]).retrieve(np.ones((12, 2)))
    report = sharing[0].report()
    assert (report.requests, report.completed, report.esp) == (14, 1, 1), "it continues until the next one begins"


def test_coordinators_by_the_clock_join_the_targets_they_find(start: Start) -> None:
    first = start(k=1, auto_restart=False)
    first.set_targets({"a": 4}, 10, restart_at=5.0)
    three = Catalog(np.eye(3), ["a", "b", "c"])
    second = start(three, k=1, auto_restart=False)  # its catalog is newer
    assert second.terms.floors.tolist() == [4, 0, 0]
    third = start(k=1, auto_restart=False)  # and that of this one is not yet
    assert first.lease(1).batch.terms.floors.tolist() == third.lease(1).batch.terms.floors.tolist() == [4, 0, 0]
    assert third.labels == ["a", "b", "c"]
    third.set_targets({"b": 1}, 5, groups=TWO.groups)
    assert third.labels == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"differs in k \(2 here, 1 there\)"):
        start(k=2, auto_restart=False)
    with pytest.raises(InvalidInputError, match="differs in labels"):
        start(Catalog(np.eye(2), ["b", "c"]), k=1, auto_restart=False)
    with pytest.raises(InvalidInputError, match="auto_restart"):
        start(three, k=1)
    assert start(k=2, auto_restart=False, if_differs="take over").terms.k == first.lease(1).batch.terms.k == 2


def test_a_lock_that_another_process_holds_is_an_outage(server: PostgresServer, start: Start) -> None:
    """As of a process that is suspended in the middle of a transaction: callers are told to try again."""
    coordinator = start(k=1, timeout=3.0)
    assert isinstance(coordinator.ledger, SqlLedger)
    database: Any = coordinator.ledger.database
    with psycopg.connect(server.url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(%s, %s)", database.advisory_lock(EXCLUSIVE))
        with pytest.raises(BackendUnavailableError, match="does not answer"):
            coordinator.lease(1)
    coordinator.lease(1)


def test_leases_of_a_coordinator_alone_are_settled_by_those_that_share(url: str, start: Start) -> None:
    """A service that had the ledger for itself continues with several replicas."""
    with SqlLedger(url, 2) as ledger, Coordinator(TWO, k=1, floors={"a": 2}, horizon=10, ledger=ledger) as alone:
        one, two = alone.lease(1), alone.lease(1)
        alone.settle(one.number, Settlement(A))
        with pytest.raises(FairSyncError, match="in use by another process"):
            start(k=1, timeout=2.0)
    coordinator = start(k=1, floors={"a": 2}, horizon=10)
    for number in (one.number, two.number, two.number):
        coordinator.settle(number, Settlement(A))
    report = coordinator.report()
    assert (report.exposures, report.requests) == ({"a": 2, "b": 0}, 1)


def test_bad_settings_are_refused(server: PostgresServer, url: str, start: Start) -> None:
    with pytest.raises(InvalidInputError, match="lease_seconds"):
        start(k=1, lease_seconds=0)
    with pytest.raises(FairSyncError, match="cannot be met"):
        start(k=1, floors=100, horizon=10)
    with pytest.raises(InvalidInputError, match="n must"):
        start(k=1).lease(0)
    with SqlLedger(server.schema("three"), 3), pytest.raises(FairSyncError, match="in use"):
        start(k=1, ledger=server.schema("three"), timeout=2.0)
    with pytest.raises(InvalidInputError, match="another catalog"):
        start(k=1, ledger=server.schema("three"))


def test_floors_at_the_very_edge_hold_in_all_coordinators_whatever_is_excluded(start: Start) -> None:
    """Two coordinators with a front end each; every request excludes two items of the group that misses most."""
    catalog, rng = (
        Catalog(np.random.default_rng(2).normal(size=(12, 4)), ["a"] * 3 + ["b"] * 9),
        np.random.default_rng(3),
    )
    terms: dict[str, Any] = {"k": 3, "floors": {"a": 40, "b": 80}, "horizon": 40, "batch_size": 4, "max_exclude": 2}
    coordinators = [start(catalog, **terms) for _ in range(2)]
    assert [one.terms.capacities.tolist() for one in coordinators] == [[1, 3]] * 2
    fronts, rows = [FrontEnd(catalog, one) for one in coordinators], np.arange(12)
    for number in range(20):
        for front in fronts:
            label = max(("a", "b"), key=lambda one: terms["floors"][one] - coordinators[0].report().exposures[one])
            excluded = rng.permutation(rows[catalog.group_of == catalog.code_of(label)])[:2].tolist()
            found = front.retrieve(rng.normal(size=(1, 4)), exclude=[excluded])
            assert not {*excluded} & {*found.ids[0].tolist()}, number
    for one in coordinators:
        one.lead()
        assert one.report().exposures == {"a": 40, "b": 80}


def test_coordinators_that_share_a_ledger_forecast_what_later_requests_can_show(start: Start) -> None:
    """One request in ten can show the rare group; two thirds of those slots are promised, to two coordinators."""
    rng = np.random.default_rng(5)
    vectors = np.abs(rng.normal(size=(30, 4)))
    vectors[:3] *= 0.01  # nobody would get these without the promise
    catalog = Catalog(vectors, {"category": ["rare"] * 3 + ["rest"] * 27, "region": ["x"] * 3 + ["y"] * 27})
    terms: dict[str, Any] = {"k": 3, "floors": {"rare": 80}, "horizon": 400, "batch_size": 8}
    coordinators = [start(catalog, **terms) for _ in range(2)]
    fronts = [FrontEnd(catalog, one) for one in coordinators]
    assert not any(one.has_outlooks for one in coordinators)
    for number in range(200):
        for front in fronts:
            where = None if number % 10 == 9 else {"region": "y"}
            front.retrieve(np.abs(rng.normal(size=(1, 4))), where=where)
        if number == 100:
            for one in coordinators:
                rare = (one.report().outlooks or {})["rare"]
                assert rare.outlook in ("expected", "at risk")
                assert 0.03 < rare.share < 0.2
    for one in coordinators:
        assert one.report().exposures["rare"] >= 80
