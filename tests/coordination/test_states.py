"""Both states of coordinators, in any order of events, against the plainest model: a dict of leases, and counts."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from effort import effort
from fairsync.coordination.lease import Settlement
from fairsync.coordination.local_state import LocalState
from fairsync.coordination.shared_join import join_ledger
from fairsync.coordination.shared_state import SharedState
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.ledger import Entry, MemoryLedger, SqlLedger
from fairsync.loop.batch import ServedBatch
from fairsync.loop.serving import serve
from fairsync.policies import Terms, make_policy
from fairsync.promises.floors import can_be_met, make_terms
from fairsync.search import ExactIndex
from postgres_server import PostgresServer
from worlds import World, make_world

LEASE_SECONDS = 1000.0
OPERATIONS = ("lease", "lease", "lease", "settle", "settle", "again", "release", "expire", "late", "crash", "promise")
PROGRAMS = st.lists(
    st.tuples(st.sampled_from((*OPERATIONS, "impressions")), st.integers(0, 10**6)), min_size=10, max_size=80
)


class LocalStores:
    """One coordinator's state over a ledger that outlives it. The clock is the test's own."""

    one_by_one = True  # a coordinator that follows another knows none of its leases

    def __init__(self, world: World, terms: Terms) -> None:
        self.world, self.now, self.ledger = world, 0.0, MemoryLedger(world.catalog.n_groups)
        self.stores = [self.make(terms)]

    def make(self, terms: Terms) -> LocalState:
        policy = make_policy("guaranteed")
        return LocalState(self.ledger, self.world.catalog.groups, terms, policy, LEASE_SECONDS, clock=lambda: self.now)

    def crash(self, number: int) -> None:
        self.stores[number] = self.make(self.stores[number].terms)

    def expire_all(self) -> None:
        self.now += LEASE_SECONDS


class SharedStores:
    """The states of several coordinators that share a ledger in Postgres."""

    one_by_one = False

    def __init__(self, server: PostgresServer, number: int, world: World, terms: Terms) -> None:
        self.world, self.server, self.schema = world, server, f"states_{secrets.token_hex(8)}"
        self.stores = [self.make(terms) for _ in range(number)]

    def make(self, terms: Terms) -> SharedState:
        ledger = SqlLedger(self.server.schema(self.schema), self.world.catalog.n_groups, shared=True)
        return join_ledger(ledger, self.world.catalog.groups, terms, make_policy("guaranteed"), LEASE_SECONDS, "follow")

    def crash(self, number: int) -> None:
        self.stores[number].ledger.close()
        self.stores[number] = self.make(self.stores[number].terms)

    def expire_all(self) -> None:
        self.stores[0].ledger.database.run(lambda tx: tx.execute("UPDATE leases SET expires_at = {now}"))

    @contextmanager
    def closed_at_the_end(self) -> Iterator["SharedStores"]:
        try:
            yield self
        finally:
            for store in self.stores:
                store.ledger.close()
            self.server.execute(f"DROP SCHEMA {self.schema} CASCADE")


class Model:
    """What must be known of a promise and its leases, with the numbers of leases and of requests as a dictionary."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.counts, self.requests, self.past = terms, np.zeros(len(terms.floors), dtype=int), 0, 0
        self.open, self.expired = dict[int, int](), dict[int, int]()
        self.before: tuple[Any, ...] | None = None  # the horizon that has ended, until the next one has an entry

    @property
    def left(self) -> int:
        return self.terms.horizon - self.requests - sum(self.open.values())

    @property
    def missing(self) -> Any:
        return np.maximum(self.terms.floors - self.counts, 0)

    def delete_expired(self) -> None:
        for number in self.expired:
            del self.open[number]
        self.expired.clear()

    def begin(self) -> None:
        """Begin a horizon if the last one is over."""
        if not self.open and self.requests >= self.terms.horizon:
            self.before = self.counts, self.requests, self.past
            self.counts, self.requests, self.past = np.zeros_like(self.counts), 0, self.past + 1

    def settle(self, number: int, entry: Entry) -> None:
        self.expired.pop(number, None)
        self.counts, self.before = self.counts + entry.counts, None
        if self.open.pop(number, 0):
            self.requests += entry.requests
            # A promise that is made later holds for the next horizon.
            if self.requests >= self.terms.horizon:
                assert (self.counts >= self.terms.floors).all(), "a horizon has ended without its floors"

    def check(self) -> None:
        """Check the condition of lease_table.py: what is left can deliver what is missing, whatever leases deliver.

        A lease that is alone is an exception: its front end knows all counts.
        """
        if len(self.open) != 1 and self.requests < self.terms.horizon:
            assert can_be_met(self.missing, self.left, self.terms)


