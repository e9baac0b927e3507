"""Training keeps the best epoch and uses no test requests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.data.splits import Split, split_by_users
from fairsync.errors import InvalidInputError
from fairsync.models import Trained, make_settings, recall_of, train_model
from tastes import tasteful

pytest.importorskip("torch")

DATASET = tasteful(200)
SPLIT = split_by_users(DATASET)


def run(checkpoint: Path | None = None, watch: Any = None, split: Split = SPLIT, **changes: float) -> Trained:
    given = {"dim": 8, "history": 6, "batch": 64, "negatives": 50, "epochs": 5, "patience": 5} | changes
    return train_model("comirec-sa", split, DATASET.item_ids, make_settings("comirec-sa", **given), checkpoint, watch)


def test_the_best_epoch_is_kept_and_patience_ends_training() -> None:
    trained = run(epochs=60, learning_rate=0.05, patience=2)
    recalls = [epoch.recall for epoch in trained.epochs]
    assert trained.best == int(np.argmax(recalls)) == len(recalls) - 3 < 57
    assert recall_of(trained.model, SPLIT.validation) == recalls[trained.best]


def test_test_requests_are_not_looked_at() -> None:
    no_test = Split(SPLIT.train, SPLIT.validation, SPLIT.test.take(np.array([], dtype=int)))
    np.testing.assert_array_equal(run(split=no_test).model.item_vectors(), run().model.item_vectors())


def test_the_samples_of_an_epoch_can_be_limited() -> None:
    assert [epoch.samples for epoch in run(epochs=2, most_samples=100).epochs] == [100, 100]


def test_a_catalog_that_is_too_small() -> None:
    with pytest.raises(InvalidInputError, match="beyond the 50"):
        train_model("svd", SPLIT, DATASET.item_ids[:50])


def test_no_validation_requests() -> None:
    with pytest.raises(InvalidInputError, match="validation"):
        run(split=Split(SPLIT.train, SPLIT.validation.take(np.array([], dtype=int)), SPLIT.test))
