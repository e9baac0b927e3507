"""Base models: trained once for each seed, saved, and shared by all experiments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fairsync.catalog import Catalog
from fairsync.data.splits import split_by_users
from fairsync.models import load_model, make_settings, train_model
from fairsync.models.folder import read_model_folder
from fairsync.models.settings import NetworkSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.data.dataset import Dataset
    from fairsync.data.requests import Requests
    from fairsync.models import TrainingProgress
    from fairsync.ragged import Ragged

# Quick: enough to be far better than chance. Training takes most of the time.
_QUICK_EPOCHS, _QUICK_SAMPLES = 2, 20_000


@dataclass(frozen=True)
class RequestVectors:
    """User vectors, targets and times of requests.

    Attributes
    ----------
    users : numpy.ndarray
        (n, d) or (n, interests, d) User vectors, in order of arrival.
    targets : Ragged
        Relevant items of each request, as catalog rows.
    times : numpy.ndarray
        (n,) Time of each request, or its position in a sequence if the data have no clock.
    """

    users: NDArray[np.floating[Any]]
    targets: Ragged
    times: NDArray[np.int64]


@dataclass(frozen=True)
class BaseModel:
    """A trained model, its catalog, and its requests.

    Attributes
    ----------
    model : str
        Name of the model.
    seed : int
        Random seed of the training.
    catalog : Catalog
        The items with the vectors of the model.
    validation : RequestVectors
        Requests for tuning.
    test : RequestVectors
        Requests for the reported results.
    """

    model: str
    seed: int
    catalog: Catalog
    validation: RequestVectors
    test: RequestVectors


class BaseModels:
    """The base models of a data set, split by users as in the paper's program.

    Parameters
    ----------
    dataset
        The data.
    folder
        Folder in which trained models are saved and found again.
    quick
        Whether to train briefly.
    watch
        A callback that gets the model, its seed and the progress after each training step.
    """

    def __init__(
        self,
        dataset: Dataset,
        folder: Path,
        quick: bool = False,
        watch: Callable[[str, int, TrainingProgress], None] | None = None,
    ) -> None:
        self.dataset, self.folder, self.quick, self.watch = dataset, folder, quick, watch
        self.split = split_by_users(dataset)
        self.fingerprint = dataset.fingerprint()
        self._made: dict[tuple[str, int], BaseModel] = {}

    def get(self, name: str, seed: int) -> BaseModel:
        """Return a base model. It is trained if it has not been saved before."""
        if (name, seed) not in self._made:
            self._made = {(name, seed): self.make(name, seed)}  # only one model is kept in memory
        return self._made[name, seed]

    def make(self, name: str, seed: int) -> BaseModel:
        """Load a base model, or train and save it if it is not there."""
        settings = make_settings(name, seed=seed, history=self.dataset.facts.history)
        if self.quick and isinstance(settings, NetworkSettings):
            settings = replace(settings, epochs=_QUICK_EPOCHS, most_samples=_QUICK_SAMPLES)
        folder = self.folder / f"{name}-{seed}{'-quick' if self.quick else ''}"
        if not self._is_there(folder, settings):
            unfinished = folder.with_name(folder.name + ".unfinished")
            folder.parent.mkdir(parents=True, exist_ok=True)
            watch = self.watch
            step = None if watch is None else lambda moment: watch(name, seed, moment)
            trained = train_model(name, self.split, self.dataset.item_ids, settings, unfinished, step)
            notes = {"data": self.dataset.facts.name, "split": "users", "split_seed": 0}
            trained.model.save(folder, notes | {"fingerprint": self.fingerprint})
            unfinished.unlink(missing_ok=True)
        # A model is read from disk even right after training, so that the first run and later ones measure the same.
        model = load_model(folder)

        def ask(requests: Requests) -> RequestVectors:
            return RequestVectors(model.user_vectors(requests.histories), requests.targets, requests.times)

        catalog = Catalog(model.item_vectors(), self.dataset.item_groups, self.dataset.item_ids)
        return BaseModel(name, seed, catalog, ask(self.split.validation), ask(self.split.test))

    def _is_there(self, folder: Path, settings: object) -> bool:
        if not folder.is_dir():
            return False
        stored = read_model_folder(folder)
        return stored.settings == settings and stored.notes.get("fingerprint") == self.fingerprint
