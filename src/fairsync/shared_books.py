"""The books of one replica: accounts that it shares with others on a server, and prices of its own."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fairsync.books import Lease, Pricing, check_standing, room_in_batch
from fairsync.errors import InvalidInputError
from fairsync.floors import group_caps
from fairsync.shared_accounts import TERMS, Promise, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from fairsync.accounts import Grant
    from fairsync.groups import Groups
    from fairsync.ledger import Entry
    from fairsync.ledger.redis import RedisLedger
    from fairsync.ledger.redis_store import Command, Seen
    from fairsync.policies import Policy, Sample, Terms

T = TypeVar("T")
# Numbers of leases leave gaps, so that one that a server has forgotten is hardly ever taken for a later one.
_GAP = 1 << 20
# Whoever lost a race tries again at once, and after so many a little later.
_SOON, _PAUSE = 4, 0.002


class SharedBooks:
    """What :class:`fairsync.books.Books` are to one coordinator, these are to one of several. One thread at a time.

    Parameters
    ----------
    ledger
        Where accounts are shared.
    groups, terms, policy
        What this replica would promise, to whom, and how it makes prices.
    """

    def __init__(self, ledger: RedisLedger, groups: Groups, terms: Terms, policy: Policy) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.shared = Shared.of(ledger.look())
        self.pricing = Pricing.of(policy, policy.start(terms))
        self._priced_horizon = self.shared.horizon
        self._mine: set[int] = set()  # leases that this replica has out

    def look(self) -> None:
        """Go by the record as it is now."""
        self._see(self.ledger.store.read(self.shared.version))

    def lease(self, n: int, seconds: float, tried: set[int]) -> Lease | None:
        """Hand out up to n requests for so many seconds; None if that has to wait for leases that are out.

        Numbers that were tried are noted in the set: if it raises, or did so before, they may be out.
        """
        grant = self._change(lambda shared: self._granted(shared, n, seconds, tried))
        if grant is None:
            return None
        if self._is_due(self.shared.horizon):
            self.pricing = self.pricing.stepped(self.policy, self.terms, self.shared.accounts.standing)
            self._priced_horizon = self.shared.horizon
        self._mine = (self._mine & self.shared.accounts.out.keys()) | {grant.number}
        return self.pricing.lease(self.terms, self.policy, grant)

    def settle(self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes]) -> bool:
        """Write down what came of a lease; return False if that was done before."""
        if number not in self.shared.accounts.out:
            self._see(self.ledger.store.read(asked=number), number)

        def settled(shared: Shared) -> tuple[Shared, Entry] | None:
            done = shared.accounts.settle(number, entry)
            return None if done is None else (replace(shared, accounts=done[0]), done[1])

        written = self._change(settled, number, answers=answers)
        self._mine.discard(number)
        if written is None:
            return False
        self.pricing = self.pricing.noting(self.policy, written, sample)
        return True

    def note(self, entry: Entry, receipt: str) -> bool:
        """Write down something that belongs to no lease; return False if that was done under this receipt."""

        def noted(shared: Shared) -> tuple[Shared, bool]:
            return replace(shared, accounts=shared.accounts.note(entry.grown(len(self.groups.labels)))[0]), True

        return self._change(noted, receipt=receipt) is not None

    def give_back(self, number: int) -> None:
        """Take a lease back that will hardly be answered."""

        def given_back(shared: Shared) -> tuple[Shared, bool] | None:
            if number not in shared.accounts.out:
                return None
            return replace(shared, accounts=shared.accounts.give_back(number)), True

        self._change(given_back)
        self._mine.discard(number)

    def standing_promise(self) -> Promise:
        """Return the promise that stands in the record."""
        packed = self.ledger.kept(TERMS)
        assert packed is not None
        return Promise.load(packed)

    def promise(self, groups: Groups, terms: Terms, *, patient: bool) -> bool:
        """Write a promise down for all, if it can be kept; False if that is to be tried again as things stand then.

        Parameters
        ----------
        groups, terms
            What is promised, and to whom.
        patient
            Whether there is time to try again when leases that are out could break it.
        """
        before = self.shared
        after = before.without_late(self.ledger.store.now())
        if before.terms:
            after = after.grown(len(terms.floors))
        standing = after.accounts.standing
        check_standing(terms, self.policy, standing)
        try:  # what is out was made for the promise before, and may bring nothing of this one
            check_standing(terms, self.policy, replace(standing, requests=standing.requests + after.accounts.given))
        except InvalidInputError:
            if not patient:
                raise
            self.look()
            return False
        return self._agree(before, after, groups, terms)

    def steer(self, groups: Groups, more: NDArray[np.int64], requests: int, anew: float | None = None) -> bool:
        """Have all aim at so many exposures more; False if that is to be tried again as things stand then.

        Parameters
        ----------
        groups, more, requests
            To whom how much is due, and the requests that can be counted on.
        anew
            When a new horizon begins with this. If one has begun since then, nothing is to be done.
        """
        before = self.shared
        if anew is not None and anew <= before.accounts.standing.began:
            return True
        after = before.without_late(self.ledger.store.now())
        if anew is not None:
            after = after.anew(anew)
        after = after.grown(len(groups.labels))
        standing, caps = after.accounts.standing, group_caps(groups, self.terms.k)
        floors = standing.exposures + np.minimum(more, requests * caps)
        horizon = standing.requests + after.accounts.given + requests
        terms = replace(self.terms, floors=floors, caps=caps, horizon=horizon, rolls=False)
        return self._agree(before, after, groups, terms, self.ledger.lead.token)

    def adopt(self, promise: Promise) -> None:
        """Go by a promise that stands in the record."""
        if promise.guarded != self.policy.keeps_floors:
            raise InvalidInputError(
                "another replica has taken the promise over with a policy of another kind: start this one with it, too."
            )
        self.groups, self.terms = promise.groups, promise.terms(self.terms.batch_size)
        # Where somebody steers, little changes each time, and what was learnt goes on to hold.
        if promise.rolls or len(promise.floors) > len(self.pricing.prices):
            self.pricing = self.pricing.with_state(self.policy, self.policy.resume(self.pricing.state, self.terms))

    def _agree(self, before: Shared, after: Shared, groups: Groups, terms: Terms, leader: str = "") -> bool:
        """Write down accounts and a promise together; False if another change came first."""
        store = self.ledger.store
        made = Promise.of(before.terms + 1, groups, terms, self.policy.keeps_floors)
        after = replace(after, terms=made.number)
        change = before.change_to(after, store)
        document: Command = ["HSET", store.key("kept"), TERMS, made.dump()]
        change = replace(change, commands=[*change.commands, document], leader=leader)
        swap = store.swap(before.version, change)
        if swap.newer is not None:
            self._see(swap.newer)
            return False
        self.shared = after.written(swap.version)
        self.adopt(made)
        return True

    def _see(self, seen: Seen | None, asked: int | None = None) -> None:
        """Go by the record as it was seen, also if another replica has promised something else."""
        if seen is None:
            return
        shared = Shared.of(seen, asked)
        if shared.terms != self.shared.terms:
            promise = self.standing_promise()
            while promise.number != shared.terms:  # one more has come between the two questions
                again = self.ledger.store.read(asked=asked)
                assert again is not None
                shared, promise = Shared.of(again, asked), self.standing_promise()
            self.adopt(promise)
        self.shared = shared

    def _change(
        self,
        decide: Callable[[Shared], tuple[Shared, T] | None],
        asked: int | None = None,
        receipt: str = "",
        answers: Mapping[str, bytes] | None = None,
    ) -> T | None:
        """Make a change, deciding anew whenever another came first; None if, as things stand now, there is none."""
        store, looked = self.ledger.store, False
        for tries in itertools.count():
            before = self.shared
            decided = decide(before)
            if decided is None:
                if looked:
                    break
                self._see(store.read(before.version if asked is None else "", asked), asked)
                looked = True
                continue
            after, result = decided
            if asked is not None:  # of its own leases the record knows which are settled
                receipt = "" if before.has_made(asked) else f"lease {asked}"
            change = replace(before.change_to(after, store), answers=answers or {})
            swap = store.swap(before.version, change, receipt, asked)
            if swap.version:
                self.shared = after.written(swap.version)
                return result
            if swap.newer is None:
                break
            newer: Seen | None = swap.newer
            if tries > _SOON:  # after a pause it has to look again: what it saw before is surely out of date
                time.sleep(random.uniform(0, _PAUSE))
                newer = store.read(asked=asked)
            self._see(newer, asked)
            looked = True
        return None

    def _granted(self, shared: Shared, n: int, seconds: float, tried: set[int]) -> tuple[Shared, Grant] | None:
        now = self.ledger.store.now()
        after = shared.without_late(now)
        for number in tried & shared.accounts.out.keys():  # it was granted, and the answer got lost
            after = replace(after, accounts=after.accounts.give_back(number))
        after = after.turned(self.terms)
        begun = 0 if self._is_due(after.horizon) else self.pricing.requests
        mine = sum(size for number, size in after.accounts.out.items() if number in self._mine)
        room = room_in_batch(self.terms, begun + mine)
        accounts = replace(after.accounts, issued=after.accounts.issued + secrets.randbelow(_GAP))
        granted = accounts.grant(self.terms, min(n, room), keeps_floors=self.policy.keeps_floors)
        if granted is None:
            return None
        accounts, grant = granted
        tried.add(grant.number)
        return replace(after, accounts=accounts, deadlines={**after.deadlines, grant.number: now + seconds}), grant

    def _is_due(self, horizon: int) -> bool:
        """Return whether prices change before the next lease: the batch is over, or the horizon is another one."""
        return horizon != self._priced_horizon or self.pricing.requests >= self.terms.batch_size
