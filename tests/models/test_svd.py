"""The SVD model needs data."""

import numpy as np
import pytest

from fairsync.data.splits import Split
from fairsync.errors import InvalidInputError
from fairsync.models import train_model
from models.test_models import DATASET, SPLIT


def test_split_without_sequences() -> None:
    nothing = Split(SPLIT.train.take(np.array([], dtype=int)), SPLIT.validation, SPLIT.test)
    with pytest.raises(InvalidInputError, match="two users"):
        train_model("svd", nothing, DATASET.item_ids)
