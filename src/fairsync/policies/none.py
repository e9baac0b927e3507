"""No prices: plain retrieval, the baseline of all comparisons."""

import numpy as np

from fairsync.policies.base import Feedback, Floats, Terms


class NoPolicy:
    """All prices are zero, always.

    Examples
    --------
    >>> terms = Terms(np.array([5, 0]), np.array([2, 2]), k=2, horizon=10, batch_size=1)
    >>> policy = NoPolicy()
    >>> policy.prices(policy.start(terms)).tolist()
    [0.0, 0.0]
    """

    name = "none"
    keeps_floors = False
    memory = 0

    def lookahead(self, state: int, k: int) -> int:
        """Return 0: there is nothing to learn."""
        return 0

    def watches(self, state: int) -> bool:
        """Return False."""
        return False

    def start(self, terms: Terms) -> int:
        """Return the number of groups."""
        return len(terms.floors)

    def prices(self, state: int) -> Floats:
        """Return zeros."""
        return np.zeros(state)

    def step(self, state: int, terms: Terms, feedback: Feedback) -> int:
        """Return the same state."""
        return state

    def resume(self, state: int, terms: Terms) -> int:
        """Return the number of groups of the new terms."""
        return len(terms.floors)
