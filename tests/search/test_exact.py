"""What is special to the exact index: its passes, cuts, threads and memory."""

import pickle
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest

import plain
from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, exact, products, scan
from fairsync.search.ranks import rank_without_prices


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and threads for small catalogs, so that cuts rise and parts are put together."""
    monkeypatch.setattr(scan, "BLOCK_SCORES", 256)
    monkeypatch.setattr(scan, "BLOCK_PER_K", 2)
    monkeypatch.setattr(products, "_PANEL_PRODUCTS", 1 << 9)
    monkeypatch.setattr(exact, "THREAD_PRODUCTS", 1)


def same(index: ExactIndex, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> None:
    hits = index.search(users, prices, k)
    rows, scores = plain.search(index.catalog, users, prices, k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == scores


def test_float32_embeddings_are_used_in_place_and_the_index_is_small() -> None:
    embeddings = np.random.default_rng(5).standard_normal((50_000, 64)).astype(np.float32)
    groups = np.arange(50_000) % 100
    tracemalloc.start()
    index = ExactIndex(Catalog(embeddings, groups))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.shares_memory(index.items.values, embeddings)
    assert held < 0.15 * embeddings.nbytes


@pytest.mark.parametrize("scale", [1e18, 1e-30, 1e36])
def test_extreme_float32_embeddings_are_scaled(scale: float) -> None:
    rng = np.random.default_rng(6)
    catalog = Catalog((rng.standard_normal((300, 8)) * scale).astype(np.float32), np.arange(300) % 3)
    same(
        ExactIndex(catalog),
        rng.standard_normal((2, 1, 8)) * 1e10,
        np.array([0.0, 1.0, -1.0]) * scale * 1e10,
        20,
    )


@pytest.mark.parametrize("scans", [False, True])
def test_a_single_vector_past_more_items_than_caches_hold(
    small_blocks: None, monkeypatch: pytest.MonkeyPatch, scans: bool
) -> None:
    if scans:
        monkeypatch.setattr(exact, "is_direct", lambda *shape: False)
    rng = np.random.default_rng(8)
    catalog = Catalog(rng.integers(-2, 3, size=(700, 8)).astype(np.float32), np.arange(700) % 3)  # with many ties
    prices = np.array([0.5, -0.25, 0.0])
    users = rng.integers(-2, 3, size=(5, 1, 8)) + 0.5
    index = ExactIndex(catalog)
    chosen = [index.search(users[i : i + 1], prices, 10) for i in range(5)]
    panels = [rank_without_prices(index, users[i : i + 1], chosen[i], None)[0].tolist() for i in range(5)]
    monkeypatch.setattr(products, "_LEAST_STREAMED", 0)
    monkeypatch.setattr(products, "_LEAST_STREAMED_DIM", 1)
    assert products.is_streamed(index.items.values, 1)
    for i in range(5):
        same(index, users[i : i + 1], None, 10)
        same(index, users[i : i + 1], prices, 10)
        assert rank_without_prices(index, users[i : i + 1], chosen[i], None)[0].tolist() == panels[i]


def test_users_of_very_different_length_share_a_batch() -> None:
    rng = np.random.default_rng(7)
    catalog = Catalog(rng.standard_normal((500, 8)).astype(np.float32), np.arange(500) % 3)
    users = rng.standard_normal((4, 1, 8)) * np.array([1e-200, 1e-12, 1.0, 1e12])[:, None, None]
    for prices in (None, np.array([1e-12, 0.0, 1.0])):
        same(ExactIndex(catalog), users, prices, 10)


def test_high_dimensions_and_many_users() -> None:
    rng = np.random.default_rng(8)
    catalog = Catalog(rng.standard_normal((60, 1024)).astype(np.float32), np.arange(60) % 4)
    same(ExactIndex(catalog), rng.standard_normal((40, 1, 1024)), rng.standard_normal(4), 5)


def test_it_can_be_sent_to_another_process() -> None:
    rng = np.random.default_rng(9)
    index = ExactIndex(Catalog(rng.standard_normal((100, 4)), np.arange(100) % 3), threads=2)
    users = rng.standard_normal((2, 1, 4))
    again = pickle.loads(pickle.dumps(index))
    assert (again.search(users, None, 5).rows == index.search(users, None, 5).rows).all()


def test_threads_must_be_positive() -> None:
    with pytest.raises(InvalidInputError, match="threads"):
        ExactIndex(Catalog(np.eye(2), [1, 2]), threads=0)
