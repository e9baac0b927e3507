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


@dataclass(frozen=True)
class Lists:
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
    reach : numpy.ndarray
        (L,) how far beyond the centre the best item of a list is expected, for a vector along which the items
        of an average list spread by 1 (see :meth:`along`).
    spread : numpy.ndarray
        (d, d) covariance of items around their centres, over all lists.
    """

    centres: Floats
    group_of: npt.NDArray[np.int32]
    sizes: npt.NDArray[np.int64]
    list_of: npt.NDArray[np.int32]
    reach: Floats
    spread: Floats

    @classmethod
    def of(cls, items: Floats, group_of: npt.NDArray[np.integer], seed: int = 0) -> "Lists":
        """Split every group by k-means into lists of some hundred items; a small group is one list.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> lists = Lists.of(rng.normal(size=(1000, 8)).astype(np.float32), np.repeat([0, 1], [900, 100]))
        >>> lists.group_of.tolist(), int(lists.sizes.sum())
        ([0, 0, 0, 0, 1], 1000)
        """
        centres: list[Floats] = []
        groups: list[int] = []
        list_of = np.empty(len(items), dtype=np.int32)
        by_group = np.argsort(group_of, kind="stable")
        for rows in np.split(by_group, np.flatnonzero(np.diff(group_of[by_group])) + 1):
            wanted = max(1, round(len(rows) / _ITEMS_PER_LIST))
            made, nearest = _split(items[rows], wanted, seed)
            list_of[rows] = nearest + len(groups)
            centres.append(made)
            groups += [int(group_of[rows[0]])] * len(made)
        joined = np.concatenate(centres)
        sizes = np.bincount(list_of, minlength=len(joined))
        squares, spread = np.zeros(len(joined)), np.zeros((items.shape[1],) * 2, dtype=np.float32)
        for start in range(0, len(items), _BLOCK):
            block = slice(start, start + _BLOCK)
            off = items[block] - joined[list_of[block]]
            squares += np.bincount(list_of[block], np.einsum("ij,ij->i", off, off), minlength=len(joined))
            spread += off.T @ off
        radius = np.sqrt(squares / np.maximum(sizes, 1))
        average = np.sqrt(squares.sum() / len(items)) or 1.0
        # The largest of n normal values is about sqrt(2 ln n) deviations out.
        reach = (radius / average * np.sqrt(2 * np.log(np.maximum(sizes, 1)))).astype(np.float32)
        return cls(joined, np.array(groups, dtype=np.int32), sizes, list_of, reach, spread / np.float32(len(items)))

    def along(self, vectors: Floats) -> Floats:
        """Return how much the items of an average list spread along each vector, where scores are within ±1."""
        squares = np.einsum("ij,ij->i", vectors @ self.spread, vectors)
        # Never quite 0, to be divided by: all items of a list may be the same.
        spread: Floats = np.maximum(np.sqrt(np.maximum(squares, 0)), _LEAST_SPREAD)
        return spread


def _split(items: Floats, wanted: int, seed: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return centres of items of one group, and the nearest centre of each item."""
    if wanted == 1:
        return items.mean(axis=0, keepdims=True), np.zeros(len(items), dtype=np.int64)
    means = faiss.Kmeans(
        items.shape[1], wanted, niter=_ROUNDS, seed=seed + 1,
        min_points_per_centroid=1, max_points_per_centroid=_SAMPLE_PER_LIST,
    )  # fmt: skip
    means.train(items)
    centres: Floats = np.asarray(means.centroids)
    return centres, means.assign(items)[1].astype(np.int64)
