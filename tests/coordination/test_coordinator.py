"""Several front ends share one promise: floors hold for any order of leases and settlements."""

import copy
import pickle
import threading
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.coordination.lease import Settlement
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.inputs import check_users
from fairsync.ledger import Entry, MemoryLedger
from fairsync.loop.batch import ServedBatch
from fairsync.loop.serving import serve
from fairsync.policies import POLICIES
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits
from worlds import World, make_world


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("batch", [1, 7, 16])
def test_one_front_end_is_a_retriever(policy: str, batch: int) -> None:
    """Also across the end of a horizon, and for any size of calls."""
    world = make_world(3, horizon=60, tightness=0.5)
    alone = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, policy=policy, batch_size=batch)
    coordinator = Coordinator(
        world.catalog, k=world.k, floors=world.floors, horizon=40, policy=policy, batch_size=batch
    )
    front = FrontEnd(world.catalog, coordinator)
    for part in np.split(world.users, [1, 20, 45]):
        assert front.retrieve(part).ids.tolist() == alone.retrieve(part).ids.tolist()
    one, other = coordinator.report(), alone.report()
    assert (one.exposures, one.requests, one.completed) == (other.exposures, other.requests, other.completed)
    assert one.costs == pytest.approx(other.costs, nan_ok=True)
    assert one.mean_subsidies == pytest.approx(other.mean_subsidies, nan_ok=True)


def chaos(world: World, batch: int, front_ends: int, rng: np.random.Generator) -> Counter[object]:
    """Serve a horizon with leases that are granted, settled, lost and settled late, in random order.

    Returns the exposures of each group.
    """
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=world.horizon, batch_size=batch)
    index, vectors = ExactIndex(world.catalog), check_users(world.users, world.catalog)
    out: dict[int, ServedBatch] = {}
    late: dict[int, ServedBatch] = {}
    returned: Counter[object] = Counter()

    def settle(number: int, served: ServedBatch) -> None:
        for _ in range(int(rng.integers(1, 3))):  # once or twice: it is idempotent
            coordinator.settle(number, Settlement(served.entry, served.sample))
        returned.update(world.catalog.group_of[served.hits.rows].ravel().tolist())

    while coordinator.report().requests < world.horizon:
        lease = None
        if len(out) < front_ends and (not out or rng.random() < 0.6):
            lease = coordinator.try_lease(int(rng.integers(1, 2 * batch + 1)))
        if lease is not None:
            users = vectors[rng.integers(len(vectors), size=lease.batch.requests)]
            out[lease.number] = serve(lease.batch, world.catalog, index, users)
            continue
        number = int(rng.choice(list(out)))
        served = out.pop(number)
        chance = rng.random()
        if chance < 0.8:
            settle(number, served)
        else:
            coordinator.release(number)
            if chance < 0.9:
                late[number] = served
        if late and rng.random() < 0.3:
            settle(*late.popitem())
    report = coordinator.report()
    assert report.exposures == {label: returned[label] for label in world.catalog.labels}
    assert report.esp == 1, report.missing
    return returned


