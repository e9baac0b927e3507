"""Coordinators that share a ledger in Postgres, and promises that overlap, have caps or limit single lists."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fairsync as fs
import replicas as processes
from coordination.test_promises import edge_promises
from coordination.test_targets_by_selection import (
    SELECTIONS,
    SlowSettlements,
    can_be_kept,
    check_caps_of_long_lists,
    check_that_slots_grow,
    counts_of,
)
from fairsync.coordination.lease import Settlement
from fairsync.ledger import Entry
from fairsync.promises.selection import selection_name
from promise_worlds import make_catalog, make_users

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., fs.Coordinator]

K, T = 10, 120
KILLS = int(os.environ.get("FAIRSYNC_KILLS", "0"))
WORLDS = int(os.environ.get("FAIRSYNC_OVERLAP_WORLDS", "6"))


class Replicas:
    """Front ends, each with a coordinator of its own, whose settlements arrive later, in any order."""

    def __init__(self, coordinators: list[fs.Coordinator], catalog: fs.Catalog, rng: np.random.Generator) -> None:
        self.coordinators, self.catalog, self.rng, self.out = coordinators, catalog, rng, list[Any]()
        self.fronts = [fs.FrontEnd(catalog, self.slow(one)) for one in coordinators]
        self.shown: list[np.ndarray] = []

    def slow(self, coordinator: fs.Coordinator) -> SlowSettlements:
        slow = SlowSettlements(coordinator, self.rng)
        slow.out = self.out  # one lease may have to wait for another one's settlement, whoever holds it
        return slow

    def retrieve(self, n: int) -> None:
        front = self.fronts[int(self.rng.integers(len(self.fronts)))]
        self.shown.append(front.retrieve(make_users(n, int(self.rng.integers(1 << 30)))).ids)

    def settle_all(self) -> None:
        while self.out:
            self.out.pop(int(self.rng.integers(len(self.out))))()

    def count(self, where: Any) -> int:
        return counts_of(self.catalog, np.concatenate(self.shown), where) if self.shown else 0


@pytest.mark.parametrize("seed", range(WORLDS))
def test_promises_over_a_horizon_hold_with_several_replicas(start: Start, seed: int) -> None:
    rng = np.random.default_rng(seed)
    catalog = make_catalog(seed)
    promises = [scaled(one, T / 200) for one in edge_promises(catalog, rng)]
    settings: dict[str, Any] = {"k": K, "horizon": T, "promises": promises, "batch_size": int(rng.integers(1, 16))}
    replicas = Replicas([start(catalog, **settings) for _ in range(2 + seed % 2)], catalog, rng)
    served = 0
    while served < T:
        n = min(int(rng.integers(1, 9)), T - served)
        replicas.retrieve(n)
        served += n
    replicas.settle_all()
    for coordinator in replicas.coordinators:
        report = coordinator.report()
        assert report.requests == T
        assert report.esp == 1.0, [row for row in report.promises if not row.kept]
    for promise in promises:
        count = replicas.count(promise.where)
        assert promise.floor(T * K) <= count
        assert (cap := promise.cap(T * K)) is None or count <= cap


def test_lists_longer_than_k_keep_caps_beside_others(start: Start) -> None:
    catalog = make_catalog()
    settings: dict[str, Any] = {"k": K, "horizon": T, "promises": [fs.Promise({"category": "toys"}, at_most=45)]}
    check_caps_of_long_lists([start(catalog, **settings) for _ in range(2)], catalog)


def test_atoms_may_be_added_while_the_first_limited_request_is_open(start: Start) -> None:
    catalog = make_catalog()
    check_that_slots_grow(start(catalog, k=K, floors=0, horizon=1, auto_restart=False, batch_size=8), catalog)


@pytest.mark.parametrize("requests", [1, 8])
def test_a_front_end_that_is_alone_pays_no_more_for_caps_than_with_a_local_coordinator(
    start: Start, requests: int
) -> None:
    """Lists differ in what they need of a cap: a part for each lease would be a limit per list."""
    rng, horizon = np.random.default_rng(0), 240
    vectors = rng.normal(size=(300, 8)) + np.repeat([[0.8], [0.0], [0.0]], 100, axis=0)
    catalog = fs.Catalog(vectors, {"kind": ["big"] * 100 + ["toys"] * 100 + ["books"] * 100})
    users = rng.normal(size=(horizon, 8)) + rng.normal(size=(horizon, 1))
    promises = [fs.Promise({"kind": "big"}, at_most=0.3), fs.Promise({"kind": "books"}, at_least=0.3)]
    settings: dict[str, Any] = {"k": K, "horizon": horizon, "promises": promises}
    relevance = []
    for coordinator in (fs.Coordinator(catalog, **settings), start(catalog, **settings)):
        front = fs.FrontEnd(catalog, coordinator)
        for first in range(0, horizon, requests):
            front.retrieve(users[first : first + requests])
        report = coordinator.report()
        assert report.esp == 1.0
        relevance.append(report.relevance)
    assert relevance[1] == pytest.approx(relevance[0], rel=2e-3)


def test_a_front_end_that_is_alone_no_longer_shares_its_caps(start: Start) -> None:
    """Turns of several leases each: caps are given to one lease, then shared out, and so on."""
    rng, horizon = np.random.default_rng(1), 160
    catalog = fs.Catalog(rng.normal(size=(90, 4)), {"kind": [f"k{row % 3}" for row in range(90)]})
    promises = [fs.Promise({"kind": "k0"}, at_most=150), fs.Promise({"kind": "k1"}, at_least=900)]
    coordinators = [start(catalog, k=K, horizon=horizon, promises=promises) for _ in range(2)]
    replicas, served = Replicas(coordinators, catalog, rng), 0
    while served < horizon:
        turn = int(rng.integers(2))
        for _ in range(int(rng.integers(1, 9))):
            n = min(int(rng.integers(1, 4)), horizon - served)
            if n:
                replicas.shown.append(replicas.fronts[turn].retrieve(rng.normal(size=(n, 4))).ids)
            if rng.random() < 0.7:
                replicas.settle_all()
            served += n
    replicas.settle_all()
    assert replicas.count({"kind": "k0"}) <= 150
    assert replicas.count({"kind": "k1"}) >= 900
    assert coordinators[0].report().requests == horizon


def scaled(promise: fs.Promise, by: float) -> fs.Promise:
    low, high = (None if one is None else int(one * by) for one in (promise.at_least, promise.at_most))
    return fs.Promise(promise.where, low, high, name=promise.name)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_targets_by_selection_hold_with_several_replicas(start: Start, seed: int) -> None:
    """In each period, floors that can be kept are, and no cap is exceeded, counted from the lists themselves."""
    rng = np.random.default_rng(100 + seed)
    catalog = make_catalog(seed)
    settings: dict[str, Any] = {"k": K, "horizon": 1, "auto_restart": False, "batch_size": int(rng.integers(1, 12))}
    replicas = Replicas([start(catalog, **settings) for _ in range(2)], catalog, rng)
    leader = next(one for one in replicas.coordinators if one.lead())
    for period in range(2):
        requests = int(rng.integers(20, 50))
        wheres = [SELECTIONS[i] for i in rng.permutation(len(SELECTIONS))[: rng.integers(1, 5)]]
        floors = [int(rng.integers(0, requests)) for _ in wheres]
        caps = [floor + int(rng.integers(0, 20)) if rng.random() < 0.6 else None for floor in floors]
        replicas.shown, served = [], 0
        while served < requests:
            if not replicas.out:
                leader.lead()
                totals = leader.totals()
                had = [replicas.count(where) for where in wheres]
                promises = [
                    fs.Promise(where, max(floor - one, 0), None if cap is None else max(cap - one, 0))
                    for where, floor, cap, one in zip(wheres, floors, caps, had, strict=True)
                ]
                began = None if served else 1000.0 * (period + 1)
                leader.set_targets(promises=promises, requests=requests - served, restart_at=began, since=totals)
            n = min(int(rng.integers(1, 15)), requests - served)
            replicas.retrieve(n)
            served += n
            if rng.random() < 0.5:
                replicas.settle_all()
        replicas.settle_all()
        possible = can_be_kept(catalog, wheres, floors, caps, requests)
        for where, floor, cap in zip(wheres, floors, caps, strict=True):
            count = replicas.count(where)
            assert cap is None or count <= cap
            assert count >= floor or not possible
            for one in replicas.coordinators:
                report = one.report()
                assert one.totals().exposures[one.labels.index(one.column_of(where))] == count
                assert report.requests == requests


def by_the_clock(start: Start, catalog: fs.Catalog, **settings: Any) -> fs.Coordinator:
    return start(catalog, **{"k": K, "horizon": 1, "auto_restart": False, "batch_size": 8, **settings})


def test_replicas_hear_of_selections_and_late_ones_join(start: Start) -> None:
    catalog = make_catalog()
    first, second = by_the_clock(start, catalog), by_the_clock(start, catalog)
    leader, other = (first, second) if first.lead() else (second, first)
    front = fs.FrontEnd(catalog, other)
    front.retrieve(make_users(5))
    leader.set_targets(promises=[fs.Promise({"new": True}, at_least=30, at_most=35)], requests=20)
    front.retrieve(make_users(20))
    column = leader.labels.index(selection_name({"new": True}))
    leader.report()
    assert 30 <= leader.totals().exposures[column] <= 35
    third = by_the_clock(start, catalog)
    assert third.labels == leader.labels
    leader.set_targets(promises=[fs.Promise({"new": True}, at_most=3)], requests=20, restart_at=50.0)
    found = fs.FrontEnd(catalog, third).retrieve(make_users(20))
    assert counts_of(catalog, found.ids, {"new": True}) <= 3
    leader.set_targets(promises=[fs.Promise({"category": "wine"}, at_least=7)], requests=5)
    assert counts_of(catalog, front.retrieve(make_users(5)).ids, {"category": "wine"}) >= 7


def test_a_lost_lease_is_not_settled_where_there_are_caps(start: Start) -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    settings: dict[str, Any] = {"k": 2, "horizon": 200, "promises": [fs.Promise({"kind": "a"}, at_most=6)]}
    one, two = (start(catalog, lease_seconds=0.2, batch_size=4, **settings) for _ in range(2))
    lost = one.lease(4)
    front, users = fs.FrontEnd(catalog, two), np.tile(np.eye(6)[0] + np.eye(6)[1], (60, 1))
    found = front.retrieve(users[:20]).ids  # what the first lease had of the cap is used by others, once it has expired
    entry = Entry(np.array([6]), 4, 1.0, 0.0)
    two.release(lost.number)
    with pytest.raises(fs.LostLeaseError, match="lease again"):
        one.settle(lost.number, Settlement(entry))
    with pytest.raises(fs.LostLeaseError, match="lease again"):
        two.settle(lost.number, Settlement(entry))
    found = np.concatenate([found, front.retrieve(users).ids])
    assert (found < 2).sum() == 6
    assert one.report().exposures["kind=a"] == 6


def test_a_settlement_that_was_counted_can_be_repeated_after_the_lease_is_gone(start: Start) -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    coordinator = start(catalog, k=2, horizon=20, promises=[fs.Promise({"kind": "a"}, at_most=6)], batch_size=4)
    lease = coordinator.lease(2)
    for _ in range(2):
        coordinator.settle(lease.number, Settlement(Entry(np.array([3]), 2, 1.0, 0.0)))
    assert coordinator.report().exposures["kind=a"] == 3


def test_starting_with_other_promises_is_refused_or_follows(start: Start) -> None:
    catalog = make_catalog()
    promises = [fs.Promise({"new": True}, at_least=20), fs.Promise({"category": "wine"}, at_most=50)]
    settings: dict[str, Any] = {"k": K, "horizon": T, "batch_size": 8}
    first = start(catalog, promises=promises, **settings)
    with pytest.raises(fs.InvalidInputError, match="differs in"):
        start(catalog, promises=promises[:1], **settings)
    follower = start(catalog, promises=promises[:1], if_differs="follow", **settings)
    assert follower.labels == first.labels
    assert follower.promises == first.promises
    first.promise(promises=[*promises, fs.Promise({"provider": "best"}, at_least=30)])
    front = fs.FrontEnd(catalog, follower)
    front.retrieve(make_users(T - 20))
    with pytest.raises(fs.InvalidInputError, match="can no longer be kept"):
        first.promise(promises=[*promises, fs.Promise({"provider": "best"}, at_least=T * K)])
    front.retrieve(make_users(20))
    report = follower.report()
    assert report.esp == 1.0
    assert report.exposures["provider=best"] >= 30


@pytest.mark.parametrize("number", [2, 4] if os.environ.get("FAIRSYNC_SLOW") else [2])
def test_replicas_with_promises_are_killed(url: str, tmp_path: Path, number: int) -> None:
    """At random moments, until a horizon is over: floors hold, no cap is exceeded, and nothing is counted twice."""
    (catalog, promises), rng = processes.promises(), np.random.default_rng(number)
    kills, started = KILLS or number, itertools.count()

    def start() -> Any:
        mine = next(started)
        return processes.start_promising(url, mine, tmp_path / str(mine))

    with fs.SqlLedger(url, len(promises), shared=True) as ledger:
        running, killed = [start() for _ in range(number)], 0

        def requests() -> int:
            return sum(one.requests for one in [*ledger.past(), ledger.totals()])

        deadline = time.monotonic() + 240
        while killed < kills or not ledger.past():
            until = requests() + int(rng.integers(1, 2 * processes.PROMISED // number))
            while requests() < until:
                assert time.monotonic() < deadline
                time.sleep(float(rng.uniform(0, 0.01)))
            if killed < kills:
                victim, killed = int(rng.integers(number)), killed + 1
                processes.end(running[victim])
                running[victim] = start()
        for process in running:
            processes.end(process)
        past, totals = ledger.past(), ledger.totals()
    slots = processes.PROMISED * 10
    floors = np.array([promise.floor(slots) for promise in promises])
    caps = np.array([slots if (cap := promise.cap(slots)) is None else cap for promise in promises])
    for one in past:
        assert one.requests == processes.PROMISED
        assert (one.exposures >= floors).all()
        assert (one.exposures <= caps).all()
    assert (totals.exposures <= caps).all()
    answers = [ids for mine in range(next(started)) for ids in processes.read_ids(tmp_path / str(mine))]
    counted = np.sum([one.exposures for one in [*past, totals]], axis=0)
    new = catalog.select({"new": True})
    assert new is not None
    assert max(sum(int(id_) in set(new.rows.tolist()) for id_ in ids) for ids in answers) <= 3
    for promise, count in zip(promises, counted.tolist(), strict=True):
        shown = counts_of(catalog, np.array(answers), promise.where)
        # Of the last call of each that was killed, two answers may have been counted and not yet given.
        assert 0 <= count - shown <= 2 * 10 * (killed + number)


def test_a_new_cap_waits_for_leases_that_could_exceed_it(start: Start) -> None:
    catalog = fs.Catalog(np.eye(6), {"kind": list("aabbbb")})
    settings: dict[str, Any] = {"k": 2, "horizon": 20, "promises": [fs.Promise({"kind": "a"}, at_least=1)]}
    one, two = (start(catalog, **settings) for _ in range(2))
    lease = one.lease(2)
    two.lease_seconds = 0.0  # so that it is refused at once
    with pytest.raises(fs.InvalidInputError, match="open leases may add 4"):
        two.promise(promises=[fs.Promise({"kind": "a"}, at_most=3)])
    two.promise(promises=[fs.Promise({"kind": "a"}, at_most=4)])
    one.settle(lease.number, Settlement(Entry(np.array([4]), 2, 1.0, 0.0)))
    found = fs.FrontEnd(catalog, one).retrieve(np.tile(np.eye(6)[0] + np.eye(6)[1], (18, 1)))
    assert (found.ids >= 2).all()
    assert two.report().exposures["kind=a"] == 4


def test_a_horizon_that_another_coordinator_has_changed_stays_as_it_is(start: Start) -> None:
    catalog = make_catalog()
    promises = [fs.Promise({"new": True}, at_least=0.05)]
    one, two = (start(catalog, k=K, horizon=T, promises=promises) for _ in range(2))
    one.promise(promises=promises, horizon=2 * T)
    two.promise(promises=[*promises, fs.Promise({"category": "wine"}, at_least=0.05)])
    assert two.terms.horizon == 2 * T
    assert two.terms.floors.tolist() == [0.05 * 2 * T * K] * 2


def test_a_lease_may_be_settled_with_a_coordinator_whose_atoms_have_other_codes(start: Start) -> None:
    catalog, users = make_catalog(), make_users(T)
    promises = [fs.Promise({"category": "wine"}, at_least=20), *fs.each(catalog, "provider", at_least=20)]
    settings: dict[str, Any] = {"k": K, "horizon": T, "batch_size": 4}
    first = start(catalog, promises=promises[:1], **settings)
    first.promise(promises=promises)
    second = start(catalog, promises=promises, **settings)
    assert first.terms.n_atoms > second.terms.n_atoms
    front, settle = fs.FrontEnd(catalog, first), first.settle
    first.settle = second.settle  # type: ignore[method-assign]
    shown = front.retrieve(users[:4]).ids
    first.settle = settle  # type: ignore[method-assign]
    assert second.report().exposures["category=wine"] == counts_of(catalog, shown, {"category": "wine"})
    fs.FrontEnd(catalog, second).retrieve(users[4:])
    assert second.report().esp == 1.0


def test_a_shared_promise_counts_on_the_items_that_are_left(start: Start) -> None:
    # Four items of each kind, of which users like "a" least; then one "a" is left.
    attributes: dict[str, list[Any]] = {"kind": list("aaaaoooo"), "ready": [True, False] * 4}
    catalog = fs.Catalog(np.eye(8), attributes)
    promises = [fs.Promise({"kind": "a"}, at_least=5), fs.Promise({"ready": True}, at_least=1)]
    coordinator = start(catalog, k=2, horizon=6, promises=promises, batch_size=1)
    front = fs.FrontEnd(catalog, coordinator)
    left = [0, 4, 5, 6, 7]
    fewer = fs.Catalog(np.eye(8)[left], {name: [one[item] for item in left] for name, one in attributes.items()}, left)
    coordinator.promise(catalog=fewer)
    front.remove([1, 2, 3])
    assert coordinator.terms.sure_in_list.tolist() == [1, 2]
    front.retrieve(np.tile(-np.eye(8)[0], (6, 1)))
    assert coordinator.report().exposures["kind=a"] >= 5
