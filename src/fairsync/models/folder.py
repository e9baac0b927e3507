"""A model on disk: settings.json, weights.npz and items.parquet. The files contain no code."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.atomic_write import atomic_folder
from fairsync.catalog.readers import PREFIX
from fairsync.catalog.series import column_of, series_of
from fairsync.errors import InvalidInputError
from fairsync.extras import polars as pl
from fairsync.models.settings import MODELS, TrainingSettings, make_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fairsync.catalog.attributes import Column

_FILES = {"settings.json", "weights.npz", "items.parquet"}
VERSION = 1
"""Version of the format. A folder with another version is refused."""


@dataclass(frozen=True)
class StoredModel:
    """The contents of a model folder.

    Attributes
    ----------
    name : str
        Name of the model.
    settings : TrainingSettings
        Settings of the training.
    item_ids : numpy.ndarray
        Ids of the catalog that the model was trained for.
    weights : dict
        {name: array}.
    notes : dict
        Further information that was stored with the model.
    attributes : dict
        {name: column} of the items, the group first; empty if they were not stored with the model.
    """

    name: str
    settings: TrainingSettings
    item_ids: NDArray[np.str_]
    weights: Mapping[str, NDArray[Any]]
    notes: Mapping[str, object]
    attributes: Mapping[str, Column] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the model atomically. A model that is already in the folder is replaced."""
        folder = Path(folder).resolve()
        check_model_target(folder)
        words = {"version": VERSION, "model": self.name, "settings": asdict(self.settings), "notes": dict(self.notes)}
        with atomic_folder(folder) as work:
            np.savez(work / "weights.npz", allow_pickle=False, **dict(self.weights))
            items = {"id": pl.Series(self.item_ids)}
            items |= {PREFIX + name: series_of(column) for name, column in self.attributes.items()}
            pl.DataFrame(items).write_parquet(work / "items.parquet")
            (work / "settings.json").write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")


def read_model_folder(folder: Path) -> StoredModel:
    """Read a folder that :meth:`StoredModel.write` wrote. Raises :exc:`InvalidInputError` for any other folder."""
    folder = Path(folder)
    path = folder / "settings.json"
    if not path.exists():
        raise InvalidInputError(f"{folder} is not a model (no settings.json): run 'fairsync train' first.")
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
        if words["version"] != VERSION:
            raise InvalidInputError(
                f"{path} has version {words['version']}, this program reads {VERSION}: train again."
            )
        name, notes = words["model"], dict(words["notes"])
        if name not in MODELS:
            raise InvalidInputError(f"{path} is of a model {name!r}, which this version does not know: train again.")
        settings = make_settings(name, **words["settings"])
        items = pl.read_parquet(folder / "items.parquet")
        item_ids = items["id"].cast(pl.String).to_numpy().astype(str)
        names = [name.removeprefix(PREFIX) for name in items.columns if name.startswith(PREFIX)]
        attributes = {name: column_of(name, items[PREFIX + name]) for name in names}
        with (folder / "weights.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            weights = dict(arrays)
    except InvalidInputError:
        raise
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"The model in {folder} is damaged ({error}): train it again.") from error
    return StoredModel(name, settings, item_ids, weights, notes, attributes)


def check_model_target(folder: Path) -> None:
    """Refuse a folder that exists and is not a model."""
    if not folder.exists():
        return
    if not folder.is_dir() or not {path.name for path in folder.iterdir()} <= _FILES:
        raise InvalidInputError(f"{folder} exists and is not a model: choose another folder.")


def read_notes(folder: Path) -> dict[str, object]:
    """Return the notes of a model. ``fairsync train`` stores its data, split and recall."""
    return dict(read_model_folder(folder).notes)
