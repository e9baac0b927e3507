"""What a training needs to go on after it was stopped."""

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
    """The end of an epoch.

    Attributes
    ----------
    mark : str
        What is trained on what, see :func:`fingerprint`.
    state : dict
        Weights and moments.
    epochs : list
        What the epochs so far came to.
    best : dict
        Weights of the best of them.
    """

    mark: str
    state: dict[str, Any]
    epochs: list[dict[str, Any]]
    best: dict[str, NDArray[Any]]

    def write(self, path: Path) -> None:
        """Write it in place of the one before; a kill at any moment leaves one or the other."""
        best = {key: torch.as_tensor(value) for key, value in self.best.items()}
        with atomic_file(path) as part:
            torch.save({"mark": self.mark, "state": self.state, "epochs": self.epochs, "best": best}, part)

    @staticmethod
    def read(path: Path, mark: str) -> Checkpoint | None:
        """Return what was written, or None if there is nothing; refuse one of another training."""
        if not path.exists():
            return None
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            best = {key: value.numpy() for key, value in found["best"].items()}
            kept = Checkpoint(found["mark"], found["state"], found["epochs"], best)
        except Exception as error:  # torch does not say which a damaged file may raise
            raise InvalidInputError(
                f"{path} is damaged ({error}): delete it (or give --restart) to start anew."
            ) from error
        if kept.mark != mark:
            raise InvalidInputError(
                f"{path} is of a training with other settings or other data: delete it (or give --restart) to"
                " start anew, or choose another folder."
            )
        return kept


def fingerprint(name: str, settings: NetworkSettings, split: Split, item_ids: NDArray[np.str_]) -> str:
    """Return what tells a training from every other: model, settings and data."""
    found = hashlib.sha256(json.dumps([name, asdict(settings)]).encode())
    for array in (split.train.items, split.train.offsets, split.validation.histories, item_ids):
        found.update(str(array.dtype).encode() + array.tobytes())
    return found.hexdigest()
