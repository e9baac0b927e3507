"""The names of all models, and their settings."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import TypeAlias

from fairsync.errors import InvalidInputError
from fairsync.text import did_you_mean


@dataclass(frozen=True)
class SvdSettings:
    """Settings of the model ``svd``.

    Attributes
    ----------
    dim
        Dimensions of a vector.
    history
        Number of a user's last items to use.
    seed
        Random seed.
    """

    dim: int = 128
    history: int = 20
    seed: int = 0


@dataclass(frozen=True)
class NetworkSettings:
    """Settings of a trained network. The defaults were tuned by validation recall; see docs/models.md.

    Attributes
    ----------
    dim
        Dimensions of a vector.
    interests
        Vectors per user.
    history
        Number of a user's last items to use.
    epochs
        Maximum number of epochs.
    patience
        Number of epochs without an improvement of validation recall after which training stops.
    batch
        Samples per step.
    learning_rate
        Learning rate of Adam.
    negatives
        Sampled negative items per step.
    sharpness
        Inverse temperature: the factor of cosine similarities in the softmax.
    most_samples
        Maximum number of samples per epoch. If there are more, each epoch draws its own.
    seed
        Random seed.
    """

    dim: int = 64
    interests: int = 1
    history: int = 20
    epochs: int = 30
    patience: int = 3
    batch: int = 256
    learning_rate: float = 2e-3
    negatives: int = 500
    sharpness: float = 10.0
    most_samples: int = 400_000
    seed: int = 0


TrainingSettings: TypeAlias = SvdSettings | NetworkSettings

MODELS: dict[str, TrainingSettings] = {
    "svd": SvdSettings(),
    "youtube-dnn": NetworkSettings(),
    "gru4rec": NetworkSettings(),
    # Every interest is scored against every negative, so half of the negatives still doubles the work.
    "mind": NetworkSettings(interests=4, batch=512, negatives=250),
    "comirec-sa": NetworkSettings(interests=4, batch=512, negatives=250, learning_rate=1e-3),
    "comirec-dr": NetworkSettings(interests=4, batch=512, negatives=250),
}
"""The names of all models, with their default settings."""

_ONE_INTEREST = ("youtube-dnn", "gru4rec")
_MAY_BE_ZERO = ("seed",)


def make_settings(name: str, **changes: float) -> TrainingSettings:
    """Return the settings of a model: its defaults, with changes.

    Parameters
    ----------
    name
        One of :data:`MODELS`.
    **changes
        Fields of :class:`SvdSettings` or :class:`NetworkSettings`.

    Examples
    --------
    >>> make_settings("svd", dim=32)
    SvdSettings(dim=32, history=20, seed=0)
    >>> make_settings("comirec-sa").interests
    4
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS, f"Choose one of {', '.join(MODELS)}.")
        raise InvalidInputError(f"There is no model {name!r}. {hint}")
    defaults = MODELS[name]
    kinds = {field.name: type(getattr(defaults, field.name)) for field in fields(defaults)}
    for key, value in changes.items():
        if key not in kinds:
            raise InvalidInputError(f"The model {name!r} has no {key}: leave it out. It has {', '.join(kinds)}.")
        whole = kinds[key] is int
        if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
            raise InvalidInputError(f"{key} must be a {'whole ' if whole else ''}number, got {value!r}.")
        if not (value > 0 or (value == 0 and key in _MAY_BE_ZERO)) or value == float("inf"):
            raise InvalidInputError(f"{key} must be greater than 0, got {value}.")
        if key == "seed" and value >= 2**63:  # more than torch takes
            raise InvalidInputError(f"seed must be below 2^63, got {value}.")
        if key == "interests" and value != 1 and name in _ONE_INTEREST:
            raise InvalidInputError(f"The model {name!r} has one interest: leave interests out.")
    return replace(defaults, **changes)  # type: ignore[arg-type]
