"""Training resumes from a checkpoint with the same result, and refuses checkpoints of other trainings."""

from pathlib import Path

import numpy as np
import pytest

from fairsync.data.splits import Split
from fairsync.errors import InvalidInputError
from fairsync.models import TrainingProgress

pytest.importorskip("torch")

from models.test_training import SPLIT, run


class StopError(Exception):
    """The training is interrupted."""


@pytest.mark.parametrize("epochs_before", [1, 3])
def test_a_resumed_training_has_the_same_result(tmp_path: Path, epochs_before: int) -> None:
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


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    run(file, epochs=1)
    with pytest.raises(InvalidInputError, match="other settings"):
        run(file, epochs=1, dim=4)
    with pytest.raises(InvalidInputError, match="other settings"):
        run(file, epochs=1, split=Split(SPLIT.train.take(np.arange(9)), SPLIT.validation, SPLIT.test))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match="damaged"):
        run(file, epochs=1)
