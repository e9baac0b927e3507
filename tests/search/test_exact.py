"""What is special to the exact index: its passes, cuts, threads and memory."""

import pickle
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, exact, scan, scoring
from fairsync.search.rounding import Float32Items, Float32Queries
from fairsync.search.scoring import reference_price, relevance


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and threads for small catalogs, so that cuts rise and parts are put together."""
    monkeypatch.setattr(scan, "BLOCK_SCORES", 256)
    monkeypatch.setattr(scan, "BLOCK_PER_K", 2)
    monkeypatch.setattr(scan, "PANEL_PRODUCTS", 1 << 9)
    monkeypatch.setattr(exact, "THREAD_PRODUCTS", 1)


def same(index: ExactIndex, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> None:
    hits = index.search(users, prices, k)
    rows, scores = plain.search(index.catalog, users, prices, k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == scores


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("interests", [1, 3])
@pytest.mark.parametrize("order", ["random", "ascending", "identical", "clustered"])
def test_any_order_of_items_over_many_blocks(threads: int, interests: int, order: str) -> None:
    rng = np.random.default_rng(1)
    embeddings = rng.standard_normal((1500, 4)).astype(np.float32)
    users = rng.standard_normal((5, interests, 4))
    if order == "ascending":
        embeddings = embeddings[np.argsort(embeddings @ users[0, 0])]
    elif order == "identical":
        embeddings[:] = embeddings[0]
    elif order == "clustered":
        embeddings[1000:1200] += 3.0
    groups = rng.integers(0, 6, 1500)
    index = ExactIndex(Catalog(embeddings, groups, rng.permutation(1500)), threads=threads)
    for prices in (None, rng.standard_normal(6), np.array([0.0, np.inf, -1e6, 5.0, 0.1, np.inf])):
        for k in (1, 7, 400):
            same(index, users, prices, k)


@pytest.mark.usefixtures("small_blocks")
def test_groups_that_need_a_large_subsidy_are_scored_in_full() -> None:
    # One item in each bundle has a bonus that makes every bundle look good: bundles then decide nothing.
    rng = np.random.default_rng(2)
    embeddings = rng.standard_normal((4000, 4)).astype(np.float32)
    groups = rng.integers(0, 4, 4000)
    embeddings[groups == 1] -= 6.0
    users = np.ones((3, 1, 4))
    same(ExactIndex(Catalog(embeddings, groups), threads=1), users, np.array([0.0, -24.0, 0.0, 0.0]), 10)


@pytest.mark.usefixtures("small_blocks")
def test_ties_beyond_the_limit_are_decided_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []
    decide = scan.Scan.decide

    def counted(self: scan.Scan) -> None:
        decide(self)
        decided.append(self.count)

    monkeypatch.setattr(scan.Scan, "decide", counted)
    catalog = Catalog(np.ones((6000, 2), dtype=np.float32), np.zeros(6000, dtype=int), np.arange(6000)[::-1])
    hits = ExactIndex(catalog, threads=1).search(np.ones((2, 1, 2)), None, 3)
    assert hits.rows.tolist() == [[5999, 5998, 5997]] * 2
    assert decided
    assert set(decided) == {6}  # no more than k of each user are kept, so memory stays bounded


def test_few_items_are_scored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin is tight: float64 sees little more than k items per user, also beside an extreme price."""
    looked: list[int] = []
    settle = scoring.settle

    def counted(*arguments: object) -> object:
        looked.append(len(arguments[-1]))  # type: ignore[arg-type]
        return settle(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scan, "settle", counted)
    rng = np.random.default_rng(3)
    catalog = Catalog(rng.standard_normal((30_000, 32)).astype(np.float32), rng.integers(0, 20, 30_000))
    users = rng.standard_normal((64, 1, 32))
    for first in (0.0, -1e6, 1e9):
        prices = rng.standard_normal(20)
        prices[0] = first
        looked.clear()
        ExactIndex(catalog).search(users, prices, 20)
        assert sum(looked) < 64 * 20 * 2.5


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dim=st.sampled_from([1, 5, 64, 300]),
    scale=st.sampled_from([1.0, 1e-30, 1e25]),
    price_scale=st.sampled_from([1e-6, 1.0, 1e9]),
)
def test_float32_scores_keep_within_their_margin(seed: int, dim: int, scale: float, price_scale: float) -> None:
    """No item of the best k may be below the k-th best float32 score by more than the margin."""
    rng = np.random.default_rng(seed)
    # All scores close together, so that rounding decides the float32 order.
    embeddings = ((1 + 1e-6 * rng.standard_normal((200, dim))) * scale).astype(np.float64)
    catalog = Catalog(embeddings, rng.integers(0, 4, 200))
    user = 1 + 1e-6 * rng.standard_normal((1, 1, dim))
    prices = rng.standard_normal(4) * price_scale * scale
    items = Float32Items.of(catalog.embeddings)
    queries = Float32Queries.of(items, user, prices, reference_price(catalog, prices, 20)[1])
    assert queries.bonus is not None
    narrow = (items.values @ queries.columns)[:, 0] + queries.bonus[catalog.group_of]
    owners, rows = np.zeros(200, dtype=np.int64), np.arange(200)
    true = relevance(catalog, user, owners, rows) - prices[catalog.group_of]
    best = np.argsort(-true, kind="stable")[:20]
    assert narrow[best].min() >= np.sort(narrow)[-20] - queries.margin[0]


def test_relevance_adds_from_left_to_right() -> None:
    rng = np.random.default_rng(4)
    for dim in (1, 2, 7, 64, 1000):
        for count in (1, 2, 300):
            catalog = Catalog(rng.standard_normal((count, dim)).astype(np.float32), np.zeros(count, dtype=int))
            user = rng.standard_normal((1, 1, dim))
            got = relevance(catalog, user, np.zeros(count, dtype=np.int64), np.arange(count))
            want = [plain.dot(user[0, 0].tolist(), item.tolist()) for item in catalog.embeddings]
            assert got.tolist() == want


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
def test_float32_embeddings_beyond_its_comfort_are_scaled(scale: float) -> None:
    rng = np.random.default_rng(6)
    catalog = Catalog((rng.standard_normal((300, 8)) * scale).astype(np.float32), np.arange(300) % 3)
    same(
        ExactIndex(catalog),
        rng.standard_normal((2, 1, 8)) * 1e10,
        np.array([0.0, 1.0, -1.0]) * scale * 1e10,
        20,
    )


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
