"""The books of a horizon: who was given what, what came of it, and the prices that follow."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync import guard
from fairsync.catalog.groups import Groups
from fairsync.coordination.lease_table import LeaseTable
from fairsync.errors import InvalidInputError
from fairsync.floors import check_feasible, group_caps, resolve_floors
from fairsync.inputs import check_k, check_positive
from fairsync.policies import Feedback, Sample, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.lease_table import Grant
    from fairsync.floors import Floors
    from fairsync.ledger import Entry, Totals
    from fairsync.policies import Policy

_log = logging.getLogger(__name__)
# Of a very long batch only what can still matter is kept.
_MOST_SAMPLES = 512


def make_terms(groups: Grouped, k: int, floors: Floors, horizon: int, batch_size: int) -> Terms:
    """Return what was promised, if it can be kept at all.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> make_terms(Catalog(np.eye(3), ["a", "b", "b"]), k=2, floors=5, horizon=10, batch_size=4).caps.tolist()
    [1, 2]
    """
    k, horizon = check_k(k, groups), check_positive(horizon, "horizon")
    resolved = resolve_floors(floors, groups)
    check_feasible(resolved, groups, k, horizon)
    return Terms(resolved, group_caps(groups, k), k, horizon, check_positive(batch_size, "batch_size"))


def changed_terms(
    terms: Terms, labels: Sequence[Label], groups: Grouped, floors: Floors | None, horizon: int | None
) -> Terms:
    """Return what is promised from now on; floors and horizon stay what they were unless given.

    Parameters
    ----------
    terms, labels
        What was promised so far, and to whom.
    groups, floors, horizon
        From now on.
    """
    if floors is None:
        floors = dict(zip(labels, terms.floors.tolist(), strict=True))
    made = make_terms(groups, terms.k, floors, terms.horizon if horizon is None else horizon, terms.batch_size)
    return replace(made, auto_restart=terms.auto_restart)


def target_terms(terms: Terms, accounts: LeaseTable, groups: Grouped, more: NDArray[np.int64], requests: int) -> Terms:
    """Return what to aim at: so many exposures more, as far as so many requests more can hold them.

    Parameters
    ----------
    terms, accounts
        What was aimed at so far, and what came of it; the accounts have as many groups as there are now.
    groups, more, requests
        To whom how much is due, and the requests that can be counted on.

    Examples
    --------
    >>> from fairsync.catalog.groups import Groups
    >>> from fairsync.ledger import Totals
    >>> accounts = LeaseTable.open(Totals(np.array([7, 4]), requests=10))
    >>> terms = Terms(np.zeros(2), np.ones(2), k=2, horizon=1, batch_size=16, auto_restart=False)
    >>> aim = target_terms(terms, accounts, Groups(["a", "b"], np.array([1, 9])), np.array([50, 3]), requests=20)
    >>> aim.floors.tolist(), aim.horizon
    ([27, 7], 30)
    """
    caps, totals = group_caps(groups, terms.k), accounts.totals
    floors = totals.exposures + np.minimum(more, requests * caps)
    horizon = totals.requests + accounts.given + requests
    return replace(terms, floors=floors, caps=caps, horizon=horizon, auto_restart=False)


def following(groups: Grouped, known: Groups, k: int) -> Groups:
    """Return the groups of a catalog, if they begin with those that are known."""
    if list(groups.labels)[: len(known.labels)] != known.labels:
        raise InvalidInputError(
            "the catalog must have the coordinator's groups first, in their order: make it with .under(labels)."
        )
    check_k(k, groups)
    return Groups(list(groups.labels), groups.group_sizes)


def room_in_batch(terms: Terms, begun: int) -> int:
    """Return how many requests may be leased at once, after those that the batch under way has had.

    Where requests are counted to the horizon's end, prices change after every B requests exactly. Where the clock ends
    it, requests come in no order that could be repeated, and prices may as well change with the lease that fills the
    batch: cutting a search in two at that place would cost more than it is worth.

    Examples
    --------
    >>> terms = Terms(np.zeros(1), np.ones(1), k=1, horizon=100, batch_size=16)
    >>> room_in_batch(terms, 10), room_in_batch(replace(terms, auto_restart=False), 10)
    (6, 16)
    """
    return terms.batch_size - begun % terms.batch_size if terms.auto_restart else terms.batch_size


def check_standing(terms: Terms, policy: Policy, totals: Totals, *, is_over: bool = True) -> None:
    """Refuse a ledger of another catalog, and floors that can no longer be met in the horizon under way.

    Where ``is_over``, a horizon that has no requests left is simply over, and floors are those of the next.
    """
    if len(totals.exposures) != len(terms.floors):
        raise InvalidInputError(
            f"The ledger counts {len(totals.exposures)} groups, the catalog has {len(terms.floors)}:"
            " it belongs to another catalog."
        )
    if not terms.auto_restart:
        return
    left = terms.horizon - totals.requests
    missing = np.maximum(terms.floors - totals.exposures, 0)
    under_way = left > 0 or not is_over
    if left < 0 or (under_way and policy.keeps_floors and not guard.is_safe(missing, left, terms)):
        raise InvalidInputError(
            f"The horizon has had {totals.requests} requests and misses {int(missing.sum())} exposures: the"
            f" floors cannot be met by request {terms.horizon}. Lower them, lengthen the horizon, or start with a"
            " new ledger."
        )


@dataclass(frozen=True)
class Lease:
    """Requests handed out, with all that is needed to answer them, wherever that is.

    Attributes
    ----------
    number : int
        Of this lease.
    requests : int
        How many.
    prices : numpy.ndarray
        (G,) to search under.
    version : int
        Of the prices: how often they have changed.
    missing : numpy.ndarray
        (G,) exposures still missing, as far as is known.
    left : int
        Requests of the horizon from these on, leaving out what others were given.
    lookahead : int
        By how much lists should exceed k.
    watched : bool
        Whether the policy wants a sample of them.
    keeps_floors : bool
        Whether the guard is to see to the floors.
    terms : Terms
        What was promised.
    k : int
        Candidates for each of these requests; those to come are taken to have the usual number.
    """

    number: int
    requests: int
    prices: NDArray[np.float64]
    version: int
    missing: NDArray[np.int64]
    left: int
    lookahead: int
    watched: bool
    keeps_floors: bool
    terms: Terms
    k: int


@dataclass(frozen=True)
class PriceState:
    """What the policy makes of what it has seen, and the batch under way.

    Attributes
    ----------
    state, prices
        Of the policy.
    version : int
        How often the prices have changed.
    counts, requests, samples
        Of the batch under way.
    """

    state: Any
    prices: NDArray[np.float64]
    counts: NDArray[np.int64]
    version: int = 0
    requests: int = 0
    samples: tuple[Sample, ...] = ()

    @classmethod
    def of(cls, policy: Policy, state: Any) -> PriceState:
        """Return the prices of a state, at the start of a batch."""
        prices = policy.prices(state)
        return cls(state, prices, np.zeros(len(prices), dtype=np.int64))

    def with_state(self, policy: Policy, state: Any) -> PriceState:
        """Return the prices of another state, also of more groups.

        Lists of the batch under way were made for the state before: what they would teach is no longer so.
        """
        prices = policy.prices(state)
        counts = np.concatenate([self.counts, np.zeros(len(prices) - len(self.counts), dtype=np.int64)])
        return replace(self, state=state, prices=prices, counts=counts, version=self.version + 1, samples=())

    def lease(self, terms: Terms, policy: Policy, grant: Grant) -> Lease:
        """Return a lease of what was granted, at these prices."""
        return Lease(
            grant.number,
            grant.requests,
            self.prices,
            self.version,
            grant.missing,
            grant.left,
            policy.lookahead(self.state, terms.k),
            policy.watches(self.state),
            policy.keeps_floors,
            terms,
            terms.k,
        )

    def noting(self, policy: Policy, entry: Entry, sample: Sample | None) -> PriceState:
        """Return the same with what came of a lease."""
        samples = self.samples if sample is None else (*self.samples, sample)
        if len(samples) >= _MOST_SAMPLES:
            samples = (Sample.join(samples, keep=policy.memory),)
        return replace(
            self, counts=self.counts + entry.counts, requests=self.requests + entry.requests, samples=samples
        )

    def stepped(self, policy: Policy, terms: Terms, totals: Totals) -> PriceState:
        """Return the prices after the batch under way, at the start of the next."""
        left = max(terms.horizon - totals.requests, 1)
        sample = Sample.join(self.samples, keep=policy.memory) if self.samples else None
        feedback = Feedback(self.requests, self.counts, totals.exposures, left, sample)
        stepped = PriceState.of(policy, policy.step(self.state, terms, feedback))
        return replace(stepped, version=self.version + 1)


@dataclass(frozen=True)
class LoopState:
    """Accounts and prices together. Books are never changed, only replaced: what fails leaves no trace."""

    accounts: LeaseTable
    pricing: PriceState = field(repr=False)

    @classmethod
    def open(
        cls,
        terms: Terms,
        policy: Policy,
        totals: Totals,
        state: Any = None,
        first: int = 0,
        *,
        allow_infeasible: bool = False,
    ) -> LoopState:
        """Return the books of a horizon that stands there, if it can be gone on with.

        Parameters
        ----------
        terms, policy, standing
            What was promised, who keeps it, and where it stands.
        state
            Of the policy, if it has learnt something already.
        first
            Leases are numbered from here. Those of other books that shared the ledger need other numbers.
        goes_on
            Whether to go on also where floors can no longer be met, as an outage may leave them.
        """
        try:
            check_standing(terms, policy, totals)
        except InvalidInputError as error:
            if not allow_infeasible or len(totals.exposures) != len(terms.floors):
                raise
            _log.warning("going on all the same: %s", error)
        return cls(
            LeaseTable.open(totals, first), PriceState.of(policy, policy.start(terms) if state is None else state)
        )

    def lease(self, terms: Terms, policy: Policy, n: int) -> tuple[LoopState, Lease] | None:
        """Hand out up to n requests; None if that has to wait for leases that are out.

        Never more than the batch or the horizon has left, so that prices change, and counts start anew, where they
        should.
        """
        given = self.accounts.given
        books = self._turned(terms, policy, quiet=not given)
        room = room_in_batch(terms, books.pricing.requests + given)
        granted = books.accounts.grant(terms, min(n, room), keeps_floors=policy.keeps_floors)
        if granted is None:
            return None
        accounts, grant = granted
        return replace(books, accounts=accounts), books.pricing.lease(terms, policy, grant)

    def settle(
        self, policy: Policy, number: int, entry: Entry, sample: Sample | None
    ) -> tuple[LoopState, Entry] | None:
        """Write down what came of a lease; return the entry as the ledger should have it.

        None if that was done before: whoever is not sure may say it again.
        """
        settled = self.accounts.settle(number, entry)
        if settled is None:
            return None
        accounts, entry = settled
        return LoopState(accounts, self.pricing.noting(policy, entry, sample)), entry

    def release(self, number: int) -> LoopState:
        """Take a lease back that will hardly be answered."""
        return replace(self, accounts=self.accounts.release(number))

    def prices_in_force(self, terms: Terms, policy: Policy) -> NDArray[np.float64]:
        """Return the prices as they act: under the guard, a subsidy ends with its floor."""
        prices, exposures = self.pricing.prices, self.accounts.totals.exposures
        return np.where((exposures >= terms.floors) & (prices < 0), 0.0, prices) if policy.keeps_floors else prices

    def under(
        self, terms: Terms, policy: Policy, before: Terms, restart: Callable[[Terms], Any] | None = None
    ) -> LoopState | None:
        """Return the books under other terms, also with more groups; refuse what can no longer be kept.

        Leases that are out know nothing of it. Where they could break the new promise, it has to wait for them: None.

        Parameters
        ----------
        terms, policy
            From now on.
        before
            What was promised so far.
        restart
            Makes the state of the policy anew; otherwise it goes on from what it has learnt.
        """
        totals = self.accounts.totals.grown(len(terms.floors))
        # What could not be kept before the change, after an outage, is no reason to refuse it.
        was = np.maximum(before.floors - self.accounts.totals.exposures, 0)
        lost = before.auto_restart and not guard.is_safe(was, before.horizon - totals.requests, before)
        same = terms.horizon == before.horizon and (terms.floors[: len(was)] == before.floors).all()
        if not (lost and same):
            check_standing(terms, policy, totals, is_over=self.accounts.is_over(before))
        given = self.accounts.given
        if given and terms.auto_restart and policy.keeps_floors:
            missing = np.maximum(terms.floors - totals.exposures, 0)
            if not guard.is_safe(missing, terms.horizon - totals.requests - given, terms):
                return None
        state = policy.resume(self.pricing.state, terms) if restart is None else restart(terms)
        return LoopState(self.accounts.grown(len(terms.floors)), self.pricing.with_state(policy, state))

    def _turned(self, terms: Terms, policy: Policy, *, quiet: bool) -> LoopState:
        """Open a new horizon, or a new batch, if the last one is over."""
        over = quiet and self.accounts.is_over(terms)
        if not over and self.pricing.requests < terms.batch_size:
            return self
        accounts = self.accounts.anew() if over else self.accounts
        return LoopState(accounts, self.pricing.stepped(policy, terms, accounts.totals))
