"""Targets: the floors of a promise that ends by the clock, as the scheduler sets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.floors import group_capacities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.groups import Grouped
    from fairsync.ledger import Totals
    from fairsync.policies import Terms


def target_terms(
    terms: Terms, totals: Totals, leased: int, groups: Grouped, more: NDArray[np.int64], requests: int
) -> Terms:
    """Return terms that aim at additional exposures within a number of further requests.

    Targets that these requests cannot deliver are lowered to what they can.

    Parameters
    ----------
    terms, totals
        The terms so far, and the totals of the horizon, with all groups.
    leased
        Requests of open leases.
    groups, more, requests
        The groups, the additional exposures of each, and the expected number of further requests.

    Examples
    --------
    >>> from fairsync.catalog.groups import Groups
    >>> from fairsync.ledger import Totals
    >>> from fairsync.policies import Terms
    >>> terms = Terms(np.zeros(2), np.ones(2), k=2, horizon=1, batch_size=16, auto_restart=False)
    >>> totals, groups = Totals(np.array([7, 4]), requests=10), Groups(["a", "b"], np.array([1, 9]))
    >>> aim = target_terms(terms, totals, 0, groups, np.array([50, 3]), requests=20)
    >>> aim.floors.tolist(), aim.horizon
    ([27, 7], 30)
    """
    capacities = group_capacities(groups, terms.k, terms.max_exclude)
    floors = totals.exposures + np.minimum(more, requests * capacities)
    horizon = totals.requests + leased + requests
    return replace(terms, floors=floors, capacities=capacities, horizon=horizon, auto_restart=False)
