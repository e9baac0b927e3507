"""Sources of an evaluation: a trained model and its data set, or files of vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.data.catalog_files import read_catalog, read_targets
from fairsync.data.dataset import Dataset
from fairsync.data.replay import replay
from fairsync.data.splits import split_by_time, split_by_users
from fairsync.data.vectors import read_vectors
from fairsync.errors import InvalidInputError
from fairsync.evaluation.seen_items import new_targets, seen_ids
from fairsync.models import load_model
from fairsync.models.folder import read_model_folder
from fairsync.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.data.requests import Requests

# Test requests that a model may be evaluated on, by the split that it was trained with: none with targets it has seen.
_UNSEEN = {"users": ("users",), "time": ("time", "replay")}


@dataclass(frozen=True)
class EvaluationSource:
    """Items, requests and targets.

    Attributes
    ----------
    catalog : Catalog
        The items.
    users : numpy.ndarray
        (n, d) or (n, interests, d) User vectors in order of arrival.
    targets : Ragged or list or None
        Targets in the form that :func:`fairsync.evaluation.evaluate` takes, or None if they are unknown.
    origin : dict
        Where the data come from, as texts for JSON.
    histories : numpy.ndarray or None
        (n, length) the items before each request, as catalog rows padded with -1; None if they are unknown.
    """

    catalog: Catalog
    users: NDArray[np.floating[Any]]
    targets: Ragged | Sequence[Iterable[Any]] | None
    origin: dict[str, Any]
    histories: NDArray[np.int32] | None = None

    def without_history(self) -> tuple[EvaluationSource, list[NDArray[Any]] | None, int]:
        """Return the source without targets of the histories, the ids to exclude, and how many targets were left out.

        The source itself and None, if histories are unknown.
        """
        if self.histories is None or not isinstance(self.targets, Ragged):
            return self, None, 0
        kept = new_targets(self.targets, self.histories)
        left_out = len(self.targets.items) - len(kept.items)
        return replace(self, targets=kept), seen_ids(self.catalog, self.histories), left_out


def from_model(model: Path, data: Path | None = None, requests: str | None = None) -> EvaluationSource:
    """Return the test requests of a model that ``fairsync train`` wrote.

    Parameters
    ----------
    model
        Folder of the model.
    data
        Folder of the data set that the model was trained on. Defaults to ``data/NAME``, with the name that the model
        recorded.
    requests
        ``"users"`` or ``"time"``: the test part of that split, which must be the split of the training (the default).
        ``"replay"``: every visit of the test period, for models trained with the split ``time``. Other combinations
        are refused, because the model has seen their targets.

    Returns
    -------
    EvaluationSource
        Test requests with the same split, seed and length of history as in training.
    """
    stored = read_model_folder(model)
    split = stored.notes.get("split")
    if split not in _UNSEEN:
        raise InvalidInputError(f"{model} does not say how its data were split: train it with 'fairsync train'.")
    kind = requests or str(split)
    if kind not in _UNSEEN[str(split)]:
        raise InvalidInputError(
            f"{model} was trained with the split {split!r}, and has seen answers of the requests {kind!r}: train it"
            f" with --split {'users' if kind == 'users' else 'time'}, or ask for --requests {split}."
        )
    folder = data or Path("data") / str(stored.notes.get("data"))
    if data is None and not folder.is_dir():
        raise InvalidInputError(f"There is no data set in {folder}: say where the model's is (--data).")
    dataset = Dataset.load(folder)
    if not np.array_equal(stored.item_ids, dataset.item_ids):
        raise InvalidInputError(
            f"{model} was made for other items than those of {folder}: give the data set it was trained on (--data)."
        )
    if stored.notes.get("fingerprint") != dataset.fingerprint():
        # A new split would put users or times into the test part that the model was trained on.
        raise InvalidInputError(
            f"{folder} is not what {model} was trained on: it was prepared again since. Train the model again, or give"
            " the data set it was trained on (--data)."
        )
    test = _test_requests(dataset, kind, int(str(stored.notes.get("split_seed", 0))), stored.settings.history)
    if len(test) == 0:
        raise InvalidInputError(f"{folder} has no test requests by {kind}: choose others (--requests).")
    trained = load_model(model)
    catalog = dataset.catalog(trained.item_vectors())
    origin = {"model": trained.name, "folder": str(model), "data": dataset.facts.name, "requests": kind}
    return EvaluationSource(catalog, trained.user_vectors(test.histories), test.targets, origin, test.histories)


def from_files(items: Path, users: Path, groups: Path | None = None, targets: Path | None = None) -> EvaluationSource:
    """Read vectors that another library made.

    Parameters
    ----------
    items, users
        Files of vectors; see :func:`fairsync.data.read_vectors`.
    groups
        File with the group and further attributes of each item; see :func:`fairsync.data.read_catalog`. If None,
        ``items`` is a catalog; see :func:`fairsync.open_catalog`.
    targets
        File with the relevant items of each request; see :func:`fairsync.data.read_targets`.
    """
    catalog, vectors = read_catalog(items, groups), read_vectors(users)
    if vectors.shape[-1] != catalog.dim:
        raise InvalidInputError(
            f"{users} has {vectors.shape[-1]} dimensions and {items} {catalog.dim}: give vectors of one model."
        )
    given = {"items": items, "users": users, "groups": groups, "targets": targets}
    origin = {what: str(path) for what, path in given.items() if path}
    return EvaluationSource(catalog, vectors, read_targets(targets, users) if targets else None, origin)


def _test_requests(dataset: Dataset, kind: str, seed: int, history: int) -> Requests:
    if kind == "replay":
        return replay(dataset, history=history)
    return (split_by_time(dataset, history) if kind == "time" else split_by_users(dataset, seed, history)).test
