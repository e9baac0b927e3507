"""Candidates: the result of a retrieval."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.errors import FairSyncError, InvalidInputError, MissingPackageError
from fairsync.explain import Explanation, StoredExplanation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    import polars as pl
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog


# Marks the saved answer to a cold request, after its columns.
_COLD = {"cold": True}


class Explainable(Protocol):
    """Something that the explanation of one request can be made from, now or after it was saved."""

    def explanation(self) -> Explanation:
        """Return the explanation."""
        ...

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as values for JSON; see :class:`fairsync.explain.StoredExplanation`."""
        ...


@dataclass(frozen=True)
class Candidates:
    """The candidates of some requests, best relevance first.

    Attributes
    ----------
    ids : numpy.ndarray
        (n, k) item ids. A request with fewer than k eligible items has empty places at the end: "" or -1.
    groups : numpy.ndarray
        (n, k) group labels; "" or -1 in an empty place.
    relevance : numpy.ndarray
        (n, k) relevance, without the price; -inf in an empty place.
    searched : numpy.ndarray
        (n,) share of the catalog that was searched: 1, unless shards were out of reach.
    rows : numpy.ndarray
        (n, k) rows of the items in the catalog that was searched; -1 in an empty place, and for answers that were
        loaded from a ledger or received from a service.
    unknown_excluded : numpy.ndarray
        (n,) number of ids that a request excluded and the catalog does not hold.
    cold : numpy.ndarray
        (n,) whether nothing was known of the user, so that the answer comes from the fallback
        (:class:`fairsync.cold_start.cold_start.ColdStart`). With a fixed list, its items come first, in its order.
    plain : numpy.ndarray
        (n,) relevance of all candidates of a request if there were no promises, or an upper bound of it where that is
        not in the list that was searched; nan if it is unknown, as in answers that were loaded or received.
    explained : tuple
        What `explain` shows of each request, if that was asked for; otherwise empty.

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
    unknown_excluded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), kw_only=True)
    cold: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool), kw_only=True)
    plain: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), kw_only=True)
    explained: tuple[Explainable | None, ...] = field(default=(), kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.rows.shape != self.ids.shape:
            object.__setattr__(self, "rows", np.full(self.ids.shape, -1))
        if self.unknown_excluded.shape != self.searched.shape:
            object.__setattr__(self, "unknown_excluded", np.zeros(self.searched.shape, dtype=np.int64))
        if self.cold.shape != self.searched.shape:
            object.__setattr__(self, "cold", np.zeros(self.searched.shape, dtype=bool))
        if self.plain.shape != self.searched.shape:
            object.__setattr__(self, "plain", np.full(self.searched.shape, np.nan))

    @property
    def degraded(self) -> bool:
        """Whether better candidates of some requests may have been out of reach."""
        return bool((self.searched < 1).any())

    @property
    def short(self) -> NDArray[np.bool_]:
        """(n,) Whether fewer than k items were eligible, so that the list of a request has empty places."""
        return np.asarray(np.isneginf(self.relevance).any(axis=1))

    def __len__(self) -> int:
        return len(self.searched)

    def __repr__(self) -> str:
        n = len(self)
        words = [f"{n:,} request{'s' if n != 1 else ''}", f"k = {self.ids.shape[1]}"]
        there = self.relevance[~np.isneginf(self.relevance)]
        if there.size:
            words.append(f"relevance {there.min():.4g} to {there.max():.4g}")
        if short := int(self.short.sum()):
            words.append(f"{short:,} with fewer than k eligible items")
        if cold := int(self.cold.sum()):
            words.append(f"{cold:,} cold")
        if self.degraded:
            words.append(f"{self.searched.mean():.0%} of the catalog searched")
        return f"{type(self).__name__}({', '.join(words)})"

    def explain(self, request: int = 0) -> Explanation:
        """Return why the candidates of a request are there, and others are not; ``print`` shows it as a table.

        Parameters
        ----------
        request
            Position of the request. It must have been answered with ``explain=True``.

        Examples
        --------
        >>> from fairsync import Catalog, FairRetriever
        >>> catalog = Catalog(np.array([[1.0], [0.75], [0.5]]), ["book", "book", "toy"], ["b1", "b2", "t1"])
        >>> retriever = FairRetriever(catalog, k=1, floors={"toy": 1}, horizon=1)
        >>> explanation = retriever.retrieve([[1.0]], explain=True).explain()
        >>> explanation.candidates[0].reason, explanation.candidates[0].plain_rank
        ('forced: toy ≥ 1', 3)
        >>> print(explanation.why_not("b1"))
        'b1' is not there: a forced slot took its place; no slot was open to prices.
        """
        # An abstract class is slow to ask, and mostly not needed.
        if not isinstance(request, (int, Integral)) or not -len(self.ids) <= request < len(self.ids):
            raise InvalidInputError(f"there is no request {request!r}: the call had {len(self.ids)}, numbered from 0.")
        found = self.explained[int(request)] if self.explained else None
        if found is None:
            raise FairSyncError("The request was answered without explanation: ask with explain=True.")
        return found.explanation()

    def take(self, positions: NDArray[np.integer] | slice) -> Candidates:
        """Return the candidates of some of the requests."""
        columns = (self.ids, self.groups, self.relevance, self.searched)
        unknown = self.unknown_excluded[positions]
        explained = self.explained
        if explained:
            explained = tuple(explained[i] for i in np.arange(len(self))[positions])
        return Candidates(
            *(column[positions] for column in columns),
            rows=self.rows[positions],
            unknown_excluded=unknown,
            cold=self.cold[positions],
            plain=self.plain[positions],
            explained=explained,
        )

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
            unknown_excluded=np.concatenate([part.unknown_excluded for part in parts]),
            cold=np.concatenate([part.cold for part in parts]),
            plain=np.concatenate([part.plain for part in parts]),
            explained=_joined(parts),
        )

    def to_polars(self) -> pl.DataFrame:
        """Return a polars frame with one row per candidate: request, rank (from 1), id, group, relevance.

        Empty places have no row.
        """
        from fairsync.extras import polars as pl

        return pl.DataFrame(self._columns())

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with one row per candidate: request, rank (from 1), id, group, relevance.

        Empty places have no row.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackageError("to_pandas() needs pandas: pip install pandas. to_polars() does not.") from error
        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, NDArray[Any]]:
        n, k = self.ids.shape
        columns = {
            "request": np.repeat(np.arange(n), k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "id": self.ids.ravel(),
            "group": self.groups.ravel(),
            "relevance": self.relevance.ravel(),
        }
        there = ~np.isneginf(columns["relevance"])
        return columns if there.all() else {name: column[there] for name, column in columns.items()}

    def dump(self, position: int) -> bytes:
        """Serialize the answer to one of the requests, for the ledger to keep under its request id.

        Examples
        --------
        >>> found = Candidates(np.array([[7, 8]]), np.array([["a", "b"]]), np.array([[0.5, 0.25]]), np.ones(1))
        >>> Candidates.load(found.dump(0)).ids.tolist()
        [[7, 8]]
        """
        columns = (self.ids, self.groups, self.relevance, self.searched)
        document = [column[position].tolist() for column in columns]
        if self.cold[position]:  # others are saved as they always were
            document.append(_COLD)
        if self.explained and (explained := self.explained[position]) is not None:
            document.append(explained.to_dict())
        return json.dumps(document).encode()

    @classmethod
    def load(cls, answer: bytes) -> Candidates:
        """Return the answer to one request that `dump` has serialized."""
        ids, groups, relevance, searched, *more = json.loads(answer)
        columns = np.array([ids]), np.array([groups]), np.array([relevance]), np.array([searched], dtype=np.float64)
        explained = tuple(StoredExplanation(one) for one in more if one != _COLD)
        return Candidates(*columns, explained=explained, cold=np.array([_COLD in more]))

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        rows: NDArray[np.int64],
        relevance: NDArray[np.float64],
        searched: NDArray[np.float64],
        unknown_excluded: NDArray[np.int64] | None = None,
        cold: NDArray[np.bool_] | None = None,
        places: Callable[[NDArray[np.int64]], NDArray[np.intp]] | None = None,
        plain: NDArray[np.float64] | None = None,
    ) -> Candidates:
        """Return the candidates in these rows of a catalog, sorted by relevance, ties by id; -1 is an empty place.

        ``places`` is a function of the sorted rows that returns the places to take them from, for another order: see
        :meth:`fairsync.cold_start.fixed_list.FixedList.places`.
        """
        if not (relevance[:, 1:] < relevance[:, :-1]).all():  # without prices they are sorted as they come
            best_first, found = np.argsort(-relevance, axis=1), relevance
            relevance = np.take_along_axis(found, best_first, axis=1)
            if not (relevance[:, 1:] < relevance[:, :-1]).all():  # there are ties, which is rare
                best_first = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -found))
                relevance = np.take_along_axis(found, best_first, axis=1)
            rows = np.take_along_axis(rows, best_first, axis=1)
        if places is not None:
            order = places(rows)
            rows, relevance = np.take_along_axis(rows, order, axis=1), np.take_along_axis(relevance, order, axis=1)
        ids, groups = catalog.ids_of(rows), catalog.labels_of(catalog.group_of[rows])
        if len(rows) and rows[:, -1].min() < 0:
            for names in (ids, groups):
                names[rows < 0] = "" if names.dtype.kind == "U" else -1
        unknown = np.empty(0, dtype=np.int64) if unknown_excluded is None else unknown_excluded
        cold = np.empty(0, dtype=bool) if cold is None else cold
        plain = np.empty(0) if plain is None else plain
        return Candidates(ids, groups, relevance, searched, rows=rows, unknown_excluded=unknown, cold=cold, plain=plain)


def _joined(parts: Sequence[Candidates]) -> tuple[Explainable | None, ...]:
    if not any(part.explained for part in parts):
        return ()
    return tuple(one for part in parts for one in part.explained or (None,) * len(part))
