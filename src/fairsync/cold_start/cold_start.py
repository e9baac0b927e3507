"""Cold start: the answer to requests about whose user nothing is known, whose vectors are all zero.

The vector of an empty history, or of a history of unknown items, is zero. All items are equally relevant to it, so that
a search would return the first ids. A cold request is answered with the vector of the fallback in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fairsync.catalog.arrays import to_values
from fairsync.catalog.names import check_names, check_same_kind
from fairsync.cold_start.fixed_list import FixedList
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog

# Requests whose vectors the mean is taken of.
WINDOW = 256
MEAN = "mean"

Cold: TypeAlias = Any
"""``"mean"``, a vector (floats), or a list of item ids (strings or integers)."""


def is_cold(vectors: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return (n,) whether all interests of a request, (n, interests, d), are zero."""
    return np.asarray(~vectors.any(axis=(1, 2)))


class ColdStart:
    """The fallback for cold requests. It is thread-safe.

    Parameters
    ----------
    catalog
        The items.
    cold
        ``"mean"``: the mean vector of the latest 256 requests that were not cold, and before the first of these the
        mean of the items' embeddings. It is not scaled: its inner product with an item is the mean relevance of the
        item to these requests. A vector (floats): this one. A list of ids (strings or integers): these items in this
        order, then those that are best for the mean.

    Examples
    --------
    >>> from fairsync.catalog import Catalog
    >>> start = ColdStart(Catalog(np.eye(2), ["a", "b"]))
    >>> users = np.array([[[0.0, 0.0]], [[0.0, 4.0]], [[0.0, 0.0]]])
    >>> vectors, cold = start.fill(users, Catalog(np.eye(2), ["a", "b"]))
    >>> vectors[:, 0].tolist(), cold.tolist()
    ([[0.5, 0.5], [0.0, 4.0], [0.0, 4.0]], [True, False, True])
    """

    def __init__(self, catalog: Catalog, cold: Cold = MEAN) -> None:
        self.fallback: Cold = cold  # as plain values, for JSON
        self._vector: NDArray[np.float64] | None = None
        self._ids: NDArray[Any] | None = None
        if not isinstance(cold, str) or cold != MEAN:
            self._set(cold, catalog)
        self._lock = threading.Lock()
        self._ring, self._next, self._full = np.empty((WINDOW, catalog.dim)), 0, False
        self._items_mean: tuple[Catalog, NDArray[np.float64]] | None = None
        self._listed: tuple[Catalog, NDArray[np.int64]] | None = None

    @classmethod
    def restored(cls, catalog: Catalog, fallback: Cold, recent: NDArray[np.float64]) -> ColdStart:
        """Return the fallback that had these latest vectors. Ids that the catalog does not hold any more are kept."""
        made = cls(catalog)
        if not isinstance(fallback, str):
            made.fallback = fallback
            made._set(fallback, catalog, allow_unknown=True)
        made.observe(recent[:, None])
        return made

    def _set(self, cold: Cold, catalog: Catalog, *, allow_unknown: bool = False) -> None:
        """Check a given vector or list of ids."""
        what = 'cold must be "mean", a vector of floats, or a list of ids'
        cold = to_values(cold)
        if isinstance(cold, str | bytes) or not isinstance(cold, Sequence | np.ndarray):
            raise InvalidInputError(f"{what}, got {cold!r:.80}.")
        if not len(cold):
            raise InvalidInputError(f"{what}, and this one is empty.")
        plain = cold.tolist() if isinstance(cold, np.ndarray) else list(cold)
        if any(isinstance(value, float | np.floating) for value in plain):
            try:
                vector = np.asarray(plain, dtype=np.float64)
            except (TypeError, ValueError):
                raise InvalidInputError(f"{what}; this one mixes them: {cold!r:.80}.") from None
            self._vector = check_users(vector[None], catalog)[0, 0].astype(np.float64)
            if not self._vector.any():
                raise InvalidInputError("cold is a zero vector, which prefers no item: give another one.")
            self.fallback = self._vector.tolist()
            return
        if any(isinstance(value, list) for value in plain):
            raise InvalidInputError(f"{what}: one vector of {catalog.dim} numbers.")
        if catalog.weights is not None:
            raise InvalidInputError(
                'cold is a list of ids, which needs a copy of the catalog: use "mean" or a vector of floats.'
            )
        self._ids = check_names(list(dict.fromkeys(plain)), None, "the ids in cold", "id")
        check_same_kind(self._ids, catalog.ids[:1], "ids")
        unknown = self._ids[catalog.rows_of(self._ids) < 0].tolist()
        if unknown and not allow_unknown:
            raise InvalidInputError(
                f"cold names {len(unknown)} of {len(self._ids)} ids that the catalog does not hold, such as"
                f" {unknown[0]!r}: leave them out. (A vector must have a float in it.)"
            )
        self.fallback = self._ids.tolist()

    def fill(
        self, vectors: NDArray[np.floating[Any]], catalog: Catalog
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.bool_] | None]:
        """Return user vectors with those of cold requests filled in, and which requests were cold.

        The mean is that of the requests before each cold one, in earlier calls and in this one, so that it makes no
        difference how requests are divided into calls.

        Parameters
        ----------
        vectors
            (n, interests, d) that :func:`fairsync.inputs.check_users` has returned.
        catalog
            The items as they are now.

        Returns
        -------
        numpy.ndarray
            The same array if no request is cold, otherwise a copy.
        numpy.ndarray or None
            (n,) bool; None if no request is cold.
        """
        # A request whose first number is not zero is not cold: in most calls this is all that is paid, and
        # `count_nonzero` takes a fraction of the time of `all`.
        if np.count_nonzero(vectors[:, 0, 0]) == len(vectors):
            return vectors, None
        cold = is_cold(vectors)
        if not cold.any():
            return vectors, None
        found = self._fallbacks(vectors, cold, catalog)[:, None]
        with np.errstate(over="ignore", under="ignore"):
            cast = found.astype(vectors.dtype)
        if not (np.isfinite(cast).all() and cast.any(axis=2).all()):
            vectors, cast = vectors.astype(np.float64), found
        filled = vectors.copy()
        filled[cold] = cast
        return filled, cold

    def observe(self, vectors: NDArray[np.floating[Any]], cold: NDArray[np.bool_] | None = None) -> None:
        """Add the requests that are not cold to those whose mean is taken.

        Parameters
        ----------
        vectors
            (n, interests, d).
        cold
            (n,) which of them are cold, as `fill` has returned it.
        """
        warm = vectors if cold is None else vectors[~cold]
        latest = _one_each(warm if len(warm) <= WINDOW else warm[-WINDOW:])
        with self._lock:
            end = self._next + len(latest)
            if end < WINDOW:
                self._ring[self._next : end] = latest
            else:
                first = WINDOW - self._next
                self._ring[self._next :], self._ring[: end - WINDOW] = latest[:first], latest[first:]
                self._full = True
            self._next = end % WINDOW

    def fixed_list(self, cold: NDArray[np.bool_] | None, catalog: Catalog) -> FixedList | None:
        """Return the given items, for the requests that are cold; None if there are none of either."""
        if cold is None or self._ids is None:
            return None
        if self._listed is None or self._listed[0] is not catalog:
            rows = catalog.rows_of(self._ids)
            self._listed = (catalog, rows[rows >= 0])  # items may have been removed
        rows = self._listed[1]
        return FixedList(rows, cold) if len(rows) else None

    @property
    def has_list(self) -> bool:
        """Whether the fallback is a list of ids."""
        return self._ids is not None

    def recent(self) -> NDArray[np.float64]:
        """Return a copy of the vectors whose mean is taken, oldest first."""
        with self._lock:
            parts = [self._ring[self._next :]] if self._full else []
            return np.concatenate([*parts, self._ring[: self._next]])

    def _fallbacks(
        self, vectors: NDArray[np.floating[Any]], cold: NDArray[np.bool_], catalog: Catalog
    ) -> NDArray[np.float64]:
        """Return one vector for each cold request."""
        if self._vector is not None:
            return np.broadcast_to(self._vector, (int(cold.sum()), len(self._vector)))
        recent = self.recent()
        known = np.concatenate([recent, _one_each(vectors[~cold])])
        before = len(recent) + np.cumsum(~cold)[cold]
        ends, position = np.unique(before, return_inverse=True)
        means = [self._mean(known[max(end - WINDOW, 0) : end], catalog) for end in ends.tolist()]
        return np.array(means)[position]

    def _mean(self, vectors: NDArray[np.float64], catalog: Catalog) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = vectors.mean(axis=0) if len(vectors) else np.zeros(catalog.dim)
        if mean.any():
            return mean
        if self._items_mean is None or self._items_mean[0] is not catalog:
            mean = catalog.mean_embedding
            if not mean.any():  # any direction is better than the order of ids
                mean = np.random.default_rng(0).normal(size=catalog.dim)
            self._items_mean = (catalog, mean)
        return self._items_mean[1]


def _one_each(vectors: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Return (n, d): the vector of each request, or the mean of its interests."""
    if vectors.shape[1] == 1:
        return vectors[:, 0]
    mean: NDArray[np.floating[Any]] = vectors.mean(axis=1, dtype=np.float64)
    return mean
