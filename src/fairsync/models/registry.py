"""Train models by name, and load them with their catalogs. torch is imported only for models that need it."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.data.dataset import Dataset
from fairsync.errors import InvalidInputError, MissingTorchError
from fairsync.models.base import recall_of
from fairsync.models.folder import read_model_folder
from fairsync.models.progress import Epoch, Trained
from fairsync.models.settings import SvdSettings, make_settings
from fairsync.models.svd import Svd, train_svd

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.data.splits import Split
    from fairsync.models.base import Model
    from fairsync.models.progress import TrainingProgress
    from fairsync.models.settings import TrainingSettings


def train_model(
    name: str,
    split: Split,
    item_ids: NDArray[np.str_],
    settings: TrainingSettings | None = None,
    checkpoint: Path | None = None,
    watch: Callable[[TrainingProgress], None] | None = None,
    *,
    threads: int = 1,
) -> Trained:
    """Train a model by name.

    Parameters
    ----------
    name
        One of :data:`MODELS`.
    split
        Training sequences, and validation requests for selecting the best epoch. The test requests are not used.
    item_ids
        Ids of the catalog.
    settings
        Settings from :func:`make_settings`. Defaults to those of the model.
    checkpoint
        File that is written after each epoch. If it exists, training resumes from it, with the same result as without
        an interruption. (``svd`` has no epochs and no checkpoint.)
    watch
        A callback that gets the progress after each step.
    threads
        Threads of torch during the training. More than one is slower for small networks, many times so on a busy
        machine. The result depends on it, because sums are then taken in another order.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.data.requests import Requests
    >>> from fairsync.ragged import Ragged
    >>> from fairsync.data.splits import Split
    >>> bought = Ragged(np.array([0, 1, 0, 1, 2, 3, 2, 3], dtype=np.int32), np.array([0, 2, 4, 6, 8]))
    >>> asked = Requests(np.array([[0]]), Ragged(np.array([1]), np.array([0, 1])), np.array([0]), np.array([0]))
    >>> trained = train_model("svd", Split(bought, asked, asked), np.array(["tea", "milk", "nut", "bolt"]))
    >>> trained.model.item_vectors().shape
    (4, 3)
    """
    chosen = make_settings(name) if settings is None else settings
    if len(split.validation) == 0:
        raise InvalidInputError("the split has no validation requests to choose the best epoch by.")
    if split.train.items.max(initial=-1) >= len(item_ids):
        raise InvalidInputError(f"the split has items beyond the {len(item_ids)} of item_ids: give its own catalog.")
    if isinstance(chosen, SvdSettings):
        started = time.perf_counter()
        model = train_svd(split.train, item_ids, chosen)
        seconds = time.perf_counter() - started
        return Trained(model, (Epoch(None, recall_of(model, split.validation), seconds, len(split.train.items)),), 0)
    _need_torch(name)
    from fairsync.models.training import train_network

    return train_network(name, split, item_ids, chosen, checkpoint, watch, threads)


def load_model(folder: Path) -> Model:
    """Read a saved model. Raises :exc:`InvalidInputError` if the folder holds none.

    The attribute ``item_ids`` of the model identifies its catalog.
    """
    stored = read_model_folder(folder)
    if isinstance(stored.settings, SvdSettings):
        return Svd.restore(stored)
    _need_torch(stored.name)
    from fairsync.models.network import Network

    return Network.restore(stored)


def model_catalog(folder: Path) -> Catalog:
    """Return the items of a model that ``fairsync train`` wrote: ids, attributes and vectors.

    A model of an earlier version has no attributes with it. Then they are those of the data set in ``data/NAME``, with
    the name that the model recorded.
    """
    stored = read_model_folder(folder)
    vectors = load_model(folder).item_vectors()
    if stored.attributes:
        return Catalog(vectors, stored.attributes, stored.item_ids)
    data = Path("data") / str(stored.notes.get("data"))
    if not data.is_dir():
        raise InvalidInputError(
            f"{folder} has no attributes of its items, and there is no data set {data}: train again."
        )
    dataset = Dataset.load(data)
    if not np.array_equal(stored.item_ids, dataset.item_ids):
        raise InvalidInputError(f"{folder} was made for other items than those of {data}: train it again.")
    return dataset.catalog(vectors)


def _need_torch(name: str) -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingTorchError(
            f"The model {name!r} needs torch: pip install 'fairsync[models]', or use the model 'svd', which does not."
        )
