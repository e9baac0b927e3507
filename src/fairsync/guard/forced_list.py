"""Composing a list that keeps the certificate: what cannot wait comes first, then the best candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import FairSyncError
from fairsync.guard.stand_ins import StandIns

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairsync.guard.asked import AskedSlots
    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.guard.open_list import OpenList
    from fairsync.policies.base import Counts, Floats
    from fairsync.search.base import Hits


def compose(
    search: Callable[[Floats, int], Hits],
    chosen: OpenList,
    certificate: LiveCertificate,
    prices: Floats,
    left: int,
    *,
    asked: AskedSlots | None = None,
    may_lack: bool = False,
) -> None:
    r"""Add the items that cannot wait to an empty list, the best ones of each kind.

    With R requests after this one, these are at least :math:`X_a - R c_a` items of each atom, then
    :math:`(M X)_p - R l_p` planned items of each promise with a list limit, smaller selections first, then
    :math:`\sum X - R K` planned items of any kind. Each demand lies inside the next, so that what was taken for one
    counts for the next. An item of another atom may stand in for a planned one; the plan then changes with it. So it
    does when an item serves the plan of its home (`Terms.home`).

    Parameters
    ----------
    search
        (prices of atoms, k) -> hits of this request.
    chosen
        The list.
    certificate
        The certificate before this request, with the list's plan. It changes.
    prices
        (A,) the prices of atoms.
    left
        Requests left after this one.
    asked
        What a forecast asks of this request. It comes after what would be lost even if all later requests could show
        what was declared, so that a pessimistic forecast breaks no floor that is certain.
    may_lack
        Whether this request may be unable to show what is required: it then shows what it can.
    """
    terms, n_items = certificate.terms, len(chosen.catalog)
    home = np.arange(terms.n_atoms) if terms.home is None else terms.home

    def remaining() -> Counts:
        """Return (A,) the planned items that the list does not have yet."""
        left_over: Counts = np.maximum(certificate.plan - chosen.counts_by_atom(), 0)
        return left_over

    def take(quota: Counts, how_many: int, may_lack: bool = may_lack) -> None:
        """Take up to ``how_many`` of the best items of atoms that have a quota left, or of others in their place."""
        how_many = min(how_many, chosen.k - len(chosen.relevance))
        only_planned = False
        while how_many > 0:
            before = len(chosen.relevance)
            stand_ins = StandIns.none(certificate) if only_planned else StandIns.of(certificate, quota)
            open_atoms = ((quota > 0) | (quota[home] > 0) | stand_ins.mask) & chosen.admitted()
            found = search(np.where(open_atoms, prices, np.inf), min(before + how_many, n_items))
            for row, relevance in zip(found.rows[0].tolist(), found.relevance[0].tolist(), strict=True):
                atom = int(chosen.catalog.group_of[row])
                if row < 0 or row in chosen.relevance or how_many <= 0 or not chosen.admits(atom):
                    continue
                served: int | None = atom if quota[atom] > 0 else int(home[atom])
                if quota[served] <= 0:
                    served = stand_ins.served_by(atom, quota, chosen.slack)
                if served is not None:
                    if served != atom:
                        chosen.exchange(served, atom)
                    chosen.add(row, relevance)
                    quota[served] -= 1
                    how_many -= 1
            if len(chosen.relevance) > before:
                continue
            if only_planned or not stand_ins.mask.any():
                if may_lack or found.reached is not None:
                    return
                raise FairSyncError(
                    "The index found too few items of a group whose floor is due. The promise needs an index that"
                    " can return every item of a group; 'exact' can."
                )
            only_planned = True

    owed = np.maximum(certificate.plan - left * terms.capacities, 0)
    take(owed, int(owed.sum()))
    for promise, need in _of_limits(certificate, left):
        inside = certificate.links.atoms_of(promise)
        quota = np.zeros_like(owed)
        quota[inside] = remaining()[inside]
        take(quota, need - int((certificate.plan[inside] - quota[inside]).sum()))
    useful = certificate.total - left * terms.k
    if asked is not None:
        more = np.minimum(np.maximum(asked.groups - terms.at_home(chosen.counts_by_atom()), 0), remaining())
        take(more, int(more.sum()), may_lack=True)
        useful = max(useful, asked.total)
    take(remaining(), useful - len(chosen.relevance), may_lack=may_lack or asked is not None)


def _of_limits(certificate: LiveCertificate, left: int) -> list[tuple[int, int]]:
    """Return promises with a list limit, and the planned items that a list must have of each, inner ones first."""
    limits = certificate.terms.list_limits
    if limits is None:
        return []
    limited = certificate.limited
    need = certificate.planned[limited] - left * limits[limited]
    due = limited[need > 0]
    sizes = [len(certificate.links.atoms_of(promise)) for promise in due.tolist()]
    inner = np.argsort(np.array(sizes, dtype=np.int64), kind="stable")
    return list(zip(due[inner].tolist(), need[need > 0][inner].tolist(), strict=True))
