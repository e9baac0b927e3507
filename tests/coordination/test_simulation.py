"""A simulation of front ends and a coordinator: leases are lost, settled late or twice, and the coordinator dies.

Promises change meanwhile. What must hold is checked by counting the lists: promises that were accepted are kept, and
the ledger has the exposures of every list that was returned to a user, once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fairsync as fs
from coordination.test_targets_by_selection import SELECTIONS, counts_of
from effort import effort
from promise_worlds import make_catalog, make_users

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.coordination.lease import Lease, Settlement


class Death(BaseException):
    """The process ends here."""


class FatalLedger(fs.MemoryLedger):
    """A ledger whose process may die before or after the next write; what was written survives it."""

    dies = ""

    def record(self, entries: Any, key: str | None = None, answers: Mapping[str, bytes] | None = None) -> bool:
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Death
        recorded = super().record(entries, key, answers)
        if dies == "after":
            raise Death
        return recorded


@dataclass
class Unsettled:
    """Lists that a front end has made, and is about to settle."""

    number: int
    settlement: Settlement
    promises: tuple[fs.Promise, ...]
    is_settled: bool = False


class Simulation:
    """Front ends over one coordinator after another. For the front ends, it is their coordinator."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.catalog, self.horizon = make_catalog(seed % 10, n=int(rng.integers(20, 60))), int(rng.integers(4, 40))
        self.settings: dict[str, Any] = {"k": int(rng.integers(1, 6)), "batch_size": int(rng.integers(1, 9))}
        self.open, self.unsettled = dict[int, int](), list[Unsettled]()
        self.book, self.book_before = Counter[str](), Counter[str]()  # of the horizon, and of the one before
        self.is_promised = True  # whether the promises are those with which the horizon under way ends
        while not self._started(self.random_promises()):
            pass
        self.fronts = [fs.FrontEnd(self.catalog, self) for _ in range(2)]

    def _started(self, promises: list[fs.Promise]) -> bool:
        try:
            probe = fs.Coordinator(self.catalog, horizon=self.horizon, promises=promises, **self.settings)
        except fs.FairSyncError:  # they cannot hold together, or no item meets a condition
            return False
        self.promises: tuple[fs.Promise, ...] = probe.promises or ()
        self.ledger = FatalLedger(len(probe.labels))
        self.coordinator = self.opened()
        return True

    def opened(self) -> fs.Coordinator:
        return fs.Coordinator(
            self.catalog, horizon=self.horizon, promises=self.promises, ledger=self.ledger,
            lease_seconds=1e9, save_seconds=0.0, **self.settings,
        )  # fmt: skip

    def random_promises(self) -> list[fs.Promise]:
        rng, slots, made = self.rng, self.horizon * self.settings["k"], []
        for i in rng.permutation(len(SELECTIONS))[: rng.integers(1, 5)]:
            floor = int(rng.integers(0, slots // 2 + 1))
            cap = floor + int(rng.integers(0, slots // 4 + 2)) if rng.random() < 0.5 else None
            made.append(fs.Promise(SELECTIONS[i], floor, cap, priority=int(rng.integers(1, 3))))
        return made

    # What front ends call.

    @property
    def labels(self) -> list[Any]:
        return self.coordinator.labels

    @property
    def k(self) -> int:
        return self.coordinator.k

    def answers(self, request_ids: Sequence[str]) -> dict[str, bytes]:
        return self.coordinator.answers(request_ids)

    def save_answers(self, answers: Mapping[str, bytes]) -> None:
        self.coordinator.save_answers(answers)

    def release(self, number: int) -> None:
        self.open.pop(number, None)
        self.coordinator.release(number)

    def lease(self, n: int, k: int | None = None) -> Lease:
        while True:
            is_over = self.book["requests"] >= self.horizon and not self.open
            lease = self.coordinator.try_lease(n, k=k)
            if lease is not None:
                break
            if self.unsettled:
                self.settle_one()
            else:
                assert self.open, "a lease waits though no other is open"
                self.release(next(iter(self.open)))
        if is_over:
            self.check_promises()
            self.book_before, self.book, self.is_promised = self.book, Counter(), True
        self.open[lease.number] = lease.batch.requests
        membership = lease.batch.terms.membership
        assert membership is not None
        self.leased = self.promises[: membership.n_promises]
        return lease

    def settle(self, number: int, settlement: Settlement) -> None:
        self.unsettled.append(Unsettled(number, settlement, self.leased))

    # What happens.

    def retrieve(self) -> None:
        n, rng = int(self.rng.integers(1, 8)), self.rng
        names = [str(rng.integers(1 << 60)) for _ in range(n)]
        self.fronts[int(rng.integers(2))].retrieve(make_users(n, int(rng.integers(1 << 30))), request_ids=names)

    def settle_one(self) -> None:
        """Settle a lease, once or twice, now or never, with a coordinator that may die of it."""
        rng, one = self.rng, self.unsettled.pop(int(self.rng.integers(len(self.unsettled))))
        if rng.random() < 0.05:
            return  # the front end has died, and nobody saw its lists
        if rng.random() < 0.1:
            self.ledger.dies = str(rng.choice(["before", "after"]))
        try:
            self.settle_now(one)
        except Death:
            if not one.is_settled and self.ledger.knows(f"lease {one.number}"):
                self.enter(one, self.ledger.totals().requests - self.book["requests"])
            self.die()
        self.ledger.dies = ""
        if not one.is_settled or rng.random() < 0.1:
            self.settle_now(one)  # it repeats what it was not told the outcome of

    def settle_now(self, one: Unsettled) -> None:
        try:
            counted = self.coordinator.settle(one.number, one.settlement)
        except fs.LostLeaseError:
            assert one.number not in self.open
            assert not one.is_settled
            return  # its lists are not returned to anyone
        assert (counted is None) == one.is_settled, "what is settled already is not counted again, all else is"
        if counted is not None:
            assert counted.requests == self.open.pop(one.number, 0)
            self.enter(one, counted.requests)
        self.check_ledger()

    def enter(self, one: Unsettled, requests: int) -> None:
        one.is_settled = True
        self.book["requests"] += requests
        ids = np.concatenate([fs.Candidates.load(answer).ids for answer in one.settlement.answers.values()])
        assert all(len(set(row)) == self.k for row in ids.tolist())
        for promise in one.promises:
            self.book[promise.name] += counts_of(self.catalog, ids, promise.where)

    def lose(self) -> None:
        if self.open:
            self.release(int(self.rng.choice(list(self.open))))

    def finish(self) -> None:
        while self.unsettled:
            self.settle_one()
        while self.open:
            self.lose()

    def die(self) -> None:
        """Replace the coordinator. What it had leased is lost, and so is a horizon of which nothing is recorded."""
        self.open.clear()
        if self.ledger.totals().requests != self.book["requests"]:
            assert not self.book.total()
            self.book = self.book_before
            self.check_ledger()
        self.coordinator = self.opened()
        assert self.coordinator.promises == self.promises
        assert self.coordinator.report().requests == self.book["requests"]

    def change(self) -> None:
        rng, promises = self.rng, [one for one in self.promises if one.name != "every slot"]
        made, horizon = self.random_promises(), None
        if rng.random() < 0.5:  # those that there are stay
            promises = [*promises, *(one for one in made if one.name not in {known.name for known in promises})]
        else:
            promises = [one for one in promises if rng.random() < 0.5] + made[:1]
            promises = list({one.name: one for one in promises}.values())
        if rng.random() < 0.3:
            horizon = max(self.horizon + int(rng.integers(-5, 9)), 1)
        self.coordinator.lease_seconds = 0.0  # so that it is refused, and not waited for
        try:
            self.coordinator.promise(promises=promises, horizon=horizon)
        except fs.FairSyncError:
            return
        finally:
            self.coordinator.lease_seconds = 1e9
        self.horizon, self.promises = self.coordinator.terms.horizon, self.coordinator.promises or ()
        self.is_promised = self.book["requests"] < self.horizon
        assert horizon in (None, self.horizon)

    # What must hold.

    def check_ledger(self) -> None:
        totals = self.ledger.totals()
        assert totals.requests == self.book["requests"]
        for label, count in zip(self.coordinator.labels, totals.exposures.tolist(), strict=True):
            assert count == self.book[str(label)] or label == "every slot"

    def check_promises(self) -> None:
        slots = self.horizon * self.k
        for promise in self.promises if self.is_promised else ():
            if promise.name != "every slot":
                cap, count = promise.cap(slots), self.book[promise.name]
                assert promise.floor(slots) <= count, promise
                assert cap is None or count <= cap, promise


def play(seed: int) -> None:
    """Play forty moves, and then the horizon to its end."""
    simulation = Simulation(seed)
    moves = [simulation.retrieve, simulation.settle_one, simulation.lose, simulation.die, simulation.change]
    for which in simulation.rng.choice(5, size=40, p=[0.6, 0.2, 0.06, 0.06, 0.08]).tolist():
        if which != 1 or simulation.unsettled:
            moves[which]()
    simulation.finish()
    while simulation.book["requests"] < simulation.horizon:
        simulation.retrieve()
        simulation.finish()
    simulation.check_promises()
    simulation.check_ledger()


@given(st.integers(0, 2**32 - 1))
@effort(examples=12, seconds_each=0.8)
def test_promises_hold_and_every_exposure_counts_once_whatever_happens(seed: int) -> None:
    play(seed)
