"""Truncated SVD of the interaction matrix: trains in seconds, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fairsync.errors import InvalidInputError
from fairsync.models.base import clean_histories
from fairsync.models.folder import StoredModel
from fairsync.models.settings import SvdSettings
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column
    from fairsync.ragged import Ragged

_RARE = 0.25
"""Popular items are less informative: their weight is divided by this power of their count."""


class Svd:
    """Item vectors are right singular vectors of the interaction matrix; a user vector is a sum over the history.

    Parameters
    ----------
    settings
        Settings of the model.
    item_ids
        Ids of the catalog.
    items
        (n_items, dim) Item vectors for retrieval.
    past
        (n_items, dim) Item vectors that are summed over a history.
    """

    name = "svd"
    interests = 1

    def __init__(
        self,
        settings: SvdSettings,
        item_ids: NDArray[np.str_],
        items: NDArray[np.float32],
        past: NDArray[np.float32],
    ) -> None:
        if not (items.ndim == 2 and items.shape == past.shape and len(items) == len(item_ids)):
            raise InvalidInputError("The weights do not fit the catalog: train the model again.")
        self.settings, self.item_ids, self.items, self.past = settings, item_ids, items, past
        self.dim = items.shape[1]

    def item_vectors(self) -> NDArray[np.float32]:
        """Return (n_items, dim)."""
        return self.items

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return (n, dim) vectors of length 1, so that all users have equal weight, or 0 for an empty history."""
        cleaned = clean_histories(histories, len(self.item_ids), self.settings.history)
        real = cleaned != PADDING
        offsets = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        ones = np.ones(offsets[-1], dtype=np.float32)
        taken = sparse.csr_array((ones, cleaned[real], offsets), (len(cleaned), len(self.items)))
        users = taken @ self.past
        lengths = np.linalg.norm(users, axis=1, keepdims=True)
        found = users / np.where(lengths > 0, lengths, 1)
        return found.astype(np.float32, copy=False)

    def save(
        self,
        folder: Path,
        notes: Mapping[str, object] | None = None,
        attributes: Mapping[str, Column] | None = None,
    ) -> None:
        """Write the model; see :meth:`fairsync.models.Model.save`."""
        weights = {"items": self.items, "past": self.past}
        StoredModel(self.name, self.settings, self.item_ids, weights, notes or {}, attributes or {}).write(folder)

    @classmethod
    def restore(cls, stored: StoredModel) -> Svd:
        """Return the model of a folder."""
        assert isinstance(stored.settings, SvdSettings)
        if not {"items", "past"} <= set(stored.weights):
            raise InvalidInputError("The model's weights are damaged: train it again.")
        return cls(stored.settings, stored.item_ids, stored.weights["items"], stored.weights["past"])


def train_svd(sequences: Ragged, item_ids: NDArray[np.str_], settings: SvdSettings | None = None) -> Svd:
    """Train the model. The same arguments give the same model.

    The matrix of users and items holds log(1 + number of interactions). Rows are normalised to length 1, so that active
    users do not have more weight. Columns are divided by a power of the item's popularity, without which the first
    singular vectors describe popularity only [1]_.

    Parameters
    ----------
    sequences
        Items of each user.
    item_ids
        Ids of the catalog.
    settings
        Settings of the model. Defaults to ``make_settings("svd")``. With fewer items or sequences than ``dim``, the
        vectors have fewer dimensions.

    References
    ----------
    .. [1] Nikolakopoulos et al., "EigenRec: generalizing PureSVD for effective and efficient top-N
       recommendations", Knowledge and Information Systems 58, 2019.

    Examples
    --------
    >>> from fairsync.ragged import Ragged
    >>> bought = Ragged(np.array([0, 1, 0, 1, 2, 3, 2, 3], dtype=np.int32), np.array([0, 2, 4, 6, 8]))
    >>> model = train_svd(bought, np.array(["tea", "milk", "nut", "bolt"]))
    >>> (model.user_vectors(np.array([[0, -1]])) @ model.item_vectors().T > 0.01).tolist()
    [[True, True, False, False]]
    """
    settings = settings or SvdSettings()
    shape = (len(sequences), len(item_ids))
    dim = min(settings.dim, min(shape) - 1)
    if dim < 1 or len(sequences.items) == 0:
        raise InvalidInputError("svd needs two users and two items at least: give more data.")
    users = np.repeat(np.arange(len(sequences)), sequences.lengths)
    taken = sparse.csr_array((np.ones(len(users)), (users, sequences.items)), shape)  # repeated items are summed
    taken.data = np.log1p(taken.data)
    weight = np.maximum(np.bincount(sequences.items, minlength=len(item_ids)), 1.0) ** -_RARE
    long = np.sqrt(taken.multiply(taken).sum(axis=1))
    scaled = sparse.diags_array(1 / np.where(long > 0, long, 1)) @ taken @ sparse.diags_array(weight)
    start = np.random.default_rng(settings.seed).standard_normal(min(shape)).astype(np.float32)
    # Products are tiny: on a busy machine, BLAS threads would take ten times as long waiting for each other.
    with threadpool_limits(1, "blas"):
        _, strength, right = svds(scaled.astype(np.float32), k=dim, v0=start)
    items = np.ascontiguousarray(right.T, dtype=np.float32)
    past = (weight[:, None] * items * np.sqrt(np.maximum(strength, 0))).astype(np.float32)
    return Svd(settings, item_ids, items, past)
