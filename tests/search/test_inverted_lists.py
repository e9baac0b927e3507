"""Inverted lists: one group each, with the statistics of their items."""

import numpy as np
import pytest

from fairsync.search.inverted_lists import InvertedLists, stretch
from search.approximate import make_case


@pytest.mark.parametrize("dim", [3, 8, 20])
def test_no_list_mixes_groups_and_statistics_are_those_of_its_items(dim: int) -> None:
    catalog, users = make_case(1, n=3000, dim=dim)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    lists = InvertedLists.of(items, catalog.group_of, users[:, 0] * np.arange(1, dim + 1))
    assert (lists.group_of[lists.list_of] == catalog.group_of).all()
    assert lists.sizes.tolist() == np.bincount(lists.list_of).tolist()
    assert lists.sizes.min() > 0
    for at in (0, len(lists.sizes) - 1):
        np.testing.assert_allclose(lists.centres[at], items[lists.list_of == at].mean(axis=0), atol=1e-4)
    off = (items - lists.centres[lists.list_of]).astype(np.float64)
    vectors = users[:, 0].astype(np.float32)
    average, _ = lists.along(vectors)
    np.testing.assert_allclose(average[:, 0], np.sqrt(np.mean((off @ vectors.T) ** 2, axis=0)), rtol=1e-3)
    # Along one of the first directions, the spread of each list is known by itself.
    vector = np.linalg.inv(lists.directions.T.astype(np.float64))[:, 1]
    squares = np.bincount(lists.list_of, (off @ vector) ** 2) / lists.sizes
    average, reach = lists.along(vector[None].astype(np.float32))
    np.testing.assert_allclose(average, [[1.0]], rtol=1e-3)
    np.testing.assert_allclose(reach[0], np.sqrt(squares * 2 * np.log(lists.sizes)), rtol=1e-2, atol=1e-4)


def test_items_that_requests_cannot_tell_apart_share_a_list() -> None:
    catalog, _ = make_case(10, n=6000, dim=16)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    requests = np.random.default_rng(10).normal(size=(300, 16)) * np.where(np.arange(16) < 3, 1.0, 0.01)
    blind, seeing = (InvertedLists.of(items, catalog.group_of, given) for given in (None, requests))
    vectors = requests.astype(np.float32)
    assert seeing.along(vectors)[0].mean() < 0.8 * blind.along(vectors)[0].mean()


def test_stretching_changes_no_score() -> None:
    rng = np.random.default_rng(11)
    items, requests = rng.normal(size=(50, 6)), rng.normal(size=(40, 6)) * np.arange(6)
    weights = stretch(requests)
    np.testing.assert_allclose(weights, weights.T, atol=1e-6)
    scores = (items @ weights) @ (requests @ np.linalg.inv(weights)).T
    np.testing.assert_allclose(scores, items @ requests.T, atol=1e-4)