@given(
    seed=st.integers(0, 10**6),
    batch=st.sampled_from([1, 3, 16]),
    front_ends=st.sampled_from([1, 4, 16]),
    tightness=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    even=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_floors_hold_in_any_order_of_events(
    seed: int, batch: int, front_ends: int, tightness: float, even: bool
) -> None:
    world = make_world(seed, horizon=60, tightness=tightness, even=even)
    chaos(world, batch, front_ends, np.random.default_rng(seed))


@pytest.mark.parametrize("front_ends", [1, 4, 16])
@pytest.mark.parametrize("tightness", [0.3, 0.97])
def test_floors_hold_with_front_ends_at_work_at_once(front_ends: int, tightness: float) -> None:
    horizon = 960
    world = make_world(7, items=60, horizon=horizon, tightness=tightness)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=horizon, batch_size=8)
    counts: list[Counter[object]] = [Counter() for _ in range(front_ends)]

    def work(mine: int) -> None:
        front, rng = FrontEnd(world.catalog, coordinator), np.random.default_rng(mine)
        for part in np.array_split(world.users[mine::front_ends], 12):
            time.sleep(float(rng.exponential(0.0005)))
            counts[mine].update(front.retrieve(part).groups.ravel().tolist())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(front_ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
    report, total = coordinator.report(), sum(counts, Counter())
    assert report.requests == horizon
    assert report.exposures == {label: total[label] for label in world.catalog.labels}
    assert report.esp == 1


def test_horizons_follow_each_other_also_out_of_order() -> None:
    """The first lease that is settled opens the new horizon, also if another one was granted before it."""
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"])
    coordinator = Coordinator(catalog, k=1, floors={"b": 1}, horizon=4, batch_size=1)
    front = FrontEnd(catalog, coordinator)
    front.retrieve(np.ones((4, 4)))
    assert coordinator.report().esp == 1
    first, second = coordinator.lease(1), coordinator.lease(1)
    entry = Entry(np.array([1, 0]), 1, 1.0, 0.0)
    coordinator.settle(second.number, Settlement(entry))
    coordinator.settle(first.number, Settlement(entry))
    report = coordinator.report()
    assert (report.requests, report.completed, report.exposures) == (2, 1, {"a": 2, "b": 0})


def test_the_lease_of_a_dead_front_end_expires() -> None:
    """All slots are promised, so that leases are granted one by one; the first front end dies with its lease."""
    catalog = Catalog(np.eye(2), ["a", "b"])
    coordinator = Coordinator(catalog, k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=1, lease_seconds=0.2)
    lost = coordinator.lease(1)
    FrontEnd(catalog, coordinator).retrieve(np.ones((10, 2)))
    assert coordinator.report().exposures == {"a": 5, "b": 5}
    coordinator.settle(lost.number, Settlement(Entry(np.array([1, 0]), 1, 1.0, 0.0)))  # it was only slow
    report = coordinator.report()
    assert report.exposures == {"a": 6, "b": 5}
    assert report.requests == 10
    coordinator.settle(lost.number, Settlement(Entry(np.array([1, 0]), 1, 1.0, 0.0)))
    assert coordinator.report().exposures == {"a": 6, "b": 5}


def test_a_search_that_fails_releases_its_lease() -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])

    class Broken:
        applies_prices = "bias"

        def search(self, users: object, prices: object, k: int) -> Hits:
            raise FairSyncError("broken")

    coordinator = Coordinator(catalog, k=1, floors={"a": 5, "b": 5}, horizon=10, batch_size=2)
    with pytest.raises(FairSyncError, match="broken"):
        FrontEnd(catalog, coordinator, index=Broken()).retrieve(np.ones((3, 2)))
    FrontEnd(catalog, coordinator).retrieve(np.ones((10, 2)))
    assert coordinator.report().esp == 1


@given(seed=st.integers(0, 10**6), tightness=st.sampled_from([0.3, 0.9, 1.0]))
@settings(max_examples=15, deadline=None)
def test_a_coordinator_may_die_at_any_moment(seed: int, tightness: float) -> None:
    """Its leases are settled with the next one, perhaps twice: floors hold, no count is lost or recorded twice."""
    world = make_world(seed, horizon=60, tightness=tightness)
    rng, ledger = np.random.default_rng(seed), MemoryLedger(world.catalog.n_groups)  # it stands for a durable one
    index, vectors = ExactIndex(world.catalog), check_users(world.users, world.catalog)
    returned: Counter[object] = Counter()
    out: dict[int, ServedBatch] = {}

    def start() -> Coordinator:
        return Coordinator(
            world.catalog,
            k=world.k,
            floors=world.floors,
            horizon=world.horizon,
            batch_size=4,
            ledger=ledger,
            save_seconds=0,
        )

    coordinator = start()
    while ledger.totals().requests < world.horizon:
        if rng.random() < 0.1:
            coordinator = start()
        lease = coordinator.try_lease(int(rng.integers(1, 9))) if len(out) < 4 else None
        if lease is not None:
            users = vectors[rng.integers(len(vectors), size=lease.batch.requests)]
            served = out[lease.number] = serve(lease.batch, world.catalog, index, users)
            returned.update(world.catalog.group_of[served.hits.rows].ravel().tolist())
        elif out:
            number = int(rng.choice(list(out)))
            served = out.pop(number)
            coordinator.settle(number, Settlement(served.entry, served.sample))
            if rng.random() < 0.5:
                coordinator = start() if rng.random() < 0.5 else coordinator  # it died before it could reply
                coordinator.settle(number, Settlement(served.entry, served.sample))
    for (
        number,
        served,
    ) in out.items():  # leases of dead coordinators, whose requests were granted again
        coordinator.settle(number, Settlement(served.entry, served.sample))
    assert coordinator.report().esp == 1
    assert coordinator.report().exposures == {label: returned[label] for label in world.catalog.labels}


