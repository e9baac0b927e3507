"""Algorithm 1 of the paper, corrected: online gradient descent on the dual, with Adam.

Chen Xu, Jun Xu, Yiming Ding, Xiao Zhang, Qi Qi: FairSync: Ensuring Amortized Group Exposure in Distributed
Recommendation Retrieval. WWW 2024.
"""

from dataclasses import dataclass

import numpy as np

from fairsync.catalog.groups import grow
from fairsync.errors import InvalidInputError
from fairsync.policies.base import Counts, CountsOnly, Feedback, Floats, Terms, check_floors_only

# Adam's own constants (Kingma & Ba, 2015), as the paper leaves them.
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class FairSyncState:
    """The dual vector, and Adam's moments of its gradient."""

    prices: Floats
    mean: Floats
    square: Floats
    steps: int


class FairSync(CountsOnly):
    r"""The paper's method, for comparison and reproduction.

    The dual of the paper (its Theorem 1) is minimised by one Adam step per batch:

    .. math::  W(\mu) = \sum_t \sum_{k \le K} (r_t - A\mu)_{[k]} + \sum_g m_g \mu_g
               + \max_g \mu_g \, (TK - \sum_g m_g)

    Slips of the printed algorithm, and what is done here: :math:`\mu` starts at 0 once, not at every request; the
    derivative of the sum of the K best is *minus* the count; one request carries 1/T of the target, so the target
    scales with the number of requests in a batch.

    It keeps no promise: whether the floors hold depends on the learning rate, the batch size and the data.

    Parameters
    ----------
    learning_rate
        Adam's step, in units of relevance. The paper tunes it for each data set.

    Examples
    --------
    >>> terms = Terms(np.array([4, 0]), np.array([1, 1]), k=1, horizon=8, batch_size=1)
    >>> policy = FairSync(learning_rate=0.1)
    >>> state = policy.start(terms)
    >>> seen = Feedback(requests=1, counts=np.array([0, 1]), exposures=np.array([0, 1]), remaining=7)
    >>> policy.prices(policy.step(state, terms, seen)).round(3).tolist()  # group 0 becomes cheaper
    [-0.1, 0.1]
    """

    name = "fairsync"
    state_classes = (FairSyncState,)

    def __init__(self, learning_rate: float = 0.01) -> None:
        if not (np.isfinite(learning_rate) and learning_rate > 0):
            raise InvalidInputError(f"learning_rate must be a positive number, got {learning_rate!r}.")
        self.learning_rate = float(learning_rate)

    def start(self, terms: Terms) -> FairSyncState:
        """Return zero prices."""
        check_floors_only(terms, self.name)
        zero = np.zeros(len(terms.floors))
        return FairSyncState(zero, zero, zero, 0)

    def prices(self, state: FairSyncState) -> Floats:
        """Return the dual vector."""
        return state.prices

    def step(self, state: FairSyncState, terms: Terms, feedback: Feedback) -> FairSyncState:
        """Take one Adam step down the average gradient of the batch."""
        if feedback.requests == 0:
            return state
        slope = dual_gradient(state.prices, terms, feedback.counts, feedback.requests)
        steps = state.steps + 1
        mean = _BETA1 * state.mean + (1 - _BETA1) * slope
        square = _BETA2 * state.square + (1 - _BETA2) * slope**2
        unbiased = mean / (1 - _BETA1**steps)
        size = np.sqrt(square / (1 - _BETA2**steps)) + _EPSILON
        return FairSyncState(state.prices - self.learning_rate * unbiased / size, mean, square, steps)

    def resume(self, state: FairSyncState, terms: Terms) -> FairSyncState:
        """Continue from the same prices; a new group starts at 0, as all groups did."""
        check_floors_only(terms, self.name)
        n = len(terms.floors)
        return FairSyncState(grow(state.prices, n), grow(state.mean, n), grow(state.square, n), state.steps)


def dual_gradient(prices: Floats, terms: Terms, counts: Counts, requests: int) -> Floats:
    """Return the subgradient of the dual per request, averaged over a batch.

    The group with the highest price carries the slots that no floor claims: it stands for the max in the dual.
    """
    target = terms.floors.astype(np.float64)
    target[np.argmax(prices)] += terms.horizon * terms.k - terms.floors.sum()
    return target / terms.horizon - counts / requests
