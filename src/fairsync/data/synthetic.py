"""Synthetic catalogs and requests with a realistic skew, for demos, tests and benchmarks."""

from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fairsync.errors import InvalidInputError

Vectors: TypeAlias = npt.NDArray[np.float32]

# Rows generated at a time, so that no temporary array has the size of the catalog.
_BLOCK = 1 << 15
# Standard deviation of dimension j falls as (1 + j) to this power, as it does for trained embeddings.
_SPECTRUM = -0.5
# Standard deviation of items around the centre of their group, relative to that of the centres.
_SPREAD = 1.5
# Standard deviation of the relative length of item vectors, which models popularity.
_POPULARITY = 0.15
# Number of items per taste that a request is the mean of, and the standard deviation of its noise.
_HISTORY, _NOISE = 4, 0.3


@dataclass(frozen=True)
class Synthetic:
    """A synthetic catalog and its requests.

    Attributes
    ----------
    embeddings : numpy.ndarray
        (n_items, dim) float32; vectors have length 1 on average.
    groups : numpy.ndarray
        (n_items,) int64 labels, sorted by group size: group 0 is the largest.
    users : numpy.ndarray
        (n_users, dim) float32, or (n_users, interests, dim) if there are several.
    past_users : numpy.ndarray
        Past requests of the same shape, for calibration.
    """

    embeddings: Vectors
    groups: npt.NDArray[np.int64]
    users: Vectors
    past_users: Vectors


def synthetic(
    n_items: int = 20_000,
    n_groups: int = 165,
    n_users: int = 6_000,
    dim: int = 32,
    seed: int = 0,
    *,
    n_past: int = 1_000,
    interests: int = 1,
    largest_share: float = 0.78,
    tail_exponent: float = 1.25,
    smallest_share: float = 0.00014,
) -> Synthetic:
    """Generate a catalog and requests. The same arguments give the same data.

    Group sizes follow a real catalog of books: one group holds most items, and the sizes of the others follow a power
    law (see :func:`group_sizes`). Items are distributed around the centre of their group. A user has a few tastes,
    each a group drawn in proportion to its size, and a request lies near items of these groups. So users prefer
    different groups, and small groups are preferred by few.

    Parameters
    ----------
    n_items, n_groups, n_users, dim
        Number of items, groups, requests and dimensions.
    seed
        Random seed.
    n_past
        Number of past requests, for calibration.
    interests
        Vectors per request; each is one taste. With 1, a request is the mean of two tastes.
    largest_share, tail_exponent, smallest_share
        Shape of the group sizes; see :func:`group_sizes`.

    Examples
    --------
    >>> data = synthetic(n_items=5_000, n_groups=20, n_users=100, dim=16, seed=7)
    >>> data.embeddings.shape, data.users.shape, data.past_users.shape
    ((5000, 16), (100, 16), (1000, 16))
    >>> np.bincount(data.groups)[:4].tolist()
    [3899, 409, 172, 104]
    """
    for name, value in {"n_users": n_users, "n_past": n_past}.items():
        _whole(value, name, least=0)
    for name, value in {"dim": dim, "interests": interests}.items():
        _whole(value, name, least=1)
    sizes = group_sizes(n_items, n_groups, largest_share, tail_exponent, smallest_share)
    rng = np.random.default_rng(seed)
    spectrum = (1.0 + np.arange(dim, dtype=np.float32)) ** np.float32(_SPECTRUM)
    groups = rng.permutation(np.repeat(np.arange(n_groups), sizes))
    centres = _normal(rng, n_groups, dim) * spectrum
    centres[0] *= np.float32(1 - largest_share)  # a group of mixed items lies near the origin

    spectrum *= np.float32(_SPREAD)
    embeddings = np.empty((n_items, dim), dtype=np.float32)
    for start in range(0, n_items, _BLOCK):
        block = embeddings[start : start + _BLOCK]
        rng.standard_normal(out=block, dtype=np.float32)
        block *= spectrum
        block += centres[groups[start : start + _BLOCK]]
        block *= np.exp(np.float32(_POPULARITY) * rng.standard_normal((len(block), 1), dtype=np.float32))
    embeddings /= np.float32(np.sqrt(np.mean(np.einsum("ij,ij->i", embeddings, embeddings))))

    members = np.argsort(groups, kind="stable")
    vectors = _requests(rng, embeddings, members, sizes, n_past + n_users, interests)
    return Synthetic(embeddings, groups, users=vectors[n_past:], past_users=vectors[:n_past])


