"""A trained network: a table of item vectors, and an encoder that makes user vectors of them."""

# torch comes with the extra "models"; this file must also pass where it is not installed.
# mypy: disable-error-code="misc, no-untyped-call, no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import embedding, normalize

from fairsync.errors import InvalidInputError
from fairsync.models.base import clean_histories
from fairsync.models.comirec import ComiRecDR, ComiRecSA
from fairsync.models.folder import Stored
from fairsync.models.gru4rec import GRU4Rec
from fairsync.models.mind import MIND
from fairsync.models.settings import NetworkSettings
from fairsync.models.youtube_dnn import YoutubeDNN
from fairsync.ragged import PADDING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

ENCODERS: dict[str, type[torch.nn.Module]] = {
    "youtube-dnn": YoutubeDNN,
    "gru4rec": GRU4Rec,
    "mind": MIND,
    "comirec-sa": ComiRecSA,
    "comirec-dr": ComiRecDR,
}
"""Each takes (n, length, dim) vectors of items and (n, length) which are real, gives (n, [interests,] dim)."""

_BLOCK = 4096  # histories at a time
_SPREAD = 0.1  # standard deviation of untrained item vectors


class Network:
    """A model of one of the :data:`ENCODERS`.

    Items and users are compared by the cosine: what :meth:`item_vectors` and :meth:`user_vectors` return has
    length 1. The encoder sees the items' vectors before that, so an item can count for more by being longer.

    Parameters
    ----------
    name
        Of the encoder.
    settings
        Its sizes; the seed decides the untrained weights.
    item_ids
        The catalog.

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
        """Return the users' vectors of length 1.

        Parameters
        ----------
        vectors
            (m, dim) of items.
        histories
            (n, length) rows of ``vectors``, padded at the end; every one has an item.
        """
        real = histories != PADDING
        # Padding has no vector: it is given 0, and encoders leave it out besides.
        embedded = embedding(histories.clamp(min=0), vectors) * real.unsqueeze(-1)
        return normalize(self.encoder(embedded, real), dim=-1)

    def item_vectors(self) -> NDArray[np.float32]:
        """Return (n_items, dim), each of length 1."""
        return normalize(self.table, dim=-1).cpu().numpy()

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return (n, dim) or (n, interests, dim), each of length 1; 0 for an empty history."""
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
        """Return a copy of everything that was learnt, by name."""
        found = {f"encoder.{key}": value.cpu().numpy().copy() for key, value in self.encoder.state_dict().items()}
        return {"table": self.table.cpu().numpy().copy(), **found}

    def set_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take over what :meth:`weights` returned; shapes that do not fit are refused before anything changes."""
        now = self.weights()
        if {key: value.shape for key, value in now.items()} != {key: value.shape for key, value in weights.items()}:
            raise InvalidInputError(f"The weights do not fit a {self.name} with these settings: train it again.")
        self.table.copy_(torch.as_tensor(weights["table"]))
        state = {key: torch.as_tensor(weights[f"encoder.{key}"]) for key in self.encoder.state_dict()}
        self.encoder.load_state_dict(state)

    def save(self, folder: Path, notes: Mapping[str, object] | None = None) -> None:
        """Write the model, see :meth:`fairsync.models.Model.save`."""
        Stored(self.name, self.settings, self.item_ids, self.weights(), notes or {}).write(folder)

    @classmethod
    def restore(cls, stored: Stored) -> Network:
        """Return the model that was written."""
        assert isinstance(stored.settings, NetworkSettings)  # for every name but svd
        model = cls(stored.name, stored.settings, stored.item_ids)
        model.set_weights(stored.weights)
        return model
