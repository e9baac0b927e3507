"""The paper's baseline "Uncalibrated": only groups below their floor are searched, until there are none."""

import numpy as np

from fairsync.policies.base import Counts, Floats, Memoryless, Terms

# More than the difference in relevance of any two items, for any model in use.
_FIRST = 1e9


class Uncalibrated(Memoryless):
    """Masks every group that has reached its floor; once all have, nothing is masked.

    From the paper's section "Baselines and Base Models", after Wang & Joachims (WSDM 2023): each step "only chooses the
    items whose group does not satisfy the required exposures". The paper calls it the best baseline.

    All floors are served first, to any user who happens to come first: that is why it costs many times the minimum.
    Floors that take up little of the horizon hold in practice. They are not guaranteed: a group can pass its floor by a
    whole batch, the end of the horizon is not watched, and tight floors can be missed.

    If the groups below their floor have fewer than K items together, masking the rest would leave too few candidates.
    Then a subsidy puts all of these items first, and the best of the rest fill the list.

    There is no coefficient, and the scale of the scores does not matter (up to differences of 1e9).

    Examples
    --------
    Group 0 has reached its floor. Group 1 alone can fill a list of two; had it one item, group 0 would fill up.

    >>> terms = Terms(np.array([4, 4]), np.array([2, 2]), k=2, horizon=10, batch_size=1)
    >>> Uncalibrated().decide(terms, np.array([6, 0]), served=3).tolist()
    [inf, 0.0]
    >>> terms = Terms(np.array([4, 4]), np.array([2, 1]), k=2, horizon=10, batch_size=1)
    >>> Uncalibrated().decide(terms, np.array([6, 0]), served=3).tolist()
    [0.0, -1000000000.0]
    """

    name = "uncalibrated"

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return prices under which groups below their floor come first, or alone where they can fill a list."""
        below = exposures < terms.floors
        # A capacity is min(k, items of the group), so the capacities add up to k if and only if there are k items.
        if not below.any() or terms.capacities[below].sum() < terms.k:
            return np.where(below, -_FIRST, 0.0)
        return np.where(below, 0.0, np.inf)
