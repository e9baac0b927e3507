"""Items in lists, none of which mixes groups: so one price per list is exact, and can steer which lists to read."""

from dataclasses import dataclass

import faiss
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ITEMS_PER_LIST = 256
# Centres settle in a few rounds, on a sample: what they miss is measured when the index is tuned.
_ROUNDS, _SAMPLE_PER_LIST = 8, 64
_BLOCK = 1 << 15
_LEAST_SPREAD = np.float32(1e-6)
# Along so many directions, those in which items spread most, lists are told apart; along the rest by one number.
_DIRECTIONS = 8
# Requests need not be like those seen: every direction has this much of an average one's weight beside its own. That
# costs a tenth more reading where requests are as expected, and saves as much or more where they are not.
_LEAST_WEIGHT = 1.0


@dataclass(frozen=True)
class InvertedLists:
    """Where each item lies, and what is known of each list without reading it.

    Attributes
    ----------
    centres : numpy.ndarray
        (L, d) the mean of each list's items.
    group_of : numpy.ndarray
        (L,) the one group of each list.
    sizes : numpy.ndarray
        (L,) how many items each has.
    list_of : numpy.ndarray
        (n,) the list of each item.
    directions : numpy.ndarray
        (d, d) one column for each direction, first those in which items spread most around their centres as requests
        see it; the squares of a vector's products with them add up to the squared spread along it.
    widths : numpy.ndarray
        (directions + 1, L) the squared spread of each list along the first of them, and along all others, as a multiple
        of that of an average list; times 2 ln(size).
    """

    centres: Floats
    group_of: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    list_of: npt.NDArray[np.int32]
    directions: Floats
    widths: Floats

    @classmethod
    def of(
        cls,
        items: Floats,
        group_of: npt.NDArray[np.integer],
        requests: npt.NDArray[np.floating] | None = None,
        seed: int = 0,
    ) -> "InvertedLists":
        """Split every group by k-means into lists of some hundred items; a small group is one list.

        Parameters
        ----------
        items, group_of
            What to split, and along which borders.
        requests
            (m, d) vectors like those to come. Items that score alike for them come into the same list: the
            directions in which they point count most. By default all directions count alike.
        seed
            Where chance starts.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> lists = InvertedLists.of(rng.normal(size=(1000, 8)).astype(np.float32), np.repeat([0, 1], [900, 100]))
        >>> lists.group_of.tolist(), int(lists.sizes.sum())
        ([0, 0, 0, 0, 1], 1000)
        """
        weights = np.eye(items.shape[1], dtype=np.float32) if requests is None else stretch(requests)
        groups: list[int] = []
        list_of = np.empty(len(items), dtype=np.int32)
        by_group = np.argsort(group_of, kind="stable")
        for rows in np.split(by_group, np.flatnonzero(np.diff(group_of[by_group])) + 1):
            wanted = max(1, round(len(rows) / _ITEMS_PER_LIST))
            # A centre that no item is nearest to is no list.
            made, nearest = np.unique(_split(items[rows] @ weights, wanted, seed), return_inverse=True)
            list_of[rows] = nearest + len(groups)
            groups += [int(group_of[rows[0]])] * len(made)
        sizes = np.bincount(list_of)
        by_list = np.argsort(list_of, kind="stable")
        sums = np.add.reduceat(items[by_list], np.cumsum(sizes) - sizes, axis=0)
        centres: Floats = (sums / sizes[:, None]).astype(np.float32)
        directions, widths = _spreads(items, centres, list_of, sizes, weights)
        return cls(centres, np.array(groups, dtype=np.int32), sizes, list_of, directions, widths)

    def along(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Return how much items spread along each vector, where scores are within ±1: on average, and in each list.

        Returns
        -------
        average : numpy.ndarray
            (n, 1) the spread around the centre in an average list.
        reach : numpy.ndarray
            (n, L) how far beyond its centre the best item of each list is expected: the largest of m normal values is
            about sqrt(2 ln m) deviations out.
        """
        squares = np.square(vectors @ self.directions)
        first = len(self.widths) - 1
        parts = np.hstack([squares[:, :first], squares[:, first:].sum(axis=1, keepdims=True)])
        reach: Floats = parts @ self.widths
        np.sqrt(reach, out=reach)
        # Never quite 0, to be divided by: all items of a list may be the same.
        average: Floats = np.maximum(np.sqrt(parts.sum(axis=1, keepdims=True)), _LEAST_SPREAD)
        return average, reach


def stretch(requests: npt.NDArray[np.floating]) -> Floats:
    """Return a symmetric matrix to multiply items by, so that their distance is how much their scores differ.

    Requests do not point in all directions alike: along some of them, items may differ and score nearly the same.
    Multiplied by this matrix, such items are close. Multiplying requests by its inverse leaves scores as they are.

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


def _split(items: Floats, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    """Return to which of so many lists each item of one group goes."""
    if wanted == 1:
        return np.zeros(len(items), dtype=np.int64)
    means = faiss.Kmeans(
        items.shape[1], wanted, niter=_ROUNDS, seed=seed + 1,
        min_points_per_centroid=1, max_points_per_centroid=_SAMPLE_PER_LIST,
    )  # fmt: skip
    means.train(items)
    nearest: npt.NDArray[np.int64] = means.assign(items)[1].astype(np.int64)
    return nearest


def _spreads(
    items: Floats, centres: Floats, list_of: npt.NDArray[np.int32], sizes: npt.NDArray[np.int64], weights: Floats
) -> tuple[Floats, Floats]:
    """Return the directions and widths of `InvertedLists`."""
    dim, blocks = items.shape[1], [slice(start, start + _BLOCK) for start in range(0, len(items), _BLOCK)]
    total = np.zeros((dim, dim))
    for block in blocks:
        off = (items[block] - centres[list_of[block]]) @ weights
        total += off.T @ off
    squares, axes = np.linalg.eigh(total / len(items))
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
    # Where no list spreads at all, the width has no meaning and the direction no length.
    widths = np.divide(widths / sizes, average, out=np.zeros_like(widths), where=average > 0) * (2 * np.log(sizes))
    return (np.linalg.inv(weights) @ axes * np.sqrt(squares)).astype(np.float32), widths.astype(np.float32)
