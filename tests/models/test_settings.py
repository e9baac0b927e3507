"""Settings by name, and words for those that cannot be."""

import subprocess
import sys

import pytest

from fairsync.data.splits import split_by_users
from fairsync.errors import InvalidInputError
from fairsync.models import MODELS, MissingTorchError, make_settings, train_model
from tastes import tasteful


@pytest.mark.parametrize("name", MODELS)
def test_defaults_and_changes(name: str) -> None:
    assert make_settings(name) == MODELS[name]
    assert make_settings(name, dim=8, seed=0).dim == 8


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("comirec", {}, "Did you mean 'comirec-"),
        ("xyz", {}, "Choose one of svd"),
        ("svd", {"epochs": 3}, "has no epochs"),
        ("mind", {"dim": 0}, "greater than 0"),
        ("mind", {"dim": 2.5}, "whole number"),
        ("mind", {"learning_rate": float("nan")}, "greater than 0"),
        ("mind", {"learning_rate": float("inf")}, "greater than 0"),
        ("mind", {"learning_rate": True}, "must be a number"),
        ("gru4rec", {"interests": 4}, "one interest"),
    ],
)
def test_what_cannot_be(name: str, changes: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make_settings(name, **changes)


def test_torch_is_not_loaded_for_svd() -> None:
    program = """
import sys
import numpy as np
from fairsync.ragged import Ragged
from fairsync.models import train_svd
train_svd(Ragged(np.array([0, 1, 1, 0], dtype=np.int32), np.array([0, 2, 4])), np.array(["a", "b"]))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_missing_torch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = tasteful(20)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingTorchError, match=r"pip install 'fairsync\[models\]'"):
        train_model("mind", split_by_users(dataset), dataset.item_ids)
