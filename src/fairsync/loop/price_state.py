"""The prices in force with the policy's state behind them, and what the requests since the last policy step brought."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.loop.batch import Batch
from fairsync.loop.promise_costs import PromiseCosts
from fairsync.policies import Feedback, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.ledger import Entry, Totals
    from fairsync.policies import Policy, Terms

# Samples of a long price batch are merged when there are this many; the policy forgets the older ones anyway.
_MAX_SAMPLES = 512


@dataclass(frozen=True)
class PriceState:
    """The policy's state with its prices, and the price batch under way: the requests since the last policy step.

    Attributes
    ----------
    state
        State of the policy.
    prices : numpy.ndarray
        (P,) prices of that state, by promise.
    counts, requests, samples
        Exposures, requests and samples of the price batch under way.
    version : int
        Number of times that the prices have changed.
    costs : PromiseCosts or None
        Subsidies and costs of each group since the horizon began; None if they were not measured for every request.
    slots : EligibleSlots or None
        What requests could show before the price batch under way, from which the guard forecasts; None as long as that
        is what was declared.
    new_slots : EligibleSlots or None
        What the requests of the price batch under way could show; None as for ``slots``.
    """

    state: Any
    prices: NDArray[np.float64]
    counts: NDArray[np.int64]
    version: int = 0
    requests: int = 0
    samples: tuple[Sample, ...] = ()
    costs: PromiseCosts | None = None
    slots: EligibleSlots | None = None
    new_slots: EligibleSlots | None = None

    @classmethod
    def of(
        cls,
        policy: Policy,
        state: Any,
        version: int = 0,
        costs: PromiseCosts | None = None,
        slots: EligibleSlots | None = None,
    ) -> PriceState:
        """Return the prices of a policy's state, at the start of a price batch."""
        prices = policy.prices(state) + 0.0  # -0.0 is 0.0
        prices.flags.writeable = False  # an index recognises such an array without comparing values
        return cls(state, prices, np.zeros(len(prices), dtype=np.int64), version, costs=costs, slots=slots)

    def with_state(self, policy: Policy, state: Any, n_atoms: int | None = None) -> PriceState:
        """Return the same price batch under another state of the policy, which may have more promises or atoms.

        Samples are dropped: they were taken for the state before.
        """
        prices = policy.prices(state) + 0.0
        counts = grow(self.counts, len(prices))
        costs = None if self.costs is None else self.costs.grown(len(prices))
        size = len(prices) if n_atoms is None else n_atoms
        slots, new_slots = (None if some is None else some.grown(size) for some in (self.slots, self.new_slots))
        return replace(
            self, state=state, prices=prices, counts=counts, version=self.version + 1, samples=(), costs=costs,
            slots=slots, new_slots=new_slots,
        )  # fmt: skip

    def batch(
        self,
        terms: Terms,
        policy: Policy,
        requests: int,
        missing: NDArray[np.int64],
        left: int,
        certificate: NDArray[np.int64] | None = None,
        room: NDArray[np.int64] | None = None,
        highest: NDArray[np.float64] | None = None,
    ) -> Batch:
        """Return a batch of these requests at the current prices."""
        return Batch(
            requests=requests,
            prices=terms.atom_prices(self.prices),
            version=self.version,
            missing=missing,
            left=left,
            lookahead=policy.lookahead(self.state, terms.k),
            watched=policy.watches(self.state),
            keeps_floors=policy.keeps_floors,
            terms=terms,
            k=terms.k,
            forecast=None if self.slots is None else self.slots.forecast(terms),
            promise_prices=None if terms.membership is None else self.prices,
            certificate=certificate,
            room=room,
            highest=highest,
        )

    def record(
        self,
        policy: Policy,
        entry: Entry,
        sample: Sample | None,
        costs: PromiseCosts | None = None,
        slots: EligibleSlots | None = None,
    ) -> PriceState:
        """Add the counts, the sample, the costs and the slots of some requests to the price batch under way."""
        if slots is None and (self.slots is not None or self.new_slots is not None):
            known = self.slots if self.new_slots is None else self.new_slots
            slots = EligibleSlots.declared(entry.requests, len(known.shares) if known is not None else 0)
        samples = self.samples if sample is None else (*self.samples, sample)
        if len(samples) >= _MAX_SAMPLES:
            samples = (Sample.join(samples, keep=policy.memory),)
        # Not `replace`, which takes as long as the rest: this runs with every batch.
        return PriceState(
            self.state,
            self.prices,
            self.counts + entry.counts,
            self.version,
            self.requests + entry.requests,
            samples,
            None if self.costs is None or costs is None else self.costs.plus(costs),
            self.slots,
            _joined(self.new_slots, slots),
        )

    def step(
        self, policy: Policy, terms: Terms, totals: Totals, highest: NDArray[np.float64] | None = None
    ) -> PriceState:
        """Let the policy learn from the price batch under way; return its new prices."""
        left = max(terms.horizon - totals.requests, 1)
        sample = Sample.join(self.samples, keep=policy.memory) if self.samples else None
        slots = self.all_slots
        most = None if slots is None else slots.highest(terms)
        feedback = Feedback(self.requests, self.counts, totals.exposures, left, sample, most, highest)
        return PriceState.of(policy, policy.step(self.state, terms, feedback), self.version + 1, self.costs, slots)

    def restarted(self) -> PriceState:
        """Return the same prices at the start of a new horizon, which has cost nothing so far."""
        slots = self.all_slots
        slots = None if slots is None else slots.restarted()
        return replace(self, costs=PromiseCosts.zero(len(self.prices)), slots=slots, new_slots=None)

    @property
    def all_slots(self) -> EligibleSlots | None:
        """What requests could show, the price batch under way included."""
        return _joined(self.slots, self.new_slots)


def _joined(some: EligibleSlots | None, more: EligibleSlots | None) -> EligibleSlots | None:
    return some if more is None else more if some is None else some.plus(more)
