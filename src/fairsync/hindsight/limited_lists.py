"""The best list of each request where promises limit their items per list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from fairsync.catalog.atoms import Membership

    Floats = NDArray[np.float64]

# Requests whose lists are made at a time.
_CHUNK = 2048


@dataclass(frozen=True, eq=False)
class ListLimits:
    """The most items of some promises in one list, which form a tree: two share no item, or one holds the other.

    So the sets of items that keep all limits are a matroid, and taking the best items one by one, as long as limits
    allow it, yields the best list.

    Attributes
    ----------
    of_atom : numpy.ndarray
        (A, depth) the limits of each atom; L, the number of limits, where there are fewer.
    limits : numpy.ndarray
        (L + 1,) the most items of each limit; the last is never reached.

    Examples
    --------
    At most one item of atom 1. The second best is not taken.

    >>> from fairsync.catalog.atoms import Membership
    >>> limits = ListLimits.of(Membership.of([(), (0,)], 1), np.array([1]), k=2)
    >>> inside, regret = limits.best(np.array([[0.9, 0.8, 0.5]]), np.array([[1, 1, 0]]), 2)
    >>> inside.tolist(), regret.round(6).tolist()
    ([[True, False, True]], [[0.1, 0.1, inf]])
    """

    of_atom: NDArray[np.int64]
    limits: NDArray[np.int64]

    @classmethod
    def of(cls, membership: Membership, list_limits: NDArray[np.int64] | None, k: int) -> ListLimits | None:
        """Return the limits of promises that have one below k; None if none has.

        One more atom is that of empty places.
        """
        limited = np.flatnonzero(list_limits < k) if list_limits is not None else np.empty(0, dtype=np.int64)
        if list_limits is None or not len(limited):
            return None
        code = np.full(membership.n_promises, -1)
        code[limited] = np.arange(len(limited))
        at, promises = membership.expand(np.arange(membership.n_atoms))
        use = code[promises] >= 0
        at, codes = at[use], code[promises[use]]
        first = np.searchsorted(at, np.arange(membership.n_atoms))
        place = np.arange(len(at)) - first[at]
        of_atom = np.full((membership.n_atoms + 1, int(place.max(initial=0)) + 1), len(limited), dtype=np.int64)
        of_atom[at, place] = codes
        return cls(of_atom, np.append(list_limits[limited], k))

    def with_unlimited(self, n_atoms: int) -> ListLimits:
        """Return the limits with further atoms that have none."""
        none = np.full((n_atoms, self.of_atom.shape[1]), len(self.limits) - 1, dtype=np.int64)
        return ListLimits(np.concatenate([self.of_atom, none]), self.limits)

    def best(self, priced: Floats, groups: NDArray[np.integer], k: int) -> tuple[NDArray[np.bool_], Floats]:
        """Return the best list of each request, and what swapping each item in or out would cost.

        Parameters
        ----------
        priced
            (T, N) what the list is to have most of, -inf for places that must not be taken.
        groups
            (T, N) the atom of each place.
        k
            The most items of a list. It has fewer if limits do not allow more.

        Returns
        -------
        inside
            (T, N) the list.
        regret
            (T, N) what is lost by a swap, about; +inf if none is possible.
        """
        inside, regret = np.zeros(priced.shape, dtype=np.bool_), np.empty(priced.shape)
        for start in range(0, len(priced), _CHUNK):
            part = slice(start, start + _CHUNK)
            inside[part], regret[part] = self._best(priced[part], groups[part], k)
        return inside, regret

    def _best(self, priced: Floats, groups: NDArray[np.integer], k: int) -> tuple[NDArray[np.bool_], Floats]:
        every, none = np.arange(len(priced)), len(self.limits) - 1
        order = np.argsort(-priced, axis=1, kind="stable")
        room = np.tile(self.limits, (len(priced), 1))
        left = np.full(len(priced), k)
        inside = np.zeros(priced.shape, dtype=np.bool_)
        for place in order.T:
            codes = self.of_atom[groups[every, place]]
            taken = (left > 0) & (room[every[:, None], codes] > 0).all(axis=1) & (priced[every, place] > -np.inf)
            for code in codes[taken].T:  # in a tree, the limits of an item differ
                limited = code < none
                np.subtract.at(room, (every[taken][limited], code[limited]), 1)
            left -= taken
            inside[every, place] = taken

        codes, request = self.of_atom[groups], every[:, None, None]
        tight = (room[request, codes] <= 0) & (codes < none)
        kept, out = np.where(inside, priced, np.inf), np.where(inside, -np.inf, priced)
        # Of each limit that is reached, the worst item inside and the best outside; and those of the whole list.
        worst, next_ = np.full(room.shape, -np.inf), np.full(room.shape, -np.inf)
        lowest = np.full(room.shape, np.inf)
        requests = np.broadcast_to(request, codes.shape)
        np.minimum.at(lowest, (requests[tight], codes[tight]), np.broadcast_to(kept[:, :, None], codes.shape)[tight])
        np.maximum.at(next_, (requests[tight], codes[tight]), np.broadcast_to(out[:, :, None], codes.shape)[tight])
        worst = np.where(np.isfinite(lowest), lowest, -np.inf)
        full = left <= 0
        last = np.where(full, kept.min(axis=1), -np.inf)  # a list with room takes whatever limits allow
        free = np.where(tight.any(axis=2), -np.inf, out).max(axis=1)
        leaving = np.maximum(last[:, None], np.where(tight, worst[request, codes], -np.inf).max(axis=2))
        coming = np.maximum(free[:, None], np.where(tight, next_[request, codes], -np.inf).max(axis=2))
        with np.errstate(invalid="ignore"):
            regret = np.where(inside, priced - coming, leaving - priced)
        return inside, np.where(np.isfinite(priced) & np.isfinite(regret), np.maximum(regret, 0), np.inf)

    def reached(self, inside: NDArray[np.bool_], groups: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return (T, N) which places are of a promise of which the list holds as many as it may."""
        found = np.empty(inside.shape, dtype=np.bool_)
        for start in range(0, len(inside), _CHUNK):
            part = slice(start, start + _CHUNK)
            codes = self.of_atom[groups[part]]
            held = self._held(inside[part], codes)
            found[part] = (held >= self.limits)[np.arange(len(codes))[:, None, None], codes].any(axis=2)
        return found

    def _held(self, inside: NDArray[np.bool_], codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (T, L + 1) how many items of each limit a list holds, 0 for the last."""
        request, place = np.nonzero(inside)
        held = np.zeros((len(inside), len(self.limits)), dtype=np.int64)
        for code in codes[request, place].T:
            np.add.at(held, (request, code), 1)
        held[:, -1] = 0
        return held

    def inequalities(
        self,
        rest: NDArray[np.bool_],
        groups: NDArray[np.integer],
        request: NDArray[np.intp],
        place: NDArray[np.intp],
    ) -> tuple[sparse.csr_array, Floats]:
        """Return limits on which of some places are taken, one column each, beside the ``rest`` of each list.

        Limits that cannot be exceeded are left out.
        """
        from scipy import sparse

        size, codes = len(self.limits), self.of_atom[groups[request, place]]
        columns, depth = np.nonzero(codes < size - 1)
        keys, row = np.unique(request[columns] * size + codes[columns, depth], return_inverse=True)
        matrix = sparse.csr_array((np.ones(len(columns)), (row, columns)), shape=(len(keys), len(request)))
        others, at = np.nonzero(rest)
        taken = self.of_atom[groups[others, at]]
        taken_keys = (others[:, None] * size + taken).ravel()
        found = np.searchsorted(keys, taken_keys)
        known = (found < len(keys)) & (keys[np.minimum(found, len(keys) - 1)] == taken_keys) if len(keys) else None
        held = np.bincount(found[known], minlength=len(keys)) if known is not None else np.zeros(0)
        most = (self.limits[keys % size] - held).astype(np.float64)
        can = np.diff(matrix.indptr) > most
        return sparse.csr_array(matrix[can]), most[can]

    def allow(
        self,
        plan: NDArray[np.bool_],
        groups: NDArray[np.integer],
        request: NDArray[np.intp],
        into: NDArray[np.intp],
        out: NDArray[np.intp],
    ) -> NDArray[np.bool_]:
        """Return which swaps keep the limits: one place taken into the list of a request, another out of it."""
        some, row = np.unique(request, return_inverse=True)
        room = self.limits - self._held(plan[some], self.of_atom[groups[some]])
        new, old = self.of_atom[groups[request, into]], self.of_atom[groups[request, out]]
        freed = (new[:, :, None] == old[:, None, :]).any(axis=2)
        return np.asarray((room[row[:, None], new] + freed > 0).all(axis=1), dtype=np.bool_)
