"""The catalog of a trained model: its item vectors, with the attributes of the data set it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fairsync.catalog import Catalog
from fairsync.data.dataset import Dataset
from fairsync.errors import InvalidInputError
from fairsync.models.folder import read_model_folder
from fairsync.models.registry import load_model


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
