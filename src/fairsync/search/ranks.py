"""Ranks without prices: how many items are more relevant than the ones that were chosen."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from fairsync.catalog import Catalog
from fairsync.search.base import Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.exact import THREAD_PRODUCTS, ExactIndex
from fairsync.search.products import is_streamed, multiply, panel_of
from fairsync.search.rounding import Float32Queries
from fairsync.search.scoring import relevance, settle

# Scores of a block, 2 MB: they are computed and compared while they are in cache.
_BLOCK_SCORES = 1 << 19
# Up to this share of the items, those that meet a condition are scored alone.
_FEW = 0.1
# A user with more near ties than this many times k is ranked alone.
_MOST_NEAR = 8
# Up to this many users are ranked one by one, with fewer calls of numpy.
_FEW_USERS = 2
_SIGN = np.int32(-(2**31))

_Rows = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


def rank_without_prices(
    index: ExactIndex, users: npt.NDArray[np.floating], chosen: Hits, eligible: Eligibility | None
) -> tuple[_Rows, Hits]:
    """Return the rank of chosen items by relevance alone, and the items that relevance alone would choose.

    Items at least as relevant as the least relevant of the chosen ones are found by one scan in float32; float64
    decides wherever rounding could. Ranks and items are those of a plain sort by (-relevance, id), to the last tie.

    Parameters
    ----------
    index
        The index, whose float32 items are scanned.
    users
        (n, interests, d) user vectors.
    chosen
        (n, k) distinct eligible items in any order; -1 at the end for none.
    eligible
        The items that each request may get; None for all items.

    Returns
    -------
    numpy.ndarray
        (n, k) ranks from 1; 0 where there is no item.
    Hits
        (n, k) the most relevant eligible items.

    Examples
    --------
    >>> index = ExactIndex(Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "a", "b"]))
    >>> ranks, plain = rank_without_prices(index, np.ones((1, 1, 1)), Hits(np.array([[2]]), np.array([[1.0]])), None)
    >>> ranks.tolist(), plain.rows.tolist()
    ([[3]], [[0]])
    """
    vectors = np.asarray(users, dtype=np.float64)
    catalog, (n, k) = index.catalog, chosen.rows.shape
    ranks, plain = np.zeros((n, k), dtype=np.int64), Hits.empty(n, k)
    scanned = np.flatnonzero(vectors.any(axis=(1, 2)) & (chosen.rows[:, 0] >= 0))
    alone = np.flatnonzero(~vectors.any(axis=(1, 2)) & (chosen.rows[:, 0] >= 0))
    if eligible is not None:
        few = eligible.shares[scanned] <= _FEW
        alone, scanned = np.concatenate([alone, scanned[few]]), scanned[~few]
    for i in alone.tolist():
        rows = np.arange(len(catalog)) if eligible is None else np.flatnonzero(eligible.mask(i))
        scores = relevance(catalog, vectors[i : i + 1], np.zeros(len(rows), dtype=np.int64), rows)
        ranks[i] = _rank(catalog, rows, scores, chosen.rows[i], plain, i)
    if not len(scanned):
        return ranks, plain
    lowest = np.where(chosen.rows[scanned] >= 0, chosen.relevance[scanned], np.inf).min(axis=1)
    queries = Float32Queries.of(index.items, vectors[scanned], None, 0.0)
    error, unit = queries.margin / 2, queries.exponent
    cut = np.nextafter((np.ldexp(lowest, -unit) - error).astype(np.float32), np.float32(-np.inf))
    owners, rows, found = _reaching(index, queries.columns, cut)
    if eligible is not None:
        kept = eligible.allows(scanned[owners], rows)
        owners, rows, found = owners[kept], rows[kept], found[kept]
    # Where nothing else reaches the cut, the chosen items are the best ones.
    same = np.bincount(owners, minlength=len(scanned)) == (chosen.rows[scanned] >= 0).sum(axis=1)
    if same.any():
        _rank_best(catalog, chosen, scanned[same], ranks, plain)
        kept = ~same[owners]
        owners, rows, found = owners[kept], rows[kept], found[kept]
    rest = np.flatnonzero(~same)
    if len(rest) > _FEW_USERS:
        reached = _Reached(catalog, vectors[scanned], owners, rows, found, error, unit)
        rest = reached.rank(chosen, scanned, rest, ranks, plain)
    for place in rest.tolist():
        i, mine = int(scanned[place]), np.flatnonzero(owners == place)
        at, scores, off = rows[mine], np.ldexp(found[mine].astype(np.float64), unit), np.ldexp(error[place], unit)
        _settle_near(catalog, vectors[i], at, scores, float(off), chosen.relevance[i], k)
        ranks[i] = _rank(catalog, at, scores, chosen.rows[i], plain, i)
    return ranks, plain


class _Reached:
    """The items that reach the cuts of users, sorted by user and float32 score; of all users at once.

    An item whose float32 score is further from an exact one than the error is better or worse for certain. Only the
    others, and the best k, are scored in float64.

    Parameters
    ----------
    catalog, users
        The items, and (n, interests, d) the vectors of the users.
    owners, rows, scores
        User, row and float32 score of each item.
    error, unit
        (n,) how far a float32 score can be from the true one, and the exponent of its unit.
    """

    def __init__(
        self, catalog: Catalog, users: _Floats, owners: _Rows, rows: _Rows, scores: npt.NDArray[np.float32],
        error: _Floats, unit: int,
    ) -> None:  # fmt: skip
        keys = _keys(owners, scores)
        order = np.argsort(keys)
        self.catalog, self.users, self.error, self.unit = catalog, users, error, unit
        self.keys, self.rows, self.scores = keys[order], rows[order], scores[order]
        self.ends = np.cumsum(np.bincount(owners, minlength=len(users)))

    def rank(self, chosen: Hits, scanned: _Rows, places: _Rows, ranks: _Rows, plain: Hits) -> _Rows:
        """Write ranks and best items of the users in these places; return those with too many ties and near ties.

        Parameters
        ----------
        chosen, ranks, plain
            As in `rank_without_prices`.
        scanned, places
            The requests of the users, and the places among them.
        """
        k = chosen.rows.shape[1]
        at, slots = np.nonzero(chosen.rows[scanned[places]] >= 0)
        at = places[at]
        rows, exact = chosen.rows[scanned[at], slots], chosen.relevance[scanned[at], slots]
        first, last = self._near(at, np.ldexp(exact, -self.unit), self.error)
        best, end = self._best(places, k)
        many = np.bincount(at, last - first, minlength=len(self.ends)) > _MOST_NEAR * k
        many[places] |= end - best > _MOST_NEAR * k
        clear = ~many[at]
        at, slots, rows, exact, first, last = (one[clear] for one in (at, slots, rows, exact, first, last))
        rank = self.ends[at] - last + 1
        pairs = np.flatnonzero(last - first > 1)  # the item itself is there
        mark, near = _expand(first[pairs], last[pairs])
        mark, others = pairs[mark], self.rows[near]
        scores, tie = relevance(self.catalog, self.users, at[mark], others), self.catalog.rank
        earlier = others < rows[mark] if tie is None else tie[others] < tie[rows[mark]]
        is_better = (scores > exact[mark]) | ((scores == exact[mark]) & earlier)
        rank += np.bincount(mark[is_better], minlength=len(rank))
        ranks[scanned[at], slots] = rank
        kept = ~many[places]
        if kept.any():
            mine, top = _expand(best[kept], end[kept])
            found = settle(self.catalog, self.users[places[kept]], None, k, mine, self.rows[top])
            who = scanned[places[kept]]
            plain.rows[who], plain.relevance[who] = found.rows, found.relevance
        crowded: _Rows = places[~kept]
        return crowded

    def _near(self, at: _Rows, scores: _Floats, error: _Floats) -> tuple[_Rows, _Rows]:
        """Return where the items begin and end that could be on either side of a score of each of these users."""
        low = np.nextafter((scores - error[at]).astype(np.float32), np.float32(-np.inf))
        high = np.nextafter((scores + error[at]).astype(np.float32), np.float32(np.inf))
        return (
            np.searchsorted(self.keys, _keys(at, low), side="left"),
            np.searchsorted(self.keys, _keys(at, high), side="right"),
        )

    def _best(self, places: _Rows, k: int) -> tuple[_Rows, _Rows]:
        """Return where the items begin and end that may be among the best k of each of these users."""
        end = self.ends[places]
        begin = end - np.diff(self.ends, prepend=0)[places]
        kth = self.scores[np.maximum(end - k, begin)].astype(np.float64)
        return np.maximum(self._near(places, kth, 2 * self.error)[0], begin), end


def _keys(owners: _Rows, scores: npt.NDArray[np.float32]) -> _Rows:
    """Return numbers that sort by owner, then by float32 score."""
    bits = (scores + np.float32(0)).view(np.int32)  # -0 becomes 0
    return (owners << 32) + np.where(bits < 0, ~bits ^ _SIGN, bits)


def _expand(first: _Rows, last: _Rows) -> tuple[_Rows, _Rows]:
    """Return, for ranges of places, the number of its range and each place."""
    lengths = last - first
    which = np.repeat(np.arange(len(first)), lengths)
    return which, np.arange(len(which)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)


def _reaching(
    index: ExactIndex, columns: npt.NDArray[np.float32], cut: npt.NDArray[np.float32]
) -> tuple[_Rows, _Rows, npt.NDArray[np.float32]]:
    """Return owners, rows and float32 scores of all items that reach the cut of a user; rows ascend."""
    items, width = index.items.values, columns.shape[1]
    n, dim = items.shape
    workers = max(1, min(index.threads, n * dim * width // THREAD_PRODUCTS)) if width > 1 else 1
    edges = [n * part // workers for part in range(workers + 1)]

    def scan(part: int) -> list[tuple[_Rows, _Rows, npt.NDArray[np.float32]]]:
        return list(_scan(items, columns, cut, edges[part], edges[part + 1]))

    if workers == 1:
        parts = scan(0)
    else:
        with ThreadPoolExecutor(workers) as pool:
            parts = [block for one in pool.map(scan, range(workers)) for block in one]
    owners, rows, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return owners, rows, scores


def _scan(
    items: npt.NDArray[np.float32], columns: npt.NDArray[np.float32], cut: npt.NDArray[np.float32], low: int, high: int
) -> Iterable[tuple[_Rows, _Rows, npt.NDArray[np.float32]]]:
    (dim, width), users, streamed = columns.shape, len(cut), is_streamed(items, columns.shape[1])
    panel = panel_of(dim, width)
    block = max(1, _BLOCK_SCORES // (width * panel)) * panel
    memory = np.empty((min(block, high - low), width), dtype=np.float32)
    for start in range(low, high, block):
        part = items[start : min(start + block, high)]
        scores = memory[: len(part)]
        multiply(part, columns, scores, streamed=streamed)
        best = scores if width == users else scores.reshape(len(part), -1, users).max(axis=1)
        reached = np.flatnonzero(best >= cut)
        row, owner = np.divmod(reached, users)
        yield owner, row + start, best.ravel()[reached]


def _rank_best(catalog: Catalog, chosen: Hits, who: _Rows, ranks: _Rows, plain: Hits) -> None:
    """Write the ranks of requests that got the most relevant items."""
    rows, scores = chosen.rows[who], chosen.relevance[who]
    order = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -scores))
    plain.rows[who], plain.relevance[who] = (np.take_along_axis(one, order, axis=1) for one in (rows, scores))
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(1, rows.shape[1] + 1)[None], axis=1)
    ranks[who] = np.where(rows >= 0, place, 0)


def _settle_near(
    catalog: Catalog, user: _Floats, rows: _Rows, scores: _Floats, error: float, chosen: _Floats, k: int
) -> None:
    """Replace scores by exact ones wherever the error could change a rank or the best k."""
    marks = np.sort(chosen[np.isfinite(chosen)])
    near = np.searchsorted(marks, scores - error) != np.searchsorted(marks, scores + error, side="right")
    if len(scores) > k:
        near |= scores >= np.partition(scores, len(scores) - k)[len(scores) - k] - 2 * error
    else:
        near[:] = True
    at = np.flatnonzero(near)
    scores[at] = relevance(catalog, user[None], np.zeros(len(at), dtype=np.int64), rows[at])


def _rank(catalog: Catalog, rows: _Rows, scores: _Floats, chosen: _Rows, plain: Hits, i: int) -> _Rows:
    """Return the ranks of the chosen rows of request i among ascending rows, and write the best to ``plain``."""
    order = np.lexsort((rows if catalog.rank is None else catalog.rank[rows], -scores))
    k = min(len(chosen), len(order))
    plain.rows[i, :k], plain.relevance[i, :k] = rows[order[:k]], scores[order[:k]]
    rank_of = np.empty(len(order), dtype=np.int64)
    rank_of[order] = np.arange(1, len(order) + 1)
    return np.where(chosen >= 0, rank_of[np.searchsorted(rows, chosen)], 0)
