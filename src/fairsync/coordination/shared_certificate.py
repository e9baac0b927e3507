"""The certificate and the quota of coordinators that share a ledger, where promises may overlap.

The quota is a row of the ledger, the same for all coordinators (:mod:`fairsync.coordination.lease_quota`). The
certificate is found by each coordinator for its own items, when a quota is made or a lease is alone.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.coordination.lease_quota import QUOTA, LeaseQuota, share_out
from fairsync.coordination.lease_table import fills_every_slot, forecast_suffices
from fairsync.errors import UndecidedPromisesError
from fairsync.loop.certificate_state import CertificateState
from fairsync.plan.lowering import lower_floors
from fairsync.promises.certificate import plan_within
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.ledger import SqlLedger
    from fairsync.ledger.database import Transaction
    from fairsync.loop.batch import Batch
    from fairsync.loop.progress import Progress
    from fairsync.policies import Terms
    from fairsync.promises.certificate import Certified

# Seconds within which a certificate is looked for. The database ends transactions that are idle for much longer.
_CERTIFY_SECONDS = 0.5


class SharedCertificate:
    """What proves that overlapping promises can be kept, and what leases may use that are granted side by side.

    Parameters
    ----------
    ledger
        The ledger that saves the quota.

    Attributes
    ----------
    state : CertificateState or None
        The certificate, in the atoms of this coordinator; None for floors of groups.
    quota : LeaseQuota
        The quota as it was read last.
    """

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self.state: CertificateState | None = None
        self.quota = LeaseQuota()

    @property
    def plan(self) -> NDArray[np.int64] | None:
        """The exposures of each atom that the certificate plans; None for floors of groups."""
        return None if self.state is None else self.state.plan

    def adopt(self, terms: Terms) -> None:
        """Continue under another promise, which may have more atoms."""
        known = self.state
        if terms.membership is None:
            self.state = None
        elif known is None or len(known.plan) > terms.n_atoms:
            nothing = np.zeros(terms.n_atoms, dtype=np.int64)
            self.state = CertificateState(nothing, nothing, nothing, terms.horizon)
        elif len(known.plan) < terms.n_atoms:
            plan, counts = (grow(one, terms.n_atoms) for one in (known.plan, known.exposures))
            self.state = replace(known, plan=plan, opening=plan, counts=counts, recent=None)

    def aim(self, terms: Terms, plan: NDArray[np.int64] | None) -> None:
        """Continue with the plan of new targets, if these are still in force."""
        if self.state is not None and plan is not None and len(plan) == terms.n_atoms:
            self.state = replace(self.state, plan=plan)

    def settle(self, certified: Certified | None) -> None:
        """Take what the lists of a lease have shown from the plan."""
        before = self.state
        if before is None or certified is None or len(certified.plan) != len(before.plan):
            return
        plan = np.maximum(certified.shown.taken_from(before.plan), certified.plan)
        self.state = before.after(certified._replace(plan=plan))

    def forecast_allows(self, batch: Batch) -> bool:
        """Return whether what later requests can show suffices for what is missing, or planned, after a batch."""
        if not batch.keeps_floors:
            return True
        if batch.terms.membership is None:
            return forecast_suffices(batch, batch.missing)
        return self.state is None or forecast_suffices(batch, self.state.plan)

    def under_quota(self, batch: Batch) -> Batch:
        """Return a batch that gets no part of the certificate, and of the caps what the quota gives it."""
        nothing = np.zeros(batch.terms.n_atoms, dtype=np.int64)
        return replace(batch, certificate=nothing, room=self.quota.room(batch.requests, batch.terms))

    def grant(
        self,
        transaction: Transaction,
        number: int,
        batch: Batch,
        progress: Progress,
        open_: Mapping[int, int],
        affordable: Terms,
        *,
        takes_all: bool = False,
    ) -> Batch | None:
        """Return a batch with its part of certificate and caps; None if it has to wait.

        Parameters
        ----------
        transaction
            An exclusive one, in which all leases are known.
        number, batch
            The lease to grant.
        progress, open_
            The counts of the horizon, and the requests of each open lease.
        affordable
            The promise without floors that give way.
        takes_all
            Whether the lease gets all that caps have left, and no quota is made for leases beside it.
        """
        terms = batch.terms
        if not batch.requests:
            return None
        granted = progress.totals.requests + sum(open_.values())
        if granted + batch.requests <= self.quota.most and self.forecast_allows(batch) and not takes_all:
            return self.under_quota(batch)
        allowances = {one: self.quota.reserved(one, n, terms) for one, n in open_.items()}
        room = progress.room(terms, sum(allowances.values(), np.zeros_like(terms.floors)))
        plan = self._certify(affordable, progress, room, batch, is_alone=not open_)
        if plan is None:
            return None
        shared = share_out(new_number(), terms, plan, room, granted, allowances, (number, batch.requests))
        beside_others = self.forecast_allows(batch) and not fills_every_slot(terms, batch.missing)
        if shared is not None and beside_others and not takes_all:
            self._write(transaction, shared[0])
            return replace(batch, certificate=np.zeros_like(plan), room=shared[1])
        if open_:
            return None
        quota = LeaseQuota().closed(new_number(), {}, terms)
        if room is not None:
            most = np.minimum(room[quota.capped], batch.requests * batch.k)
            quota = replace(quota, allowances={number: most})
        self._write(transaction, quota)
        return replace(batch, certificate=plan, room=room)

    def _certify(
        self, terms: Terms, progress: Progress, room: NDArray[np.int64] | None, batch: Batch, *, is_alone: bool
    ) -> NDArray[np.int64] | None:
        """Return a certificate for the requests that are not leased yet; None if open leases have to be waited for.

        If all counts are known, and the promises can no longer be kept, floors give way.
        """
        missing, known = progress.certain_missing(terms), self.state
        near = np.zeros(terms.n_atoms, dtype=np.int64) if known is None else known.plan
        bounds = PlanBounds.of(terms, missing, room, batch.left)
        if is_alone:
            tiers = [np.where(terms.order <= number, missing, 0) for number in np.unique(terms.order).tolist()]
            floors, plan = lower_floors(bounds, tiers, near, _CERTIFY_SECONDS)
        else:
            try:
                found = plan_within(bounds, _CERTIFY_SECONDS, near)
            except UndecidedPromisesError:
                found = None
            if found is None:
                return None
            floors, plan = missing, found
        state = CertificateState(plan, plan, np.zeros_like(plan), batch.left) if known is None else known
        state = replace(state, plan=plan).renewed(terms, floors, room, batch.left, is_settled=False)
        self.state = state
        return state.plan

    def read_quota(self, transaction: Transaction) -> None:
        """Read the quota."""
        saved = self._ledger.read_saved(transaction, QUOTA)
        self.quota = LeaseQuota() if saved is None else LeaseQuota.load(saved)

    def close_quota(self, transaction: Transaction, terms: Terms, open_: Mapping[int, int]) -> None:
        """Let the next lease make another quota, if promises may overlap."""
        if terms.membership is not None:
            self._write(transaction, self.quota.closed(new_number(), open_, terms))

    def _write(self, transaction: Transaction, quota: LeaseQuota) -> None:
        self._ledger.write_saved(transaction, QUOTA, quota.dump())
        self.quota = quota


def new_number() -> int:
    """Draw the number of a lease or of a quota. No two are the same."""
    return 1 + secrets.randbits(61)
