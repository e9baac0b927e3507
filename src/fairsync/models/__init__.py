"""Models that map histories to user vectors, and items to item vectors."""

from fairsync.errors import MissingTorchError
from fairsync.models.base import Model, best_items, recall_of
from fairsync.models.folder import read_notes
from fairsync.models.progress import Epoch, Trained, TrainingProgress
from fairsync.models.registry import load_model, model_catalog, train_model
from fairsync.models.settings import MODELS, NetworkSettings, SvdSettings, TrainingSettings, make_settings
from fairsync.models.svd import Svd, train_svd

__all__ = [
    "MODELS",
    "Epoch",
    "MissingTorchError",
    "Model",
    "NetworkSettings",
    "Svd",
    "SvdSettings",
    "Trained",
    "TrainingProgress",
    "TrainingSettings",
    "best_items",
    "load_model",
    "make_settings",
    "model_catalog",
    "read_notes",
    "recall_of",
    "train_model",
    "train_svd",
]
