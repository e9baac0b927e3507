"""Several front ends that keep promises which overlap, whatever the order in which leases are settled or lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
from coordination.test_targets_by_selection import counts_of
from fairsync.coordination.lease import Settlement
from fairsync.coordination.local_state import LocalState
from promise_worlds import make_catalog, make_users, some_promises

if TYPE_CHECKING:
    from fairsync.coordination.lease import Lease

K, T = 10, 200


def make(catalog: fs.Catalog, **changes: Any) -> fs.Coordinator:
    promises = changes.pop("promises") if "promises" in changes else some_promises(catalog)
    terms: dict[str, Any] = {"k": K, "horizon": T, "promises": promises, "batch_size": 8}
    return fs.Coordinator(catalog, **{**terms, **changes})


def test_two_front_ends_keep_all_promises() -> None:
    catalog, users = make_catalog(), make_users(T)
    coordinator = make(catalog)
    front_ends = [fs.FrontEnd(catalog, coordinator) for _ in range(2)]
    for i in range(0, T, 5):
        front_ends[i // 5 % 2].retrieve(users[i : i + 5])
    report = coordinator.report()
    assert report.esp == 1.0
    assert report.requests == T


def test_a_single_front_end_answers_as_a_retriever_does() -> None:
    catalog, users = make_catalog(), make_users(T)
    retriever = fs.FairRetriever(catalog, k=K, horizon=T, promises=some_promises(catalog), batch_size=8)
    front_end = fs.FrontEnd(catalog, make(catalog))
    assert (front_end.retrieve(users).ids == retriever.retrieve(users).ids).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_front_end_answers_as_a_retriever_does_under_conditions(seed: int, shuffled: bool) -> None:
    """What requests to come can show is forecast by atom, whatever the order in which a front end knows the atoms."""
    rng = np.random.default_rng(seed)
    n, k, horizon = 60, 4, 400
    vectors, category = rng.normal(size=(n, 6)), rng.choice(["a", "b", "c"], size=n, p=[0.2, 0.4, 0.4])
    new, users = rng.random(n) < 0.3, rng.normal(size=(horizon, 6))
    # Nine of ten requests may not show category a.
    where = [{"category": ["b", "c"]} if rng.random() < 0.9 else None for _ in range(horizon)]
    promises = [fs.Promise({"category": "a"}, at_least=60), fs.Promise({"new": True}, at_least=100)]
    catalog = fs.Catalog(vectors, {"category": category.tolist(), "new": new.tolist()}, list(range(n)))
    order = rng.permutation(n) if shuffled else np.arange(n)
    attributes = {"category": category[order].tolist(), "new": new[order].tolist()}
    other = fs.Catalog(vectors[order], attributes, order.tolist())
    retriever = fs.FairRetriever(catalog, k=k, horizon=horizon, promises=promises, batch_size=8)
    coordinator = fs.Coordinator(catalog, k=k, horizon=horizon, promises=promises, batch_size=8)
    front_end = fs.FrontEnd(other, coordinator)
    plain = fs.FairRetriever(catalog, k=k, horizon=horizon, promises=promises, policy="none")
    assert plain.retrieve(users, where=where).ids.shape == (horizon, k)
    assert plain.report().exposures["category=a"] < 60
    for i in range(0, horizon, 40):
        here = slice(i, i + 40)
        expected = retriever.retrieve(users[here], where=where[here])
        assert (front_end.retrieve(users[here], where=where[here]).ids == expected.ids).all()
    assert retriever.report().esp == coordinator.report().esp == 1.0


@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_with_leases_that_are_open_side_by_side(seed: int) -> None:
    rng = np.random.default_rng(seed)
    catalog, users = make_catalog(seed), make_users(T, seed + 50)
    promises = edge_promises(catalog, rng)
    coordinator = make(catalog, promises=promises, batch_size=int(rng.integers(1, 20)))
    out: list[Any] = []
    settle = coordinator.settle

    class Slow:
        """The coordinator, with settlements that arrive later, in any order."""

        promises, labels, k = coordinator.promises, coordinator.labels, coordinator.k
        answers, release = staticmethod(coordinator.answers), staticmethod(coordinator.release)
        save_answers = staticmethod(coordinator.save_answers)

        def lease(self, n: int, k: int | None = None) -> Lease:
            while (lease := coordinator.try_lease(n, k=k)) is None:
                assert out, "a lease waits though no other is open"
                out.pop(int(rng.integers(len(out))))()
            return lease

        def settle(self, *arguments: Any) -> None:
            out.append(lambda: settle(*arguments))
            while len(out) > rng.integers(0, 5):
                out.pop(int(rng.integers(len(out))))()

    front_end = fs.FrontEnd(catalog, Slow())
    at = 0
    while at < T:
        n = int(rng.integers(1, 9))
        front_end.retrieve(users[at : at + n])
        at += n
    for one in out:
        one()
    report = coordinator.report()
    assert report.requests == T
    assert report.esp == 1.0, [row for row in report.promises if not row.kept]


def edge_promises(catalog: fs.Catalog, rng: np.random.Generator) -> list[fs.Promise]:
    """Return promises that leave little room: floors and caps close to each other."""
    wine = int(rng.integers(200, 800))
    return [
        *fs.each(catalog, "provider", at_least=int(rng.integers(50, 400))),
        fs.Promise({"category": "wine"}, at_least=wine, at_most=wine + int(rng.integers(0, 30))),
        fs.Promise({"new": True}, at_most=int(rng.integers(100, 300))),
    ]


def test_a_lost_lease_does_not_break_promises() -> None:
    catalog, users = make_catalog(), make_users(T)
    coordinator = make(catalog)
    front_end = fs.FrontEnd(catalog, coordinator)
    front_end.retrieve(users[:50])
    lost = coordinator.lease(8)
    front_end.retrieve(users[50:100])
    coordinator.release(lost.number)
    front_end.retrieve(users[100:])
    assert coordinator.report().esp == 1.0


def test_promises_and_items_may_change_while_front_ends_serve() -> None:
    catalog, users = make_catalog(), make_users(T)
    promises = fs.each(catalog, "provider", at_least=100)
    coordinator = make(catalog, promises=promises)
    front_ends = [fs.FrontEnd(catalog, coordinator) for _ in range(2)]
    front_ends[0].retrieve(users[:40])
    late = {"category": ["books"] * 5, "provider": ["late"] * 5, "new": [True] * 5}
    embeddings, ids = np.random.default_rng(5).normal(size=(5, 8)), list(range(1000, 1005))
    front_ends[0].upsert(embeddings, late, ids)  # the front end before the coordinator: its items count for no promise
    front_ends[0].retrieve(users[40:60])
    coordinator.promise(catalog=front_ends[0].catalog)
    assert coordinator.labels[-1] == "provider=late"
    front_ends[1].upsert(embeddings, late, ids)
    for i in range(60, T, 10):
        front_ends[i // 10 % 2].retrieve(users[i : i + 10])
    report = coordinator.report()
    assert report.esp == 1.0
    assert report.exposures["provider=late"] >= 100


def test_a_coordinator_over_the_same_ledger_goes_on() -> None:
    catalog, users = make_catalog(), make_users(T)
    ledger = fs.MemoryLedger(len(some_promises(catalog)))
    with make(catalog, ledger=ledger) as first:
        fs.FrontEnd(catalog, first).retrieve(users[:90])
        lost = first.lease(4)
    second = make(catalog, ledger=ledger)
    fs.FrontEnd(catalog, second).retrieve(users[90:150])
    second.release(lost.number)
    fs.FrontEnd(catalog, second).retrieve(users[150:])
    assert second.report().esp == 1.0


def test_bad_input_is_named() -> None:
    catalog = make_catalog()
    with pytest.raises(fs.InvalidInputError, match="needs the catalog"):
        fs.Coordinator(catalog.groups, k=K, horizon=T, promises=some_promises(catalog))
    with pytest.raises(fs.InvalidInputError, match="not both"):
        make(catalog, floors=3)
    with pytest.raises(fs.InvalidInputError, match="auto_restart"):
        make(catalog, auto_restart=False)
    with pytest.raises(fs.InvalidInputError, match="make one with promises"):
        fs.Coordinator(catalog, k=K, horizon=T).promise(promises=some_promises(catalog))


def test_front_ends_follow_a_promise_whose_conditions_change() -> None:
    catalog = fs.Catalog(np.concatenate([np.ones((4, 3)), -np.ones((6, 3))]), {"kind": list("aaaabbbccc")})
    coordinator = make(catalog, k=2, horizon=20, promises=[fs.Promise({"kind": "b"}, at_least=5, name="guests")])
    front_end = fs.FrontEnd(catalog, coordinator)
    front_end.retrieve(np.ones((8, 3)))
    before = coordinator.report().exposures["guests"]
    coordinator.promise(promises=[fs.Promise({"kind": "c"}, at_least=12, name="guests")])
    found = front_end.retrieve(np.ones((12, 3)))
    exposures = coordinator.report().exposures["guests"]
    assert exposures == before + int((found.ids >= 7).sum())
    assert exposures >= 12


def test_what_a_lone_lease_may_use_of_caps_stays_reserved() -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    coordinator = make(catalog, k=2, horizon=10, promises=[fs.Promise({"kind": "a"}, at_least=3, at_most=5)])
    alone, state = coordinator.lease(2), coordinator._state
    assert isinstance(state, LocalState)
    room, reserved = alone.batch.room, state.leases.reserved(coordinator.terms)
    assert room is not None
    assert reserved is not None
    assert reserved.tolist() == np.minimum(room, 4).tolist(), "two lists of two"


def test_a_cap_within_a_horizon_can_make_every_slot_a_promise() -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aaabbb")})
    first, other = fs.Promise({"kind": "a"}, at_most=15), fs.Promise({"kind": "b"}, at_most=15)
    coordinator = make(catalog, k=2, horizon=10, promises=[first], batch_size=2)
    front_end = fs.FrontEnd(catalog, coordinator)
    front_end.retrieve(np.eye(6)[:4])
    coordinator.promise(promises=[first, other])
    front_end.retrieve(np.eye(6))
    report = coordinator.report()
    assert report.exposures["every slot"] == 20
    assert report.esp == 1.0


@pytest.mark.parametrize("was_alone", [True, False])
def test_a_lost_lease_is_not_settled_where_there_are_caps(was_alone: bool) -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    coordinator = make(catalog, k=2, horizon=20, promises=[fs.Promise({"kind": "a"}, at_most=6)], batch_size=4)
    front_end, a_users = fs.FrontEnd(catalog, coordinator), np.tile(np.eye(6)[0] + np.eye(6)[1], (12, 1))
    other = None if was_alone else coordinator.lease(1)
    settle, seen = coordinator.settle, list[int]()

    def slow(number: int, *rest: Any) -> None:
        if not seen:  # the first lease expires before it is settled, and others use what it had of the cap
            seen.append(number)
            coordinator.release(number)
            fs.FrontEnd(catalog, coordinator).retrieve(a_users[:4])
        settle(number, *rest)

    coordinator.settle = slow  # type: ignore[method-assign, assignment]
    found = front_end.retrieve(a_users)
    assert found.ids.shape == (12, 2), "the requests of the lost lease were answered again"
    if other is not None:
        coordinator.release(other.number)
    exposures, requests = coordinator.report().exposures["kind=a"], coordinator.totals().requests
    assert (exposures, requests) == (6 if other is None else 4, 16), "the other lease had two of them"
    for _ in range(2):
        with pytest.raises(fs.LostLeaseError, match="lease again"):
            settle(seen[0], Settlement(fs.ledger.Entry(np.array([8]), 4, 1.0, 0.0)))
    assert coordinator.report().exposures["kind=a"] == exposures


def test_a_lost_lease_is_refused_again_after_the_coordinator_has_died() -> None:
    """The front end that repeats its settlement must not take it for counted, and show its lists."""
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    settings: dict[str, Any] = {"k": 2, "horizon": 20, "promises": [fs.Promise({"kind": "a"}, at_most=6)]}
    ledger, entry = fs.MemoryLedger(1), fs.ledger.Entry(np.array([4]), 2, 1.0, 0.0)
    first = make(catalog, ledger=ledger, **settings)
    lost, settled = first.lease(2), first.lease(2)
    first.settle(settled.number, Settlement(replace(entry, counts=np.array([1]))))
    first.release(lost.number)
    for coordinator in (first, make(catalog, ledger=ledger, **settings)):
        with pytest.raises(fs.LostLeaseError, match="lease again"):
            coordinator.settle(lost.number, Settlement(entry))
        assert coordinator.settle(settled.number, Settlement(entry)) is None, "it is counted already"
    assert ledger.totals().exposures.tolist() == [1]


def test_a_new_cap_waits_for_leases_that_could_exceed_it() -> None:
    """An open lease was granted without it: its lists may hold anything."""
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    coordinator = make(catalog, k=2, horizon=20, promises=[fs.Promise({"kind": "a"}, at_least=1)])
    lease, coordinator.lease_seconds = coordinator.lease(2), 0.0  # so that it is refused at once
    with pytest.raises(fs.InvalidInputError, match="open leases may add 4"):
        coordinator.promise(promises=[fs.Promise({"kind": "a"}, at_most=3)])
    assert coordinator.terms.caps is None
    coordinator.promise(promises=[fs.Promise({"kind": "a"}, at_most=4)])
    coordinator.settle(lease.number, Settlement(fs.ledger.Entry(np.array([4]), 2, 1.0, 0.0)))
    found = fs.FrontEnd(catalog, coordinator).retrieve(np.tile(np.eye(6)[0] + np.eye(6)[1], (18, 1)))
    assert (found.ids >= 2).all()
    assert coordinator.report().exposures["kind=a"] == 4


def test_what_a_lease_of_a_coordinator_that_died_saw_is_not_taken_for_other_atoms() -> None:
    """Its atoms may have had other codes, or been more. Its counts are by promise: none is lost."""
    catalog, users = make_catalog(), make_users(T)
    promises = [fs.Promise({"category": "wine"}, at_least=20), *fs.each(catalog, "provider", at_least=20)]
    first = make(catalog, promises=promises[:1], batch_size=4)
    first.promise(promises=promises)  # the atoms of before keep their codes, beside the new ones
    second = make(catalog, promises=promises, batch_size=4, ledger=first.ledger)
    atoms = [one.terms.n_atoms for one in (first, second)]
    assert atoms[0] > atoms[1]
    settlements: list[Any] = []
    first.settle = lambda *arguments: settlements.append(arguments)  # type: ignore[method-assign]
    shown = fs.FrontEnd(catalog, first).retrieve(users[:4]).ids
    for number, settlement in settlements:
        assert settlement.sample is not None
        counted = second.settle(number, settlement)
        assert counted is not None
        assert counted.requests == 0
    assert second.totals().exposures[0] == counts_of(catalog, shown, {"category": "wine"})
    fs.FrontEnd(catalog, second).retrieve(users)
    assert second.report().esp == 1.0


def test_a_promise_made_before_the_first_settlement_of_a_horizon_survives_a_crash() -> None:
    """The ledger would have the horizon before as the one under way, and a shorter one would be over already."""
    catalog, users = make_catalog(), make_users(60)
    promises = [fs.Promise({"category": "wine"}, at_least=20)]
    coordinator = make(catalog, promises=promises, horizon=40)
    fs.FrontEnd(catalog, coordinator).retrieve(users[:40])
    coordinator.release(coordinator.lease(1).number)  # the next horizon begins
    coordinator.promise(promises=promises, horizon=20)
    again = make(catalog, promises=promises, horizon=20, ledger=coordinator.ledger)
    assert again.report().requests == coordinator.report().requests == 0
    fs.FrontEnd(catalog, again).retrieve(users[40:])
    assert [one.requests for one in [*again.ledger.past(), again.totals()]] == [40, 20]
    assert again.report().esp == 1.0
