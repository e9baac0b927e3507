"""Inverted lists. As a rule none mixes groups: the price of a list is exact, and decides whether to read it.

Overlapping promises make very many groups (atoms) of a few items each. These share lists; see `list_prices`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

MIXED = -1
"""Stands for the group of a list that holds several."""

_ITEMS_PER_LIST = 256
# Lists that mix groups hold items of similar length, since a long item is far more likely to be among the best: the
# longest items up to each of these shares, and the rest. Lists of shorter items are longer: they are seldom read, and
# each list costs something beyond its length.
_LENGTH_SHARES, _ITEMS_PER_MIXED_LIST = (0.05, 0.3), (256, 512, 1024)
# A group with fewer items than this is small. Lists mix groups if there are more small groups than n divided by this.
_SMALL = 64
_LISTS_PER_PART = 96
# Lists that mix groups hold items of similar rarity, in classes that divide the items at these shares.
_RARE_SHARES = (0.1, 0.25, 0.5)
# The share of the items that is in no list where lists mix groups: the longest, which are among the best of most
# requests, and which codes describe worst.
_LONGEST_SHARE = 0.005
# If those are less than this many times as long as most items, lengths decide nothing.
_LEAST_RATIO = 1.2
# k-means converges in a few rounds on a sample; its error is measured when the index is tuned.
_ROUNDS, _SAMPLE_PER_LIST = 8, 64
_BLOCK = 1 << 15
_LEAST_SPREAD = np.float32(1e-6)
# The spread of a list is known along this many directions, those of the largest spread, and as one number along the
# rest.
_DIRECTIONS = 8
# Requests need not be like those seen: every direction gets this share of the average weight in addition to its own.
# That costs a tenth more reading if requests are as expected, and saves as much or more if they are not.
_LEAST_WEIGHT = 1.0


@dataclass(frozen=True)
class InvertedLists:
    """The assignment of items to lists, and statistics of each list that are known without reading it.

    Attributes
    ----------
    centres : numpy.ndarray
        (L, d) the mean of each list's items.
    group_of : numpy.ndarray
        (L,) the one group of each list; `MIXED` if it holds several.
    sizes : numpy.ndarray
        (L,) the number of items of each list.
    list_of, groups : numpy.ndarray
        (n,) the list and the group of each item. The list is -1 for the ``longest`` items.
    longest : numpy.ndarray
        The rows of items that are in no list, because each of them is scored for every request.
    directions : numpy.ndarray
        (d, d) one direction per column, in order of the spread of items around their centres as requests see it. The
        squared products of a vector with them add up to the squared spread along it.
    widths : numpy.ndarray
        (directions + 1, L) the squared spread of each list along the first directions, and along all others together,
        as a multiple of that of an average list; times 2 ln(size).
    """

    centres: Floats
    group_of: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    list_of: npt.NDArray[np.int32]
    groups: npt.NDArray[np.integer]
    longest: npt.NDArray[np.int64]
    directions: Floats
    widths: Floats

    @classmethod
    def of(
        cls,
        items: Floats,
        group_of: npt.NDArray[np.integer],
        requests: npt.NDArray[np.floating] | None = None,
        seed: int = 0,
        rarity: npt.NDArray[np.float64] | None = None,
    ) -> "InvertedLists":
        """Split every group by k-means into lists of some hundred items; a small group is one list.

        If there are very many small groups, lists mix groups.

        Parameters
        ----------
        items, group_of
            The items, and the group of each.
        requests
            (m, d) vectors like those to come. Items with similar scores for them get into the same list, because the
            directions of these vectors have the largest weight. By default all directions have the same weight.
        seed
            The seed of the random numbers.
        rarity
            (G,) a number for each group. Lists that mix groups keep the quarter of the items with the highest numbers
            apart, because these tend to have larger subsidies than the others.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> lists = InvertedLists.of(rng.normal(size=(1000, 8)).astype(np.float32), np.repeat([0, 1], [900, 100]))
        >>> lists.group_of.tolist(), int(lists.sizes.sum())
        ([0, 0, 0, 0, 1], 1000)
        """
        weights = np.eye(items.shape[1], dtype=np.float32) if requests is None else stretch(requests)
        made: list[int] = []
        list_of = np.full(len(items), -1, dtype=np.int32)
        for group, rows, per_list in _parts(items, group_of, weights, seed, rarity):
            wanted = max(1, round(len(rows) / per_list))
            # A centre without items makes no list.
            used, nearest = np.unique(_split(items[rows] @ weights, wanted, seed), return_inverse=True)
            list_of[rows] = nearest + len(made)
            made += [group] * len(used)
        listed, longest = np.flatnonzero(list_of >= 0), np.flatnonzero(list_of < 0)
        sizes = np.bincount(list_of[listed])
        by_list = np.argsort(list_of, kind="stable")[len(longest) :]
        sums = np.add.reduceat(items[by_list], np.cumsum(sizes) - sizes, axis=0)
        centres: Floats = (sums / sizes[:, None]).astype(np.float32)
        directions, widths = _spreads(items, listed, centres, list_of, sizes, weights)
        return cls(centres, np.array(made, dtype=np.int32), sizes, list_of, group_of, longest, directions, widths)

    def along(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Return the spread of items along each vector, on average and in each list, for scores within ±1.

        Returns
        -------
        average : numpy.ndarray
            (n, 1) the standard deviation around the centre in an average list.
        reach : numpy.ndarray
            (n, L) the expected score of the best item of each list above its centre: the largest of m normal values is
            about sqrt(2 ln m) standard deviations out.
        """
        squares = np.square(vectors @ self.directions)
        first = len(self.widths) - 1
        parts = np.hstack([squares[:, :first], squares[:, first:].sum(axis=1, keepdims=True)])
        reach: Floats = parts @ self.widths
        np.sqrt(reach, out=reach)
        # Never 0, because it is a divisor: all items of a list may be the same.
        average: Floats = np.maximum(np.sqrt(parts.sum(axis=1, keepdims=True)), _LEAST_SPREAD)
        return average, reach


