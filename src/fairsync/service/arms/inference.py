r"""What may be concluded from the difference of two arms: an estimate, its error, and p-values of several measures.

A mean per request is the ratio of two sums over users, :math:`R = \sum y / \sum n`. Three things make its error other
than that of independent requests:

- **A user comes several times**, so that the units are buckets of users: the variance is the jackknife's, the sum of
  :math:`\left((y_b - R n_b) / (N - n_b)\right)^2`.
- **A promise with a price holds its exposures in place**: a user who gets more of them leaves fewer to others. Such
  exposures are a constant of the arm. They have no part in the variance over buckets, but the number of requests that
  they are divided by has. The same holds for what they cost: a user changes the relevance of the arm by the relevance
  of the own candidates *minus their prices*, because each exposure of a promise that this user gets saves others the
  price of one (the envelope theorem; prices are the multipliers of the promises). An arm to which fewer requests fall
  pays more for its part of the promises in each of them; intervals without this call that a difference.
- **All users of an arm share its prices.** What these add to the error is the same for all users, and no comparison
  among users shows it. Days do: the difference between two arms is taken for each day, and its variance over days is
  added. The sum is never less than the two-way clustered variance (Cameron, Gelbach and Miller 2011), which takes away
  what both count.

**Adjustment** (CUPED; Deng, Xu, Kohavi and Walker 2013): what the candidates would be worth without promises is
known for each request, and does not depend on the arm. The part of a difference that this predicts is the luck of the
split, and is taken away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONFIDENCE = 0.95


@dataclass(frozen=True)
class IntervalEstimate:
    """An estimate, its variance, and the degrees of freedom of the latter: 0 while it is unknown."""

    value: float
    variance: float = math.nan
    freedom: float = 0.0

    @property
    def half_width(self) -> float:
        """Half of the length of the confidence interval; nan while it is unknown."""
        if not self.freedom:
            return math.nan
        from scipy.stats import t  # here, because it takes long to import

        return float(t.ppf((1 + CONFIDENCE) / 2, self.freedom)) * math.sqrt(self.variance)

    @property
    def p_value(self) -> float:
        """Probability of such a distance from 0 by chance; nan while the variance is unknown."""
        if not self.freedom:
            return math.nan
        if self.variance == 0:
            return float(self.value == 0)
        from scipy.stats import t

        return float(2 * t.sf(abs(self.value) / math.sqrt(self.variance), self.freedom))


@dataclass(frozen=True)
class Cells:
    """A measure in one arm, summed by day and bucket.

    Attributes
    ----------
    requests, values : numpy.ndarray
        (days, buckets) requests, and the measure.
    predictor : numpy.ndarray or None
        (days, buckets) what predicts the measure and does not depend on the arm; None for nothing.
    held : numpy.ndarray or None
        (days, buckets) the part of the measure that promises hold in place: exposures, or prices; None for nothing.
    """

    requests: NDArray[np.float64]
    values: NDArray[np.float64]
    predictor: NDArray[np.float64] | None = None
    held: NDArray[np.float64] | None = None

    @property
    def is_enough(self) -> bool:
        """Whether there are users in at least two buckets."""
        return int(np.count_nonzero(self.requests.sum(axis=0))) > 1

    def mean(self) -> IntervalEstimate:
        """Return the mean per request, with an error by users."""
        if not self.is_enough:
            return IntervalEstimate(math.nan)
        return IntervalEstimate(self.ratio(self.values), *self.variance_by_users(self.residuals(0.0)))

    def ratio(self, values: NDArray[np.float64]) -> float:
        """Return the mean of some values per request."""
        return float(values.sum() / self.requests.sum())

    def residuals(self, slope: float) -> NDArray[np.float64]:
        """Return (days, buckets) what differs from the mean, without what the predictor explains."""
        found = _centred(self, self.values)
        return found if self.predictor is None or not slope else found - slope * _centred(self, self.predictor)

    def variance_by_users(self, residuals: NDArray[np.float64]) -> tuple[float, float]:
        """Return the variance of the mean over buckets of users, by the jackknife, and its degrees of freedom."""
        requests = self.requests.sum(axis=0)
        free = (residuals if self.held is None else residuals - self.held).sum(axis=0)
        influence = (free - free.mean()) / (requests.sum() - requests)
        n = len(requests)
        return float((influence**2).sum() * n / (n - 1)), n - 1


def difference(arm: Cells, first: Cells) -> IntervalEstimate:
    """Return the difference of the means of two arms. Its variance is known when there are two days at least."""
    if not (arm.is_enough and first.is_enough):
        return IntervalEstimate(math.nan)
    slope = _slope(arm, first)
    value = arm.ratio(arm.values) - first.ratio(first.values)
    if slope and arm.predictor is not None and first.predictor is not None:
        value -= slope * (arm.ratio(arm.predictor) - first.ratio(first.predictor))
    parts, of_days = [], np.zeros(len(arm.requests))
    for one, sign in ((arm, 1.0), (first, -1.0)):
        residuals = one.residuals(slope)
        parts.append(one.variance_by_users(residuals))
        of_days += sign * residuals.sum(axis=1) / one.requests.sum()
    n = len(of_days)
    if n < 2:
        return IntervalEstimate(value)
    parts.append((float((of_days**2).sum() * n / (n - 1)), n - 1))
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return IntervalEstimate(value, 0.0, n - 1)
    return IntervalEstimate(value, variance, variance**2 / sum(part**2 / freedom for part, freedom in parts))


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values for several questions at once (Holm 1979): below 5 % in 5 of 100 families at most by chance.

    Examples
    --------
    >>> adjust_p_values([0.02, 0.5, 0.03])
    [0.06, 0.5, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(one) for one in adjusted]


def _centred(cells: Cells, values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values - cells.ratio(values) * cells.requests


def _slope(arm: Cells, first: Cells) -> float:
    """Return how much of the predictor to take away: its regression coefficient over the buckets of both arms."""
    both, square = 0.0, 0.0
    for one in (arm, first):
        if one.predictor is None or not np.isfinite(one.predictor).all():
            return 0.0
        values, predictor = (_centred(one, part).sum(axis=0) for part in (one.values, one.predictor))
        scale = one.requests.sum() ** 2
        both += float(values @ predictor) / scale
        square += float(predictor @ predictor) / scale
    return both / square if square else 0.0
