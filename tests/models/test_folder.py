"""Folders that are damaged or not a model are refused."""

from pathlib import Path

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.models import load_model
from models.test_models import small


@pytest.mark.parametrize("file", ["settings.json", "weights.npz", "items.parquet"])
def test_a_damaged_folder(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "model"
    small("svd").save(folder)
    (folder / file).write_bytes((folder / file).read_bytes()[:40])
    with pytest.raises(InvalidInputError, match="train it again"):
        load_model(folder)


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="fairsync train"):
        load_model(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInputError, match="choose another folder"):
        small("svd").save(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_catalog_and_weights_that_do_not_fit(tmp_path: Path) -> None:
    model = small("svd")
    model.save(tmp_path / "model")
    with np.load(tmp_path / "model" / "weights.npz") as arrays:
        np.savez(tmp_path / "model" / "weights.npz", items=arrays["items"][1:], past=arrays["past"][1:])
    with pytest.raises(InvalidInputError, match="do not fit"):
        load_model(tmp_path / "model")
