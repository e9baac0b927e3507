"""What every model can do, and what is asked of every history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.metrics import recall
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.data.requests import Requests

_SCORES = 1 << 24  # at a time: 64 MB


class Model(Protocol):
    """Turns histories into vectors; an item's relevance is its inner product with the user's vector.

    A user with several interests has several vectors, and an item's relevance is the best over them.

    Attributes
    ----------
    name : str
        One of :data:`fairsync.models.MODELS`.
    item_ids : numpy.ndarray
        (n_items,) str: the catalog that the model was made for.
    dim, interests : int
        Dimensions of a vector, and vectors per user.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def item_ids(self) -> NDArray[np.str_]: ...  # noqa: D102

    @property
    def dim(self) -> int: ...  # noqa: D102

    @property
    def interests(self) -> int: ...  # noqa: D102

    def item_vectors(self) -> NDArray[np.float32]:
        """Return (n_items, dim)."""
        ...

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return (n, dim), or (n, interests, dim) if there are several.

        ``histories`` is (n, length) rows of the catalog, oldest first, padded at the end. Of a longer one
        than the model was made for, the last items count. An empty history has the vector 0: nothing is known.
        """
        ...

    def save(self, folder: Path, notes: Mapping[str, object] | None = None) -> None:
        """Write everything that :func:`fairsync.models.load_model` needs; the folder appears whole or not at all.

        ``notes`` are kept beside it, such as what the model was trained on.
        """
        ...


def clean_histories(histories: NDArray[np.integer], n_items: int, length: int) -> NDArray[np.int64]:
    """Return the last ``length`` items of each history, with no more columns than the longest needs.

    Examples
    --------
    >>> clean_histories(np.array([[5, 6, 7, -1], [8, -1, -1, -1]]), n_items=9, length=2)
    array([[ 6,  7],
           [ 8, -1]])
    """
    histories = np.asarray(histories)
    if histories.ndim != 2 or not np.issubdtype(histories.dtype, np.integer):
        raise InvalidInputError(
            f"histories must be (n, length) whole numbers, got {histories.dtype} {histories.shape}."
        )
    real = histories != PADDING
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise InvalidInputError(f"histories must be padded at the end: an item follows a {PADDING}.")
    if ((histories < 0) & real).any() or (histories >= n_items).any():
        raise InvalidInputError(
            f"histories must hold rows of the catalog, 0 to {n_items - 1}, and {PADDING} as padding."
            " Is this the catalog that the model was made for?"
        )
    counts = real.sum(axis=1)
    width = min(length, int(counts.max(initial=0)))
    places = np.maximum(counts - width, 0)[:, None] + np.arange(width)
    kept = np.take_along_axis(histories, np.minimum(places, max(histories.shape[1] - 1, 0)), axis=1)
    return np.where(places < counts[:, None], kept, PADDING).astype(np.int64)


def best_items(model: Model, histories: NDArray[np.integer], k: int) -> NDArray[np.int64]:
    """Return the ``k`` most relevant items of each history, best first: every item is looked at.

    This is how models are compared, without floors and without an index. Equal relevance: any of them.

    Examples
    --------
    >>> from fairsync.ragged import Ragged
    >>> from fairsync.models import train_svd
    >>> bought = Ragged(np.array([0, 1, 0, 1, 2, 3, 2, 3], dtype=np.int32), np.array([0, 2, 4, 6, 8]))
    >>> model = train_svd(bought, np.array(["tea", "milk", "nut", "bolt"]))
    >>> model.item_ids[np.sort(best_items(model, np.array([[0], [3]]), k=2))].tolist()
    [['tea', 'milk'], ['nut', 'bolt']]
    """
    items = model.item_vectors()
    if not 1 <= k <= len(items):
        raise InvalidInputError(f"k must be from 1 to the {len(items)} items of the catalog, got {k}.")
    users = model.user_vectors(histories).reshape(len(histories), model.interests, model.dim)
    best = np.empty((len(users), k), dtype=np.int64)
    step = max(_SCORES // (len(items) * model.interests), 1)
    for start in range(0, len(users), step):
        block = users[start : start + step]
        scores = (block.reshape(-1, model.dim) @ items.T).reshape(len(block), model.interests, -1).max(axis=1)
        found = np.argpartition(scores, len(items) - k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1, kind="stable")
        best[start : start + step] = np.take_along_axis(found, order, axis=1)
    return best


def recall_of(model: Model, requests: Requests, k: int = 20) -> float:
    """Return the mean share of a request's targets among a model's best items, without floors.

    This is what the best epoch of a training is chosen by.
    """
    return recall(best_items(model, requests.histories, min(k, len(model.item_ids))), requests.targets)
