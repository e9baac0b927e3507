"""The certificate of a horizon under way: a plan that proves that all promises can still be kept, kept up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.loop.concession import Concession, concede, conceded
from fairsync.promises.certificate import find_certificate, is_certificate, renew
from fairsync.promises.plan_bounds import PlanBounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies import Terms
    from fairsync.promises.certificate import Certified

# Renew the plan when this fraction of the requests that were left at the last renewal has come.
_RENEWAL = 1 / 8
# The time limit for finding which floors give way while requests wait, in seconds.
_SECONDS = 2.0
# Recent exposures are counted when there is one for this many atoms.
_ATOMS_PER_RECENT = 16


@dataclass(frozen=True, eq=False)
class CertificateState:
    """The certificate, and what is needed to renew it.

    The guard keeps it valid request by request. Renewal makes it cheaper: it moves the plan to the atoms that requests
    choose anyway, so that fewer slots are forced at the end.

    Attributes
    ----------
    plan : numpy.ndarray
        (A,) exposures of each atom that would keep all promises.
    opening : numpy.ndarray
        (A,) the same for a whole horizon.
    counts : numpy.ndarray
        (A,) exposures of each atom so far, but for the most recent ones.
    renewed_at : int
        Requests that were left when the plan was last renewed.
    concession, opening_concession : Concession or None
        By how much floors give way in the horizon under way, and in a whole horizon, because not all promises can be
        kept; None if they can.
    reached : numpy.ndarray or None
        (A,) the exposures of each atom that a request can have while a part of the catalog is out of reach; None for
        what was declared.
    is_stale : bool
        Whether that has changed since the plan was made.
    recent : numpy.ndarray or None
        The atoms of the most recent exposures. They are counted a few thousand at a time, because a batch has far fewer
        exposures than there can be atoms.
    """

    plan: NDArray[np.int64]
    opening: NDArray[np.int64]
    counts: NDArray[np.int64]
    renewed_at: int
    concession: Concession | None = None
    opening_concession: Concession | None = None
    reached: NDArray[np.int64] | None = None
    is_stale: bool = False
    recent: NDArray[np.int64] | None = None

    @property
    def exposures(self) -> NDArray[np.int64]:
        """(A,) exposures of each atom so far."""
        if self.recent is None:
            return self.counts
        return self.counts + np.bincount(self.recent, minlength=len(self.counts))

    @classmethod
    def open(
        cls,
        terms: Terms,
        missing: NDArray[np.int64],
        room: NDArray[np.int64] | None,
        left: int,
        before: CertificateState | None = None,
        *,
        gives_way: bool = False,
    ) -> CertificateState | None:
        """Return the certificate of a horizon that may be under way; None if the promises can no longer be kept.

        Parameters
        ----------
        terms
            The promises. A whole horizon can keep them.
        missing, room
            (P,) exposures that floors still miss, and that caps still allow.
        left
            Requests left.
        before
            The state before a change of promises or items; those that it knew have kept their codes.
        gives_way
            Whether floors give way where not all can be kept. Then None is never returned.
        """
        zero = np.zeros(terms.n_atoms, dtype=np.int64)
        opening = terms.certificate
        if opening is None:
            raise InvalidInputError("terms with overlapping promises need a certificate; see `resolve_promises`.")
        near = zero if before is None else grow(before.plan, terms.n_atoms)
        counts = zero if before is None else grow(before.exposures, terms.n_atoms)
        at_opening = _opening_concession(terms, opening)
        if left == terms.horizon and not counts.any():
            return cls(opening, opening, counts, left, at_opening, at_opening)
        plan = find_certificate(terms, missing, room, left, near=near)
        concession = None
        if plan is None and (gives_way or at_opening is not None):
            plan, concession = concede(terms, missing, room, left)
            plan = zero if plan is None else plan  # then floors rest on prices
        return None if plan is None else cls(plan, opening, counts, left, concession, at_opening)

    @classmethod
    def aimed(
        cls, terms: Terms, requests: int, before: CertificateState | None, served: int | None
    ) -> CertificateState:
        """Return the certificate of targets for a number of further requests.

        Parameters
        ----------
        terms, requests
            The targets, with their certificate, and the number of requests.
        before
            The state so far; atoms that it knew have kept their codes.
        served
            Requests since the plan was last renewed; None in a new horizon.
        """
        plan = np.zeros(terms.n_atoms, dtype=np.int64) if terms.certificate is None else terms.certificate
        if before is None or served is None:
            return cls(plan, plan, np.zeros_like(plan), requests)
        return cls(plan, plan, grow(before.exposures, terms.n_atoms), requests + max(served, 0))

    def restarted(self, terms: Terms) -> CertificateState:
        """Return the certificate of a new horizon."""
        return replace(
            self,
            plan=self.opening,
            counts=np.zeros_like(self.counts),
            recent=None,
            renewed_at=terms.horizon,
            concession=self.opening_concession,
            is_stale=self.reached is not None,
        )

    def after(self, certified: Certified) -> CertificateState:
        """Return the certificate after some requests, as it was returned with them."""
        recent = np.repeat(*certified.shown)
        if self.recent is not None:
            recent = np.concatenate([self.recent, recent])
        after = replace(self, plan=certified.plan, recent=recent)
        if len(recent) * _ATOMS_PER_RECENT < len(self.counts):
            return after
        return replace(after, counts=after.exposures, recent=None)

    def reaching(self, reached: NDArray[np.int64] | None) -> CertificateState:
        """Return the certificate after requests that could have these exposures of each atom; None for all."""
        before = self.reached
        if reached is before or (reached is not None and before is not None and np.array_equal(reached, before)):
            return self
        return replace(self, reached=reached, is_stale=True)

    def renewed(
        self,
        terms: Terms,
        missing: NDArray[np.int64],
        room: NDArray[np.int64] | None,
        left: int,
        *,
        is_settled: bool = True,
    ) -> CertificateState:
        """Return a certificate near what requests choose anyway, if enough of them have come since the last time.

        If the promises in force can no longer be kept, as after an outage, floors give way. Those that have given way
        come back, if they can, only when what requests can show has changed: until then no plan could be better.
        Nothing gives way as long as the counts of some requests are not known (``is_settled``).
        """
        if (left > (1 - _RENEWAL) * self.renewed_at and not self.is_stale) or left <= 0:
            return self
        if self.reached is not None:
            terms = replace(terms, capacities=np.minimum(terms.capacities, terms.at_home(self.reached)))
        served = max(terms.horizon - left, 1)
        likely = self.exposures.astype(np.float64) * (left / served)
        concession = None if self.is_stale else self.concession
        wanted = missing if concession is None else np.maximum(missing - concession.shortfall, 0)
        plan = renew(terms, self.plan, wanted, room, left, likely)
        if not is_certificate(terms, plan, wanted, room, left):
            if not is_settled:  # a lease that is out may hold a part of the plan
                return self
            made, concession = concede(terms, missing, room, left, _SECONDS)
            if made is None:  # the guard delivers what it can of the plan so far
                made, concession = self.plan, self.concession
            plan = made
        return replace(self, plan=plan, renewed_at=left, concession=concession, is_stale=False)


def _opening_concession(terms: Terms, opening: NDArray[np.int64]) -> Concession | None:
    """Return by how much floors give way in a whole horizon whose plan is this one."""
    floors = terms.floors if terms.certain is None else np.where(terms.certain, terms.floors, 0)
    shortfall = np.maximum(floors - terms.exposures(opening), 0)
    if not shortfall.any():
        return None
    return conceded(PlanBounds.of(terms, floors, terms.caps, terms.horizon), terms.order, shortfall)
