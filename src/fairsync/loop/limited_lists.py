"""The best lists that limits per list allow, as far as the lists under prices tell: what limits alone have cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog.atoms import Membership
    from fairsync.search import Hits


@dataclass(frozen=True, eq=False)
class LimitedLists:
    """What the limits per list alone would have made of some lists, beside the candidates that were chosen.

    Attributes
    ----------
    best : numpy.ndarray
        (n,) the relevance of the best list that keeps the limits.
    came : numpy.ndarray
        (n, k) which of the candidates are not in that list.
    binding : numpy.ndarray
        (n, P) which promises keep more relevant items out of that list.
    """

    best: NDArray[np.float64]
    came: NDArray[np.bool_]
    binding: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        hits: Hits,
        chosen: Hits,
        atom_of: NDArray[np.integer],
        membership: Membership,
        list_limits: NDArray[np.int64],
        sizes: NDArray[np.int64],
    ) -> LimitedLists:
        """Return the lists of the items that were found for some requests.

        Limits per list form a tree, so that the best list is found by taking items in order of relevance. Promises are
        gone through from the smallest to the largest: each keeps the most relevant of the items that are left.

        Parameters
        ----------
        hits, chosen
            The lists under prices, and the full lists of candidates.
        atom_of
            The atom of each item.
        membership, list_limits
            The promises of each atom, and (P,) the most items of each promise in a list.
        sizes
            (A,) the number of items of each atom.

        Examples
        --------
        One item of promise 0 per list: the second one makes way for the next item of another atom.

        >>> from fairsync.catalog.atoms import Membership
        >>> from fairsync.search import Hits
        >>> hits = Hits(np.array([[0, 1, 2, 3]]), np.array([[0.9, 0.8, 0.5, 0.4]]))
        >>> chosen = Hits(np.array([[0, 3]]), np.array([[0.9, 0.4]]))
        >>> limited = LimitedLists.of(hits, chosen, np.array([0, 0, 1, 1]), Membership.of([(0,), ()], 1), np.array([1]),
        ...                           np.array([2, 2]))
        >>> limited.best.tolist(), limited.came.tolist(), limited.binding.tolist()
        ([1.4], [[False, True]], [[True]])
        """
        n, k = chosen.rows.shape
        rows = np.concatenate([chosen.rows, hits.rows], axis=1)
        relevance = np.concatenate([chosen.relevance, hits.relevance], axis=1)
        relevance[:, k:][_found_before(rows)[:, k:] | (hits.rows < 0)] = -np.inf
        order = np.argsort(-relevance, axis=1, kind="stable")
        sorted_relevance = np.take_along_axis(relevance, order, axis=1)
        kept = np.isfinite(sorted_relevance)
        at, promises = membership.expand(atom_of[np.take_along_axis(rows, order, axis=1).ravel()])
        use = (list_limits < k)[promises]
        at, promises = at[use], promises[use]
        width, binding = rows.shape[1], np.zeros((n, len(list_limits)), dtype=bool)
        pairs, counts = np.unique(at // width * len(list_limits) + promises, return_counts=True)
        exceeded = np.unique(pairs[counts > list_limits[pairs % len(list_limits)]] % len(list_limits))
        for promise in exceeded[np.argsort(membership.exposures(sizes)[exceeded], kind="stable")].tolist():
            own = np.zeros(n * width, dtype=bool)
            own[at[promises == promise]] = True
            own = own.reshape(n, width) & kept
            kept &= ~own | (np.cumsum(own, axis=1) <= list_limits[promise])
            binding[:, promise] = (own & ~kept & (np.cumsum(kept, axis=1) < k)).any(axis=1)
        kept &= np.cumsum(kept, axis=1) <= k
        is_in = np.empty_like(kept)
        np.put_along_axis(is_in, order, kept, axis=1)
        return cls(np.where(kept, sorted_relevance, 0.0).sum(axis=1), ~is_in[:, :k], binding)


def _found_before(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which places of each list have an item that an earlier place has."""
    order = np.argsort(rows, axis=1, kind="stable")
    in_order = np.take_along_axis(rows, order, axis=1)
    found = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(found, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return found
