"""Stand-ins: items that do as well as planned ones, because they belong to the promises that need those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.policies.base import Counts

# For more planned atoms than this there is choice enough without stand-ins.
_MOST = 64


@dataclass(frozen=True, eq=False)
class StandIns:
    """The atoms that can stand in for planned ones.

    An exposure of atom b can stand in for one of atom a, if b belongs to every promise that would miss the exposure of
    a, and has no list limit that a has not. Then the plan with b in the place of a covers as much.

    Attributes
    ----------
    certificate : LiveCertificate
        The plan. It may change from one stand-in to the next.
    mask : numpy.ndarray
        (A,) whether an atom can stand in for any of the planned ones.
    """

    certificate: LiveCertificate
    mask: NDArray[np.bool_]
    _places: dict[int, NDArray[np.int64]]

    @classmethod
    def none(cls, certificate: LiveCertificate) -> StandIns:
        """Return no stand-ins."""
        return cls(certificate, np.zeros(len(certificate.plan), dtype=bool), {})

    @classmethod
    def of(cls, certificate: LiveCertificate, quota: Counts) -> StandIns:
        """Return the atoms that can stand in for those with a quota."""
        found = cls.none(certificate)
        planned = np.flatnonzero(quota > 0)
        for atom in planned.tolist() if len(planned) <= _MOST else ():
            mine = certificate.links.of_atom(atom)
            tight = mine[certificate.is_tight(mine)]
            if not len(tight):
                continue
            others = certificate.links.atoms_of(int(tight[0]))
            for promise in tight[1:].tolist():
                others = np.intersect1d(others, certificate.links.atoms_of(promise), assume_unique=True)
            if len(certificate.limited):
                at, promises = certificate.links.expand(others)
                more = np.isin(promises, np.setdiff1d(certificate.limited, mine))
                others = others[np.bincount(at[more], minlength=len(others)) == 0]
            found._places[atom] = others
            found.mask[others] = True
        return found

    def served_by(self, atom: int, quota: Counts, slack: Counts | None) -> int | None:
        """Return an atom with a quota that an item of this atom can stand in for; None if there is none.

        Parameters
        ----------
        atom, quota
            The atom, and (A,) the quotas by now.
        slack
            (P,) what caps have left beyond the plan; None if there are no caps.
        """
        links = self.certificate.links
        for planned, others in self._places.items():
            at = int(np.searchsorted(others, atom))
            if quota[planned] > 0 and at < len(others) and others[at] == atom:
                old, new = links.of_atom(planned), links.of_atom(atom)
                # Earlier stand-ins may have used what was left.
                covers = not self.certificate.is_tight(np.setdiff1d(old, new, assume_unique=True)).any()
                if covers and (slack is None or (slack[np.setdiff1d(new, old, assume_unique=True)] > 0).all()):
                    return planned
        return None
