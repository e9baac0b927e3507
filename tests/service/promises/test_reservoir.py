"""Reservoir sampling: uniform over the period, and from the present items only."""

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.service.promises.reservoir import AnswerReservoir


def test_every_request_of_a_period_is_as_likely_in_the_sample() -> None:
    catalog = Catalog(np.eye(1000), ["one"] * 1000)
    seen = np.zeros(1000)
    reservoir = AnswerReservoir(size=100)
    for period in range(60):
        for start in range(0, 1000, 40):
            rows = np.arange(start, start + 40)[:, None]
            reservoir.add(
                catalog,
                float(period),
                np.zeros((40, 1, 1000)),
                Candidates.of(catalog, rows, np.ones((40, 1)), np.ones(40)),
            )
        answered = reservoir.answered(catalog)
        assert answered is not None
        assert len(set(answered.rows.ravel().tolist())) == 100
        seen[answered.rows.ravel()] += 1
    # Each is expected 6 times in 60; early, middle and late ones alike.
    thirds = seen[:999].reshape(3, -1).sum(axis=1) / seen.sum()
    assert thirds == pytest.approx([1 / 3] * 3, abs=0.02)


def test_requests_with_fewer_interests_are_padded_and_a_part_of_the_sample_can_be_asked_for() -> None:
    catalog = Catalog(np.eye(4), ["a", "a", "b", "b"], ids=[40, 30, 20, 10])
    reservoir = AnswerReservoir(size=8)
    for interests in (1, 3):
        rows = np.array([[1, 2], [3, 0]])
        found = Candidates.of(catalog, rows, np.array([[0.9, 0.8], [0.7, 0.6]]), np.ones(2))
        reservoir.add(catalog, 5.0, np.full((2, interests, 4), float(interests)), found)
    answered = reservoir.answered(catalog)
    assert answered is not None
    assert answered.users.shape == (4, 3, 4)
    assert sorted(map(tuple, answered.rows.tolist())) == [(1, 2), (1, 2), (3, 0), (3, 0)], "rows, not ids"
    part = reservoir.answered(catalog, most=3)
    assert part is not None
    assert len(part.rows) == 3


def test_other_items_empty_the_sample() -> None:
    first, second = (Catalog(np.eye(2), ["a", "b"]) for _ in range(2))
    reservoir = AnswerReservoir(size=4)
    assert reservoir.answered(first) is None
    found = Candidates.of(first, np.array([[0]]), np.ones((1, 1)), np.ones(1))
    reservoir.add(first, 0.0, np.zeros((1, 1, 2)), found)
    assert reservoir.answered(second) is None
    reservoir.add(second, 0.0, np.zeros((1, 1, 2)), found)
    assert reservoir.answered(first) is None
    assert (len(reservoir), reservoir.seen) == (1, 1)
