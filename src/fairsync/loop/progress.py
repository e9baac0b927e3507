"""The progress of a horizon: what is recorded, what floors miss, and what caps allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.ledger import Entry, Totals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.policies import Terms


@dataclass(frozen=True)
class Progress:
    """The progress of a horizon, as far as it is recorded.

    Attributes
    ----------
    totals : Totals
        The sum of the horizon's entries.
    opens_horizon : bool
        Whether the next entry opens this horizon in the ledger.

    Examples
    --------
    >>> from fairsync.ledger import Entry
    >>> progress, entry = Progress(Totals.zero(2)).restart().record(Entry(np.array([3, 1]), 2, 1.5, 0.0))
    >>> progress.totals.requests, progress.opens_horizon, entry.opens_horizon
    (2, False, True)
    """

    totals: Totals
    opens_horizon: bool = False

    def left(self, terms: Terms) -> int:
        """Return how many requests the horizon has left; negative if more came than expected."""
        return terms.horizon - self.totals.requests

    def missing(self, terms: Terms) -> NDArray[np.int64]:
        """Return (P,) exposures that each floor still misses."""
        missing: NDArray[np.int64] = np.maximum(terms.floors - self.totals.exposures, 0)
        return missing

    def certain_missing(self, terms: Terms) -> NDArray[np.int64]:
        """Return (P,) exposures that each floor still misses, 0 for floors that are not certain."""
        missing = self.missing(terms)
        return missing if terms.certain is None else np.where(terms.certain, missing, 0)

    def room(self, terms: Terms, reserved: NDArray[np.int64] | None = None) -> NDArray[np.int64] | None:
        """Return (P,) exposures that each cap still allows, less those reserved; None if there are no caps."""
        if terms.caps is None:
            return None
        used = self.totals.exposures if reserved is None else self.totals.exposures + reserved
        room: NDArray[np.int64] = np.maximum(terms.caps - used, 0)
        return room

    def is_over(self, terms: Terms) -> bool:
        """Return whether every request of the horizon is recorded. A horizon that ends by the clock is never over."""
        return terms.auto_restart and self.totals.requests >= terms.horizon

    def restart(self, began: float = 0.0) -> Progress:
        """Return the progress at the start of a new horizon, which began at this time."""
        return Progress(Totals.zero(len(self.totals.exposures), began), opens_horizon=True)

    def grown(self, n_groups: int) -> Progress:
        """Return the same progress with zeros for groups that were added."""
        return replace(self, totals=self.totals.grown(n_groups))

    def record(self, entry: Entry) -> tuple[Progress, Entry]:
        """Add an entry; return also the entry as the ledger has to record it."""
        n_groups = len(self.totals.exposures)
        if len(entry.counts) < n_groups:  # groups were added since it was made
            entry = entry.grown(n_groups)
        if (entry.opens_horizon, entry.began) != (self.opens_horizon, self.totals.began):
            entry = replace(entry, opens_horizon=self.opens_horizon, began=self.totals.began)
        return Progress(self.totals.after(entry)), entry