def test_the_policy_state_is_saved_and_loaded() -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    ledger = MemoryLedger(world.catalog.n_groups)
    first = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger)
    FrontEnd(world.catalog, first).retrieve(world.users[:100])
    first.lease(1)  # starts the next price batch
    first.save()
    second = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger)
    assert any(second.report().prices.values())
    assert second.report().prices == first.report().prices
    ledger.save("policy guaranteed", b"broken")
    third = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger)
    assert not any(third.report().prices.values())


def test_a_coordinator_that_keeps_crashing_makes_progress() -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    ledger = MemoryLedger(world.catalog.n_groups)
    begun_with = []
    for life in range(3):
        coordinator = Coordinator(
            world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger, save_seconds=3600
        )
        begun_with.append(coordinator.report().prices)
        FrontEnd(world.catalog, coordinator).retrieve(world.users[life * 40 : life * 40 + 40])
    assert not any(begun_with[0].values())
    assert any(begun_with[1].values())
    assert begun_with[1] != begun_with[2]


def test_a_closed_coordinator_refuses_calls_and_its_leases_are_settled_with_the_next() -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    ledger = MemoryLedger(world.catalog.n_groups)
    with Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger) as first:
        lease = first.lease(4)
    vectors = check_users(world.users[:4], world.catalog)
    served = serve(lease.batch, world.catalog, ExactIndex(world.catalog), vectors)
    for call in (
        lambda: first.lease(1),
        lambda: first.settle(lease.number, Settlement(served.entry, served.sample)),
        lambda: first.record_impressions(np.zeros(4, dtype=np.int64), "key"),
        lambda: first.promise(0),
        lambda: first.set_targets(0, 10),
    ):
        with pytest.raises(FairSyncError, match="The coordinator is closed: make another one over the same ledger"):
            call()
    first.release(lease.number)
    second = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200, ledger=ledger)
    second.settle(lease.number, Settlement(served.entry, served.sample))
    assert ledger.totals().exposures.sum() == 4 * world.k


def test_closing_wakes_a_front_end_that_waits_for_a_lease() -> None:
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"])
    coordinator = Coordinator(catalog, k=2, floors=4, horizon=4)
    while coordinator.try_lease(1) is not None:  # until the rest has to wait for these
        pass
    raised = list[BaseException]()

    def wait() -> None:
        try:
            coordinator.lease(1)
        except FairSyncError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    coordinator.close()
    waiting.join(10)  # long before the lease expires
    assert "closed" in str(raised[0])


def test_copies_are_refused_and_say_what_to_use() -> None:
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"])
    coordinator = Coordinator(catalog, k=2)
    for one, remedy in (
        (coordinator, "make another one over the same ledger"),
        (FrontEnd(catalog, coordinator), r"make one in each process with FrontEnd\(catalog, coordinator\)"),
        (FairRetriever(catalog, k=2), r"use retriever.save\(folder\) and FairRetriever.load\(folder\)"),
    ):
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"A {type(one).__name__} cannot be pickled or copied: .*{remedy}"):
                copying(one)


