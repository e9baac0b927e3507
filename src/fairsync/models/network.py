"""A trained network: a table of item vectors, and an encoder that computes user vectors from them."""

# torch is in the extra "models". mypy must also pass without it.
# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import embedding, normalize

from fairsync.errors import InvalidInputError
from fairsync.models.base import clean_histories
from fairsync.models.comirec import ComiRecDR, ComiRecSA
from fairsync.models.folder import StoredModel
from fairsync.models.gru4rec import GRU4Rec
from fairsync.models.mind import MIND
from fairsync.models.settings import NetworkSettings
from fairsync.models.youtube_dnn import YoutubeDNN
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column

ENCODERS: dict[str, type[torch.nn.Module]] = {
    "youtube-dnn": YoutubeDNN,
    "gru4rec": GRU4Rec,
    "mind": MIND,
    "comirec-sa": ComiRecSA,
    "comirec-dr": ComiRecDR,
}
"""Encoders map (n, length, dim) item vectors and an (n, length) mask without padding to (n, [interests,] dim)."""

_BLOCK = 4096  # histories encoded at a time
_SPREAD = 0.1  # standard deviation of untrained item vectors


class Network:
    """A model of one of the :data:`ENCODERS`.

    Relevance is the cosine similarity: :meth:`item_vectors` and :meth:`user_vectors` return vectors of length 1. The
    encoder gets item vectors before normalisation, so longer vectors have more weight.

    Parameters
    ----------
    name
        Name of the encoder.
    settings
        Settings of the network. The seed decides the untrained weights.
    item_ids
        Ids of the catalog.

    Examples
    --------
    >>> from fairsync.models.settings import make_settings
    >>> model = Network("comirec-sa", make_settings("comirec-sa", dim=8), np.array(["tea", "milk", "nut"]))
    >>> model.item_vectors().shape, model.user_vectors(np.array([[2, 0, -1]])).shape
    ((3, 8), (1, 4, 8))
    """

    def __init__(self, name: str, settings: NetworkSettings, item_ids: NDArray[np.str_]) -> None:
        if len(item_ids) == 0:
            raise InvalidInputError("item_ids is empty: a model needs a catalog of at least one item.")
        self.name, self.settings, self.item_ids = name, settings, item_ids
        self.dim, self.interests = settings.dim, settings.interests
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            self.table = torch.randn(len(item_ids), settings.dim).mul_(_SPREAD).to(self.device)
            self.encoder = ENCODERS[name](settings).to(self.device)

    def encode(self, vectors: torch.Tensor, histories: torch.Tensor) -> torch.Tensor:
        """Return user vectors of length 1.

        Parameters
        ----------
        vectors
            (m, dim) Item vectors.
        histories
            (n, length) Rows of ``vectors``, padded at the end. Every history has at least one item.
        """
        real = histories != PADDING
        # The vector of padding is 0, and encoders mask it as well.
        embedded = embedding(histories.clamp(min=0), vectors) * real.unsqueeze(-1)
        return normalize(self.encoder(embedded, real), dim=-1)

    def item_vectors(self) -> NDArray[np.float32]:
        """Return (n_items, dim), each of length 1."""
        return normalize(self.table, dim=-1).cpu().numpy()

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return (n, dim) or (n, interests, dim) vectors of length 1, or 0 for an empty history."""
        cleaned = clean_histories(histories, len(self.item_ids), self.settings.history)
        shape = (self.dim,) if self.interests == 1 else (self.interests, self.dim)
        users = np.zeros((len(cleaned), *shape), dtype=np.float32)
        known = np.flatnonzero((cleaned != PADDING).any(axis=1))
        self.encoder.eval()
        with torch.no_grad():
            for start in range(0, len(known), _BLOCK):
                rows = known[start : start + _BLOCK]
                block = torch.as_tensor(cleaned[rows], device=self.device)
                users[rows] = self.encode(self.table, block).cpu().numpy()
        return users

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all weights by name."""
        found = {f"encoder.{key}": value.cpu().numpy().copy() for key, value in self.encoder.state_dict().items()}
        return {"table": self.table.cpu().numpy().copy(), **found}

    def set_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set all weights, as returned by :meth:`weights`. Wrong shapes are refused before anything changes."""
        now = self.weights()
        if {key: value.shape for key, value in now.items()} != {key: value.shape for key, value in weights.items()}:
            raise InvalidInputError(f"The weights do not fit a {self.name} with these settings: train it again.")
        self.table.copy_(torch.as_tensor(weights["table"]))
        state = {key: torch.as_tensor(weights[f"encoder.{key}"]) for key in self.encoder.state_dict()}
        self.encoder.load_state_dict(state)

    def save(
        self,
        folder: Path,
        notes: Mapping[str, object] | None = None,
        attributes: Mapping[str, Column] | None = None,
    ) -> None:
        """Write the model; see :meth:`fairsync.models.Model.save`."""
        StoredModel(self.name, self.settings, self.item_ids, self.weights(), notes or {}, attributes or {}).write(
            folder
        )

    @classmethod
    def restore(cls, stored: StoredModel) -> Network:
        """Return the model of a folder."""
        assert isinstance(stored.settings, NetworkSettings)  # for every name but svd
        model = cls(stored.name, stored.settings, stored.item_ids)
        model.set_weights(stored.weights)
        return model
