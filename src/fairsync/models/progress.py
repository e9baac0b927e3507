"""The progress and the result of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairsync.models.base import Model


@dataclass(frozen=True)
class Epoch:
    """The result of an epoch.

    Attributes
    ----------
    loss : float or None
        Mean loss over its samples, or None for a model without a loss.
    recall : float
        Recall@20 on the validation requests.
    seconds : float
        Time of training without validation.
    samples : int
        Number of training samples.
    """

    loss: float | None
    recall: float
    seconds: float
    samples: int


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training, for callbacks.

    Attributes
    ----------
    done, total : int
        Samples of the current epoch: finished, and all.
    loss : float
        Mean loss over the finished samples.
    epochs : tuple of Epoch
        Results of the finished epochs.
    """

    done: int
    total: int
    loss: float
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes
    ----------
    model : Model
        The model after the best epoch.
    epochs : tuple of Epoch
        Results of all epochs, in order.
    best : int
        Index of the epoch with the best validation recall.
    """

    model: Model
    epochs: tuple[Epoch, ...]
    best: int
