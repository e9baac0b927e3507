"""Checkpoint: the state of a training after an epoch, from which it can be resumed."""

# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from fairsync.atomic_write import atomic_file
from fairsync.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.data.splits import Split
    from fairsync.models.settings import NetworkSettings


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after an epoch.

    Attributes
    ----------
    mark : str
        Fingerprint of the model, settings and data; see :func:`fingerprint`.
    state : dict
        Weights, and moments of the optimizers.
    epochs : list
        Results of the epochs so far.
    best : dict
        Weights after the best epoch.
    """

    mark: str
    state: dict[str, Any]
    epochs: list[dict[str, Any]]
    best: dict[str, NDArray[Any]]

    def write(self, path: Path) -> None:
        """Replace the checkpoint file atomically."""
        best = {key: torch.as_tensor(value) for key, value in self.best.items()}
        with atomic_file(path) as part:
            torch.save({"mark": self.mark, "state": self.state, "epochs": self.epochs, "best": best}, part)

    @staticmethod
    def read(path: Path, mark: str) -> Checkpoint | None:
        """Return the checkpoint in a file, or None if there is none. A checkpoint of another training is refused."""
        if not path.exists():
            return None
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            best = {key: value.numpy() for key, value in found["best"].items()}
            kept = Checkpoint(found["mark"], found["state"], found["epochs"], best)
        except Exception as error:  # torch raises many types of errors for damaged files
            raise InvalidInputError(
                f"{path} is damaged ({error}): delete it (or give --restart) to start again."
            ) from error
        if kept.mark != mark:
            raise InvalidInputError(
                f"{path} is of a training with other settings or other data: delete it (or give --restart) to"
                " start again, or choose another folder."
            )
        return kept


def fingerprint(name: str, settings: NetworkSettings, split: Split, item_ids: NDArray[np.str_]) -> str:
    """Return a hash of everything that identifies a training: model, settings and data."""
    found = hashlib.sha256(json.dumps([name, asdict(settings)]).encode())
    for array in (split.train.items, split.train.offsets, split.validation.histories, item_ids):
        found.update(str(array.dtype).encode() + array.tobytes())
    return found.hexdigest()
