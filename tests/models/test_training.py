"""Training: the best epoch is kept, and a stop changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.data.splits import Split, split_by_users
from fairsync.errors import InvalidInputError
from fairsync.models import Trained, TrainingProgress, make_settings, recall_of, train_model
from tastes import tasteful

pytest.importorskip("torch")

DATASET = tasteful(200)
SPLIT = split_by_users(DATASET)


class StopError(Exception):
    """The machine goes down."""


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


@pytest.mark.parametrize("epochs_before", [1, 3])
def test_going_on_after_a_stop_gives_the_same(tmp_path: Path, epochs_before: int) -> None:
    def stop(now: TrainingProgress) -> None:
        if len(now.epochs) == epochs_before and now.done > 100:
            raise StopError

    file = tmp_path / "new" / "checkpoint"
    with pytest.raises(StopError):
        run(file, stop)
    seen: list[int] = []
    resumed = run(file, lambda now: seen.append(len(now.epochs)))
    whole = run()
    assert min(seen) == epochs_before
    assert [(one.loss, one.recall) for one in resumed.epochs] == [(one.loss, one.recall) for one in whole.epochs]
    np.testing.assert_array_equal(resumed.model.item_vectors(), whole.model.item_vectors())
    histories = SPLIT.test.histories
    np.testing.assert_array_equal(resumed.model.user_vectors(histories), whole.model.user_vectors(histories))


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    run(file, epochs=1)
    with pytest.raises(InvalidInputError, match="other settings"):
        run(file, epochs=1, dim=4)
    with pytest.raises(InvalidInputError, match="other settings"):
        run(file, epochs=1, split=Split(SPLIT.train.take(np.arange(9)), SPLIT.validation, SPLIT.test))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match="damaged"):
        run(file, epochs=1)


def test_the_samples_of_an_epoch_can_be_limited() -> None:
    assert [epoch.samples for epoch in run(epochs=2, most_samples=100).epochs] == [100, 100]


def test_a_catalog_that_is_too_small() -> None:
    with pytest.raises(InvalidInputError, match="beyond the 50"):
        train_model("svd", SPLIT, DATASET.item_ids[:50])


def test_no_validation_requests() -> None:
    with pytest.raises(InvalidInputError, match="validation"):
        run(split=Split(SPLIT.train, SPLIT.validation.take(np.array([], dtype=int)), SPLIT.test))
