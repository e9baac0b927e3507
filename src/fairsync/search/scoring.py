"""Final scoring and ranking in float64, the same for every index.

An index may search for candidates in any arithmetic. The answer and its order are settled here, by scores that depend
on the item, the user and the price only: not on threads, blocks, batches, shards or the BLAS in use.
"""

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits

# Scores are computed in pieces of about 256 KB, which stay in cache.
_PIECE_VALUES = 1 << 15
# The price of the k-th item is sought among the lowest prices of bundles of groups, if there are groups enough.
_BUNDLES_PER_K, _LEAST_BUNDLE = 32, 4


def relevance(
    catalog: Catalog,
    users: npt.NDArray[np.float64],
    owners: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Return the relevance of item ``rows[j]`` to user ``owners[j]``, for each j.

    The inner product is the simplest one: float64 products added from the first dimension to the last, so that a few
    lines of Python, or another machine, get the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.array([[1.0, 2.0], [3.0, -1.0]]), ["a", "b"])
    >>> relevance(catalog, np.array([[[1.0, 1.0], [0.0, 2.0]]]), np.array([0, 0]), np.array([0, 1]))
    array([4., 2.])
    """
    best = np.empty(len(rows))
    step = max(8, _PIECE_VALUES // catalog.dim)
    for interest in range(users.shape[1]):
        vectors = users[:, interest]
        for start in range(0, len(rows), step):
            piece = slice(start, start + step)
            products = vectors.take(owners[piece], axis=0, mode="clip")
            products *= catalog.embeddings.take(rows[piece], axis=0, mode="clip")
            total = _sum_in_order(np.ascontiguousarray(products.T))
            best[piece] = total if interest == 0 else np.maximum(best[piece], total)
    return best


def _sum_in_order(products: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum each column of a C array from the first row to the last; `numpy.sum` along a row would add pairwise."""
    # `reduce` adds whole rows one after another: in order, and vectorised. A single column it would take for a row.
    single = products.shape[1] == 1
    total: npt.NDArray[np.float64] = np.add.accumulate(products)[-1] if single else np.add.reduce(products)
    return total


def settle(
    catalog: Catalog,
    users: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    owners: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
) -> Hits:
    """Rank the candidates of each user by their float64 scores and keep the best k.

    Parameters
    ----------
    catalog, users, prices, k
        As in `Index.search`, with ``users`` in float64.
    owners, rows
        Candidate j is item ``rows[j]`` for user ``owners[j]``. No pair may come twice, and no item may be masked.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.array([[1.0], [3.0]]), ["a", "b"])
    >>> settle(catalog, np.ones((1, 1, 1)), np.array([0.0, 2.5]), 2, np.array([0, 0]), np.array([0, 1])).rows
    array([[0, 1]])
    """
    raw = relevance(catalog, users, owners, rows)
    priced = raw if prices is None else raw - prices.take(catalog.group_of.take(rows))
    best = _best_of_each(priced, owners, len(users), k)
    if best is not None:
        return Hits(rows.take(best), raw.take(best))
    hits = Hits.empty(len(users), k)
    rank = rows if catalog.rank is None else catalog.rank[rows]
    order = np.lexsort((rank, -priced, owners))
    owners = owners[order]
    place = np.arange(len(order)) - np.searchsorted(owners, np.arange(len(users)))[owners]
    kept = place < k
    at = owners[kept], place[kept]
    hits.rows[at] = rows[order[kept]]
    hits.relevance[at] = raw[order[kept]]
    return hits


def _best_of_each(
    priced: npt.NDArray[np.float64], owners: npt.NDArray[np.int64], n_users: int, k: int
) -> npt.NDArray[np.int64] | None:
    """Return (n_users, k) the best candidates; None if ties decide, or if some user has fewer than k candidates.

    One sort of each row of a table is several times faster than one sort by user and score.
    """
    counts = np.bincount(owners, minlength=n_users)
    most = int(counts.max(initial=0))
    if counts.min(initial=k) < k or most * n_users > 4 * len(owners):  # or few users have most of the candidates
        return None
    by_user = np.argsort(owners.astype(np.int16) if n_users < 1 << 15 else owners, kind="stable")
    # Where each user's part of the candidates begins, and where it begins in the table.
    starts, rows = np.cumsum(counts) - counts, np.arange(n_users) * most
    table = np.full(n_users * most, np.inf)
    table[np.arange(len(by_user)) + np.repeat(rows - starts, counts)] = -priced.take(by_user)
    best = np.argsort(table.reshape(n_users, most), axis=1)[:, : k + 1]
    score = table.take(best + rows[:, None])
    ties = (score[:, 1:] == score[:, :-1]) & (score[:, 1:] < np.inf)
    return None if ties.any() else by_user.take(best[:, :k] + starts[:, None])


def settle_one(
    catalog: Catalog,
    user: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    rows: npt.NDArray[np.int64],
) -> Hits:
    """Rank the candidates of a single user, (interests, d), as `settle` does, with fewer calls of numpy.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.array([[1.0], [3.0]]), ["a", "b"])
    >>> settle_one(catalog, np.ones((1, 1)), np.array([0.0, 2.5]), 2, np.array([0, 1])).rows
    array([[0, 1]])
    """
    raw = _relevance_to_one(catalog, user, rows)
    priced = raw if prices is None else raw - prices[catalog.group_of[rows]]
    rank = rows if catalog.rank is None else catalog.rank[rows]
    order = np.lexsort((rank, -priced))[:k]
    if len(order) == k:
        return Hits(rows[order][None], raw[order][None])
    hits = Hits.empty(1, k)
    hits.rows[0, : len(order)], hits.relevance[0, : len(order)] = rows[order], raw[order]
    return hits


