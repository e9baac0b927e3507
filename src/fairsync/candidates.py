"""Candidates: the result of a retrieval."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl
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
        (n,) share of the catalog that was searched: 1, unless shards were out of reach.
    rows : numpy.ndarray
        (n, k) rows of the items in the catalog that was searched; -1 for answers that were loaded from a ledger or
        received from a service.

    Examples
    --------
    >>> found = Candidates(np.array([[7, 8]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.ones(1))
    >>> found
    Candidates(1 request, k = 2, relevance 0.25 to 0.5)
    >>> found.to_polars().rows()
    [(0, 1, 7, 'a', 0.5), (0, 2, 8, 'b', 0.25)]
    """

    ids: NDArray[Any]
    groups: NDArray[Any]
    relevance: NDArray[np.float64]
    searched: NDArray[np.float64]
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), kw_only=True)

    def __post_init__(self) -> None:
        if self.rows.shape != self.ids.shape:
            object.__setattr__(self, "rows", np.full(self.ids.shape, -1))

    @property
    def degraded(self) -> bool:
        """Whether better candidates of some requests may have been out of reach."""
        return bool((self.searched < 1).any())

    def __len__(self) -> int:
        return len(self.searched)

    def __repr__(self) -> str:
        n = len(self)
        words = [f"{n:,} request{'s' if n != 1 else ''}", f"k = {self.ids.shape[1]}"]
        if self.relevance.size:
            words.append(f"relevance {self.relevance.min():.4g} to {self.relevance.max():.4g}")
        if self.degraded:
            words.append(f"{self.searched.mean():.0%} of the catalog searched")
        return f"Candidates({', '.join(words)})"

    def take(self, positions: NDArray[np.integer] | slice) -> Candidates:
        """Return the candidates of some of the requests."""
        columns = (self.ids, self.groups, self.relevance, self.searched)
        return Candidates(*(column[positions] for column in columns), rows=self.rows[positions])

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """Return the candidates of all requests of several parts, in order."""
        if len(parts) == 1:
            return parts[0]
        return Candidates(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.groups for part in parts]),
            np.concatenate([part.relevance for part in parts]),
            np.concatenate([part.searched for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
        )

    def to_polars(self) -> pl.DataFrame:
        """Return a polars frame with one row per candidate: request, rank (from 1), id, group, relevance."""
        import polars as pl

        return pl.DataFrame(self._columns())

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with one row per candidate: request, rank (from 1), id, group, relevance."""
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackageError("to_pandas() needs pandas: pip install pandas. to_polars() does not.") from error
        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, NDArray[Any]]:
        n, k = self.ids.shape
        return {
            "request": np.repeat(np.arange(n), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "id": self.ids.ravel(),
            "group": self.groups.ravel(),
            "relevance": self.relevance.ravel(),
        }

    def dump(self, position: int) -> bytes:
        """Serialize the answer to one of the requests, for the ledger to keep under its request id.

        Examples
        --------
        >>> found = Candidates(np.array([[7, 8]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.ones(1))
        >>> Candidates.load(found.dump(0)).ids.tolist()
        [[7, 8]]
        """
        columns = (self.ids, self.groups, self.relevance, self.searched)
        return json.dumps([column[position].tolist() for column in columns]).encode()

    @classmethod
    def load(cls, answer: bytes) -> Candidates:
        """Return the answer to one request that `dump` has serialized."""
        ids, groups, relevance, searched = json.loads(answer)
        columns = np.array([ids]), np.array([groups]), np.array([relevance]), np.array([searched], dtype=np.float64)
        return Candidates(*columns)

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        rows: NDArray[np.int64],
        relevance: NDArray[np.float64],
        searched: NDArray[np.float64],
    ) -> Candidates:
        """Return the candidates in these rows of a catalog, sorted by relevance, ties by id."""
        if not (relevance[:, 1:] < relevance[:, :-1]).all():  # without prices they are sorted as they come
            best_first = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -relevance))
            in_order = (np.arange(len(rows))[:, None], best_first)
            rows, relevance = rows[in_order], relevance[in_order]
        ids, groups = catalog.ids_of(rows), catalog.labels_of(catalog.group_of[rows])
        return Candidates(ids, groups, relevance, searched, rows=rows)
