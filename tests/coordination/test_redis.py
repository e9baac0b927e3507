"""Several coordinators share a promise on a real server: floors hold for all together, whoever is killed, and when."""

import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

import replicas
from coordination.valkey_server import ValkeyServer
from fairsync.batch import ServedBatch, serve
from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.redis import RedisCoordinator
from fairsync.coordination.redis.leases import SharedLeases, requests_needed
from fairsync.coordination.redis.ledger import RedisLedger
from fairsync.coordination.redis.lines import pack
from fairsync.errors import BackendUnavailableError, FairSyncError, InvalidInputError
from fairsync.floors import can_be_met
from fairsync.inputs import check_users
from fairsync.ledger import Entry
from fairsync.policies import POLICIES, Terms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import World, make_world

TWO = Catalog(np.eye(2), ["a", "b"])
A, B = Entry(np.array([1, 0]), 1, 1.0, 0.0), Entry(np.array([0, 1]), 1, 1.0, 0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def start(server: ValkeyServer, request: pytest.FixtureRequest) -> Iterator[Callable[..., RedisCoordinator]]:
    """Start replicas that share a promise of this test's own."""
    with ExitStack() as stack:

        def started(*arguments: Any, **settings: Any) -> RedisCoordinator:
            return stack.enter_context(RedisCoordinator(server.url, *arguments, name=request.node.name, **settings))

        yield started


@given(
    missing=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    caps=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    k=st.integers(1, 5),
)
def test_requests_that_are_needed_are_the_fewest_that_suffice(missing: list[int], caps: list[int], k: int) -> None:
    due, terms = np.array(missing), Terms(np.array(missing), np.minimum(caps[: len(missing)], k), k, 1, 1)
    enough = [left for left in range(200) if can_be_met(due, left, terms)]
    needed = requests_needed(due, terms)
    assert needed == enough[0] if enough else needed > 10**9


def labelled(world: World, impressions: Counter[Any]) -> dict[Any, int]:
    return {label: impressions[label] for label in world.catalog.labels}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("batch", [1, 7])
def test_one_replica_is_a_retriever(start: Callable[..., RedisCoordinator], policy: str, batch: int) -> None:
    """Also over the end of a horizon, and however calls are cut."""
    world = make_world(3, horizon=60, tightness=0.5)
    alone = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, policy=policy, batch_size=batch)
    coordinator = start(world.catalog, k=world.k, floors=world.floors, horizon=40, policy=policy, batch_size=batch)
    front = FrontEnd(world.catalog, coordinator)
    for part in np.split(world.users, [1, 20, 45]):
        assert front.retrieve(part).ids.tolist() == alone.retrieve(part).ids.tolist()
    one, other = coordinator.report(), alone.report()
    assert (one.exposures, one.requests, one.completed) == (other.exposures, other.requests, other.completed)


