"""Ranks without prices are those of a plain sort, to the last tie."""

import numpy as np
import numpy.typing as npt
import pytest

import plain
from fairsync.catalog import Catalog
from fairsync.catalog.selection import Selection
from fairsync.search import ExactIndex, Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.ranks import rank_without_prices


def check(catalog: Catalog, users: npt.NDArray[np.floating], k: int, eligible: Eligibility | None, seed: int) -> None:
    """Choose eligible items at random, and compare their ranks with a plain sort."""
    rng, n = np.random.default_rng(seed), len(catalog)
    sets = None if eligible is None else [set(np.flatnonzero(eligible.mask(i)).tolist()) for i in range(len(users))]
    rows, relevance = plain.search(catalog, users, None, n, sets)
    chosen = Hits.empty(len(users), k)
    for i, (order, scores) in enumerate(zip(rows, relevance, strict=True)):
        there = [at for at, row in enumerate(order) if row >= 0]
        some = rng.permutation(there)[:k]
        chosen.rows[i, : len(some)] = np.array(order)[some]
        chosen.relevance[i, : len(some)] = np.array(scores)[some]
    for threads in (1, 3):
        ranks, best = rank_without_prices(ExactIndex(catalog, threads), users, chosen, eligible)
        for i, order in enumerate(rows):
            expected = [order.index(row) + 1 if row >= 0 else 0 for row in chosen.rows[i].tolist()]
            assert ranks[i].tolist() == expected
            assert best.rows[i].tolist() == order[:k]
            assert best.relevance[i].tolist() == relevance[i][:k]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("interests", [1, 3])
@pytest.mark.parametrize("kind", ["plain", "ties", "near ties", "huge", "tiny"])
def test_ranks_are_those_of_a_plain_sort(dtype: type, interests: int, kind: str) -> None:
    rng = np.random.default_rng(len(kind) + interests)
    embeddings, users = rng.normal(size=(300, 6)), rng.normal(size=(5, interests, 6))
    if kind == "ties":
        embeddings, users = np.round(embeddings), np.round(users)
    if kind == "near ties":
        embeddings = embeddings[:1] + 1e-7 * embeddings
    scale = {"huge": 1e15, "tiny": 1e-15}.get(kind, 1.0)
    users[4] = 0.0  # everything ties
    catalog = Catalog((embeddings * scale).astype(dtype), rng.integers(3, size=300), rng.permutation(300))
    check(catalog, users * scale, 7, None, 1)
    wide, narrow = Selection(rng.random(300) < 0.6), Selection(rng.random(300) < 0.05)
    excluded = [rng.choice(300, size=20).tolist() for _ in range(5)]
    check(catalog, users * scale, 7, Eligibility.of(300, [wide, None, narrow, narrow, wide], excluded), 2)


def test_short_and_empty_lists_have_no_rank() -> None:
    catalog = Catalog(np.array([[2.0], [1.0]]), ["a", "b"])
    eligible = Eligibility.of(2, [None, None], [[0], [0, 1]])
    chosen = Hits(np.array([[1, -1], [-1, -1]]), np.array([[1.0, -np.inf], [-np.inf, -np.inf]]))
    ranks, best = rank_without_prices(ExactIndex(catalog), np.ones((2, 1, 1)), chosen, eligible)
    assert ranks.tolist() == [[1, 0], [0, 0]]
    assert best.rows.tolist() == [[1, -1], [-1, -1]]


def test_many_blocks() -> None:
    rng = np.random.default_rng(0)
    catalog, users = Catalog(rng.normal(size=(9_000, 4)), rng.integers(3, size=9_000)), rng.normal(size=(90, 1, 4))
    relevance = users[:, 0] @ catalog.embeddings.T
    order = np.argsort(-relevance, axis=1)
    at = rng.integers(9_000, size=(90, 3))
    rows = np.take_along_axis(order, at, axis=1)
    exact = np.array(
        [[plain.dot(user[0], catalog.embeddings[row]) for row in mine] for user, mine in zip(users, rows, strict=True)]
    )
    ranks, best = rank_without_prices(ExactIndex(catalog, 2), users, Hits(rows, exact), None)
    assert (ranks == at + 1).all()
    assert (best.rows == order[:, :3]).all()