def group_sizes(
    n_items: int,
    n_groups: int,
    largest_share: float = 0.78,
    tail_exponent: float = 1.25,
    smallest_share: float = 0.00014,
) -> npt.NDArray[np.int64]:
    """Return the sizes of groups, largest first.

    The defaults describe a real catalog of 367,982 books in 165 categories, whose sizes are 286569, 23876,
    11365, 5535, 2862, 2271, 2092, 1801, 1775, 1647, ..., 50.

    Parameters
    ----------
    n_items, n_groups
        Number of items and groups.
    largest_share
        Fraction of the items that the largest group holds.
    tail_exponent
        Exponent of the power law: the n-th of the other groups has a size proportional to ``n ** -tail_exponent``.
    smallest_share
        Minimum fraction of the items that a group holds. Every group has at least one item.

    Examples
    --------
    >>> sizes = group_sizes(367_982, 165)
    >>> sizes[[0, 1, 2, 3, 9, -1]].tolist(), int(sizes.sum())
    ([286809, 23275, 9786, 5895, 1493, 52], 367982)
    """
    _whole(n_groups, "n_groups", least=1)
    _whole(n_items, "n_items", least=n_groups)
    if not 0 < largest_share <= 1:
        raise InvalidInputError(f"largest_share must be above 0 and at most 1, got {largest_share!r}.")
    tail = np.arange(1.0, n_groups) ** -float(tail_exponent)
    tail *= (1 - largest_share) * n_items / max(float(tail.sum()), 1.0)
    least = max(1, round(smallest_share * n_items))
    sizes = np.maximum(np.rint(tail), least).astype(np.int64)
    first = n_items - int(sizes.sum())
    if first < int(sizes.max(initial=1)):
        raise InvalidInputError(
            f"With {n_items} items the largest group would have {max(first, 0)}, the next {sizes.max(initial=1)}: raise"
            f" largest_share ({largest_share}) or n_items, or lower smallest_share ({smallest_share})."
        )
    return np.concatenate([[first], sizes])


def _requests(
    rng: np.random.Generator,
    embeddings: Vectors,
    members: npt.NDArray[np.intp],
    sizes: npt.NDArray[np.int64],
    n: int,
    interests: int,
) -> Vectors:
    """Return requests near items of a few groups each. ``members`` lists the items by group."""
    tastes = max(interests, 2)
    liked = rng.choice(len(sizes), size=(n, tastes, 1), p=sizes / sizes.sum())
    place = (rng.random((n, tastes, _HISTORY)) * sizes[liked]).astype(np.int64)
    history = embeddings[members[(np.cumsum(sizes) - sizes)[liked] + place]]
    vectors = history.mean(axis=2)
    vectors += (
        np.float32(_NOISE)
        * embeddings.std(axis=0)
        * _normal(rng, n * tastes, embeddings.shape[1]).reshape(vectors.shape)
    )
    if interests == 1:
        vectors = vectors.mean(axis=1)
    scale = np.sqrt(np.mean(np.square(vectors).sum(axis=-1))) if n else 1.0
    return np.ascontiguousarray(vectors / np.float32(scale))


def _normal(rng: np.random.Generator, rows: int, dim: int) -> Vectors:
    return rng.standard_normal((rows, dim), dtype=np.float32)


def _whole(value: object, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(f"{name} must be a whole number, {least} or more, got {value!r}.")
