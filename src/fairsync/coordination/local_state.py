"""The state of a coordinator that is the only writer of its ledger."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.coordination.lease import lease_key
from fairsync.coordination.lease_table import LeaseTable
from fairsync.coordination.target_terms import counted_since, has_other_shape, target_terms
from fairsync.errors import InvalidInputError, LostLeaseError
from fairsync.inputs import check_k
from fairsync.ledger import Entry
from fairsync.ledger.labels import check_labels, save_labels
from fairsync.loop.certificate_opening import cannot_be_kept, check_caps, open_certificate
from fairsync.loop.certificate_state import CertificateState
from fairsync.loop.loop_state import LoopState
from fairsync.loop.spending import NO_LIMITS
from fairsync.promises.floors import check_reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairsync.catalog.groups import Grouped
    from fairsync.coordination.lease import Lease, Settlement
    from fairsync.coordination.targets import Targets
    from fairsync.ledger import Ledger, Totals
    from fairsync.ledger.audit import AuditRecord
    from fairsync.loop.promise_costs import PromiseCosts
    from fairsync.loop.spending import Spending
    from fairsync.policies import Policy, Terms
    from fairsync.promises import Promise

# Coordinators that follow one another must not reuse lease numbers: each draws a range of this length.
_LEASES_PER_COORDINATOR = 1 << 24
# Bounds of the time to wait for open leases, in seconds.
_MIN_DELAY, _MAX_DELAY = 0.001, 60.0


class LocalState:
    """The loop, the lease table with deadlines, and the ledger behind them.

    Parameters
    ----------
    ledger
        The ledger in which entries are recorded.
    groups, terms, policy
        The promise, its groups, and the policy that makes prices.
    lease_seconds
        Seconds after which an open lease expires.
    spending
        What promises may cost, and which floors have given way to that in the horizon under way.
    allow_infeasible
        Whether to continue where floors can no longer be met.
    clock
        Monotonic clock by which leases expire, in seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        groups: Groups,
        terms: Terms,
        policy: Policy,
        lease_seconds: float,
        spending: Spending = NO_LIMITS,
        *,
        allow_infeasible: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger, self.groups, self.terms, self.policy = ledger, groups, terms, policy
        self.lease_seconds, self._clock = lease_seconds, clock
        check_labels(ledger, groups.labels)
        self.loop = LoopState.open(terms, policy, ledger.totals(), spending, allow_infeasible=allow_infeasible)
        save_labels(ledger, groups.labels)
        first = secrets.randbits(38) * _LEASES_PER_COORDINATOR
        self.leases = LeaseTable(first=first, issued=first)
        self._deadlines: dict[int, float] = {}

    def learn(self, loop: LoopState) -> None:
        """Take the prices, and what promises may cost, of a loop that was made from this one."""
        self.loop = loop

    def refresh(self) -> None:
        """No-op: a local state has a single writer."""

    def past(self) -> Sequence[Totals]:
        """Return the totals of the past horizons, oldest first."""
        return self.ledger.past()

    def retry_delay(self, tries: int) -> float:
        """Return the seconds until the next lease expires."""
        soonest = min(self._deadlines.values(), default=float("inf")) - self._clock()
        return min(max(soonest, _MIN_DELAY), _MAX_DELAY)

    def lease(self, n: int, seconds: float | None = None, k: int | None = None) -> Lease | None:
        """Lease up to n requests of k candidates, to expire after these seconds; None if it has to wait for others."""
        self._expire()
        leased = self.leases.requests
        reserved = None if self.loop.certificate is None else self.leases.reserved(self.terms)
        loop = self.loop.begin(self.terms, self.policy, leased=leased, reserved=reserved)
        batch = loop.next_batch(self.terms, self.policy, n, leased=leased)
        granted = self.leases.grant(batch if k is None else replace(batch, k=k))
        if granted is None:
            return None
        self.loop, (self.leases, lease) = loop, granted
        self._deadlines[lease.number] = self._clock() + (seconds or self.lease_seconds)
        return lease

    def settle(self, number: int, settlement: Settlement) -> Entry | None:
        """Record the counts of a lease; return the entry as it counts, or None if the lease is settled already."""
        settled = self.leases.settle(number, settlement.entry)
        if settled is None:
            return None
        leases, entry = settled
        settlement = settlement.within(self.terms)
        if number not in self.leases.open and self.terms.caps is not None:
            if self.ledger.knows(lease_key(number)):
                return None  # a coordinator that died has settled it, or it was recorded late
            raise LostLeaseError(number)
        # The certificate is for this lease alone: `certified` puts it beside those that are open.
        counted = replace(settlement, entry=entry, costs=self._fitting(settlement.costs), certified=None)
        loop, entry = self.loop.record(self.policy, counted)
        if loop.certificate is not None:
            loop = loop.certified(self.terms, settlement.certified, leases.requests, leases.reserved(self.terms))
        if not self.ledger.record([entry], lease_key(number), settlement.answers):
            return None  # another coordinator recorded it before it died
        self.loop, self.leases = loop, leases
        self._deadlines.pop(number, None)
        return entry

    def _fitting(self, costs: PromiseCosts | None) -> PromiseCosts | None:
        """Return costs for the groups that there are now: some may have been added since the lease was granted."""
        n = len(self.terms.floors)
        return costs.grown(n) if costs is not None and len(costs.subsidies) <= n else None

    def record(self, entry: Entry, key: str, answers: Mapping[str, bytes] | None = None) -> bool:
        """Record an entry that belongs to no open lease; return False if this idempotency key is known."""
        progress, entry = self.loop.progress.record(entry)
        if not self.ledger.record([entry], key, answers):
            return False
        self.loop = replace(self.loop, progress=progress)
        return True

    def release(self, number: int) -> None:
        """Close a lease without counts."""
        self.leases = self.leases.release(number)
        self._deadlines.pop(number, None)

    def extended_groups(self, groups: Grouped) -> Groups:
        """Return the groups of a changed catalog, or refuse them if the known groups do not come first."""
        return extended_groups(groups, self.groups, self.terms.k)

    def promise(
        self, groups: Groups, terms: Terms, *, may_wait: bool, promises: tuple[Promise, ...] | None = None
    ) -> bool:
        """Replace the promise, or refuse one that cannot be kept; False if it has to be tried again.

        Parameters
        ----------
        groups, terms
            The new promise.
        may_wait
            Whether it may be tried again if open leases could break it; they were granted under the old promise.
        promises
            The promises, if they may overlap. Only coordinators that share a ledger save them.
        """
        self._expire()
        loop, entry = self.loop.with_every_slot(groups.labels, terms)
        loop = loop.under(terms, self.policy, self.terms)
        if self.leases.open:
            try:
                loop = self._beside_leases(loop, terms, counts_slots=entry is not None)
            except InvalidInputError:
                if not may_wait:
                    raise
                return False
        if loop.progress.opens_horizon:  # a coordinator after this one must not judge the promise by the last horizon
            nothing = Entry(np.zeros_like(terms.floors), 0, 0.0, 0.0)
            progress, entry = loop.progress.record(nothing)
            loop = replace(loop, progress=progress)
        self._replace_promise(groups, terms, loop)
        if entry is not None:
            self.ledger.record([entry])
        return True

    def _beside_leases(self, loop: LoopState, terms: Terms, *, counts_slots: bool) -> LoopState:
        """Return a loop under a new promise that holds whatever the open leases deliver, or raise if there is none."""
        if counts_slots:  # those of open leases are not counted
            raise InvalidInputError(
                "these caps leave too few items outside them to fill lists with, so that every slot has to be counted:"
                " make them while no lease is open."
            )
        progress, affordable, leased = loop.progress, loop.spending.affordable(terms), self.leases.requests
        if loop.certificate is not None:
            reserved = self.leases.reserved(terms)
            check_caps(progress, terms, self.terms, reserved)
            certificate = open_certificate(progress, affordable, self.loop.certificate, leased, reserved)
            if certificate is None:
                raise cannot_be_kept(terms, progress.totals)
            return replace(loop, certificate=certificate)
        if self.policy.keeps_floors:
            totals = replace(progress.totals, requests=progress.totals.requests + leased)
            check_reachable(affordable, totals, keeps_floors=True, is_over=False)
        return loop

    def set_targets(
        self,
        targets: Targets,
        restart_at: float | None = None,
        saves: Mapping[str, bytes] | None = None,
        audit: Sequence[AuditRecord] = (),
        since: Totals | None = None,
    ) -> bool:
        """Aim at additional exposures within a number of requests.

        The targets are in memory: values are saved first, so that nothing changes if that fails.

        Parameters
        ----------
        targets
            The targets.
        restart_at
            Start of a new horizon; None to continue the present one.
        saves, audit
            Values to save, by name, and records to add to the audit with them.
        since
            The totals by which the targets were made. Exposures since then count towards them.
        """
        progress, price_state, before = self.loop.progress, self.loop.price_state, self.terms
        if since is not None:
            targets = targets.less(counted_since(since, progress.totals))
        if restart_at is not None:
            progress = progress.restart(restart_at)
        progress = progress.grown(targets.n_columns)
        certificate, leased = self.loop.certificate, self.leases.requests
        plan = None if certificate is None else certificate.plan
        spending = self.loop.spending if restart_at is None else self.loop.spending.restarted()
        terms = target_terms(
            before, progress.totals, leased, targets, self.leases.reserved, plan, spending.too_dear,
            continues=restart_at is None,
        )  # fmt: skip
        spending = spending.under(terms)
        if has_other_shape(before, terms):
            state = self.policy.resume(price_state.state, terms)
            price_state = price_state.with_state(self.policy, state, terms.n_atoms)
        if restart_at is not None:
            price_state = price_state.step(self.policy, terms, progress.totals, spending.highest(terms)).restarted()
        if terms.membership is not None and self.policy.keeps_floors:
            served = None
            if restart_at is None and certificate is not None:
                served = certificate.renewed_at - (self.loop.progress.left(before) - leased)
            certificate = CertificateState.aimed(terms, targets.requests, certificate, served)
        for name, value in (saves or {}).items():
            self.ledger.save(name, value, audit)
        self._replace_promise(targets.groups, terms, LoopState(progress, price_state, certificate, None, spending))
        return True

    def _replace_promise(self, groups: Groups, terms: Terms, loop: LoopState) -> None:
        if len(groups.labels) > len(self.groups.labels):
            save_labels(self.ledger, groups.labels)
            self.ledger.grow(len(groups.labels))
        self.groups, self.terms, self.loop = groups, terms, loop

    def _expire(self) -> None:
        now = self._clock()
        for number in [number for number, deadline in self._deadlines.items() if deadline <= now]:
            self.release(number)


def extended_groups(groups: Grouped, known: Groups, k: int) -> Groups:
    """Return the groups of a changed catalog, or refuse them if the known groups do not come first."""
    if list(groups.labels)[: len(known.labels)] != known.labels:
        raise InvalidInputError(
            "the catalog must have the coordinator's groups first, in their order: make it with .under(labels)."
        )
    check_k(k, groups)
    return Groups(list(groups.labels), groups.group_sizes)
