"""The prices of one of several coordinators that share a ledger. Each learns its own, from its own front ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.coordination.target_terms import has_other_shape
from fairsync.loop.loop_state import LoopState
from fairsync.loop.price_state import PriceState
from fairsync.loop.spending import NO_LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.coordination.lease import Settlement
    from fairsync.ledger import Totals
    from fairsync.loop.batch import Batch
    from fairsync.loop.progress import Progress
    from fairsync.policies import Policy, Terms


class OwnPrices:
    """The policy's state, the price batch under way, and what promises may cost.

    Requests of other coordinators are no part of the price batches. What promises have cost is not known, because the
    costs of other coordinators are not.

    Parameters
    ----------
    policy
        The policy that makes prices.
    terms
        The promise.

    Attributes
    ----------
    price_state : PriceState
        The policy's state and prices.
    spending : Spending
        What promises may cost.
    """

    def __init__(self, policy: Policy, terms: Terms) -> None:
        self.policy = policy
        self.price_state = PriceState.of(policy, policy.start(terms))
        self.spending = NO_LIMITS
        self._horizon = 0

    def restart(self, terms: Terms, horizon: int) -> None:
        """Start the policy under a promise, in a horizon of the ledger."""
        self.price_state = PriceState.of(self.policy, self.policy.start(terms))
        self._horizon = horizon

    def is_due(self, terms: Terms, horizon: int) -> bool:
        """Return whether prices change before the next lease: the price batch is full, or the horizon is a new one."""
        return self._horizon != horizon or self.price_state.requests >= terms.batch_size

    def next_batch(self, terms: Terms, progress: Progress, horizon: int, n: int, *, leased: int, mine: int) -> Batch:
        """Return the next batch of at most n requests, of which nothing is granted yet.

        Parameters
        ----------
        terms, progress, horizon
            The promise, the counts of the horizon, and its number.
        n
            The number of requests that are asked for.
        leased, mine
            Requests of all open leases, and of those of this coordinator.
        """
        begun = 0 if self.is_due(terms, horizon) else self.price_state.requests
        price_state = replace(self.price_state, requests=begun - (leased - mine))
        return LoopState(progress, price_state).next_batch(terms, self.policy, n, leased=leased)

    def priced(self, terms: Terms, progress: Progress, horizon: int, batch: Batch) -> Batch:
        """Return a batch that was granted at the prices of now, after a policy step if one is due."""
        if self.is_due(terms, horizon):
            self._step(terms, progress.totals, horizon)
        return self.price_state.batch(
            self.spending.affordable(terms),
            self.policy,
            batch.requests,
            batch.missing,
            batch.left,
            batch.certificate,
            batch.room,
            self.spending.highest(terms),
        )

    def _step(self, terms: Terms, totals: Totals, horizon: int) -> None:
        """Let the policy learn from the price batch under way."""
        is_new = self._horizon != horizon
        spending = self.spending.restarted() if is_new else self.spending
        self.price_state = self.price_state.step(self.policy, terms, totals, spending.highest(terms))
        if is_new:
            self.price_state = replace(self.price_state.restarted(), costs=None)
        self._horizon = horizon
        self.spending = spending.priced(terms, self.price_state.prices, totals)

    def record(self, totals: Totals, settlement: Settlement) -> None:
        """Learn from the requests of a lease, whose entry is as it counts."""
        self.price_state = self.price_state.record(
            self.policy, settlement.entry, settlement.sample, slots=settlement.slots
        )
        self.spending = self.spending.recorded(settlement.last_relevance, settlement.certified, totals)

    def refused(self, horizon: int) -> dict[int, int]:
        """Return the floors that are left to prices in a horizon because of their cost, and its requests until then."""
        too_dear, since = self.spending.too_dear, self.spending.since
        if self._horizon != horizon or too_dear is None or since is None:
            return {}
        return {code: int(since[code]) for code in np.flatnonzero(too_dear).tolist()}

    def learn_refused(self, refused: Mapping[int, int], terms: Terms, horizon: int) -> None:
        """Leave floors to prices that other coordinators have found too dear in this horizon."""
        new = {code: since for code, since in refused.items() if code not in self.refused(horizon)}
        if self._horizon != horizon or terms.max_prices is None or not new:
            return
        too_dear, since = np.zeros(len(terms.floors), dtype=bool), np.zeros(len(terms.floors), dtype=np.int64)
        for code, requests in new.items():
            if code < len(too_dear) and np.isfinite(terms.max_prices[code]):
                too_dear[code], since[code] = True, requests
        if too_dear.any():
            self.spending = self.spending.refused(too_dear, since)

    def adopt(self, before: Terms, terms: Terms) -> None:
        """Continue under another promise. What the policy has learnt holds on if only targets have changed a little."""
        n, overlap = len(self.price_state.prices), before.membership is not None or terms.membership is not None
        is_other = overlap and len(terms.floors) >= n and has_other_shape(before, terms)
        if terms.auto_restart or len(terms.floors) > n or is_other:
            state = self.policy.resume(self.price_state.state, terms)
            self.price_state = self.price_state.with_state(self.policy, state, terms.n_atoms)
        self.spending = self.spending.under(terms)
