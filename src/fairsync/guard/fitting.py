"""Fitting a certificate to a list, so that a list is not refused only because another one was planned.

What the list shows beyond the plan takes the place of other planned exposures of the same promises. Then planned
exposures that come too late move to other atoms of the promises that need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.policies.base import Counts
    from fairsync.promises.shown import Shown

_NO_LIMIT = np.iinfo(np.int64).max


def fitted(certificate: LiveCertificate, shown: Shown, left: int) -> LiveCertificate:
    """Return a plan that covers the same, under which a list is more likely to be safe.

    Parameters
    ----------
    certificate
        The certificate before the list. It stays as it is.
    shown
        The list.
    left
        Requests left after it.

    Returns
    -------
    LiveCertificate
        The plan. It counts on the list, and may be larger than the one before. Whether it is a certificate for the
        request with the list says ``is_deliverable(left + 1)``; whether the list is safe under it, ``is_safe``.
    """
    plan = certificate.copy()
    plan.add(shown.atoms, np.maximum(shown.counts - plan.plan[shown.atoms], 0))
    counts = shown.up_to(len(plan.plan))
    urgent = plan.plan > left * plan.terms.capacities + counts
    over = np.zeros(len(plan.planned), dtype=bool)
    over[certificate.over_cap(shown)] = over[certificate.over_limit(shown, left)] = True
    if over.any():
        urgent |= plan.links.in_any(over)
    plan.prune(np.minimum(counts, plan.plan), urgent)
    plan.prune()
    for atom in plan.late(shown, left).tolist():
        excess = int(plan.plan[atom] - counts[atom] - left * plan.terms.capacities[atom])
        # Half of it, so that the same atom is not late again at the next request.
        _move(plan, atom, max(excess, int(plan.plan[atom] - counts[atom]) // 2), counts, left)
    for promise in np.concatenate([plan.over_limit(shown, left), plan.over_cap(shown)]).tolist():
        _move_out(plan, promise, shown, counts, left)
    return plan


def relocate(plan: LiveCertificate, lost: Counts, left: int) -> None:
    """Move planned exposures that cannot be shown any more to other atoms of the promises that need them.

    Parameters
    ----------
    plan
        The certificate. It changes.
    lost
        (A,) the exposures.
    left
        Requests left.
    """
    none = np.zeros_like(lost)
    for atom in np.flatnonzero(lost).tolist():
        _move(plan, atom, int(lost[atom]), none, left)


def _move_out(plan: LiveCertificate, promise: int, shown: Shown, counts: Counts, left: int) -> None:
    """Move planned exposures out of a promise that has too many."""
    for atom in plan.links.atoms_of(promise).tolist():
        if promise not in plan.over_limit(shown, left) and promise not in plan.over_cap(shown):
            return
        if plan.plan[atom] > counts[atom]:
            _move(plan, atom, int(plan.plan[atom] - counts[atom]), counts, left, out_of=promise)


def _move(
    plan: LiveCertificate, atom: int, how_many: int, counts: Counts, left: int, out_of: int | None = None
) -> None:
    """Move planned exposures of an atom to other atoms, as many as can be, without a loss to any promise."""
    mine = plan.links.of_atom(atom)
    tight = mine[plan.is_tight(mine)]
    if not len(tight):
        return
    places = plan.links.atoms_of(int(tight[0]))
    for promise in tight[1:].tolist():
        places = np.intersect1d(places, plan.links.atoms_of(promise), assume_unique=True)
    if out_of is not None:
        places = np.setdiff1d(places, plan.links.atoms_of(out_of), assume_unique=True)
    places = places[places != atom]
    free = left * plan.terms.capacities[places] - np.maximum(plan.plan[places] - counts[places], 0)
    share = free / np.maximum(left * plan.terms.capacities[places], 1)
    for place in places[np.argsort(-share, kind="stable")].tolist():
        if how_many <= 0:
            return
        by = min(how_many, _free(plan, place, counts, left), _free_beside(plan, place, mine, left))
        beyond = plan.planned[mine] - plan.missing[mine]  # a promise of the atom alone gives what it has too much
        lost = ~np.isin(mine, plan.links.of_atom(place))
        by = min(by, int(beyond[lost].min(initial=_NO_LIMIT)))
        if by > 0:
            plan.add(np.array([atom, place]), np.array([-by, by]))
            how_many -= by


def _free(plan: LiveCertificate, atom: int, counts: Counts, left: int) -> int:
    """Return the exposures of an atom that could be planned in addition."""
    planned = max(int(plan.plan[atom] - counts[atom]), 0)
    return int(left * plan.terms.capacities[atom]) - planned


def _free_beside(plan: LiveCertificate, atom: int, but: NDArray[np.int64], left: int) -> int:
    """Return the exposures of an atom that its caps and list limits admit, but for those of the given promises."""
    others = np.setdiff1d(plan.links.of_atom(atom), but, assume_unique=True)
    free = _NO_LIMIT
    if plan.room is not None:
        free = int((plan.room[others] - plan.planned[others]).min(initial=free))
    if plan.terms.list_limits is not None:
        limits = plan.terms.list_limits[others]
        free = int((left * limits - plan.planned[others])[limits < plan.terms.k].min(initial=free))
    return free
