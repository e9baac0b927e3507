"""Sharded search in one process: each shard finds the best items of its part, and the answers are merged."""

import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search.base import Hits, Index, check_prices


class Shard:
    """An index over a part of a catalog that answers in rows of the whole catalog.

    It holds its part only, and its input and output are a few small arrays: a shard may as well run in another process
    or on another machine.

    Parameters
    ----------
    part
        The items of the shard: `Catalog.part` of the whole catalog, with its group codes.
    rows
        The rows of these items in the whole catalog.
    build
        A function that builds the index over the part.

    Examples
    --------
    >>> from fairsync.search import ExactIndex
    >>> whole = Catalog(np.array([[1.0], [3.0], [2.0]]), ["a", "b", "b"])
    >>> rows = np.array([0, 2])
    >>> Shard(whole.part(rows), rows, ExactIndex).search(np.ones((1, 1, 1)), None, k=1)
    Hits(rows=array([[2]]), relevance=array([[2.]]))
    """

    def __init__(self, part: Catalog, rows: npt.NDArray[np.int64], build: Callable[[Catalog], Index]) -> None:
        self.rows, self.dim, self.n_groups = rows, part.dim, part.n_groups
        self.index = build(part)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the best items of this part, k or as many as it holds; see `Index.search`."""
        found = self.index.search(users, prices, min(k, len(self.rows)))
        return Hits(np.where(found.rows >= 0, self.rows[found.rows], -1), found.relevance)


def merge(
    answers: Sequence[Hits],
    group_of: npt.NDArray[np.integer],
    rank: npt.NDArray[np.integer] | None,
    prices: npt.NDArray[np.float64] | None,
    k: int,
) -> Hits:
    """Merge the answers of shards into the best k items, ties by id: the answer of one index over the whole catalog.

    Merging needs the group and the rank of each item, but no embedding. Scores are those of `scoring`, which depend on
    item, user and price only: they have the same bits on every shard.

    Parameters
    ----------
    answers
        The answers, one per shard, (n, any width) each, in rows of the whole catalog. No row may come twice.
    group_of, rank
        Group code and rank of each item of the whole catalog.
    prices
        The prices under which the shards searched.
    k
        The number of items to keep per user.

    Examples
    --------
    >>> left = Hits(np.array([[0, 2]]), np.array([[0.9, 0.5]]))
    >>> right = Hits(np.array([[3]]), np.array([[0.8]]))
    >>> merge([left, right], np.array([0, 0, 1, 1]), None, np.array([0.2, 0.0]), k=2)
    Hits(rows=array([[3, 0]]), relevance=array([[0.8, 0.9]]))
    """
    rows = np.hstack([answer.rows for answer in answers])
    relevance = np.hstack([answer.relevance for answer in answers])
    # An empty place has relevance -inf and so comes last, whatever price is looked up for row -1.
    priced = relevance if prices is None else relevance - np.where(rows >= 0, prices[group_of[rows]], 0.0)
    order = np.lexsort((rows if rank is None else rank[rows], -priced))[:, :k]
    hits = Hits.empty(len(rows), k)
    hits.rows[:, : order.shape[1]] = np.take_along_axis(rows, order, axis=1)
    hits.relevance[:, : order.shape[1]] = np.take_along_axis(relevance, order, axis=1)
    return hits


class ShardedIndex:
    """Search shards in parallel threads and merge the answers. With exact shards the answer is that of one exact index.

    Parameters
    ----------
    catalog
        The items to search.
    shards
        The number of shards.
    index
        The index of each shard: a name, or a function of its part of the catalog.
    placement
        (n,) the shard of each item, from 0. Defaults to a hash of the id, so that an item keeps its shard when others
        are added or removed. A shard may be empty.

    Examples
    --------
    >>> catalog = Catalog(np.array([[1.0], [3.0], [2.0]]), ["a", "b", "b"])
    >>> index = ShardedIndex(catalog, shards=2)
    >>> index.search(np.ones((1, 1, 1)), np.array([-1.5, 0.0]), k=2).rows
    array([[1, 0]])
    """

    def __init__(
        self,
        catalog: Catalog,
        shards: int = 4,
        index: str | Callable[[Catalog], Index] = "exact",
        placement: npt.ArrayLike | None = None,
    ) -> None:
        if shards < 1:
            raise InvalidInputError(f"shards must be at least 1, got {shards}.")
        placed = place(catalog, shards) if placement is None else check_placement(placement, len(catalog), shards)
        self._settings = (shards, index, placement)
        build = _builder(index)
        held = [np.flatnonzero(placed == number) for number in range(shards)]
        self.catalog = catalog
        self.shards = [Shard(catalog.part(rows), rows, build) for rows in held if len(rows)]
        self.applies_prices = self.shards[0].index.applies_prices
        self._pool = ThreadPoolExecutor(min(len(self.shards), os.cpu_count() or 1), thread_name_prefix="shard")

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        """Find the k items of highest relevance minus price for each user; see `Index.search`."""
        prices = check_prices(prices, self.catalog.n_groups)
        answers = list(self._pool.map(lambda shard: shard.search(users, prices, k), self.shards))
        return merge(answers, self.catalog.group_of, self.catalog.rank, prices, k)

    def rebuild(self, catalog: Catalog) -> "ShardedIndex":
        """Return shards of the same kind over another catalog; see `rebuild_index`.

        Items are placed by the hash of their ids. A placement by hand fits one catalog only, and raises an error.
        """
        shards, index, placement = self._settings
        if placement is not None:
            raise InvalidInputError(
                "the shards were placed by placement=, which fits one catalog only: give index=, a function that makes"
                " a ShardedIndex of the new catalog."
            )
        return ShardedIndex(catalog, shards, index)


def place(catalog: Catalog, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each item by a hash of its id, which is the same on every machine and in every run.

    Examples
    --------
    >>> place(Catalog(np.eye(3), ["a", "a", "b"], ids=["x", "y", "abc"]), 2).tolist()
    [1, 1, 0]
    """
    hashes = np.fromiter((zlib.crc32(str(name).encode()) for name in catalog.ids.tolist()), np.int64, len(catalog))
    return hashes % shards


def check_placement(given: npt.ArrayLike, n: int, shards: int) -> npt.NDArray[np.int64]:
    """Return the shard of each of n items as int64. Raise if the placement is invalid."""
    placement = np.asarray(given)
    if placement.shape != (n,) or placement.dtype.kind not in "iu":
        raise InvalidInputError(
            f"placement must be {n} whole numbers, the shard of each item, got shape {placement.shape}"
            f" of {placement.dtype}."
        )
    if placement.min() < 0 or placement.max() >= shards:
        at = int(np.flatnonzero((placement < 0) | (placement >= shards))[0])
        raise InvalidInputError(
            f"placement puts item {at} on shard {placement[at]}: with {shards} shards they are 0 to {shards - 1}."
        )
    return placement.astype(np.int64)


def _builder(index: str | Callable[[Catalog], Index]) -> Callable[[Catalog], Index]:
    if callable(index):
        return index
    # A late import: the registry of index names contains this index, too.
    from fairsync.search import make_index

    return lambda part: make_index(index, part)
