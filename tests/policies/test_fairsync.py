"""The paper's policy: its gradient is that of the dual, and its steps are Adam's."""

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.errors import InvalidInputError
from fairsync.policies import FairSync, Feedback, Terms
from fairsync.policies.fairsync import dual_gradient

Floats = npt.NDArray[np.float64]


def dual(prices: Floats, scores: Floats, groups: npt.NDArray[np.int64], terms: Terms) -> float:
    """The dual as the paper's Theorem 1 states it, with T requests, divided by T."""
    best = np.sort(scores - prices[groups], axis=1)[:, -terms.k :].sum()
    unclaimed = terms.horizon * terms.k - terms.floors.sum()
    return float(best + terms.floors @ prices + prices.max() * unclaimed) / terms.horizon


@pytest.mark.parametrize("seed", range(10))
def test_the_gradient_is_that_of_the_dual(seed: int) -> None:
    rng = np.random.default_rng(seed)
    requests, items, n_groups, k = 30, 25, 4, 3
    scores, groups = rng.normal(size=(requests, items)), rng.integers(n_groups, size=items)
    terms = Terms(rng.integers(0, 20, n_groups), np.full(n_groups, k), k, requests, requests)
    prices = rng.normal(size=n_groups)
    top = np.argsort(-(scores - prices[groups]), axis=1)[:, :k]
    counts = np.bincount(groups[top].ravel(), minlength=n_groups)
    ours = dual_gradient(prices, terms, counts, requests)
    tiny = 1e-7  # the dual is piecewise linear: inside a piece a difference is exact up to rounding
    for group in range(n_groups):
        step = np.zeros(n_groups)
        step[group] = tiny
        slope = (dual(prices + step, scores, groups, terms) - dual(prices - step, scores, groups, terms)) / (2 * tiny)
        assert ours[group] == pytest.approx(slope, abs=1e-5)


def test_the_gradient_does_not_depend_on_how_requests_are_batched() -> None:
    terms = Terms(np.array([10, 30]), np.array([2, 2]), k=2, horizon=100, batch_size=4)
    prices = np.array([0.2, -0.1])
    each = [np.array([2, 0]), np.array([1, 1]), np.array([0, 2]), np.array([2, 0])]
    alone = np.mean([dual_gradient(prices, terms, counts, 1) for counts in each], axis=0)
    assert dual_gradient(prices, terms, np.sum(each, axis=0), 4) == pytest.approx(alone)


def test_two_steps_by_hand() -> None:
    """T = 10, K = 1, floors 4 and 2, learning rate 0.1; the batch of two shows group 0 once and group 1 once.

    Step 1: prices are equal, the first group stands for the maximum and carries the 4 unclaimed slots:
    s = ((4 + 4)/10 - 1/2, 2/10 - 1/2) = (0.3, -0.3). Adam's first step has length 0.1: prices (-0.1, +0.1).
    Step 2, group 0 twice: now group 1 has the highest price: s = (4/10 - 1, (2 + 4)/10 - 0) = (-0.6, 0.6).
    mean = 0.9 * 0.03 - 0.06 = -0.033, unbiased / 0.19; square = 0.999 * 0.00009 + 0.00036 = 0.00044991, / 0.001999.
    step = 0.1 * (-0.033/0.19) / sqrt(0.00044991/0.001999) = -0.0366106.
    """
    terms = Terms(np.array([4, 2]), np.array([1, 1]), k=1, horizon=10, batch_size=2)
    policy = FairSync(learning_rate=0.1)
    state = policy.step(policy.start(terms), terms, Feedback(2, np.array([1, 1]), np.array([1, 1]), 8))
    assert policy.prices(state) == pytest.approx([-0.1, 0.1], abs=1e-8)
    state = policy.step(state, terms, Feedback(2, np.array([2, 0]), np.array([3, 1]), 6))
    assert policy.prices(state) == pytest.approx([-0.1 + 0.0366106, 0.1 - 0.0366106], abs=1e-6)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_learning_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(InvalidInputError, match="learning_rate"):
        FairSync(learning_rate=rate)
