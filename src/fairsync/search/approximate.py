"""The base class of the approximate indexes: a recall target, tuning for it, and exact search of small catalogs."""

from typing import Self

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.search.exact import ExactIndex

EXACT_BELOW = 20_000
"""Catalogs with fewer items are searched exactly by default: that takes a fraction of a millisecond per request."""


class ApproximateIndex:
    """The base of `IvfIndex` and `HnswIndex`.

    Parameters
    ----------
    catalog
        The items to search.
    recall
        The share of the true best items to find on average, between 0 and 1.
    exact_below
        Catalogs with fewer items are searched exactly.

    Attributes
    ----------
    exact : ExactIndex
        Answers where an approximate search is not worth it or not certain enough.
    """

    def __init__(self, catalog: Catalog, recall: float, exact_below: int) -> None:
        if not 0 < recall < 1:
            raise InvalidInputError(f"recall must lie between 0 and 1, got {recall}; for 1 use the index 'exact'.")
        self.catalog, self.recall, self.exact_below = catalog, recall, exact_below
        self.exact = ExactIndex(catalog)

    @property
    def is_approximate(self) -> bool:
        """Whether the catalog is large enough for approximate search."""
        return len(self.catalog) >= self.exact_below

    def tune(self, users: npt.ArrayLike) -> Self:
        """Choose how much to search so that requests like these reach the recall, without prices.

        Parameters
        ----------
        users
            (n, d) or (n, interests, d), past requests. Some hundred are plenty.

        Returns
        -------
        Self
            This index.
        """
        vectors = check_users(users, self.catalog).astype(np.float64)
        vectors = vectors[vectors.any(axis=(1, 2))]
        if len(vectors) == 0:
            raise InvalidInputError("users are empty, or zero: give at least one past request.")
        if self.is_approximate:
            self._tune(vectors)
        return self

    def _tune(self, vectors: npt.NDArray[np.float64]) -> None:
        """Tune on vectors, (n, interests, d), none of which is zero."""
        raise NotImplementedError
