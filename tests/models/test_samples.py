"""Samples against the plainest way to list them; negatives against what is expected of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.models.samples import Negatives, Samples
from sequences import make_ragged

lists = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6).filter(lambda x: any(len(one) > 1 for one in x))


@given(lists, st.integers(1, 4), st.integers(1, 5), st.integers(1, 40))
def test_samples_are_all_places_with_a_past(sequences: list[list[int]], history: int, size: int, most: int) -> None:
    samples = Samples(make_ragged(sequences), history)
    plain = [(one[:end][-history:], one[end]) for one in sequences for end in range(1, len(one))]
    assert len(samples) == len(plain)
    histories, targets = samples.take(np.arange(len(samples)))
    assert [
        ([item for item in row if item >= 0], target)
        for row, target in zip(histories.tolist(), targets.tolist(), strict=True)
    ] == plain
    batches = list(samples.batches(size, most, np.random.default_rng(0)))
    drawn = np.concatenate(batches)
    assert len(drawn) == min(most, len(plain)) == len(set(drawn.tolist()))
    assert all(len(batch) <= size for batch in batches)


def test_batches_hold_samples_of_like_length() -> None:
    rng = np.random.default_rng(0)
    samples = Samples(make_ragged([list(range(n)) for n in rng.integers(2, 30, size=300)]), 20)
    computed = sum(samples.take(batch)[0].size for batch in samples.batches(32, 10**6, rng))
    needed = (samples.take(np.arange(len(samples)))[0] >= 0).sum()
    assert needed <= computed < 1.2 * needed


def test_nothing_to_learn_from() -> None:
    with pytest.raises(InvalidInputError, match="no next item to learn"):
        Samples(make_ragged([[1], [], [2]]), 3)


def test_negatives_come_as_often_as_expected() -> None:
    negatives = Negatives(make_ragged([[0] * 99 + [1] * 8 + [2] * 3]), 4, number=1000)
    rng = np.random.default_rng(0)
    counts = np.bincount(np.concatenate([negatives.draw(rng) for _ in range(400)]), minlength=4) / 400
    np.testing.assert_allclose(counts, np.exp(negatives.log_expected), rtol=0.02)
    np.testing.assert_allclose(counts / counts[3], [10, 3, 2, 1], rtol=0.02)  # roots of 100, 9, 4 and 1
