"""The comparison of arms, with confidence intervals that are clustered by user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.service.schema.arms import ArmView, Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

MEASURES = ("relevance", "exposures")
_CONFIDENCE = 0.95


@dataclass
class ArmSums:
    """What the users of an arm got, summed by bucket of users.

    Requests of one user are alike, so that they are no independent observations. Buckets of users are: a user is in one
    of them, by a hash.

    Attributes
    ----------
    requests : numpy.ndarray
        (B,) requests.
    sums : numpy.ndarray
        (2, B) sums over the requests: relevance of the candidates, and candidates that are selected by a promise.
    """

    requests: NDArray[np.float64]
    sums: NDArray[np.float64]

    @classmethod
    def zero(cls, buckets: int) -> ArmSums:
        """Return the sums before the first request."""
        return cls(np.zeros(buckets), np.zeros((len(MEASURES), buckets)))

    def add(self, bucket: int, requests: int, *values: float) -> None:
        """Add requests of one user."""
        self.requests[bucket] += requests
        self.sums[:, bucket] += values

    def dump(self) -> bytes:
        """Return the sums as bytes."""
        return np.vstack([self.requests, self.sums]).astype("<f8").tobytes()

    @classmethod
    def load(cls, saved: bytes) -> ArmSums:
        """Return the sums that `dump` has written."""
        rows = np.frombuffer(saved, dtype="<f8").reshape(1 + len(MEASURES), -1).astype(np.float64)
        return cls(rows[0], rows[1:])


def mean_and_variance(requests: NDArray[np.float64], sums: NDArray[np.float64]) -> tuple[float, float, int]:
    """Return the mean per request, its variance, and its degrees of freedom, by the ratio of sums over buckets.

    Examples
    --------
    >>> mean, variance, freedom = mean_and_variance(np.array([1.0, 1.0, 2.0]), np.array([3.0, 5.0, 8.0]))
    >>> mean, round(variance, 3), freedom
    (4.0, 0.188, 2)
    """
    seen = requests > 0
    n, total = int(np.count_nonzero(seen)), float(requests.sum())
    if n < 2:
        return (math.nan, math.nan, 0)
    mean = float(sums.sum() / total)
    residuals = sums[seen] - mean * requests[seen]
    return mean, float((residuals**2).sum() * n / (n - 1) / total**2), n - 1


def difference(one: tuple[float, float, int], other: tuple[float, float, int]) -> Interval:
    """Return the difference of two means, with a confidence interval (Welch)."""
    (mean, variance, freedom), (mean_2, variance_2, freedom_2) = one, other
    if not freedom or not freedom_2:
        return Interval(value=None, low=None, high=None)
    spread = variance + variance_2
    if spread == 0:
        return Interval(value=mean - mean_2, low=mean - mean_2, high=mean - mean_2)
    df = spread**2 / (variance**2 / freedom + variance_2**2 / freedom_2)
    half = _quantile(df) * math.sqrt(spread)
    return Interval(value=mean - mean_2, low=mean - mean_2 - half, high=mean - mean_2 + half)


def compare(
    shares: Mapping[str, float], sums: Sequence[ArmSums], more: Sequence[Mapping[str, Any]] = ()
) -> list[ArmView]:
    """Return the arms, each compared with the first one.

    Parameters
    ----------
    shares
        The share of each arm, by name.
    sums
        What each arm got.
    more
        Further fields of each arm's view.
    """
    views = []
    for number, (name, share) in enumerate(shares.items()):
        found = [mean_and_variance(sums[number].requests, row) for row in sums[number].sums]
        first = [mean_and_variance(sums[0].requests, row) for row in sums[0].sums]
        differences = [None if number == 0 else difference(*pair) for pair in zip(found, first, strict=True)]
        cost = None
        if differences[0] is not None and differences[0].value is not None and first[0][0]:
            gained, scale = differences[0], first[0][0]
            ends = sorted(-(end or 0.0) / scale for end in (gained.low, gained.high))
            cost = Interval(value=-gained.value / scale, low=ends[0], high=ends[1])  # type: ignore[operator]
        views.append(
            ArmView(
                name=name, share=share, requests=int(sums[number].requests.sum()), relevance=_interval(found[0]),
                exposures=_interval(found[1]), relevance_difference=differences[0],
                exposures_difference=differences[1], cost=cost, **(more[number] if more else {}),
            )
        )  # fmt: skip
    return views


def _interval(found: tuple[float, float, int]) -> Interval:
    mean, variance, freedom = found
    if not freedom:
        return Interval(value=None, low=None, high=None)
    half = _quantile(freedom) * math.sqrt(variance)
    return Interval(value=mean, low=mean - half, high=mean + half)


def _quantile(freedom: float) -> float:
    from scipy.stats import t  # here, because it takes long to import

    return float(t.ppf((1 + _CONFIDENCE) / 2, freedom))
