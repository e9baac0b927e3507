"""No prices: plain retrieval, the baseline of all comparisons."""

import numpy as np

from fairsync.policies.base import CountsOnly, Feedback, Floats, Terms


class NoPolicy(CountsOnly):
    """All prices are zero, always.

    Examples
    --------
    >>> terms = Terms(np.array([5, 0]), np.array([2, 2]), k=2, horizon=10, batch_size=1)
    >>> policy = NoPolicy()
    >>> policy.prices(policy.start(terms)).tolist()
    [0.0, 0.0]
    """

    name = "none"

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