def _relevance_to_one(
    catalog: Catalog, user: npt.NDArray[np.float64], rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the relevance of some items to one user, (interests, d): the same bits as `relevance`."""
    if len(rows) * catalog.dim > 4 * _PIECE_VALUES:
        return relevance(catalog, user[None], np.zeros(len(rows), dtype=np.int64), rows)
    items = catalog.embeddings.take(rows, axis=0, mode="clip").T
    products = np.empty(items.shape)
    np.multiply(items, user[0][:, None], out=products)
    best = _sum_in_order(products)
    for vector in user[1:]:
        np.multiply(items, vector[:, None], out=products)
        best = np.maximum(best, _sum_in_order(products))
    return best


def settle_indifferent(
    catalog: Catalog,
    prices: npt.NDArray[np.float64] | None,
    k: int,
    eligible: npt.NDArray[np.bool_] | None = None,
) -> Hits:
    """Return the hits of a user whose vector is zero: every relevance is 0, so only price and id decide.

    Such users are common (no history yet). Everything ties for them, so that no threshold could exclude an item.

    Parameters
    ----------
    catalog, prices, k
        As in `Index.search`.
    eligible
        (items,) whether each item is eligible. By default all are.

    Examples
    --------
    >>> import numpy as np
    >>> catalog = Catalog(np.eye(3), ["a", "b", "b"])
    >>> settle_indifferent(catalog, np.array([0.1, -0.1]), 2).rows
    array([[1, 2]])
    """
    if prices is None:
        prices = np.zeros(catalog.n_groups)
    price_of, sizes = prices[catalog.group_of], catalog.group_sizes
    if eligible is not None:
        price_of[~eligible] = np.inf
        sizes = np.bincount(catalog.group_of[eligible], minlength=catalog.n_groups)
    k_eligible, reference = reference_price(sizes, prices, k)
    if k_eligible == 0:
        return Hits.empty(1, k)
    # Fewer than k items are cheaper than the reference; those at the reference fill up in the order of ids.
    sure = np.flatnonzero(price_of < reference)
    tied = np.flatnonzero(price_of == reference)
    rank = catalog.rank
    missing = k_eligible - len(sure)
    if rank is not None and missing < len(tied):
        tied = tied[np.argpartition(rank[tied], missing)]
    rows = np.concatenate([sure, tied[:missing]])
    order = np.lexsort((rows if rank is None else rank[rows], price_of[rows]))
    hits = Hits.empty(1, k)
    hits.rows[0, : len(rows)] = rows[order]
    hits.relevance[0, : len(rows)] = 0.0
    return hits


def reference_price(group_sizes: npt.NDArray[np.int64], prices: npt.NDArray[np.float64], k: int) -> tuple[int, float]:
    """Return min(k, eligible items), and the price of the last of that many items in order of price.

    If no score is beyond ±R, the k-th best priced score is within R of minus this price: at least k items have this
    price or a lower one, and fewer than k have a lower one. So only groups within 2R of it are undecided, however
    extreme the others are.

    Examples
    --------
    >>> import numpy as np
    >>> reference_price(np.array([1, 2]), np.array([-1e6, 0.5]), 2)
    (2, 0.5)
    """
    bundle = len(prices) // (_BUNDLES_PER_K * max(k, 1))
    if bundle < _LEAST_BUNDLE:
        by_price = np.argsort(prices)  # not stable, which is slower: groups of one price change nothing
        if prices[by_price[-1]] == np.inf:
            by_price = by_price[prices[by_price] < np.inf]
    else:
        # Sorting many groups would take as long as the search. At least k of them have this price or a lower one, since
        # the lowest prices of disjoint bundles are those of distinct groups.
        # Bundle i is every so-manieth group from i on: then the minimum runs over whole rows of a table.
        table = prices[: len(prices) // bundle * bundle].reshape(bundle, -1)
        lowest = table.min(axis=0)
        best = np.argpartition(lowest, k - 1)[:k]
        enough = lowest[best].max()
        if (group_sizes[table[:, best].argmin(axis=0) * len(lowest) + best] == 0).any():  # a group without items
            there = group_sizes > 0
            return reference_price(group_sizes[there], prices[there], k)
        # Groups of a lower price are in fewer than k bundles, or behind the last.
        at = np.flatnonzero(lowest < enough)
        places, own = np.nonzero(table[:, at] < enough)
        behind = table.size + np.flatnonzero(prices[table.size :] < enough)
        lower = np.concatenate([places * len(lowest) + at[own], behind])
        if enough < np.inf and group_sizes[lower].sum() < k:
            return k, float(enough)
        by_price = lower[np.argsort(prices[lower])]
    reached = np.cumsum(group_sizes[by_price])
    if not len(reached) or reached[-1] == 0:
        return 0, 0.0
    k = min(k, int(reached[-1]))
    return k, float(prices[by_price[np.searchsorted(reached, k)]])
