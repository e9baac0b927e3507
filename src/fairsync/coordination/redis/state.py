"""The books of one replica: accounts that it shares with others on a server, and prices of its own."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.coordination.lease import Lease
from fairsync.coordination.local_state import extended_groups
from fairsync.coordination.redis.leases import SharedLeases, addition
from fairsync.coordination.redis.lines import Line
from fairsync.coordination.redis.terms import TERMS, SharedTerms
from fairsync.coordination.targets import target_terms
from fairsync.errors import InvalidInputError
from fairsync.floors import check_reachable
from fairsync.loop import LoopState, PriceState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Grouped
    from fairsync.coordination.redis.changes import Command, Seen, Swap
    from fairsync.coordination.redis.ledger import RedisLedger
    from fairsync.ledger import Entry, Totals
    from fairsync.policies import Policy, Sample, Terms

T = TypeVar("T")
# Whoever lost a race tries again at once, and after so many a little later.
_SOON, _PAUSE = 4, 0.002
# Whoever waits for leases of others looks again so often.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 0.02
# Of so many lines the record is written anew, so that whoever reads it has no more to add up.
_MOST_LINES = 64


@dataclass(frozen=True)
class Step(Generic[T]):
    """What is to be changed.

    Attributes
    ----------
    after : SharedLeases
        The accounts as they should be.
    result
        For whoever asked.
    line : Line or None
        Which says it all; None if the record has to be written anew.
    least : int or None
        How many requests have to be left afterwards.
    """

    after: SharedLeases
    result: T
    line: Line | None = None
    least: int | None = None


class SharedState:
    """What :class:`fairsync.coordination.local_state.LocalState` are to one coordinator, these are to one of several.

    Parameters
    ----------
    ledger
        Where accounts are shared.
    groups, terms, policy
        What this replica would promise, to whom, and how it makes prices.
    lease_seconds
        For which a lease is out.
    """

    def __init__(self, ledger: RedisLedger, groups: Groups, terms: Terms, policy: Policy, lease_seconds: float) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.lease_seconds = lease_seconds
        seen = ledger.store.read()
        assert seen is not None
        self.shared = SharedLeases.of(seen)
        self.price_state = PriceState.of(policy, policy.start(terms))
        self._priced_horizon = self.shared.horizon
        # Leases that this replica has out, and those it asked for without hearing what became of them.
        self._mine: set[int] = set()
        self._tried: set[int] = set()

    @property
    def loop(self) -> LoopState:
        """The state of the loop."""
        return LoopState(self.shared.progress, self.price_state)

    def refresh(self) -> None:
        """Read what other coordinators have written."""
        self._see(self.ledger.store.read(self.shared.version, self.shared.lines))

    def past(self) -> Sequence[Totals]:
        """Return how the horizons before have ended."""
        # A horizon that ended between the two questions is not past yet.
        return self.ledger.past()[: self.shared.horizon]

    def retry_delay(self, tries: int) -> float:
        """Return after how many seconds it is worth to look again."""
        return min(_SHORTEST_WAIT * 2.0 ** min(tries, 9), _LONGEST_WAIT) * random.uniform(0.5, 1.0)

    def lease(self, n: int) -> Lease | None:
        """Lease up to n requests; None if it has to wait for open leases."""
        lease = self._change(lambda shared: self._granted(shared, n))
        if lease is None:
            return None
        self._tried.clear()
        if self._is_due(self.shared.horizon):
            self.price_state = self.price_state.step(self.policy, self.terms, self.shared.progress.totals)
            self._priced_horizon = self.shared.horizon
        self._mine = (self._mine & self.shared.table.open.keys()) | {lease.number}
        batch = lease.batch
        return Lease(
            lease.number,
            self.price_state.batch(self.terms, self.policy, batch.requests, batch.missing, batch.left),
        )

    def settle(self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes]) -> bool:
        """Write down what came of a lease; return False if that was done before."""
        if number not in self.shared.table.open:
            self._see(self.ledger.store.read(asked=number), number)

        def settled(shared: SharedLeases) -> Step[Entry] | None:
            done = shared.table.settle(number, entry)
            if done is None:
                return None
            table, counted = done
            progress, counted = shared.progress.record(counted)
            if number in shared.table.open:
                return _added(shared, Line(number, entry=counted), counted)
            return Step(replace(shared, progress=progress, table=table), counted)

        written = self._change(settled, number, answers=answers)
        self._mine.discard(number)
        if written is None:
            return False
        self.price_state = self.price_state.record(self.policy, written, sample)
        return True

    def record(self, entry: Entry, key: str) -> bool:
        """Write down something that belongs to no lease; return False if that was done under this receipt."""
        return self._change(lambda shared: _added(shared, Line(entry=entry), True), receipt=key) is not None

    def release(self, number: int) -> None:
        """Take a lease back that will hardly be answered."""

        def given_back(shared: SharedLeases) -> Step[bool] | None:
            return Step(shared.without([number]), True) if number in shared.table.open else None

        self._change(given_back)
        self._mine.discard(number)

    def extended_groups(self, groups: Grouped) -> Groups:
        """Return the groups of a catalog, if they begin with those that are known, and those it does not have yet."""
        known, n = self.groups, len(groups.labels)
        sizes = np.concatenate([groups.group_sizes, known.group_sizes[n:]])
        return extended_groups(Groups([*groups.labels, *known.labels[n:]], sizes), known, self.terms.k)

    def standing_promise(self) -> SharedTerms:
        """Return the promise that stands in the record."""
        promise = SharedTerms.on(self.ledger.store)
        assert promise is not None
        return promise

    def promise(self, groups: Groups, terms: Terms, *, may_wait: bool) -> bool:
        """Write a promise down for all, if it can be kept; False if that is to be tried again as things stand then.

        Parameters
        ----------
        groups, terms
            What is promised, and to whom.
        may_wait
            Whether there is time to try again when leases that are out could break it.
        """
        before = self.shared
        after = before.without_late(self.ledger.store.now())
        if before.terms:
            after = after.grown(len(terms.floors))
        totals, guarded = after.progress.totals, self.policy.keeps_floors
        check_reachable(terms, totals, keeps_floors=guarded)
        try:  # what is out was made for the promise before, and may bring nothing of this one
            leased = replace(totals, requests=totals.requests + after.table.requests)
            check_reachable(terms, leased, keeps_floors=guarded)
        except InvalidInputError:
            if not may_wait:
                raise
            self.refresh()
            return False
        return self._agree(after, groups, terms, can_be_kept=True)

    def set_targets(
        self, groups: Groups, more: NDArray[np.int64], requests: int, restart_at: float | None = None
    ) -> bool:
        """Have all aim at so many exposures more; False if that is to be tried again as things stand then.

        Parameters
        ----------
        groups, more, requests
            To whom how much is due, and the requests that can be counted on.
        restart_at
            When a new horizon begins with this. If one has begun since then, nothing is to be done.
        """
        after = self.shared
        if restart_at is not None and restart_at <= after.progress.totals.began:
            return True
        after = after.without_late(self.ledger.store.now())
        if restart_at is not None:
            after = after.restart(restart_at)
        after = after.grown(len(groups.labels))
        terms = target_terms(self.terms, after.progress.totals, after.table.requests, groups, more, requests)
        return self._agree(after, groups, terms, leader=self.ledger.lead.token)

    def adopt(self, promise: SharedTerms) -> None:
        """Go by a promise that stands in the record."""
        if promise.guarded != self.policy.keeps_floors:
            raise InvalidInputError(
                "another replica has taken the promise over with a policy of another kind: start this one with it, too."
            )
        self.groups, self.terms = promise.groups, promise.terms(self.terms.batch_size)
        # Where somebody steers, little changes each time, and what was learnt goes on to hold.
        if promise.auto_restart or len(promise.floors) > len(self.price_state.prices):
            self.price_state = self.price_state.with_state(
                self.policy, self.policy.resume(self.price_state.state, self.terms)
            )

    def write_left(self) -> None:
        """Have the record say how many requests are left, whoever wrote to it before."""
        self._change(lambda shared: Step(shared, True))

    def _agree(
        self, after: SharedLeases, groups: Groups, terms: Terms, *, can_be_kept: bool = False, leader: str = ""
    ) -> bool:
        """Write down accounts and a promise together; False if another change came first."""
        store, before, guarded = self.ledger.store, self.shared, self.policy.keeps_floors
        made = SharedTerms.of(before.terms + 1, groups, terms, guarded)
        after = replace(after, terms=made.number).with_left(terms)
        least = after.least(terms, keeps_floors=guarded) if can_be_kept else None
        change = before.change_to(after, store)
        document: Command = ["HSET", store.key("kept"), TERMS, made.dump()]
        change = replace(change, commands=[*change.commands, document], least=least, leader=leader)
        swap = store.swap(before.version, change, lines=before.lines)
        if swap.newer is not None:
            self._see(swap.newer)
            return False
        self.shared = after.written(swap.version, swap.lines)
        self.adopt(made)
        return True

    def _see(self, seen: Seen | None, asked: int | None = None) -> None:
        """Go by what is new in the record, also if another replica has promised something else."""
        if seen is None:
            return
        if not seen.fields:
            self.shared = self.shared.after(seen.lines, (asked,) if asked is not None and seen.lost else ())
            return
        shared = SharedLeases.of(seen, asked)
        if shared.terms != self.shared.terms:
            promise = self.standing_promise()
            while promise.number != shared.terms:  # one more has come between the two questions
                again = self.ledger.store.read(asked=asked)
                assert again is not None
                shared, promise = SharedLeases.of(again, asked), self.standing_promise()
            self.adopt(promise)
        self.shared = shared

    def _change(
        self,
        decide: Callable[[SharedLeases], Step[T] | None],
        asked: int | None = None,
        receipt: str = "",
        answers: Mapping[str, bytes] | None = None,
    ) -> T | None:
        """Make a change, deciding anew whenever another came first; None if, as things stand now, there is none."""
        store, looked = self.ledger.store, False
        for tries in itertools.count():
            step = decide(self.shared)
            if step is None:
                if looked:
                    break
                self._see(store.read(self.shared.version, self.shared.lines, asked), asked)
                looked = True
                continue
            if asked is not None:  # of its own leases the record knows which are settled
                receipt = "" if self.shared.has_made(asked) else f"lease {asked}"
            swap = self._write(step, receipt, asked, answers or {})
            if swap.version:
                return step.result
            if swap.newer is None:
                break
            newer: Seen | None = swap.newer
            if tries > _SOON:  # after a pause it has to look again: what it saw before is surely out of date
                time.sleep(random.uniform(0, _PAUSE))
                newer = store.read(asked=asked)
            self._see(newer, asked)
            looked = True
        return None

    def _write(self, step: Step[T], receipt: str, asked: int | None, answers: Mapping[str, bytes]) -> Swap:
        """Add a line to the record, or write it anew."""
        store, before, after = self.ledger.store, self.shared, step.after
        if step.line is not None and before.lines < _MOST_LINES:
            change = replace(addition(step.line, after.left - before.left), least=step.least, answers=answers)
            swap = store.add(before.version, step.line, change, receipt, asked, lines=before.lines)
            if swap.version:
                self.shared = after if len(swap.lines) == 1 else before.after(swap.lines)
            return swap
        after = after.with_left(self.terms)
        change = replace(before.change_to(after, store), least=step.least, answers=answers)
        swap = store.swap(before.version, change, receipt, asked, lines=before.lines)
        if swap.version:
            self.shared = after.written(swap.version, swap.lines)
        return swap

    def _granted(self, shared: SharedLeases, n: int) -> Step[Lease] | None:
        now = self.ledger.store.now()
        # What was granted, and nobody heard of it, is taken back.
        ready = shared.without_late(now).without(self._tried & shared.table.open.keys()).turned(self.terms)
        begun = 0 if self._is_due(ready.horizon) else self.price_state.requests
        mine = sum(size for number, size in ready.table.open.items() if number in self._mine)
        guarded, others = self.policy.keeps_floors, ready.table.requests - mine
        # Batches are the replica's own: requests that others have leased are no part of them.
        price_state = replace(self.price_state, requests=begun - others)
        batch = LoopState(ready.progress, price_state).next_batch(
            self.terms, self.policy, n, leased=ready.table.requests
        )
        lease = ready.grant(batch)
        if lease is None:
            return None
        self._tried.add(lease.number)
        step = _added(ready, Line(lease.number, batch.requests, now + self.lease_seconds), lease)
        if ready is not shared:  # more than a line can say
            step = replace(step, after=step.after.with_left(self.terms), line=None)
        return replace(step, least=step.after.least(self.terms, keeps_floors=guarded))

    def _is_due(self, horizon: int) -> bool:
        """Return whether prices change before the next lease: the batch is over, or the horizon is another one."""
        return horizon != self._priced_horizon or self.price_state.requests >= self.terms.batch_size


def _added(shared: SharedLeases, line: Line, result: T) -> Step[T]:
    return Step(shared.after([line], shared.table.lost), result, line)
