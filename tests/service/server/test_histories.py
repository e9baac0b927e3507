"""Histories into vectors: the latest known items count, and one long history does not make all others long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.service.server.histories import Histories

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Last:
    """A model of ten items whose user vector is the last item, and how many there were."""

    name, dim, interests = "last", 2, 1
    item_ids = np.array([str(item) for item in range(10)])

    def user_vectors(self, histories: NDArray[np.integer]) -> NDArray[np.float32]:
        assert histories.size <= 1_024 * 1_000
        counts = (histories >= 0).sum(axis=1)
        last = histories[np.arange(len(histories)), np.maximum(counts - 1, 0)]
        return np.stack([last, counts], axis=1).astype(np.float32)

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def test_unknown_items_are_left_out_and_numbers_are_words() -> None:
    histories = Histories(Last(), 2)
    assert histories.vectors([[1, "2", "strange", 3], ["7"], ["a", 4, "b"]]).tolist() == [[3, 3], [7, 1], [4, 1]]


def test_one_long_history_does_not_make_all_long() -> None:
    """A body of a few megabytes must not become a table of gigabytes."""
    vectors = Histories(Last(), 2).vectors([[1] * 500_000 + [5], *([[2]] * 1_023)])
    assert vectors[0].tolist() == [5, 1_000]
    assert vectors[1].tolist() == [2, 1]


def test_a_model_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="2 dimensions"):
        Histories(Last(), 3)