def stretch(requests: npt.NDArray[np.floating]) -> Floats:
    """Return a symmetric matrix that stretches items so that their distance reflects the difference of their scores.

    Requests do not point in all directions alike: items may differ in some directions and still score nearly the same.
    Multiplied by this matrix, such items are close. Multiplying requests by its inverse leaves the scores unchanged.

    Examples
    --------
    >>> stretch(np.array([[1.0, 0.0], [-1.0, 0.0]])).round(2)
    array([[1.22, 0.  ],
           [0.  , 0.71]], dtype=float32)
    """
    vectors = requests.astype(np.float64)
    vectors = vectors / np.abs(vectors).max()
    squares = vectors.T @ vectors / len(vectors)
    values, axes = np.linalg.eigh(squares)
    values = np.maximum(values, 0) + _LEAST_WEIGHT * values.mean()
    weights: Floats = ((axes * np.sqrt(values / values.mean())) @ axes.T).astype(np.float32)
    return weights


def _parts(
    items: Floats,
    group_of: npt.NDArray[np.integer],
    weights: Floats,
    seed: int,
    rarity: npt.NDArray[np.float64] | None,
) -> list[tuple[int, npt.NDArray[np.int64], int]]:
    """Return the parts of the catalog to split into lists: the group, the rows, and the items per list.

    Where lists mix groups, the longest items are in no part.
    """
    sizes = np.bincount(group_of)
    if np.count_nonzero((sizes > 0) & (sizes < _SMALL)) * _SMALL <= len(items):
        by_group = np.argsort(group_of, kind="stable")
        rows = np.split(by_group, np.flatnonzero(np.diff(group_of[by_group])) + 1)
        return [(int(group_of[some[0]]), some, _ITEMS_PER_LIST) for some in rows]
    # k-means on a large catalog as a whole would take minutes: its parts are made first.
    count = max(1, round(len(items) / _ITEMS_PER_MIXED_LIST[-1] / _LISTS_PER_PART))
    means = _means(items.shape[1], count, seed)
    drawn = np.random.default_rng(seed).choice(len(items), min(len(items), count * _SAMPLE_PER_LIST), replace=False)
    means.train(items[drawn] @ weights)
    blocks = [slice(at, at + _BLOCK) for at in range(0, len(items), _BLOCK)]
    part_of = np.concatenate([means.assign(items[block] @ weights)[1] for block in blocks])
    if rarity is not None:
        of_item = rarity[group_of]
        limits = np.quantile(of_item, 1 - np.array(_RARE_SHARES))
        part_of = (len(limits) + 1) * part_of + (of_item[:, None] > limits).sum(axis=1)
    lengths = np.einsum("ij,ij->i", items, items)
    limits = np.quantile(lengths, 1 - np.array([_LONGEST_SHARE, *_LENGTH_SHARES]))
    if limits[0] < _LEAST_RATIO**2 * np.median(lengths):
        limits[:] = np.inf
    band = (lengths[:, None] <= limits).sum(axis=1)  # 0 for the longest items, which are in no list
    return [
        (MIXED, some, per_list)
        for at, per_list in enumerate(_ITEMS_PER_MIXED_LIST, start=1)
        for part in np.unique(part_of)
        if len(some := np.flatnonzero((part_of == part) & (band == at)))
    ]


def _means(dim: int, count: int, seed: int) -> Any:
    import faiss  # here, because it takes long to import

    return faiss.Kmeans(
        dim, count, niter=_ROUNDS, seed=seed + 1, min_points_per_centroid=1, max_points_per_centroid=_SAMPLE_PER_LIST
    )


def _split(items: Floats, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the list of each item of one group, of ``wanted`` lists."""
    if wanted == 1:
        return np.zeros(len(items), dtype=np.int64)
    means = _means(items.shape[1], wanted, seed)
    means.train(items)
    nearest: npt.NDArray[np.int64] = means.assign(items)[1].astype(np.int64)
    return nearest


def _spreads(
    items: Floats,
    listed: npt.NDArray[np.int64],
    centres: Floats,
    list_of: npt.NDArray[np.int32],
    sizes: npt.NDArray[np.int64],
    weights: Floats,
) -> tuple[Floats, Floats]:
    """Return the directions and widths of `InvertedLists`."""
    dim, blocks = items.shape[1], [listed[start : start + _BLOCK] for start in range(0, len(listed), _BLOCK)]
    total = np.zeros((dim, dim))
    for block in blocks:
        off = (items[block] - centres[list_of[block]]) @ weights
        total += off.T @ off
    squares, axes = np.linalg.eigh(total / len(listed))
    squares, axes = np.maximum(squares[::-1], 0), axes[:, ::-1]
    turned = (weights @ axes).astype(np.float32)
    first = min(_DIRECTIONS, dim)
    widths = np.zeros((first + 1, len(centres)))
    for block in blocks:
        at = list_of[block]
        out = np.square((items[block] - centres[at]) @ turned)
        for row, values in zip(widths, [*out[:, :first].T, out[:, first:].sum(axis=1)], strict=True):
            row += np.bincount(at, values, minlength=len(centres))
    average = np.append(squares[:first], squares[first:].sum())[:, None]
    # If no list has any spread, the width has no meaning and the direction no length.
    widths = np.divide(widths / sizes, average, out=np.zeros_like(widths), where=average > 0) * (2 * np.log(sizes))
    return (np.linalg.inv(weights) @ axes * np.sqrt(squares)).astype(np.float32), widths.astype(np.float32)
