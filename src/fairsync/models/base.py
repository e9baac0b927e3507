"""The interface of models, validation of histories, and exact retrieval by a model."""

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

    from fairsync.catalog.attributes import Column
    from fairsync.data.requests import Requests

_SCORES = 1 << 24  # scores computed at a time: 64 MB


class Model(Protocol):
    """Maps histories to user vectors. The relevance of an item is its inner product with the user vector.

    A user with several interests has several vectors, and the relevance of an item is the maximum over them.

    Attributes
    ----------
    name : str
        One of :data:`fairsync.models.MODELS`.
    item_ids : numpy.ndarray
        (n_items,) str ids of the catalog that the model was trained for.
    dim : int
        Dimensions of a vector.
    interests : int
        Vectors per user.
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

        ``histories`` are (n, length) catalog rows, oldest first, padded at the end. If they are longer than the model
        supports, the last items are used. The vector of an empty history is 0.
        """
        ...

    def save(
        self,
        folder: Path,
        notes: Mapping[str, object] | None = None,
        attributes: Mapping[str, Column] | None = None,
    ) -> None:
        """Write the model atomically to a folder, for :func:`fairsync.models.load_model`.

        ``notes`` are stored with it, such as the name of the training data, and the ``attributes`` of the items, the
        group first, for :func:`fairsync.models.model_catalog`.
        """
        ...


def clean_histories(histories: NDArray[np.integer], n_items: int, length: int) -> NDArray[np.int64]:
    """Return the last ``length`` items of each history, with as many columns as the longest one has.

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
    """Return the ``k`` most relevant items of each history, best first, by an exhaustive search.

    Models are compared by this function, without floors and without an index. Ties are broken arbitrarily.

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
    """Return the recall of a model's best items, without floors.

    Training selects the best epoch by it.
    """
    return recall(best_items(model, requests.histories, min(k, len(model.item_ids))), requests.targets)
