"""Models: histories in, vectors of users and items out."""

from fairsync.models.base import Model, best_items, recall_of
from fairsync.models.folder import read_notes
from fairsync.models.progress import Epoch, Trained, TrainingProgress
from fairsync.models.registry import MissingTorchError, load_model, train_model
from fairsync.models.settings import MODELS, NetworkSettings, Settings, SvdSettings, make_settings
from fairsync.models.svd import Svd, train_svd

__all__ = [
    "MODELS",
    "Epoch",
    "MissingTorchError",
    "Model",
    "NetworkSettings",
    "Settings",
    "Svd",
    "SvdSettings",
    "Trained",
    "TrainingProgress",
    "best_items",
    "load_model",
    "make_settings",
    "read_notes",
    "recall_of",
    "train_model",
    "train_svd",
]