def test_items_and_groups_come_and_go() -> None:
    """The coordinator is changed first; front ends follow one by one, and answer from the items they have."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    catalog = Catalog(vectors[:40], ["a"] * 20 + ["b"] * 20, ids=list(range(40)))
    coordinator = Coordinator(catalog, k=4, floors={"b": 100}, horizon=100, batch_size=5)
    fronts = [FrontEnd(catalog, coordinator) for _ in range(3)]
    returned: Counter[object] = Counter()

    def serve_some(n: int) -> None:
        for front in fronts:
            returned.update(front.retrieve(rng.normal(size=(n, 8))).groups.ravel().tolist())

    serve_some(5)
    new = (vectors[40:], ["c"] * 20, list(range(40, 60)))
    with pytest.raises(InvalidInputError, match="tell the coordinator first"):
        fronts[0].upsert(*new)
    after = upsert_items(catalog, *new).catalog
    coordinator.promise({"b": 100, "c": 60}, catalog=after)
    fronts[1].upsert(*new)
    serve_some(5)
    fronts[0].upsert(*new)
    fronts[2].replace(after)
    for front in fronts:
        front.remove(list(range(30, 40)))
    serve_some(20)
    fronts[0].retrieve(rng.normal(size=(0, 8)))
    returned.update(fronts[1].retrieve(rng.normal(size=(10, 8))).groups.ravel().tolist())
    report = coordinator.report()
    assert (report.requests, report.esp) == (100, 1)
    assert report.exposures == dict(returned)
    with pytest.raises(FairSyncError, match="cannot be met"):
        coordinator.promise({"b": 1000})
    with pytest.raises(InvalidInputError, match="in their order"):
        coordinator.promise(catalog=Catalog(np.eye(8), ["b", "c"] * 4))
    assert coordinator.report().floors == report.floors


def test_a_new_promise_waits_for_leases_that_could_break_it() -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])
    coordinator = Coordinator(catalog, k=1, floors=0, horizon=10, batch_size=5, lease_seconds=60)
    lease = coordinator.lease(5)
    for floor in (4, 5):  # the requests left suffice
        coordinator.promise({"a": floor})
    with pytest.raises(FairSyncError, match="cannot be met"):
        coordinator.promise({"a": 11}, horizon=10)
    waiting = threading.Thread(target=coordinator.promise, args=({"a": 8},))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    coordinator.settle(lease.number, Settlement(Entry(np.array([5, 0]), 5, 1.0, 0.0)))
    waiting.join(timeout=240)
    assert coordinator.report().floors == {"a": 8, "b": 0}
    FrontEnd(catalog, coordinator).retrieve(np.tile([0.0, 1.0], (5, 1)))
    assert coordinator.report().esp == 1


def test_a_horizon_cannot_be_cut_off_before_its_floors_are_met() -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])
    coordinator = Coordinator(catalog, k=1, floors={"a": 2}, horizon=10, batch_size=1)
    FrontEnd(catalog, coordinator).retrieve(np.tile([0.0, 1.0], (2, 1)))
    with pytest.raises(InvalidInputError, match="cannot be met"):
        coordinator.promise(horizon=2)
    FrontEnd(catalog, coordinator).retrieve(np.tile([0.0, 1.0], (8, 1)))
    assert coordinator.report().esp == 1
    coordinator.promise({"a": 9})  # for the next one


def test_a_coordinator_can_continue_where_a_floor_is_lost() -> None:
    """An outage may have cost the floor; the coordinator that replaces the first one is told to continue."""
    catalog, ledger = Catalog(np.eye(2), ["a", "b"]), MemoryLedger(2)
    ledger.record([Entry(np.array([0, 9]), 9, 1.0, 0.0)])
    with pytest.raises(InvalidInputError, match="cannot be met"):
        Coordinator(catalog, k=1, floors={"a": 5}, horizon=10, ledger=ledger)
    coordinator = Coordinator(catalog, k=1, floors={"a": 5}, horizon=10, ledger=ledger, allow_infeasible=True)
    FrontEnd(catalog, coordinator).retrieve(np.tile([0.0, 1.0], (1, 1)))
    assert coordinator.report().exposures == {"a": 1, "b": 9}
    coordinator.promise(catalog=catalog)
    FrontEnd(catalog, coordinator).retrieve(np.tile([0.0, 1.0], (10, 1)))
    assert coordinator.report().esp == 1


def test_it_can_be_calibrated() -> None:
    world = make_world(3, items=60, horizon=200, tightness=0.6)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200).calibrate(world.users)
    coordinator = Coordinator(world.catalog, k=world.k, floors=world.floors, horizon=200)
    coordinator.calibrate(world.users, world.catalog, ExactIndex(world.catalog))
    assert coordinator.report().prices == retriever.report().prices


def test_bad_arguments_are_refused() -> None:
    catalog = Catalog(np.eye(2), ["a", "b"])
    with pytest.raises(InvalidInputError, match="lease_seconds"):
        Coordinator(catalog, k=1, lease_seconds=0)
    with pytest.raises(FairSyncError, match="cannot be met"):
        Coordinator(catalog, k=1, floors=100, horizon=10)
    with pytest.raises(InvalidInputError, match="other groups"):
        FrontEnd(Catalog(np.eye(2), ["a", "c"]), Coordinator(catalog, k=1))
    with pytest.raises(InvalidInputError, match="another catalog"):
        Coordinator(catalog, k=1, ledger=MemoryLedger(3))
    used = MemoryLedger(2)
    used.record([Entry(np.array([9, 0]), 9, 1.0, 0.0)])
    with pytest.raises(InvalidInputError, match="cannot be met"):
        Coordinator(catalog, k=1, floors={"b": 5}, horizon=10, ledger=used)
    with pytest.raises(InvalidInputError, match="n must"):
        Coordinator(catalog, k=1).lease(0)
