"""The result of a retrieval: the candidates of some requests."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog


@dataclass(frozen=True)
class Candidates:
    """The candidates of some requests, best relevance first.

    Attributes
    ----------
    ids : numpy.ndarray
        (n, k) item ids.
    groups : numpy.ndarray
        (n, k) group labels.
    relevance : numpy.ndarray
        (n, k) relevance, without the price.
    searched : numpy.ndarray
        (n,) share of the catalog that was searched: 1, unless some of it was out of reach.
    """

    ids: NDArray[Any]
    groups: NDArray[Any]
    relevance: NDArray[np.float64]
    searched: NDArray[np.float64]

    @property
    def degraded(self) -> bool:
        """Whether better candidates may have been out of reach for some of the requests."""
        return bool((self.searched < 1).any())

    def __len__(self) -> int:
        return len(self.searched)

    def take(self, positions: NDArray[np.integer] | slice) -> Candidates:
        """Return the candidates of some of the requests."""
        return Candidates(*(getattr(self, part.name)[positions] for part in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of all requests, one part after another."""
        return cls(*(np.concatenate([getattr(one, part.name) for one in parts]) for part in fields(cls)))

    def dump(self, position: int) -> bytes:
        """Return the answer to one of the requests as bytes, to be kept.

        Examples
        --------
        >>> found = Candidates(np.array([[7, 8]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.ones(1))
        >>> Candidates.load(found.dump(0)).ids.tolist()
        [[7, 8]]
        """
        return json.dumps([getattr(self, part.name)[position].tolist() for part in fields(self)]).encode()

    @classmethod
    def load(cls, answer: bytes) -> Candidates:
        """Return the answer to one request that was made into bytes."""
        ids, groups, relevance, searched = json.loads(answer)
        return cls(np.array([ids]), np.array([groups]), np.array([relevance]), np.array([searched], dtype=np.float64))

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        rows: NDArray[np.int64],
        relevance: NDArray[np.float64],
        searched: NDArray[np.float64],
    ) -> Candidates:
        """Put candidates in order, ties by id, and name them."""
        best_first = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -relevance))
        in_order = (np.arange(len(rows))[:, None], best_first)
        rows = rows[in_order]
        return cls(catalog.ids_of(rows), catalog.labels_of(catalog.group_of[rows]), relevance[in_order], searched)