class Run:
    """A program of operations on the stores and on the model."""

    def __init__(self, stores: LocalStores | SharedStores, terms: Terms) -> None:
        self.stores, self.world, self.model = stores, stores.world, Model(terms)
        self.index, self.users = ExactIndex(self.world.catalog), check_users(self.world.users, self.world.catalog)
        self.out, self.lost, self.settled = (dict[int, ServedBatch]() for _ in range(3))
        self.keys = 0

    def run(self, program: list[tuple[str, int]]) -> None:
        for operation, number in program:
            getattr(self, operation)(number)
            self.check()
        while self.out:
            self.settle(0)
            self.check()
        while self.model.requests < self.model.terms.horizon:
            self.lease(8)
            self.settle(0)
            self.check()

    def store(self, number: int) -> LocalState | SharedState:
        return self.stores.stores[number % len(self.stores.stores)]

    def check(self) -> None:
        for store in self.stores.stores:
            store.refresh()
            totals = store.loop.progress.totals
            assert totals.exposures.tolist() == self.model.counts.tolist()
            assert totals.requests == self.model.requests
            if self.model.before is None:
                assert len(store.past()) == self.model.past
        self.model.check()

    def lease(self, number: int) -> None:
        n = 1 + number % 9
        lease, model = self.store(number).lease(n), self.model
        model.delete_expired()
        if lease is None:
            assert model.open, "nothing to wait for"
            assert n > 1 or model.left == 0 or not can_be_met(model.missing, model.left - 1, model.terms)
            return
        model.begin()
        batch = lease.batch
        assert 1 <= batch.requests <= n
        assert not model.open or can_be_met(model.missing, model.left - batch.requests, model.terms)
        assert batch.missing.tolist() == model.missing.tolist()
        if isinstance(self.stores, SharedStores):  # requests of a lease that was released may count for a while
            assert batch.requests <= batch.left <= model.left
        else:
            assert batch.left == model.left
        assert lease.number not in {*self.out, *self.lost, *self.settled}
        model.open[lease.number] = batch.requests
        users = self.users[np.arange(number, number + batch.requests) % len(self.users)]
        self.out[lease.number] = serve(batch, self.world.catalog, self.index, users)
        if isinstance(self.stores, SharedStores):
            model.before = None

    def settle(self, number: int) -> None:
        if self.out:
            self._settle(number, list(self.out)[number % len(self.out)], self.out)

    def late(self, number: int) -> None:
        if self.lost:
            self._settle(number, list(self.lost)[number % len(self.lost)], self.lost)

    def _settle(self, number: int, lease: int, leases: dict[int, ServedBatch]) -> None:
        served = self.settled[lease] = leases.pop(lease)
        assert self.store(number).settle(lease, Settlement(served.entry, served.sample))
        self.model.settle(lease, served.entry)

    def again(self, number: int) -> None:
        if self.settled:
            lease = list(self.settled)[number % len(self.settled)]
            served = self.settled[lease]
            assert not self.store(number).settle(lease, Settlement(served.entry, served.sample))

    def release(self, number: int) -> None:
        if self.out:
            lease = list(self.out)[number % len(self.out)]
            self.store(number).release(lease)
            self.lost[lease] = self.out.pop(lease)
            self.model.open.pop(lease, None)
            self.model.expired.pop(lease, None)

    def expire(self, number: int) -> None:
        """Let all leases expire. Until somebody looks, they can be settled as if nothing had happened."""
        self.stores.expire_all()
        self.model.expired.update(self.model.open)

    def crash(self, number: int) -> None:
        model = self.model
        self.stores.crash(number % len(self.stores.stores))
        model.delete_expired()
        if self.stores.one_by_one:
            model.open.clear()
            model.expired.clear()
            if model.before is not None:
                (model.counts, model.requests, model.past), model.before = model.before, None

    def promise(self, number: int) -> None:
        model, store = self.model, self.store(number)
        floors = np.array(list(self.world.floors.values())) * (number % 5) // 4
        terms = replace(model.terms, floors=floors)
        model.delete_expired()
        missing, left = np.maximum(floors - model.counts, 0), terms.horizon - model.requests
        if left > 0 and not can_be_met(missing, left, terms):
            with pytest.raises(InvalidInputError, match="cannot be met"):
                store.promise(self.world.catalog.groups, replace(store.terms, floors=floors), may_wait=True)
            return
        expected = left == 0 or not model.open or can_be_met(missing, model.left, terms)
        done = store.promise(self.world.catalog.groups, replace(store.terms, floors=floors), may_wait=True)
        assert done == expected
        if done:
            model.terms = terms

    def impressions(self, number: int) -> None:
        self.keys += 1
        nothing = np.zeros_like(self.model.counts)
        for new in (True, False):
            entry = Entry(nothing, 0, 0.0, 0.0, impressions=nothing + 1)
            assert self.store(number).record(entry, f"impressions {self.keys}") == new
        self.model.before = None


def make(seed: int, tightness: float, batch: int) -> tuple[World, Terms]:
    world = make_world(seed, groups=3, items=20, horizon=24, k=3, tightness=tightness, even=bool(seed % 2))
    return world, make_terms(world.catalog, world.k, world.floors, world.horizon, batch)


WORLDS: dict[str, Any] = {
    "seed": st.integers(0, 50),
    "tightness": st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    "batch": st.sampled_from([1, 4, 16]),
}


@given(program=PROGRAMS, **WORLDS)
@effort(150, 0.05)
def test_a_coordinator_alone_is_the_model(
    program: list[tuple[str, int]], seed: int, tightness: float, batch: int
) -> None:
    world, terms = make(seed, tightness, batch)
    Run(LocalStores(world, terms), terms).run(program)


@example(program=[("lease", 14), ("expire", 0), ("crash", 1)], number=2, seed=24, tightness=0.9, batch=1)
@given(program=PROGRAMS, number=st.sampled_from([1, 2, 3]), **WORLDS)
@effort(40, 0.3)
def test_coordinators_that_share_a_ledger_are_the_model(
    server: PostgresServer, program: list[tuple[str, int]], number: int, seed: int, tightness: float, batch: int
) -> None:
    world, terms = make(seed, tightness, batch)
    with SharedStores(server, number, world, terms).closed_at_the_end() as stores:
        Run(stores, terms).run(program)
