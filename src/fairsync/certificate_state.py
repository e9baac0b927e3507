"""The certificate of a horizon under way: a plan that proves that all promises can still be kept, kept up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.promises.certificate import find_certificate, is_certificate, renew

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies import Terms

# Renew the plan when this fraction of the requests that were left at the last renewal has come.
_RENEWAL = 1 / 8


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
        (A,) exposures of each atom so far.
    renewed_at : int
        Requests that were left when the plan was last renewed.
    """

    plan: NDArray[np.int64]
    opening: NDArray[np.int64]
    counts: NDArray[np.int64]
    renewed_at: int

    @classmethod
    def open(
        cls,
        terms: Terms,
        missing: NDArray[np.int64],
        room: NDArray[np.int64] | None,
        left: int,
        before: CertificateState | None = None,
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
        """
        zero = np.zeros(terms.n_atoms, dtype=np.int64)
        opening = terms.certificate
        if opening is None:
            raise InvalidInputError("terms with overlapping promises need a certificate; see `resolve_promises`.")
        near = zero if before is None else grow(before.plan, terms.n_atoms)
        counts = zero if before is None else grow(before.counts, terms.n_atoms)
        if left == terms.horizon and not counts.any():
            return cls(opening, opening, counts, left)
        plan = find_certificate(terms, missing, room, left, near=near)
        return None if plan is None else cls(plan, opening, counts, left)

    @classmethod
    def lost(cls, terms: Terms, left: int) -> CertificateState:
        """Return the state of a horizon whose promises can no longer be kept: nothing is planned until it ends."""
        zero, opening = np.zeros(terms.n_atoms, dtype=np.int64), terms.certificate
        return cls(zero, zero if opening is None else opening, zero, left)

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
        return cls(plan, plan, grow(before.counts, terms.n_atoms), requests + max(served, 0))

    def restarted(self, terms: Terms) -> CertificateState:
        """Return the certificate of a new horizon."""
        return CertificateState(self.opening, self.opening, np.zeros_like(self.counts), terms.horizon)

    def after(self, plan: NDArray[np.int64], counts: NDArray[np.int64]) -> CertificateState:
        """Return the certificate after requests for which the guard returned this plan, with these counts by atom."""
        return replace(self, plan=plan, counts=self.counts + counts)

    def renewed(
        self, terms: Terms, missing: NDArray[np.int64], room: NDArray[np.int64] | None, left: int
    ) -> CertificateState:
        """Return a certificate near what requests choose anyway, if enough of them have come since the last time."""
        if left > (1 - _RENEWAL) * self.renewed_at or left <= 0:
            return self
        served = max(terms.horizon - left, 1)
        likely = self.counts.astype(np.float64) * (left / served)
        plan = renew(terms, self.plan, missing, room, left, likely)
        if not is_certificate(terms, plan, missing, room, left):  # after an outage none may exist
            plan = self.plan
        return replace(self, plan=plan, renewed_at=left)
