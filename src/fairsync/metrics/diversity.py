"""Diversity within candidate lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.metrics.lists import as_lists, group_codes

if TYPE_CHECKING:
    from fairsync.metrics.lists import Groups, Lists


def category_diversity(lists: Lists, groups: Groups, k: int | None = None) -> float:
    r"""Return the fraction of pairs in a list whose groups differ, mean over lists.

    .. math:: \frac{1}{T} \sum_t \frac{\sum_{j=1}^{K} \sum_{l=j+1}^{K} [\, g(L_j) \ne g(L_l) \,]}{K (K - 1) / 2}

    as defined by ComiRec [1]_. Each list is measured alone: groups that never appear do not lower the value.

    Parameters
    ----------
    lists, groups, k
        As in :func:`count_exposures`. Lists with fewer than two items do not count.

    References
    ----------
    .. [1] Cen et al., "Controllable Multi-Interest Framework for Recommendation", KDD 2020.

    Examples
    --------
    >>> category_diversity([[0, 1, 2], [1, 2, 1]], groups=["toys", "books", "books"])
    0.3333333333333333
    """
    codes, _ = group_codes(as_lists(lists, k), groups)
    ordered = np.sort(codes, axis=1)
    is_start = np.ones(ordered.shape, dtype=np.bool_)
    is_start[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(is_start)  # of runs of one group
    lengths = np.where(ordered.flat[starts] < 0, 0, np.diff(starts, append=codes.size))
    alike = np.bincount(starts // codes.shape[1], weights=lengths * (lengths - 1) / 2)
    sizes = (codes >= 0).sum(axis=1)
    pairs = sizes * (sizes - 1) / 2
    if not pairs.any():
        raise InvalidInputError("no list has two items, and diversity is about pairs: give longer lists.")
    alike, pairs = alike[pairs > 0], pairs[pairs > 0]
    return float(np.mean((pairs - alike) / pairs))