@given(
    seed=st.integers(0, 10**6),
    batch=st.sampled_from([1, 3, 16]),
    number=st.sampled_from([1, 2, 4]),
    tightness=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    even=st.booleans(),
    most_lines=st.sampled_from([0, 1, 5, 64]),
)
@settings(max_examples=25, deadline=None)
def test_floors_hold_in_any_order_of_events(
    server: ValkeyServer, seed: int, batch: int, number: int, tightness: float, even: bool, most_lines: int
) -> None:
    """Leases go out, come back, get lost and come back late, to any replica, while replicas die and others follow."""
    world, rng = make_world(seed, horizon=40, tightness=tightness, even=even), np.random.default_rng(seed)
    index, vectors = ExactIndex(world.catalog), check_users(world.users, world.catalog)
    out: dict[int, ServedBatch] = {}
    late: dict[int, ServedBatch] = {}
    impressions: Counter[Any] = Counter()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        patched.setattr("fairsync.coordination.redis.state._MOST_LINES", most_lines)

        def started() -> RedisCoordinator:
            made = RedisCoordinator(
                server.url,
                world.catalog,
                k=world.k,
                floors=world.floors,
                horizon=world.horizon,
                batch_size=batch,
                name=name,
            )
            return stack.enter_context(made)

        name = f"chaos {secrets.token_hex(8)}"
        running = [started() for _ in range(number)]

        def one() -> RedisCoordinator:
            return running[int(rng.integers(number))]

        def settle(lease: int, served: ServedBatch) -> None:
            for _ in range(int(rng.integers(1, 3))):  # told once, or twice, and not always to the one who gave it
                one().settle(lease, served.entry, served.sample)
            impressions.update(world.catalog.group_of[served.hits.rows].ravel().tolist())

        while one().ledger.totals().requests < world.horizon:
            if rng.random() < 0.03:
                running[int(rng.integers(number))] = started()
            lease = None
            if len(out) < 8 and (not out or rng.random() < 0.6):
                lease = one().try_lease(int(rng.integers(1, 2 * batch + 1)))
            if lease is not None:
                users = vectors[rng.integers(len(vectors), size=lease.batch.requests)]
                out[lease.number] = serve(lease.batch, world.catalog, index, users)
                continue
            back = int(rng.choice(list(out)))
            served, chance = out.pop(back), rng.random()
            if chance < 0.8:
                settle(back, served)
            else:
                one().release(back)
                if chance < 0.9:
                    late[back] = served
            if late and rng.random() < 0.3:
                settle(*late.popitem())
        report = one().report()
        for replica in running:
            check_record(replica)
    assert report.exposures == labelled(world, impressions)
    assert report.esp == 1, report.missing


def check_record(replica: RedisCoordinator) -> None:
    """Compare what a replica has added up line by line with the record as it is."""
    replica.report()
    seen = replica.ledger.store.read()
    assert seen is not None
    added, read = replica._state.shared, SharedLeases.of(seen)
    assert pack(added.progress.totals) == pack(read.progress.totals)
    assert (added.version, added.lines, added.horizon, added.left) == (
        read.version,
        read.lines,
        read.horizon,
        read.left,
    )
    assert added.table.open == read.table.open
    assert read.left == read.progress.left(replica.terms) - read.table.requests


def serve_side_by_side(world: World, coordinators: list[RedisCoordinator], calls: int) -> Counter[Any]:
    """Let a front end of each coordinator answer its share of the requests, all at once; return what was shown."""
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
        thread.join(timeout=120)
    assert not failures, failures
    return sum(counts, Counter())


