"""The paper's baseline "K-neighbor": only the groups with the fewest exposures are searched."""

import numpy as np

from fairsync.policies.base import Counts, Floats, Memoryless, Terms


class KNeighbor(Memoryless):
    """Masks all but the K groups of lowest exposure, K being the number of candidates.

    From the paper's section "Baselines and Base Models", after FairRec (Patro et al., WWW 2020): "only the items
    associated with the top-K group, having the lowest cumulative exposure, are retrieved". Groups with as many
    exposures as the K-th lowest are open too: nothing tells them apart. So all are open at first, and always where
    there are no more than K groups. Every group has an item, so K open groups always hold K candidates.

    It does not use the floors, and never stops: most groups end with nearly equal exposure. So floors well below an
    equal share of the slots hold in practice, at by far the highest cost of all policies. They are not guaranteed: a
    group that is less relevant than the others of low exposure stays open and still lags, and a floor above an equal
    share is missed.

    There is no coefficient, and the scale of the scores does not matter.

    Examples
    --------
    With two candidates per request, groups 1 and 3 have the lowest exposure; group 2 has as much as group 3.

    >>> terms = Terms(np.array([4, 4, 4, 4]), np.array([2, 2, 2, 2]), k=2, horizon=10, batch_size=1)
    >>> KNeighbor().decide(terms, np.array([6, 0, 2, 2]), served=5).tolist()
    [inf, 0.0, 0.0, 0.0]
    """

    name = "k-neighbor"

    def decide(self, terms: Terms, exposures: Counts, served: int) -> Floats:
        """Return 0 for the groups of lowest exposure, +inf for the others."""
        kth_lowest = np.sort(exposures)[: terms.k][-1]
        return np.where(exposures <= kth_lowest, 0.0, np.inf)
