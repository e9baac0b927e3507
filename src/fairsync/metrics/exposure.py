"""Distribution of exposure among groups, or among items if each is a group of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.metrics.lists import as_lists, group_codes

if TYPE_CHECKING:
    from fairsync.metrics.lists import Groups, Lists

Exposures: TypeAlias = npt.ArrayLike | Mapping[Any, int]
"""Exposures of all groups, including those with 0: {label: exposures}, or (G,) numbers."""


def count_exposures(lists: Lists, groups: Groups, k: int | None = None) -> dict[Any, int]:
    """Return the exposures of each group. One item in one list is one exposure.

    Parameters
    ----------
    lists
        (n, k) Items: catalog rows, padded with -1, or ids.
    groups
        The label of each catalog row, or a mapping from id to label. To count items, give each its own label.
    k
        Count the first k items of each list. Defaults to all.

    Returns
    -------
    dict
        {label: exposures} in the order of the labels. Groups without exposures have 0.

    Examples
    --------
    >>> count_exposures([[0, 1], [1, 2]], groups=["toys", "books", "books", "games"])
    {'books': 3, 'games': 0, 'toys': 1}
    >>> count_exposures([["x", "y"]], groups={"x": "toys", "y": "toys", "z": "books"})
    {'books': 0, 'toys': 2}
    """
    codes, labels = group_codes(as_lists(lists, k), groups)
    counts = np.bincount(codes[codes >= 0], minlength=len(labels))
    return dict(zip(labels, counts.tolist(), strict=True))


def esp(exposures: Exposures, floors: Exposures) -> float:
    r"""Return the fraction of promised groups that reach their floor: Exposure Satisfied Percentage, ESP [1]_.

    .. math:: \frac{1}{|P|} \sum_{g \in P} [\, e_g \ge m_g \,], \quad P = \{ g : m_g > 0 \}

    In the paper every group has a floor. A group without one (a floor of 0) cannot miss it and does not count; if no
    group has a floor, ESP is 1. The paper prints >, but its own constraint and its authors' program have ≥.

    Parameters
    ----------
    exposures
        Exposures of each group.
    floors
        One number for all groups, (G,) numbers in the same order, or {label: floor}, where groups that are not named
        have none.

    References
    ----------
    .. [1] "FairSync: Ensuring Amortized Group Exposure in Distributed Recommendation Retrieval", WWW 2024.

    Examples
    --------
    >>> esp({"books": 3, "games": 0, "toys": 2}, floors=2)
    0.6666666666666666
    >>> esp({"books": 3, "games": 0, "toys": 2}, floors={"books": 3, "toys": 3})
    0.5
    """
    counts = _numbers(exposures, "exposures")
    if isinstance(floors, Mapping):
        if not isinstance(exposures, Mapping):
            raise InvalidInputError("floors are by label and exposures are not: give both by label.")
        unknown = [label for label in floors if label not in exposures]
        if unknown:
            raise UnknownGroupError(unknown, list(exposures))
        floors = [floors.get(label, 0) for label in exposures]
    least = _numbers(np.full(len(counts), floors) if np.ndim(floors) == 0 else floors, "floors")
    if len(least) != len(counts):
        raise InvalidInputError(f"there are {len(counts)} groups and {len(least)} floors: give one for each group.")
    promised = least > 0
    return float((counts >= least)[promised].mean()) if promised.any() else 1.0


def coverage(exposures: Exposures) -> float:
    """Return the fraction of groups (or of items, if these were counted) with at least one exposure.

    Examples
    --------
    >>> coverage({"books": 3, "games": 0, "toys": 2, "films": 1})
    0.75
    >>> coverage(count_exposures([[0, 1], [1, 2]], groups=range(4)))
    0.75
    """
    return float((_numbers(exposures, "exposures") > 0).mean())


def smallest_share(exposures: Exposures) -> float:
    r"""Return the share of all exposure that the least exposed group has: :math:`\min_g e_g / \sum_g e_g`.

    Max-min fairness maximises this share. It is at most 1/G.

    Examples
    --------
    >>> smallest_share([6, 1, 3])
    0.1
    """
    return float(_shares(exposures).min())


def gini(exposures: Exposures) -> float:
    r"""Return the Gini coefficient of exposures: 0 if all are equal, close to 1 if one group has them all.

    .. math:: \frac{\sum_{i=1}^{G} (2i - G - 1)\, e_{(i)}}{G \sum_g e_g}, \quad e_{(1)} \le e_{(2)} \le \dots

    which is half the mean difference of two groups, relative to the mean [1]_.

    References
    ----------
    .. [1] Gini, "Measurement of inequality of incomes", The Economic Journal 1921.

    Examples
    --------
    >>> gini([5, 5, 5, 5]), gini([0, 0, 0, 20])
    (0.0, 0.75)
    """
    shares = np.sort(_shares(exposures))
    n = len(shares)
    return float((2 * np.arange(1, n + 1) - n - 1) @ shares / n)


def entropy(exposures: Exposures) -> float:
    r"""Return the entropy of the shares of exposure, :math:`-\sum_g p_g \ln p_g` [1]_.

    Its exponential is the effective number of groups: that many groups with equal exposures have the same entropy.

    References
    ----------
    .. [1] Shannon, "A mathematical theory of communication", Bell System Technical Journal 1948.

    Examples
    --------
    >>> round(float(np.exp(entropy([5, 5, 5, 0]))), 6)
    3.0
    """
    shares = _shares(exposures)
    shares = shares[shares > 0]
    return float(abs(shares @ np.log(shares)))  # abs: the sum is never positive, and avoids -0.0


def _numbers(values: Exposures, what: str) -> npt.NDArray[np.float64]:
    """Return (G,) numbers, or raise an error if they are not."""
    listed: Any = list(values.values()) if isinstance(values, Mapping) else values
    try:
        numbers = np.asarray(listed, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.ndim != 1 or len(numbers) == 0 or not np.isfinite(numbers).all() or numbers.min() < 0:
        raise InvalidInputError(f"{what} must be one number for each group, 0 or more, got {values!r:.80}.")
    return numbers


def _shares(exposures: Exposures) -> npt.NDArray[np.float64]:
    """Return exposures as shares of their sum."""
    counts = _numbers(exposures, "exposures")
    if not counts.any():
        raise InvalidInputError("nothing was shown, so that there are no shares: count some lists first.")
    shares: npt.NDArray[np.float64] = counts / counts.sum()
    return shares