@pytest.mark.parametrize("tightness", [0.3, 0.97])
def test_horizons_follow_each_other_for_all(start: Callable[..., RedisCoordinator], tightness: float) -> None:
    """Three replicas, each with two front ends, over three horizons: each horizon keeps its floors."""
    horizon = 160
    world = make_world(7, items=60, horizon=3 * horizon, tightness=tightness)
    floors = {label: floor // 3 for label, floor in world.floors.items()}
    replicas = [start(world.catalog, k=world.k, floors=floors, horizon=horizon, batch_size=8) for _ in range(3)]
    impressions = serve_side_by_side(world, [*replicas, *replicas], calls=8)
    totals_list = [*replicas[0].ledger.past(), replicas[1].ledger.totals()]
    assert [one.requests for one in totals_list] == [horizon] * 3
    assert all((one.exposures >= list(floors.values())).all() for one in totals_list)
    assert np.sum([one.exposures for one in totals_list], axis=0).tolist() == list(
        labelled(world, impressions).values()
    )
    assert [replica.report().completed for replica in replicas] == [2, 2, 2]


def test_the_server_is_killed_under_load() -> None:
    """Three times: calls go on by themselves, nothing is lost, nothing counts twice, floors hold."""
    world = make_world(8, items=60, horizon=600, tightness=0.95)
    with ValkeyServer() as server, ExitStack() as stack:
        replicas = [
            stack.enter_context(
                RedisCoordinator(
                    server.url, world.catalog, k=world.k, floors=world.floors, horizon=600, batch_size=8, timeout=20
                )
            )
            for _ in range(4)
        ]

        def kill() -> None:
            for share in (0.2, 0.5, 0.8):
                while watcher.totals().requests < share * 600:
                    time.sleep(0.002)
                server.kill()
                server.start()

        watcher = stack.enter_context(RedisLedger(server.url, 4, timeout=20))
        killer = threading.Thread(target=kill)
        killer.start()
        impressions = serve_side_by_side(world, replicas, calls=20)
        killer.join(timeout=60)
        report = replicas[0].report()
    assert report.requests == 600
    assert report.exposures == labelled(world, impressions)
    assert report.esp == 1


@pytest.mark.parametrize("number", [2, 4])
def test_replicas_are_processes_that_are_killed(server: ValkeyServer, tmp_path: Path, number: int) -> None:
    """At random moments, until the horizon is over: what they answered is counted, and floors hold."""
    world, name, rng = replicas.world(), f"processes {number}", np.random.default_rng(number)
    kill_at = iter([*(np.arange(number) / number), 2.0])
    started = itertools.count()

    def start() -> BaseProcess:
        mine = next(started)
        return replicas.start(server.url, name, mine, tmp_path / str(mine))

    running = [start() for _ in range(number)]
    next_kill = next(kill_at)
    with RedisLedger(server.url, world.catalog.n_groups, name) as ledger:
        while not ledger.past():
            if ledger.totals().requests / world.horizon > next_kill:
                victim = int(rng.integers(number))
                replicas.end(running[victim])
                running[victim], next_kill = start(), next(kill_at)
            time.sleep(float(rng.uniform(0, 0.01)))
        for process in running:
            replicas.end(process)
        first = ledger.past()[0]
        counted = np.sum([one.exposures for one in [*ledger.past(), ledger.totals()]], axis=0)
    assert first.requests == world.horizon
    assert (first.exposures >= list(world.floors.values())).all()
    ended = next(started)
    assert ended == 2 * number
    impressions = sum((replicas.read(tmp_path / str(mine)) for mine in range(ended)), Counter())
    missing = [int(count) - impressions[str(label)] for label, count in zip(world.catalog.labels, counted, strict=True)]
    # Of the last request of each that was killed, the answer may have been counted and not yet given.
    assert min(missing) >= 0
    assert sum(missing) in {world.k * requests for requests in range(ended + 1)}


class Spy:
    """Counts what is asked of the server, and does something before one of the questions."""

    def __init__(self, replica: RedisCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.actions: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}
        self._ask = replica.ledger.store._swap
        monkeypatch.setattr(replica.ledger.store, "_swap", self)

    def __call__(self, keys: Any, arguments: Any, client: Any) -> Any:
        action = arguments[2]
        self.actions.append(action)
        self.before.pop(action, lambda: None)()
        return self._ask(keys, arguments, client)


def test_replicas_do_not_get_in_the_way_of_each_other(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lease and each settling is one question to the server, whatever the others have done since the last."""
    replicas = [start(TWO, k=1, floors={"a": 5}, horizon=1000, batch_size=4) for _ in range(4)]
    spies = [Spy(replica, monkeypatch) for replica in replicas]
    for _ in range(7):  # 56 lines: fewer than are added up
        leases = [replica.lease(2) for replica in replicas]
        for replica, lease in zip(replicas, leases, strict=True):
            replica.settle(lease.number, Entry(np.array([1, 1]), 2, 1.0, 0.0), None)
    # The first to ask has not heard yet that others have joined since.
    assert [sorted(set(spy.actions)) for spy in spies] == [["add"]] * 4
    assert [len(spy.actions) for spy in spies] == [15, 15, 15, 14]
    for replica in replicas:
        check_record(replica)
    assert replicas[0].report().exposures == {"a": 28, "b": 28}


def test_a_plan_is_not_held_up_by_requests(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others lease and settle between two looks of whoever steers: it is one swap all the same, and all counts."""
    mine, other = (start(TWO, k=1, auto_restart=False) for _ in range(2))
    mine.set_targets({"a": 2}, 20, restart_at=100.0)
    out, spy = other.lease(3), Spy(mine, monkeypatch)

    def serve_some() -> None:
        other.settle(out.number, Entry(np.array([1, 2]), 3, 1.0, 0.0), None)
        other.lease(4)

    spy.before["swap"] = serve_some
    mine.set_targets({"a": 7}, 10, restart_at=200.0)
    assert spy.actions == ["look", "swap"]
    report = other.report()
    assert (report.exposures, report.requests, report.floors["a"]) == ({"a": 1, "b": 2}, 3, 7)
    assert [one.requests for one in mine.ledger.past()] == [0, 0]
    # Three were out when it planned, and are settled; four are out since.
    assert (other._state.shared.left, other.terms.horizon) == (13 - 3 - 4, 13)
    for replica in (mine, other):
        check_record(replica)


def test_a_promise_is_not_made_beside_a_lease_that_could_break_it(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease goes out after it was looked whether the promise can be kept."""
    mine, other = (start(TWO, k=1, floors=0, horizon=10, batch_size=5, lease_seconds=0.3) for _ in range(2))
    spy = Spy(mine, monkeypatch)
    spy.before["swap"] = lambda: other.lease(5)
    mine.promise({"a": 6})
    assert spy.actions.count("swap") == 2, "the second when the lease had expired"
    spy.before["swap"] = lambda: other.lease(4)
    mine.promise({"a": 5})
    assert spy.actions.count("swap") == 3, "what is left suffices"


def test_a_lease_is_not_lost_that_was_settled_meanwhile(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, mine = (start(TWO, k=1, floors=0, horizon=100, batch_size=5, lease_seconds=0.1) for _ in range(2))
    late, spy = slow.lease(5), Spy(mine, monkeypatch)
    mine.report()
    time.sleep(0.2)
    five = Entry(np.array([5, 0]), 5, 1.0, 0.0)
    spy.before["swap"] = lambda: slow.settle(late.number, five, None)
    lease = mine.lease(5)
    slow.settle(late.number, five, None)
    mine.settle(late.number, five, None)
    mine.settle(lease.number, five, None)
    assert (mine.report().requests, mine.report().exposures["a"]) == (10, 10)
    check_record(mine)


def test_a_dead_replica_is_not_waited_for(start: Callable[..., RedisCoordinator]) -> None:
    """Everything is promised, so that leases must go one by one; one replica dies with its lease."""
    dead, alive = (
        start(TWO, k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=1, lease_seconds=seconds)
        for seconds in (0.3, 30)
    )
    lost = dead.lease(1)
    assert alive.try_lease(1) is None
    started = time.monotonic()
    FrontEnd(TWO, alive).retrieve(np.ones((10, 2)))
    assert 0.1 < time.monotonic() - started < 20
    assert alive.report().exposures == {"a": 5, "b": 5}
    for _ in range(2):
        dead.settle(lost.number, A, None)  # it was only slow
        alive.settle(lost.number, A, None)
        assert alive.report().exposures == {"a": 6, "b": 5}
    assert alive.report().requests == 10


def test_deadlines_go_by_the_clock_of_the_server(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        start(TWO, k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=1, lease_seconds=20) for _ in range(2)
    )
    lease = first.lease(1)
    monkeypatch.setattr(time, "time", lambda: 1e12)
    assert second.try_lease(1, timeout=0.05) is None
    with second.ledger.store._client as client:
        assert 15 < first._state.shared.deadlines[lease.number] - client.time()[0] < 21


@pytest.mark.parametrize("others_were_faster", [False, True])
@pytest.mark.parametrize("method", ["lease", "settle"])
def test_an_answer_of_the_server_gets_lost(
    start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch, method: str, others_were_faster: bool
) -> None:
    """It did what it was asked to, and could not say so: nothing is done twice, and nobody waits for a ghost."""
    mine, other = (start(TWO, k=1, floors={"a": 2, "b": 2}, horizon=10, batch_size=4) for _ in range(2))
    earlier, theirs, store = mine.lease(1), other.lease(1), mine.ledger.store
    swap = store._swap
    lost: list[Any] = []

    def swap_and_lose(*arguments: Any) -> Any:
        answer = swap(*arguments)
        if not lost and answer[0] == b"done":
            lost.append(answer)
            if others_were_faster:
                other.settle(theirs.number, B, None)
            raise redis.ConnectionError("cut off")
        return answer

    monkeypatch.setattr(store, "_swap", swap_and_lose)
    if method == "lease":
        second = mine.lease(1)
        assert set(other.lease(1).batch.terms.floors) == {2}
        out = other._state.shared.table.open
        assert second.number in out
        assert len(out) == (3 if others_were_faster else 4), "the one that nobody heard of is given back"
    mine.settle(earlier.number, A, None)
    mine.settle(earlier.number, A, None)
    assert lost
    report = other.report()
    assert report.exposures == {"a": 1, "b": int(others_were_faster)}
    assert report.requests == 1 + others_were_faster
    for replica in (mine, other):
        check_record(replica)


def test_a_promise_reaches_all(start: Callable[..., RedisCoordinator]) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    catalog = Catalog(vectors[:40], ["a"] * 20 + ["b"] * 20, ids=list(range(40)))
    replicas = [start(catalog, k=4, floors={"b": 100}, horizon=100, batch_size=5) for _ in range(3)]
    fronts = [FrontEnd(catalog, replica) for replica in replicas]
    impressions: Counter[Any] = Counter()

    def serve_some(n: int) -> None:
        for front in fronts:
            impressions.update(front.retrieve(rng.normal(size=(n, 8))).groups.ravel().tolist())

    serve_some(5)
    late = replicas[2].lease(1)  # of before, with fewer groups
    new = (vectors[40:], ["c"] * 20, list(range(40, 60)))
    after = upsert_items(catalog, *new).catalog
    replicas[0].promise({"b": 110, "c": 60}, catalog=after)
    assert replicas[1].lease(1).batch.terms.floors.tolist() == [0, 110, 60]
    replicas[1].release(next(iter(replicas[1]._state._mine)))
    replicas[2].settle(late.number, Entry(np.array([4, 0]), 1, 1.0, 0.0), None)
    impressions["a"] += 4
    fronts[0].upsert(*new)
    serve_some(5)
    fronts[1].upsert(*new)
    fronts[2].replace(after)
    serve_some(20)
    impressions.update(fronts[0].retrieve(rng.normal(size=(9, 8))).groups.ravel().tolist())
    for replica in replicas:
        report = replica.report()
        assert (report.requests, report.esp, report.exposures) == (100, 1, dict(impressions))
    with pytest.raises(FairSyncError, match="cannot be met"):
        replicas[1].promise({"b": 1000})
    with pytest.raises(InvalidInputError, match="in their order"):
        replicas[1].promise(catalog=Catalog(np.eye(8), ["b", "c"] * 4))
    assert replicas[2].report().floors == report.floors


def test_a_promise_waits_for_leases_that_could_break_it(start: Callable[..., RedisCoordinator]) -> None:
    """Five of ten requests are out, answered as was promised before: not at all."""
    mine, other = (start(TWO, k=1, floors=0, horizon=10, batch_size=5, lease_seconds=20) for _ in range(2))
    lease = other.lease(5)
    mine.promise({"a": 5})
    settled = threading.Timer(0.2, other.settle, (lease.number, Entry(np.array([0, 5]), 5, 1.0, 0.0), None))
    settled.start()
    with pytest.raises(InvalidInputError, match="cannot be met"):
        mine.promise({"a": 6})
    settled.join()
    assert other.report().floors == {"a": 5, "b": 0}
    FrontEnd(TWO, other).retrieve(np.ones((5, 2)))
    assert mine.report().exposures == {"a": 5, "b": 5}


def test_replicas_must_agree(start: Callable[..., RedisCoordinator]) -> None:
    first = start(TWO, k=1, floors={"a": 2}, horizon=10)
    FrontEnd(TWO, first).retrieve(np.ones((3, 2)))
    differing: list[tuple[dict[str, Any], str]] = [
        ({"horizon": 20}, r"horizon \(20 here, 10 there\)"),
        ({"floors": {"a": 3}}, "floors"),
        ({"catalog": Catalog(np.eye(2), ["a", "c"])}, "labels"),
        ({"k": 2}, r"k \(2 here, 1 there\)"),
        ({"policy": "none"}, "guarded"),
    ]
    for changed, what in differing:
        with pytest.raises(InvalidInputError, match=f"differs in.*{what}.*follow or take over"):
            start(**{"catalog": TWO, "k": 1, "floors": {"a": 2}, "horizon": 10, **changed})
    start(
        Catalog(np.eye(9), ["a"] * 4 + ["b"] * 5), k=1, floors={"a": 2}, horizon=10, batch_size=3
    )  # more items, and own batches
    assert start(TWO, k=1, floors=0, horizon=99, if_differs="follow").report().floors == {"a": 2, "b": 0}
    with pytest.raises(InvalidInputError, match="cannot be met"):
        start(TWO, k=1, floors={"a": 2}, horizon=2, if_differs="take over")
    second = start(TWO, k=1, floors={"a": 6}, horizon=9, if_differs="take over")
    assert first.lease(1).batch.terms.horizon == 9
    assert first.report().floors == second.report().floors == {"a": 6, "b": 0}


def test_what_was_learnt_is_kept_for_each_replica(start: Callable[..., RedisCoordinator]) -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    first = start(world.catalog, k=world.k, floors=world.floors, horizon=200, replica="one")
    FrontEnd(world.catalog, first).retrieve(world.users[:100])
    first.lease(1)  # turns the batch
    first.save()
    again, other = (
        start(world.catalog, k=world.k, floors=world.floors, horizon=200, replica=name) for name in ("one", "two")
    )
    assert any(again.report().prices.values())
    assert again.report().prices == first.report().prices
    assert not any(other.report().prices.values())
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200).calibrate(world.users)
    fresh = start(world.catalog, k=world.k, floors=world.floors, horizon=200, if_differs="refuse", replica="three")
    fresh.ledger.store.ask(lambda client: client.flushall())
    alone = start(world.catalog, k=world.k, floors=world.floors, horizon=200, replica="four")
    alone.calibrate(world.users, world.catalog, ExactIndex(world.catalog))
    assert alone.report().prices == retriever.report().prices
    first.ledger.store.ask(
        lambda client: client.hset("{" + alone.ledger.store.name + "}:kept", "policy guaranteed of five", "x")
    )
    assert not any(
        start(world.catalog, k=world.k, floors=world.floors, horizon=200, replica="five").report().prices.values()
    )


def test_a_request_is_answered_once_by_all(start: Callable[..., RedisCoordinator]) -> None:
    world = make_world(3, items=60, horizon=40, tightness=0.6)
    fronts = [
        FrontEnd(world.catalog, start(world.catalog, k=world.k, floors=world.floors, horizon=40)) for _ in range(2)
    ]
    names = [f"request {number}" for number in range(10)]
    found = fronts[0].retrieve(world.users[:10], request_ids=names)
    again = fronts[1].retrieve(world.users[5:15], request_ids=[*names[5:], *(f"later {name}" for name in names[:5])])
    assert again.ids[:5].tolist() == found.ids[5:].tolist()
    coordinator = start(world.catalog, k=world.k, floors=world.floors, horizon=40)
    assert coordinator.report().requests == 15
    lease, nothing = coordinator.lease(1), np.zeros(4, dtype=np.int64)
    with pytest.raises(FairSyncError, match="answered before"):
        coordinator.settle(lease.number, Entry(nothing, 1, 0.0, 0.0), None, {"request 3": b"x"})
    assert coordinator.report().requests == 15


def test_one_replica_is_steered_like_a_coordinator(start: Callable[..., RedisCoordinator]) -> None:
    """Through windows, new plans within one, more traffic than was planned for, and a group that is new."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    catalog = Catalog(vectors[:40], ["a"] * 20 + ["b"] * 20, ids=list(range(40)))
    changed = upsert_items(catalog, vectors[40:], ["c"] * 20, list(range(40, 60)))
    alone, shared = (
        Coordinator(catalog, k=4, floors=0, horizon=1, auto_restart=False),
        start(catalog, k=4, floors=0, horizon=1, auto_restart=False),
    )
    fronts = FrontEnd(catalog, alone), FrontEnd(catalog, shared)

    def set_targets(more: dict[str, int], requests: int, restart_at: float | None = None, groups: Any = None) -> None:
        alone.set_targets(more, requests, restart_at, groups)
        shared.set_targets(more, requests, restart_at, groups)

    def serve_some(n: int) -> None:
        users = rng.normal(size=(n, 8))
        one, other = (front.retrieve(users) for front in fronts)
        assert one.ids.tolist() == other.ids.tolist()
        assert alone.totals().exposures.tolist() == shared.totals().exposures.tolist()
        assert (alone.totals().requests, alone.totals().began) == (
            shared.totals().requests,
            shared.totals().began,
        )
        assert alone.terms.floors.tolist() == shared.terms.floors.tolist()
        assert (alone.terms.horizon, alone.terms.auto_restart) == (shared.terms.horizon, shared.terms.auto_restart)
        assert alone.prices().tolist() == shared.prices().tolist()

    set_targets({"b": 90}, 30, restart_at=100.0)
    serve_some(20)
    set_targets({"b": 1000}, 30)  # as much as there is room for
    serve_some(40)
    set_targets({"a": 30, "c": 60}, 40, restart_at=200.0, groups=changed.catalog.groups)
    for front in fronts:
        front.follow(changed)
    serve_some(40)
    assert (shared.totals().exposures >= [30, 0, 60]).all()
    with pytest.raises(InvalidInputError, match="requests"):
        shared.set_targets(0, 0)


def test_windows_begin_once_for_all(start: Callable[..., RedisCoordinator]) -> None:
    replicas = [start(TWO, k=1, batch_size=4, auto_restart=False) for _ in range(2)]
    FrontEnd(TWO, replicas[0]).retrieve(np.ones((3, 2)))
    assert replicas[1].record_impressions([1, 1], key="first")
    assert not replicas[0].record_impressions([1, 1], key="first")
    for replica in replicas:
        replica.set_targets({"b": 3}, 8, restart_at=100.0)
    replicas[0].set_targets({"b": 5}, 8, restart_at=99.0)  # by a clock that is behind
    report = replicas[1].report()
    assert (report.requests, report.completed, report.floors) == (0, 1, {"a": 0, "b": 3})
    impressions = replicas[0].ledger.past()[0].impressions
    assert impressions is not None
    assert impressions.tolist() == [1, 1]
    FrontEnd(TWO, replicas[1]).retrieve(np.ones((12, 2)))
    report = replicas[0].report()
    assert (report.requests, report.completed) == (12, 1), "it goes on until somebody says otherwise"
    assert report.esp == 1


def test_replicas_that_are_steered_join_whatever_stands(start: Callable[..., RedisCoordinator]) -> None:
    first = start(TWO, k=1, auto_restart=False)
    first.set_targets({"a": 4}, 10, restart_at=5.0)
    three = Catalog(np.eye(3), ["a", "b", "c"])
    second = start(three, k=1, auto_restart=False)  # its catalog is newer
    assert second.terms.floors.tolist() == [4, 0, 0]
    third = start(TWO, k=1, auto_restart=False)  # and this one is not yet
    assert first.lease(1).batch.terms.floors.tolist() == third.lease(1).batch.terms.floors.tolist() == [4, 0, 0]
    assert third.labels == ["a", "b", "c"]
    third.set_targets({"b": 1}, 5, groups=TWO.groups)
    assert third.labels == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"differs in k \(2 here, 1 there\)"):
        start(TWO, k=2, auto_restart=False)
    with pytest.raises(InvalidInputError, match="differs in labels"):
        start(Catalog(np.eye(2), ["b", "c"]), k=1, auto_restart=False)
    with pytest.raises(InvalidInputError, match="auto_restart"):
        start(three, k=1)
    assert start(TWO, k=2, auto_restart=False, if_differs="take over").terms.k == first.lease(1).batch.terms.k == 2


def test_one_leads_until_it_is_silent(start: Callable[..., RedisCoordinator], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairsync.coordination.redis.lead.LEAD_SECONDS", 0.4)
    monkeypatch.setattr("fairsync.coordination.redis.coordinator._ASKED_EVERY", 0.0)
    one, other = (start(TWO, k=1, auto_restart=False) for _ in range(2))
    assert [one.lead(), other.lead(), one.lead()] == [True, False, True]
    for _ in range(3):  # each time it says so, its time begins anew
        time.sleep(0.2)
        assert one.lead()
        assert not other.lead()
    time.sleep(0.6)
    assert other.lead()
    assert not one.lead(), "the other has"
    time.sleep(0.6)
    assert [other.lead(), other.lead()] == [False, True], "others might have led meanwhile: it is told so"
    other.close()
    assert one.lead(), "whoever leaves lets another lead at once"


def test_whoever_was_deposed_can_change_nothing(start: Callable[..., RedisCoordinator]) -> None:
    one, other = (start(TWO, k=1, auto_restart=False) for _ in range(2))
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
    FrontEnd(TWO, one).retrieve(np.ones((2, 2)))  # requests are everybody's
    assert not one.lead()
    assert one.lead(take=True)
    one.set_targets({"a": 2}, 10, restart_at=200.0)
    assert other.report().completed == 2


def test_where_things_stand_is_known_without_asking(start: Callable[..., RedisCoordinator]) -> None:
    one, other = (start(TWO, k=1, auto_restart=False) for _ in range(2))
    FrontEnd(TWO, one).retrieve(np.ones((3, 2)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(other.ledger.store, "ask", None)
        assert (one.totals().requests, other.totals().requests) == (3, 0)
    other.lead()
    assert other.totals().requests == 3


def test_nobody_leads_while_the_server_is_away() -> None:
    with (
        ValkeyServer() as server,
        RedisCoordinator(server.url, TWO, k=1, auto_restart=False, timeout=0.5) as coordinator,
    ):
        assert coordinator.lead()
        server.kill()
        assert not coordinator.lead()
        server.start()
        assert coordinator.lead()


def test_leases_of_a_coordinator_alone_may_be_settled_here(server: ValkeyServer) -> None:
    """A service that had one coordinator over such a ledger goes on with several."""
    with RedisLedger(server.url, 2, "moved") as ledger:
        alone = Coordinator(TWO, k=1, floors={"a": 2}, horizon=10, batch_size=2, ledger=ledger)
        one, two = alone.lease(1), alone.lease(1)
        alone.settle(one.number, A, None)
        with RedisCoordinator(server.url, TWO, k=1, floors={"a": 2}, horizon=10, name="moved") as coordinator:
            for number in (one.number, two.number, two.number):
                coordinator.settle(number, A, None)
            report = coordinator.report()
    assert (report.exposures, report.requests) == ({"a": 2, "b": 0}, 1)


def test_nobody_queues_for_a_server_that_is_away() -> None:
    """Eight threads find it so: not one after another, each with a patience of its own."""
    with ValkeyServer() as server:
        coordinator = RedisCoordinator(server.url, TWO, k=1, timeout=1.0)
        server.kill()
        told: list[BaseException] = []

        def ask() -> None:
            try:
                coordinator.lease(1)
            except BackendUnavailableError as error:
                told.append(error)

        threads, started = [threading.Thread(target=ask) for _ in range(8)], time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(told) == 8
        assert time.monotonic() - started < 5
        server.start()
        coordinator.lease(1)
        coordinator.close()


def test_what_does_not_fit_is_told(server: ValkeyServer, start: Callable[..., RedisCoordinator]) -> None:
    with pytest.raises(InvalidInputError, match="lease_seconds"):
        start(TWO, k=1, lease_seconds=0)
    with pytest.raises(FairSyncError, match="cannot be met"):
        start(TWO, k=1, floors=100, horizon=10)
    with pytest.raises(InvalidInputError, match="n must"):
        start(TWO, k=1).lease(0)
    with RedisLedger(server.url, 3, "three"), pytest.raises(InvalidInputError, match="another catalog"):
        RedisCoordinator(server.url, TWO, k=1, name="three")
    with ValkeyServer() as away:
        coordinator = RedisCoordinator(away.url, TWO, k=1, timeout=0.3)
    with pytest.raises(BackendUnavailableError, match="Is the server up"):
        coordinator.lease(1)
    coordinator.close()
    with pytest.raises(BackendUnavailableError):
        RedisCoordinator(away.url, TWO, k=1, timeout=0.1)
