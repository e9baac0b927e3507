"""Saved prices: what a policy has learnt, kept in the ledger beside the counts, so that it survives the process.

Saved are the policy's state, the price batch under way, and the terms and the counts at that moment. A process that
opens the ledger next continues

- exactly, if terms and counts are those of the save, as after `close`: the price batch under way continues too;
- from the same state and prices with a new price batch, if requests were counted since the save, as after a crash;
- from the same prices, with the policy's `resume`, if the terms are others.

Floors that gave way because of their cost stay out until the horizon ends.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.atoms import Membership, keeps_codes
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.inputs import check_seconds
from fairsync.ledger import Totals
from fairsync.ledger.labels import load_labels
from fairsync.loop.certificate_opening import terms_in_force
from fairsync.loop.certificate_state import CertificateState
from fairsync.loop.concession import Concession
from fairsync.loop.price_state import PriceState
from fairsync.loop.promise_costs import PromiseCosts
from fairsync.loop.spending import NO_LIMITS, Spending
from fairsync.policies import Sample, Terms
from fairsync.policies.serialization import dump_state, dump_value, load_state, load_value
from fairsync.promises.floors import resolve_floors
from fairsync.promises.resolve import ResolvedPromises, resumed_promises

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.ledger import Ledger
    from fairsync.loop.loop_state import LoopState
    from fairsync.policies import Policy
    from fairsync.promises.floors import Floors

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedPrices:
    """The prices of a loop at one moment.

    Attributes
    ----------
    terms : Terms
        The promise.
    totals : Totals
        The counts of the horizon.
    price_state : PriceState
        The policy's state, its prices and the price batch under way.
    certificate : CertificateState or None
        The certificate; None for floors of groups.
    spending : Spending
        What promises may cost, and which floors give way to that.
    """

    terms: Terms
    totals: Totals
    price_state: PriceState
    certificate: CertificateState | None = None
    spending: Spending = NO_LIMITS

    @classmethod
    def of(cls, terms: Terms, loop: LoopState) -> SavedPrices:
        """Return the prices of a loop under these terms."""
        return cls(terms, loop.progress.totals, loop.price_state, loop.certificate, loop.spending)

    def dump(self, policy: Policy) -> bytes:
        """Return the prices as bytes; see :mod:`fairsync.policies.serialization`."""
        # The state is dumped on its own, so that a policy may use any class names.
        state = np.frombuffer(dump_state(policy, self.price_state.state), dtype=np.uint8)
        return dump_value(replace(self, price_state=replace(self.price_state, state=state)), _CLASSES)

    @classmethod
    def load(cls, policy: Policy, data: bytes) -> SavedPrices:
        """Return the prices from the bytes of `dump`."""
        saved = load_value(data, _CLASSES)
        if not isinstance(saved, cls):
            raise InvalidInputError("the policy's state cannot be read: it holds no prices.")
        state = load_state(policy, saved.price_state.state.tobytes())
        spending = saved.spending or NO_LIMITS  # earlier versions saved None for no limits
        return replace(saved, price_state=replace(saved.price_state, state=state), spending=spending)

    def continued(self, policy: Policy, terms: Terms, totals: Totals) -> PriceState:
        """Return the prices with which a loop continues under these terms, after these counts."""
        if self.terms.k != terms.k:
            raise InvalidInputError(f"it was learnt with k = {self.terms.k}, and now k is {terms.k}.")
        before, now = self.terms.membership, terms.membership
        if not keeps_codes(before, now):
            raise InvalidInputError("it was learnt for other promises or items.")
        saved, is_after = self.price_state, _is_after(self.totals, totals)
        if not _is_same(self.terms, terms):
            # The costs of requests that were counted since the save are not known.
            costs = None if is_after or saved.costs is None else saved.costs.grown(len(terms.floors))
            slots = None if saved.slots is None else saved.slots.grown(terms.n_atoms)
            return PriceState.of(policy, policy.resume(saved.state, terms), saved.version, costs, slots)
        return PriceState.of(policy, saved.state, saved.version, slots=saved.slots) if is_after else saved

    def spending_under(self, terms: Terms, totals: Totals, budget: float | None) -> Spending:
        """Return what promises may cost under these terms and this budget, after these counts.

        Floors that gave way come back if the counts are those of another horizon.
        """
        spending = self.spending if _is_later(self.totals, totals) else self.spending.restarted()
        if self.terms.k != terms.k:  # the last candidate is another one
            spending = spending.forgetful()
        return spending.within(budget).under(terms)

    def restored(self, policy: Policy, terms: Terms, loop: LoopState) -> LoopState:
        """Return a loop that goes on exactly from here, if items and promises are the same."""
        price_state = self.continued(policy, terms, self.totals)
        certificate = self.certificate if _is_same(self.terms, terms) else loop.certificate
        in_force = terms_in_force(terms, certificate, self.spending)
        return replace(
            loop, price_state=price_state, certificate=certificate, in_force=in_force, spending=self.spending
        )


_CLASSES = (
    SavedPrices, Terms, Totals, PriceState, Sample, PromiseCosts, EligibleSlots, CertificateState, Membership,
    Concession, Spending,
)  # fmt: skip


class PriceSaver:
    """Saves prices in a ledger, and loads them. It is not thread-safe.

    Parameters
    ----------
    ledger
        The ledger.
    policy
        The policy that makes the prices.
    save_seconds
        Seconds between two saves, at least; infinity: only calls of `save` make one. The first save is made as soon as
        prices have changed, so that a process that keeps crashing still makes progress.
    name
        Name under which the ledger saves them.
    """

    def __init__(self, ledger: Ledger, policy: Policy, save_seconds: float, name: str | None = None) -> None:
        _check_ledger(ledger)
        self._ledger, self._policy, self._save_seconds = ledger, policy, check_seconds(save_seconds, "save_seconds")
        self._name = f"policy {policy.name}" if name is None else name
        self._saved: PriceState | None = None
        self._given_way = NO_LIMITS.given_way
        self._due_at = math.inf if save_seconds == math.inf else -math.inf

    def saved_terms(self) -> Terms | None:
        """Return the terms that the saved prices were learnt under; None if there are none, or they cannot be read."""
        saved = self._read()
        return None if saved is None else saved.terms

    def saved_membership(self) -> Membership | None:
        """Return the atoms that the saved prices were learnt for; None if there are none, or they cannot be read."""
        terms = self.saved_terms()
        return None if terms is None else terms.membership

    def were_in_force(self, terms: Terms) -> bool:
        """Return whether the saved prices were learnt under these very terms, so that they were accepted before."""
        saved = self.saved_terms()
        return saved is not None and keeps_codes(saved.membership, terms.membership) and _is_same(saved, terms)

    def spending(self, terms: Terms, totals: Totals, budget: float | None = None) -> Spending:
        """Return what promises may cost, with the floors that have given way in the horizon with these totals."""
        saved = self._read()
        return Spending(budget) if saved is None else saved.spending_under(terms, totals, budget)

    def _read(self) -> SavedPrices | None:
        """Return the saved prices; None if there are none, or they cannot be read."""
        data = self._ledger.load(self._name)
        try:
            return None if data is None else SavedPrices.load(self._policy, data)
        except Exception:  # `load` says what is wrong with it
            return None

    def load(self, terms: Terms, loop: LoopState) -> LoopState:
        """Return the loop with the saved prices, if there are any that fit."""
        if self._save_seconds < math.inf:  # raise now, not at the first save, if the state cannot be saved
            dump_state(self._policy, loop.price_state.state)
        data = self._ledger.load(self._name)
        if data is not None:
            try:
                loop = self._continued(data, terms, loop)
            except Exception as error:  # whatever is wrong with it, the floors hold without it
                _log.warning("starting without the policy's saved state: %s", error)
        self._saved, self._given_way = loop.price_state, loop.spending.given_way
        return loop

    def save_if_due(self, terms: Terms, loop: LoopState) -> None:
        """Save the prices if they have changed, and the last save is long enough ago.

        If other floors have given way than in the last save, it is made at once: without it, the next process could not
        tell them from floors that must be met, and would refuse the ledger.
        """
        if loop.spending.given_way != self._given_way and self._save_seconds < math.inf:
            self.save(terms, loop)
        if self._saved is not None and loop.price_state.version == self._saved.version:
            return
        if time.monotonic() >= self._due_at:
            self.save(terms, loop)

    def save(self, terms: Terms, loop: LoopState) -> None:
        """Save the prices now, with the price batch under way. An error is logged: the floors hold without them."""
        if loop.price_state is self._saved:
            return
        self._due_at, self._given_way = time.monotonic() + self._save_seconds, loop.spending.given_way
        try:
            self._ledger.save(self._name, SavedPrices.of(terms, loop).dump(self._policy))
            self._saved = loop.price_state
        except FairSyncError as error:
            _log.warning("the policy's state was not saved: %s", error)

    def _continued(self, data: bytes, terms: Terms, loop: LoopState) -> LoopState:
        totals, spending, certificate = loop.progress.totals, loop.spending, loop.certificate
        try:
            saved = SavedPrices.load(self._policy, data)
        except InvalidInputError:  # earlier versions saved the state alone
            state: Any = self._policy.resume(load_state(self._policy, data), terms)
            found = PriceState.of(self._policy, state)
        else:
            found = saved.continued(self._policy, terms, totals)
            spending = saved.spending_under(terms, totals, spending.budget)
            unchanged = _is_same(saved.terms, terms) and not _is_after(saved.totals, totals)
            if certificate is not None and unchanged and spending.budget == saved.spending.budget:
                certificate = saved.certificate or certificate
        if len(found.prices) != len(terms.floors):
            raise InvalidInputError(f"it has {len(found.prices)} groups, and the catalog has {len(terms.floors)}.")
        in_force = terms_in_force(terms, certificate, spending)
        return replace(loop, price_state=found, certificate=certificate, in_force=in_force, spending=spending)


def continued_promises(promises: Any, ledger: Ledger, policy: Policy) -> ResolvedPromises | None:
    """Return the promises that a ledger counts, if they are given again; None if they are not, or are not known.

    Parameters
    ----------
    promises
        As they were given: a sequence of promises, None for floors of groups, or promises that need no decision.
    ledger, policy
        The ledger, and the policy whose prices it may have saved.
    """
    if promises is None or isinstance(promises, ResolvedPromises):
        return None
    terms, names = PriceSaver(ledger, policy, math.inf).saved_terms(), load_labels(ledger)
    return None if terms is None or names is None else resumed_promises(promises, names, terms)


def continued_groups(catalog: Catalog, floors: Floors, ledger: Ledger) -> tuple[Catalog, Floors]:
    """Return a catalog with its groups in the order of a ledger's counts, and the floors of its groups.

    Groups that were added since the ledger was written follow the others. Groups that lost all their items stay, with
    their counts and no floor. A catalog that has new groups and lacks others is taken for another one, and stays as it
    is: the ledger will be refused.

    Parameters
    ----------
    catalog, floors
        As they were given.
    ledger
        The ledger.
    """
    _check_ledger(ledger)
    known, labels = load_labels(ledger), catalog.labels
    if known is None or labels == known or not (set(labels).issubset(known) or set(labels).issuperset(known)):
        return catalog, floors
    if not isinstance(floors, Mapping):
        floors = dict(zip(labels, resolve_floors(floors, catalog).tolist(), strict=True))
    return catalog.under(known), floors


def _check_ledger(ledger: object) -> None:
    if not callable(getattr(ledger, "record", None)):
        raise InvalidInputError(f"ledger must be a URL such as sqlite:///exposures.db, or a ledger, got {ledger!r}.")


def _is_same(before: Terms, now: Terms) -> bool:
    """Return whether a policy's state holds under other terms as it is.

    If horizons end by the clock, targets change with every plan, and the policy follows them without `resume`.
    """
    if len(before.floors) != len(now.floors) or (before.batch_size, before.auto_restart) != (
        now.batch_size,
        now.auto_restart,
    ):
        return False
    if not now.auto_restart:
        return True
    pairs = ((before.floors, now.floors), (before.capacities, now.capacities), (before.caps, now.caps))
    equal = all(np.array_equal(one, other) for one, other in pairs)  # type: ignore[arg-type]  # None equals None
    return equal and before.horizon == now.horizon


def _is_after(before: Totals, now: Totals) -> bool:
    """Return whether requests were counted between the two."""
    if (before.requests, before.began) != (now.requests, now.began):
        return True
    return not np.array_equal(before.exposures, now.exposures)


def _is_later(before: Totals, now: Totals) -> bool:
    """Return whether the first totals can be earlier ones of the same horizon."""
    n = min(len(before.exposures), len(now.exposures))
    is_more = before.requests <= now.requests and bool((before.exposures[:n] <= now.exposures[:n]).all())
    return before.began == now.began and is_more
