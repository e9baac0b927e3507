"""Highest prices in the guard: no slot is filled for a floor at a higher cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.promises.certificate import prune

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.guard.live_certificate import LiveCertificate
    from fairsync.guard.open_list import OpenList
    from fairsync.policies.base import Floats


@dataclass
class PriceLimits:
    """The most relevance that may be given up for a slot of each promise, and the floors that would need more.

    The cost of an item that the guard puts into a list is the mean relevance of the items that go out for it, less its
    own. The promises that the plan needs it for pay together. If their limits do not cover the cost, and none of them
    is without a limit, their floors leave the certificate.

    Attributes
    ----------
    highest : numpy.ndarray
        (P,) the limits, inf where there is none.
    given_way : numpy.ndarray
        (P,) the floors that have left the certificate in these requests.
    """

    highest: Floats
    given_way: NDArray[np.bool_]

    @classmethod
    def of(cls, highest: Floats) -> PriceLimits:
        """Return limits to which no floor has given way yet."""
        return cls(highest, np.zeros(len(highest), dtype=bool))

    @property
    def refused(self) -> NDArray[np.bool_] | None:
        """The floors that have left the certificate; None if there are none."""
        return self.given_way if self.given_way.any() else None

    def too_dear(
        self, certificate: LiveCertificate, rows: NDArray[np.int64], relevance: Floats, chosen: OpenList
    ) -> NDArray[np.bool_] | None:
        """Return (P,) the floors whose slots cost too much in a list that the guard has composed; None for none.

        Parameters
        ----------
        certificate
            The certificate before the list was composed.
        rows, relevance
            The candidates of prices alone.
        chosen
            The list that the guard composed.
        """
        composed, values = np.full_like(rows, -1), np.full_like(relevance, -np.inf)
        chosen.write(composed, values)
        comes, goes = ~np.isin(composed, rows), ~np.isin(rows, composed) & (rows >= 0)
        if not comes.any() or not goes.any():
            return None
        cost = float(relevance[goes].mean()) - values[comes]
        found = np.zeros(len(self.highest), dtype=bool)
        certain, home = certificate.terms.certain, certificate.terms.home
        for atom, one in zip(chosen.catalog.group_of[composed[comes]].tolist(), cost.tolist(), strict=True):
            if home is not None and certificate.plan[atom] <= 0:
                atom = int(home[atom])
            if certificate.plan[atom] <= 0:
                continue
            payers = certificate.links.of_atom(atom)
            payers = payers[(certificate.missing[payers] > 0) & ~self.given_way[payers]]
            if certain is not None:
                payers = payers[certain[payers]]
            if len(payers) and one > float(self.highest[payers].sum()):
                found[payers] = True
        return found if found.any() else None

    def give_way(self, certificate: LiveCertificate, floors: NDArray[np.bool_]) -> None:
        """Lower a certificate to what it needs without some floors."""
        self.given_way |= floors
        missing = np.where(self.given_way, 0, certificate.missing)
        certificate.lower(certificate.plan - prune(certificate.terms, certificate.plan, missing))
