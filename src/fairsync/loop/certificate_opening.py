"""How the certificate of a horizon begins, after a start or a change of promises, and which terms are then in force."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.loop.certificate_state import CertificateState
from fairsync.policies.base import NO_CAP
from fairsync.promises.feasibility import UnderWay, explain_conflict
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.ledger import Totals
    from fairsync.loop.concession import Concession
    from fairsync.loop.progress import Progress
    from fairsync.loop.spending import Spending
    from fairsync.policies import Policy, Terms

_log = logging.getLogger(__name__)


def check_caps(progress: Progress, terms: Terms, before: Terms, reserved: NDArray[np.int64] | None = None) -> None:
    """Refuse caps that have been exceeded already, or that open leases may exceed, unless they were the same before.

    Parameters
    ----------
    progress, terms, before
        The progress of the horizon, and the promises after and before a change.
    reserved
        (P,) what open leases may use of the caps; None for nothing. Promises that are new count none of it.
    """
    if terms.caps is None or progress.left(terms) <= 0:  # or the next horizon starts with the next request
        return
    known = np.full(len(terms.caps), NO_CAP) if before.caps is None else grow(before.caps, len(terms.caps))
    had = progress.totals.exposures
    used = had if reserved is None else had + grow(reserved[: len(before.floors)], len(had))
    exceeded = np.flatnonzero((used > terms.caps) & (terms.caps != known))
    if len(exceeded):
        code = int(exceeded[0])
        coming = f", and open leases may add {used[code] - had[code]:,}" if used[code] > had[code] else ""
        raise InvalidInputError(
            f"A promise with at most {terms.caps[code]:,} exposures has had {had[code]:,} since the horizon began"
            f"{coming}. Raise at_most, lengthen the horizon, or wait for the next one."
        )


def open_certificate(
    progress: Progress,
    terms: Terms,
    before: CertificateState | None = None,
    leased: int = 0,
    reserved: NDArray[np.int64] | None = None,
    *,
    gives_way: bool = False,
) -> CertificateState | None:
    """Return the certificate for promises that may overlap; None if they cannot be kept by the requests left.

    Parameters
    ----------
    progress, terms
        The progress of the horizon, and the promises.
    before
        The certificate before a change of promises or items.
    leased, reserved
        As for `LoopState.begin`.
    gives_way
        Whether floors give way where not all can be kept. Then None is never returned.
    """
    left = progress.left(terms) - leased
    if left <= 0 and not terms.auto_restart:  # more requests came than were expected: the next targets plan for more
        return CertificateState.aimed(replace(terms, certificate=None), left, before, 0)
    if left <= 0 and not leased:  # the horizon is over: the next one starts with the next request
        progress, left, before = progress.restart(), terms.horizon, None
    missing, room = progress.certain_missing(terms), progress.room(terms, reserved)
    return CertificateState.open(terms, missing, room, left, before, gives_way=gives_way)


def require_certificate(
    progress: Progress,
    terms: Terms,
    policy: Policy,
    before: CertificateState | None = None,
    *,
    gives_way: bool = False,
    names: Sequence[str] = (),
    remedy: str = "",
) -> CertificateState | None:
    """Return the certificate for promises that may overlap; refuse those that can no longer be kept.

    Parameters
    ----------
    progress, terms, policy, before
        The progress of the horizon, the promises, the policy, and the certificate before a change.
    gives_way
        As for `open_certificate`.
    names
        The names of the promises, so that the error can say which are in conflict, and what could hold.
    remedy
        What else could be done then, as a sentence.
    """
    if terms.membership is None or not policy.keeps_floors:
        return None
    made, totals = open_certificate(progress, terms, before, gives_way=gives_way), progress.totals
    if made is None and len(names):
        under_way = UnderWay(totals.requests, totals.exposures, remedy) if progress.left(terms) > 0 else None
        raise explain_conflict(terms, names, under_way=under_way, may_give_way=under_way is None)
    error = cannot_be_kept(terms, totals)
    if made is None:
        raise error
    if made.concession is not None and totals.requests:
        _log.warning("floors of the lowest priority give way: %s", error)
    return made


def cannot_be_kept(terms: Terms, totals: Totals) -> InvalidInputError:
    """Return the error for promises that a horizon with these totals can no longer keep together."""
    return InvalidInputError(
        f"The horizon has had {count(totals.requests, 'request')}, and its promises can no longer be kept together by"
        f" request {terms.horizon}. Lower them, lengthen the horizon, or start with a new ledger."
    )


def terms_in_force(terms: Terms, certificate: CertificateState | None, spending: Spending) -> Terms | None:
    """Return the terms less the exposures by which floors give way; None if there are none."""
    affordable, concession = spending.affordable(terms), concession_of(certificate)
    if concession is not None:
        affordable = replace(
            affordable, floors=np.maximum(affordable.floors - grow(concession.shortfall, len(terms.floors)), 0)
        )
    return None if affordable is terms else affordable


def concession_of(certificate: CertificateState | None) -> Concession | None:
    """Return by how much floors have given way to others; None if they have not."""
    return None if certificate is None else certificate.concession
