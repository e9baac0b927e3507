"""How a training went and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairsync.models.base import Model


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to.

    Attributes
    ----------
    loss : float or None
        Mean over its samples; None for a model that has none.
    recall : float
        Recall@20 on the validation requests.
    seconds : float
        Time of training, without the validation.
    samples : int
        Places of sequences that were learnt from.
    """

    loss: float | None
    recall: float
    seconds: float
    samples: int


@dataclass(frozen=True)
class TrainingProgress:
    """Where training stands, for those who watch.

    Attributes
    ----------
    done, total : int
        Samples of the epoch under way.
    loss : float
        Mean over those done.
    epochs : tuple of Epoch
        Those behind it.
    """

    done: int
    total: int
    loss: float
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Trained:
    """A trained model and how it came about.

    Attributes
    ----------
    model : Model
        As it was after the best epoch.
    epochs : tuple of Epoch
        All of them, in order.
    best : int
        Which of them was best on the validation requests, from 0.
    """

    model: Model
    epochs: tuple[Epoch, ...]
    best: int
