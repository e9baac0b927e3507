r"""Eligible slots: what requests could show of each group so far, and what can be counted on in those to come.

As long as every request can show :math:`c_g` items of each group g with a floor, nothing is recorded. From the first
*limited* request on, which cannot, because of what it excludes or requires, the share of :math:`c_g` that each
request could show is summed up (:class:`EligibleSlots`). With n requests so far, a mean share p, R requests to come and
:math:`L = \ln 100`, the guard counts on

.. math::  F_g(R) = \lfloor R \, c_g \, \omega(\ell(p, L/n), L/R) \rfloor

where :math:`\ell(p, x)` is a lower bound of the means from which requests with the mean p may come, and
:math:`\omega(p, x)` one of the means that requests from p may have: those whose divergence is at most x. Both follow
from bounds of the divergence of Bernoulli variables: for :math:`q \le p`,

.. math::  \mathrm{kl}(p, q) \ge \frac{(p - q)^2}{2 p}, \quad \frac{(p - q)^2}{2 (1 - q)}, \quad
           p \ln \frac{p}{q} + (1 - p) \ln (1 - p)

and for :math:`\mathrm{kl}(q, p)` the first of these, and Bernstein's. If requests are independent and alike, the first
bound is below the true mean, and the second below the mean of the requests to come, each with a probability of at least
99 % (Chernoff's bound, which holds for any variables between 0 and 1). What holds whatever the requests are like is in
docs/limited-requests.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.eligibility.own_sizes import OwnSizes
    from fairsync.policies import Terms

# Minus the logarithm of the probability with which one of the two bounds may fail.
_CAUTION = math.log(100)
# The same for saying that a promise will miss, which should be said early.
_WARNING = math.log(20)


@dataclass(frozen=True)
class CountedSlots:
    """What the guard counts on in a number of requests to come.

    Attributes
    ----------
    groups : numpy.ndarray
        (G,) exposures of each group.
    total : int
        Exposures of all groups with a floor together.
    """

    groups: NDArray[np.int64]
    total: int

    def suffice(self, missing: NDArray[np.int64]) -> bool:
        """Return whether they cover the missing exposures."""
        return bool((missing <= self.groups).all()) and int(missing.sum()) <= self.total


@dataclass(frozen=True)
class SlotForecast:
    """A cautious forecast of what requests to come can show.

    Attributes
    ----------
    shares : numpy.ndarray
        (G,) the lowest plausible mean, over requests, of the share of the capacities that a request can show.
    total : float
        The same for the slots of groups with a floor together, as a share of ``k``.
    capacities, k
        The capacities and the candidates of a request, as in the terms.
    highest : numpy.ndarray or None
        (G,) the highest plausible mean in place of the lowest; None for the capacities.
    """

    shares: NDArray[np.float64]
    total: float
    capacities: NDArray[np.int64]
    k: int
    highest: NDArray[np.float64] | None = None

    def of(self, codes: NDArray[np.int64]) -> SlotForecast:
        """Return the forecast of groups in another order, by their codes here; -1 for one that nothing is known of.

        Examples
        --------
        >>> forecast = SlotForecast(np.array([1.0, 0.5]), 1.0, np.array([2, 3]), k=2)
        >>> other = forecast.of(np.array([1, -1, 0]))
        >>> other.shares.tolist(), other.capacities.tolist()
        ([0.5, 0.0, 1.0], [3, 0, 2])
        """
        known, place = codes >= 0, np.maximum(codes, 0)
        highest = None if self.highest is None else np.where(known, self.highest[place], 1.0)
        shares, capacities = np.where(known, self.shares[place], 0.0), np.where(known, self.capacities[place], 0)
        return SlotForecast(shares, self.total, capacities, self.k, highest)

    def counted(self, left: int) -> CountedSlots:
        """Return what can be counted on in this number of requests.

        Examples
        --------
        >>> forecast = SlotForecast(np.array([1.0, 0.5, 0.01]), 1.0, np.array([2, 2, 2]), k=2)
        >>> forecast.counted(10_000).groups.tolist(), forecast.counted(0).total
        ([19993, 9570, 139], 0)
        """
        if left <= 0:
            return CountedSlots(np.zeros(len(self.capacities), dtype=np.int64), 0)
        doubt = _CAUTION / left
        groups = np.floor(left * self.capacities * lowest_outcome(self.shares, doubt)).astype(np.int64)
        return CountedSlots(groups, int(left * self.k * float(lowest_outcome(self.total, doubt))))

    def possible(self, missing: NDArray[np.int64], left: int) -> NDArray[np.int64]:
        """Return (G,) the missing exposures of groups that this number of requests may deliver, 0 for the others.

        Examples
        --------
        >>> shares = np.array([0.5, 0.01])
        >>> SlotForecast(shares, 1.0, np.array([2, 2]), 2, highest=shares).possible(np.array([9, 50]), 20).tolist()
        [9, 0]
        """
        if self.highest is None or left <= 0:
            return missing
        most = left * self.capacities * highest_outcome(self.highest, _WARNING / left)
        return np.where(missing <= most, missing, 0)


@dataclass(frozen=True)
class EligibleSlots:
    """What requests could show, summed over requests.

    Attributes
    ----------
    requests : float
        Number of requests. Those of past horizons count half, a quarter, and so on.
    limited : int
        Requests of this horizon that were limited.
    shares : numpy.ndarray
        (G,) the share of the capacities that each request could show, summed.
    able : numpy.ndarray
        (G,) the number of requests that could show the group at all.
    total : float
        The share of ``k`` slots that each request could give to groups with a floor, summed.

    Examples
    --------
    Of 1,000 requests, 30 could show group 1.

    >>> from fairsync.policies import Terms
    >>> terms = Terms(np.array([0, 50]), np.array([2, 2]), k=2, horizon=9000, batch_size=1)
    >>> slots = EligibleSlots(1000, 970, np.array([1000.0, 30.0]), np.array([1000.0, 30.0]), 30.0)
    >>> slots.forecast(terms).counted(8000).groups.tolist(), slots.expected(terms).tolist()
    ([15886, 151], [2.0, 0.06])
    """

    requests: float
    limited: int
    shares: NDArray[np.float64]
    able: NDArray[np.float64]
    total: float

    @classmethod
    def declared(cls, requests: int, n_groups: int) -> EligibleSlots:
        """Return the slots of requests that can show everything that was declared."""
        every = np.full(n_groups, float(requests))
        return cls(float(requests), 0, every, every, float(requests))

    @classmethod
    def of(cls, own: OwnSizes, requests: int, terms: Terms) -> EligibleSlots:
        """Return the slots of some requests.

        Parameters
        ----------
        own
            The eligible items of each group, for the requests that are limited.
        requests
            The number of all the requests; those that are not limited can show what was declared.
        terms
            The promise.
        """
        n, n_groups = len(own.condition_of), len(own.sizes[0])
        capacities = terms.capacities[:n_groups]
        promised = np.where(terms.has_floor[:n_groups], capacities, 0)
        most = max(min(int(promised.sum()), terms.k), 1)
        rest = requests - n
        return cls(
            float(requests),
            n,
            rest + own.sums(capacities) / np.maximum(capacities, 1),
            rest + own.sums(np.ones(n_groups, dtype=np.int64)).astype(np.float64),
            rest + float(np.minimum(own.shown(promised), most).sum()) / most,
        )

    def plus(self, other: EligibleSlots) -> EligibleSlots:
        """Return the slots of these and further requests."""
        n_groups = max(len(self.shares), len(other.shares))
        one, other = self.grown(n_groups), other.grown(n_groups)
        return EligibleSlots(
            one.requests + other.requests,
            one.limited + other.limited,
            one.shares + other.shares,
            one.able + other.able,
            one.total + other.total,
        )

    def restarted(self) -> EligibleSlots | None:
        """Return what a new horizon starts from: None, unless the last one had limited requests."""
        if not self.limited:
            return None
        return EligibleSlots(self.requests / 2, 0, self.shares / 2, self.able / 2, self.total / 2)

    def grown(self, n_groups: int) -> EligibleSlots:
        """Return the same slots with groups that were added; they count as declared so far."""
        new = n_groups - len(self.shares)
        if new <= 0:
            return self
        every = np.full(new, self.requests)
        shares, able = np.concatenate([self.shares, every]), np.concatenate([self.able, every])
        return EligibleSlots(self.requests, self.limited, shares, able, self.total)

    def in_order(self, codes: NDArray[np.int64], n_groups: int) -> EligibleSlots:
        """Return the slots of groups in another order; those that are not here count as declared.

        Parameters
        ----------
        codes
            The code of each group there, -1 for one that does not exist there.
        n_groups
            The number of groups there.
        """
        shares, able = np.full((2, n_groups), self.requests)
        there = codes >= 0
        shares[codes[there]], able[codes[there]] = self.shares[there], self.able[there]
        return EligibleSlots(self.requests, self.limited, shares, able, self.total)

    def only(self, code: int) -> EligibleSlots:
        """Return the slots of one group."""
        return EligibleSlots(self.requests, self.limited, self.shares[[code]], self.able[[code]], self.total)

    def forecast(self, terms: Terms) -> SlotForecast:
        """Return the cautious forecast for requests to come."""
        n = max(self.requests, 1e-9)
        doubt = _CAUTION / n
        mean = np.minimum(self.shares / n, 1.0)
        shares, highest = lowest_mean(mean, doubt), highest_mean(mean, _WARNING / n)
        total = float(lowest_mean(min(self.total / n, 1.0), doubt))
        return SlotForecast(shares, total, terms.capacities, terms.k, highest)

    def expected(self, terms: Terms) -> NDArray[np.float64]:
        """Return (G,) the mean number of slots that a request could give to each group."""
        return np.minimum(self.shares / max(self.requests, 1e-9), 1.0) * terms.capacities

    def highest(self, terms: Terms) -> NDArray[np.float64]:
        """Return (G,) the highest plausible mean of the slots that a request to come can give to each group."""
        n = max(self.requests, 1e-9)
        return highest_mean(np.minimum(self.shares / n, 1.0), _CAUTION / n) * terms.capacities

    def highest_sum(self, terms: Terms, left: int) -> NDArray[np.float64]:
        """Return (G,) the highest plausible number of slots that the requests to come can give to each group."""
        n = max(self.requests, 1e-9)
        mean = highest_mean(np.minimum(self.shares / n, 1.0), _WARNING / n)
        return left * highest_outcome(mean, _WARNING / max(left, 1)) * terms.capacities


def lowest_mean(observed: Any, doubt: float) -> NDArray[np.float64]:
    """Return the lowest plausible mean of what was observed, for variables between 0 and 1.

    Parameters
    ----------
    observed
        The mean of some requests, or several such means.
    doubt
        The largest plausible divergence: minus the logarithm of a probability, divided by the number of requests.

    Examples
    --------
    >>> lowest_mean(np.array([0.0, 0.03, 0.5, 1.0]), 0.001).round(4).tolist()
    [0.0, 0.0223, 0.4684, 0.999]
    """
    rest = 1.0 - observed
    by_mean = observed - np.sqrt(2.0 * doubt * observed)
    by_rest = observed - doubt - np.sqrt(doubt * doubt + 2.0 * doubt * rest)
    # What is lacking to 1 counts only in the logarithm: best where next to nothing is.
    lacking = rest * np.log(np.maximum(rest, 1e-300))
    nearly_all = observed * np.exp((lacking - doubt) / np.maximum(observed, 1e-9))
    lowest: NDArray[np.float64] = np.maximum(np.maximum(by_mean, by_rest), nearly_all)
    return lowest


def lowest_outcome(mean: Any, doubt: float) -> NDArray[np.float64]:
    """Return the lowest plausible mean of some requests that are drawn from a known mean; see :func:`lowest_mean`.

    Examples
    --------
    >>> lowest_outcome(np.array([0.0, 0.03, 0.5, 1.0]), 0.001).round(4).tolist()
    [0.0, 0.0223, 0.4684, 0.9993]
    """
    by_mean = mean - np.sqrt(2.0 * doubt * mean)
    by_rest = mean - doubt / 3.0 - np.sqrt(doubt * doubt / 9.0 + 2.0 * doubt * (1.0 - mean))
    lowest: NDArray[np.float64] = np.maximum(np.maximum(by_mean, by_rest), 0.0)
    return lowest


def highest_mean(observed: Any, doubt: float) -> NDArray[np.float64]:
    """Return the highest plausible mean of what was observed; see :func:`lowest_mean`."""
    highest: NDArray[np.float64] = 1.0 - lowest_mean(1.0 - observed, doubt)
    return highest


def highest_outcome(mean: Any, doubt: float) -> NDArray[np.float64]:
    """Return the highest plausible mean of some requests that are drawn from a known mean."""
    highest: NDArray[np.float64] = 1.0 - lowest_outcome(1.0 - mean, doubt)
    return highest
