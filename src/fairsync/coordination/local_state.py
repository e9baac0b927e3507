"""The books of a coordinator that is alone with its ledger."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from fairsync.coordination.books import LoopState, following, target_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Grouped, Groups
    from fairsync.coordination.books import Lease, PriceState
    from fairsync.coordination.lease_table import LeaseTable
    from fairsync.ledger import Entry, Ledger, Totals
    from fairsync.policies import Policy, Sample, Terms

# Leases of coordinators that followed each other must not share numbers: each starts at a place of its own.
_LEASES_OF_ONE = 1 << 24
# Whoever waits for leases looks again after so long at least, and at most.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 60.0


class LocalState:
    """The state of one coordinator: the loop, its open leases with their deadlines, and the ledger behind them.

    Parameters
    ----------
    ledger
        Where everything is written down that is to outlive them.
    groups, terms, policy
        What is promised, to whom, and who makes prices.
    lease_seconds
        For which a lease is out.
    goes_on
        Whether to go on also where floors can no longer be met.
    """

    def __init__(
        self,
        ledger: Ledger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        lease_seconds: float,
        *,
        allow_infeasible: bool,
    ) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.lease_seconds = lease_seconds
        first = secrets.randbits(38) * _LEASES_OF_ONE
        self.present = LoopState.open(terms, policy, ledger.totals(), first=first, allow_infeasible=allow_infeasible)
        self._deadlines: dict[int, float] = {}

    @property
    def accounts(self) -> LeaseTable:
        """Who was given what, and what came of it."""
        return self.present.accounts

    @property
    def pricing(self) -> PriceState:
        """The prices, and what they are made from."""
        return self.present.pricing

    @pricing.setter
    def pricing(self, pricing: PriceState) -> None:
        self.present = replace(self.present, pricing=pricing)

    def look(self) -> None:
        """Nobody else writes to them."""

    def past(self) -> Sequence[Totals]:
        """Return how the horizons before have ended."""
        return self.ledger.past()

    def pause(self, tries: int) -> float:
        """Return after how many seconds a lease expires, if nothing comes before."""
        soonest = min(self._deadlines.values(), default=float("inf")) - time.monotonic()
        return min(max(soonest, _SHORTEST_WAIT), _LONGEST_WAIT)

    def lease(self, n: int) -> Lease | None:
        """Hand out up to n requests; None if that has to wait for leases that are out."""
        self._expire()
        granted = self.present.lease(self.terms, self.policy, n)
        if granted is None:
            return None
        self.present, lease = granted
        self._deadlines[lease.number] = time.monotonic() + self.lease_seconds
        return lease

    def settle(self, number: int, entry: Entry, sample: Sample | None, answers: Mapping[str, bytes]) -> bool:
        """Write down what came of a lease; return False if that was done before."""
        settled = self.present.settle(self.policy, number, entry, sample)
        if settled is None:
            return False
        books, entry = settled
        if not self.ledger.record([entry], f"lease {number}", answers):
            return False  # another coordinator wrote it down before it died
        self.present = books
        self._deadlines.pop(number, None)
        return True

    def note(self, entry: Entry, receipt: str) -> bool:
        """Write down something that belongs to no lease; return False if that was done under this receipt."""
        accounts, entry = self.accounts.note(entry)
        if not self.ledger.record([entry], receipt):
            return False
        self.present = replace(self.present, accounts=accounts)
        return True

    def release(self, number: int) -> None:
        """Take a lease back that will hardly be answered."""
        self.present = self.present.release(number)
        self._deadlines.pop(number, None)

    def following(self, groups: Grouped) -> Groups:
        """Return the groups of a catalog, if they begin with those that are known."""
        return following(groups, self.groups, self.terms.k)

    def promise(self, groups: Groups, terms: Terms, *, patient: bool) -> bool:
        """Go by another promise, if it can be kept; False if that has to wait for leases that are out.

        However patient whoever asks is: they expire.
        """
        self._expire()
        books = self.present.under(terms, self.policy, self.terms)
        if books is None:
            return False
        self._go_on(groups, terms, books)
        return True

    def set_targets(self, groups: Groups, more: NDArray[np.int64], requests: int, anew: float | None = None) -> bool:
        """Aim at so many exposures more within so many requests, in a new horizon where one begins with this."""
        accounts, pricing, n = self.accounts, self.pricing, len(groups.labels)
        if anew is not None:
            accounts = accounts.anew(anew)
        accounts = accounts.grown(n)
        terms = target_terms(self.terms, accounts, groups, more, requests)
        if n > len(self.groups.labels):
            pricing = pricing.with_state(self.policy, self.policy.resume(pricing.state, terms))
        if anew is not None:
            pricing = pricing.stepped(self.policy, terms, accounts.totals)
        self._go_on(groups, terms, LoopState(accounts, pricing))
        return True

    def _go_on(self, groups: Groups, terms: Terms, books: LoopState) -> None:
        if len(groups.labels) > len(self.groups.labels):
            self.ledger.grow(len(groups.labels))
        self.groups, self.terms, self.present = groups, terms, books

    def _expire(self) -> None:
        now = time.monotonic()
        for number in [number for number, deadline in self._deadlines.items() if deadline <= now]:
            self.release(number)
