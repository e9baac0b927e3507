"""The loop: prices for the next batch of requests, their counts back, and a policy step after every batch.

It is a set of pure functions of a small, immutable state (:class:`LoopState`). A caller does, in turns::

    state = state.begin(terms, policy)                              # a new horizon or price batch, if one is due
    batch = state.next_batch(terms, policy, n)                      # requests, prices, missing exposures
    served = serve(batch, catalog, index, users)                    # fairsync.loop.serving: search and guard
    state, entry = state.record(policy, served)                     # the counts, and what the policy learns

and writes the entry to the ledger. :class:`fairsync.FairRetriever` does all of this in one process. A coordinator does
the same for front ends that search elsewhere, with leases between `next_batch` and `record`
(:mod:`fairsync.coordination.lease_table`); the loop knows nothing of them but a number of requests.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.errors import InvalidInputError
from fairsync.ledger import Entry
from fairsync.loop.certificate_opening import (
    check_caps,
    concession_of,
    open_certificate,
    require_certificate,
    terms_in_force,
)
from fairsync.loop.price_state import PriceState
from fairsync.loop.progress import Progress
from fairsync.loop.promise_costs import PromiseCosts
from fairsync.loop.spending import NO_LIMITS, Spending
from fairsync.promises.certificate import is_certificate
from fairsync.promises.floors import can_be_met, check_reachable
from fairsync.promises.promise import EVERY_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fairsync.ledger import Totals
    from fairsync.loop.batch import Batch, Outcome
    from fairsync.loop.certificate_state import CertificateState
    from fairsync.policies import Policy, Terms
    from fairsync.promises.certificate import Certified

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopState:
    """The state of the loop. It is immutable: every method returns a new one, so that a failed call leaves no trace.

    Attributes
    ----------
    progress : Progress
        The counts of the horizon.
    price_state : PriceState
        The policy's state, the prices, and the price batch under way.
    certificate : CertificateState or None
        Proves that promises which may overlap can still be kept; None where the counts of groups are proof enough.
    in_force : Terms or None
        The terms that prices and guard work for while some floors give way; None while these are all that was promised.
        They are the affordable ones (`Spending.affordable`), less what floors concede to others (`Concession`).
    spending : Spending
        What promises may cost, and which floors give way to that.
    """

    progress: Progress
    price_state: PriceState = field(repr=False)
    certificate: CertificateState | None = field(default=None, repr=False)
    in_force: Terms | None = field(default=None, repr=False)
    spending: Spending = field(default=NO_LIMITS, repr=False)

    @classmethod
    def open(
        cls,
        terms: Terms,
        policy: Policy,
        totals: Totals,
        spending: Spending = NO_LIMITS,
        *,
        allow_infeasible: bool = False,
        names: Sequence[str] = (),
    ) -> LoopState:
        """Return the state that continues a horizon with these totals.

        Parameters
        ----------
        terms, policy
            The promise, and the policy that makes prices for it.
        totals
            Totals of the horizon under way, from the ledger.
        spending
            What promises may cost, and which floors have given way to that in this horizon.
        allow_infeasible
            Continue with a warning where floors can no longer be met, as after an outage: where promises may overlap,
            those of the lowest priority give way. Refused by default.
        names
            The names of promises that may overlap, for errors.
        """
        affordable = spending.affordable(terms)
        try:
            check_reachable(affordable, totals, keeps_floors=policy.keeps_floors and terms.membership is None)
        except InvalidInputError as error:
            if not allow_infeasible or len(totals.exposures) != len(terms.floors):
                raise
            _log.warning("continuing all the same: %s", error)
        costs = None if totals.requests else PromiseCosts.zero(len(terms.floors))
        progress = Progress(totals)
        remedy = "Or lengthen the horizon, or start with a new ledger."
        certificate = require_certificate(
            progress, affordable, policy, gives_way=allow_infeasible, names=names, remedy=remedy
        )
        price_state = PriceState.of(policy, policy.start(terms), costs=costs)
        return cls(progress, price_state, certificate, terms_in_force(terms, certificate, spending), spending)

    def begin(
        self, terms: Terms, policy: Policy, *, leased: int = 0, reserved: NDArray[np.int64] | None = None
    ) -> LoopState:
        """Start a new horizon, or a new price batch, if the last one is over.

        Parameters
        ----------
        terms, policy
            The promise, and the policy that makes prices for it.
        leased
            Requests that are leased and not recorded yet. As long as there are any, no new horizon starts.
        reserved
            (P,) what they may use of the caps; None for nothing.
        """
        over = not leased and self.progress.is_over(terms)
        if not over and self.price_state.requests < self._price_batch(terms, policy):
            return self
        progress, certificate = self.progress.restart() if over else self.progress, self.certificate
        totals, before = progress.totals, self.spending
        spending = before.restarted() if over else before.checked(terms, totals, self._unit_costs, self._cost_of_limits)
        affordable = spending.affordable(terms)
        if certificate is not None and spending.cut != before.cut:
            certificate = replace(certificate, is_stale=True)
        if certificate is not None:
            certificate = (
                certificate.restarted(terms)
                if over
                else certificate.renewed(
                    affordable,
                    progress.certain_missing(affordable),
                    progress.room(affordable, reserved),
                    progress.left(terms) - leased,
                    is_settled=not leased,
                )
            )
        in_force = self.in_force
        if over or spending.has_changed or concession_of(certificate) is not concession_of(self.certificate):
            in_force = terms_in_force(terms, certificate, spending)
        price_state = self.price_state.step(policy, in_force or terms, totals, spending.highest(terms))
        spending = replace(spending.priced(terms, price_state.prices, totals), has_changed=False)
        return LoopState(progress, price_state.restarted() if over else price_state, certificate, in_force, spending)

    def next_batch(self, terms: Terms, policy: Policy, n: int, *, leased: int = 0) -> Batch:
        """Return a batch of at most n requests that does not exceed the price batch or the horizon.

        If the clock ends the horizon, every request is served, also beyond the expected number. The price batch may
        then overrun by one search, because splitting a search costs more than a later price change.

        Parameters
        ----------
        terms, policy
            The promise, and the policy that makes prices for it.
        n
            Requests that are waiting.
        leased
            Requests of earlier batches that are not recorded yet. Where they are all that the horizon has left, the
            batch is empty.
        """
        left = self.progress.left(terms) - leased
        if terms.auto_restart:
            price_batch = self._price_batch(terms, policy)
            room = price_batch - (self.price_state.requests + leased) % price_batch
            requests = max(min(n, room, left), 0)
        else:
            requests = min(n, self._price_batch(terms, policy))
            left = max(left, requests)
        plan, in_force = None if self.certificate is None else self.certificate.plan, self.in_force or terms
        return self.price_state.batch(
            in_force,
            policy,
            requests,
            self.progress.missing(in_force),
            left,
            plan,
            self.progress.room(in_force),
            self.spending.highest(terms),
        )

    def record(self, policy: Policy, outcome: Outcome) -> tuple[LoopState, Entry]:
        """Count the answers to some requests; return also the entry as the ledger has to record it.

        Parameters
        ----------
        policy
            The policy that makes the prices.
        outcome
            What they brought. Without costs, those of the horizon are unknown. Without slots, the requests could show
            what was declared.
        """
        before, slots, certificate = self.progress.totals.requests, outcome.slots, self.certificate
        progress, entry = self.progress.record(outcome.entry)
        if slots is not None and self.price_state.all_slots is None:
            slots = slots.plus(EligibleSlots.declared(before, len(slots.shares)))
        if certificate is not None and outcome.certified is not None:
            certificate = certificate.after(outcome.certified).reaching(outcome.reached)
        price_state = self.price_state.record(policy, entry, outcome.sample, outcome.costs, slots)
        spending = self.spending.recorded(outcome.last_relevance, outcome.certified, progress.totals)
        return LoopState(progress, price_state, certificate, self.in_force, spending), entry

    def certified(
        self,
        terms: Terms,
        certified: Certified | None,
        leased: int,
        reserved: NDArray[np.int64] | None,
    ) -> LoopState:
        """Return the state with the certificate after requests that were leased, and recorded just now.

        If other leases were granted meanwhile, the certificate held without this one, and still does. Otherwise this
        lease was alone, and its guard may have moved or dropped parts of the plan, as in a retriever.

        Parameters
        ----------
        terms
            The promises.
        certified
            The certificate as the front end returned it; None if that is not known, as after a change of the items.
        leased, reserved
            As for `begin`, without those requests.
        """
        before = self.certificate
        if before is None:
            return self
        spending = self.spending.recorded(None, certified, self.progress.totals)
        terms = spending.affordable(terms)
        plans = [before.plan]
        if certified is not None and len(certified.plan) == len(before.plan):
            taken = certified.shown.taken_from(before.plan)
            plans = [taken, certified.plan] if leased else [certified.plan, taken]
            before = before.after(certified._replace(plan=taken))
        missing, left = self.progress.certain_missing(terms), self.progress.left(terms) - leased
        for plan in plans:
            if is_certificate(terms, plan, missing, self.progress.room(terms, reserved), left):
                return replace(self, certificate=replace(before, plan=plan), spending=spending)
        made = open_certificate(self.progress, terms, before, leased, reserved)
        return replace(self, certificate=before if made is None else made, spending=spending)

    def _unit_costs(self) -> NDArray[np.float64]:
        """Return (P,) the relevance given up for one exposure of each promise, or its subsidy if that is not known."""
        subsidies, costs = np.maximum(-self.price_state.prices, 0.0), self.price_state.costs
        exposures = self.progress.totals.exposures
        if costs is None:
            return subsidies
        given_up = costs.of_floors
        return np.where((exposures > 0) & np.isfinite(given_up), given_up / np.maximum(exposures, 1), subsidies)

    @property
    def _cost_of_limits(self) -> float:
        """The relevance given up in the horizon for limits per list alone, as far as it is known."""
        for_limits = None if self.price_state.costs is None else self.price_state.costs.for_limits
        return 0.0 if for_limits is None else float(for_limits.sum())

    def _price_batch(self, terms: Terms, policy: Policy) -> int:
        """Return the requests from one policy step to the next: the batch size, unless the policy wants fewer."""
        wanted = getattr(policy, "price_batch", None)
        return terms.batch_size if wanted is None else int(wanted(self.price_state.state, terms))

    def prices_in_force(self, terms: Terms, policy: Policy) -> NDArray[np.float64]:
        """Return (P,) the prices as they act: under the guard, a subsidy ends when its floor is met."""
        prices, exposures = self.price_state.prices, self.progress.totals.exposures
        floors = (self.in_force or terms).floors
        return np.where((exposures >= floors) & (prices < 0), 0.0, prices) if policy.keeps_floors else prices

    def with_every_slot(self, labels: Sequence[object], terms: Terms) -> tuple[LoopState, Entry | None]:
        """Count the slots so far for the promise of every slot, if it is new; return also the entry for the ledger.

        Parameters
        ----------
        labels, terms
            The names of the promises, and the promises as they will be. Other new ones count from now on.
        """
        requests, n = self.progress.totals.requests, len(self.progress.totals.exposures)
        if terms.membership is None or not requests or EVERY_SLOT not in labels[n:]:
            return self, None
        counts = np.zeros(len(labels), dtype=np.int64)
        counts[list(labels).index(EVERY_SLOT, n)] = requests * terms.k
        progress, entry = self.progress.grown(len(labels)).record(Entry(counts, 0, 0.0, 0.0))
        return replace(self, progress=progress), entry

    def under(
        self,
        terms: Terms,
        policy: Policy,
        before: Terms,
        start: Callable[[Terms], Any] | None = None,
        *,
        gives_way: bool = False,
        late: bool = False,
        names: Sequence[str] = (),
    ) -> LoopState:
        """Return the state under other terms, which may have more groups; refuse floors that can no longer be met.

        Floors that could not be met before the change either, after an outage, do not count against it.

        Parameters
        ----------
        terms, policy
            The new promise, and the policy that makes prices for it.
        before
            The promise so far.
        start
            Makes a fresh state of the policy. By default the policy continues with the state it has.
        gives_way
            Whether floors of promises give way where not all can be met any more. By default the change is refused,
            unless they could not be met before it either.
        late
            Whether promises that were added give way to all others of their priority, where not all can be met.
        names
            The names of promises that may overlap, for errors.
        """
        progress = self.progress.grown(len(terms.floors))
        state = policy.resume(self.price_state.state, terms) if start is None else start(terms)
        price_state = self.price_state.with_state(policy, state, terms.n_atoms)
        spending = self.spending.under(terms)
        if start is not None:
            spending = spending.forgetful()
        affordable, is_over = spending.affordable(terms), self.progress.is_over(before)
        is_same = terms.horizon == before.horizon and (terms.floors[: len(before.floors)] == before.floors).all()
        if terms.membership is not None:
            check_reachable(terms, progress.totals, keeps_floors=False, is_over=is_over)
            check_caps(progress, terms, before)
            if late:
                is_late = np.arange(len(terms.floors)) >= len(before.floors)
                affordable = replace(
                    affordable, priorities=np.where(affordable.order > 0, 2 * affordable.order + is_late, 0)
                )
            remedy = "Or lengthen the horizon: promise(horizon=...)."
            gives_way = gives_way or late or bool(is_same and self._has_lost_floors(before))
            certificate = require_certificate(
                progress, affordable, policy, self.certificate, gives_way=gives_way, names=names, remedy=remedy
            )
            in_force = terms_in_force(terms, certificate, spending)
            return LoopState(progress, price_state, certificate, in_force, spending)
        known = self.spending.affordable(before)
        was_lost = before.auto_restart and not can_be_met(
            self.progress.missing(known), self.progress.left(known), known
        )
        if not (was_lost and is_same):
            check_reachable(affordable, progress.totals, keeps_floors=policy.keeps_floors, is_over=is_over)
        return LoopState(progress, price_state, None, terms_in_force(terms, None, spending), spending)

    def _has_lost_floors(self, terms: Terms) -> bool:
        """Return whether promises that may overlap can no longer be kept, as after requests that were limited."""
        before, totals, affordable = self.certificate, self.progress.totals, self.spending.affordable(terms)
        # Every slot may be counted by now, though these promises do not know it.
        progress = Progress(replace(totals, exposures=totals.exposures[: len(terms.floors)]))
        if before is None or progress.left(terms) <= 0:
            return False
        missing, room = progress.certain_missing(affordable), progress.room(affordable)
        holds = is_certificate(affordable, before.plan, missing, room, progress.left(terms))
        return not holds and open_certificate(progress, affordable, before) is None
