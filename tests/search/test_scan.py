"""The full scan: blocks, bundles, cuts and ties."""

import numpy as np
import numpy.typing as npt
import pytest

import plain
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, exact, products, scan, scoring
from fairsync.search.item_bonus import ItemBonus


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and threads for small catalogs, so that cuts rise and parts are put together."""
    monkeypatch.setattr(scan, "BLOCK_SCORES", 256)
    monkeypatch.setattr(scan, "BLOCK_PER_K", 2)
    monkeypatch.setattr(products, "_PANEL_PRODUCTS", 1 << 9)
    monkeypatch.setattr(exact, "THREAD_PRODUCTS", 1)
    monkeypatch.setattr(exact, "is_direct", lambda *shape: False)  # single requests too


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


@pytest.fixture
def many_groups(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of two items count as many, and bonuses may not be looked up for all items."""
    monkeypatch.setattr(scan, "BLOCK_SCORES", 2048)
    monkeypatch.setattr(scan, "FEW_GROUPS", 100)
    monkeypatch.setattr(scan, "MANY_BLOCKS", 1)
    monkeypatch.setattr(exact, "MANY_GROUPS", 100)
    monkeypatch.setattr(ItemBonus, "of", None)


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("interests", [1, 3])
@pytest.mark.parametrize("subsidies", ["few", "most", "equal", "steep", "charges", "masked"])
def test_many_groups_whose_bonuses_are_looked_up_near_the_cut(threads: int, interests: int, subsidies: str) -> None:
    rng = np.random.default_rng(3)
    embeddings = rng.standard_normal((3000, 8)).astype(np.float32)
    embeddings[::300] *= 1e-3  # items that only a subsidy can bring in
    index = ExactIndex(Catalog(embeddings, np.arange(3000) // 2, rng.permutation(3000)), threads=threads)
    prices = -rng.exponential(0.5, 1500)
    if subsidies == "few":
        prices[rng.random(1500) < 0.98] = 0.0
    elif subsidies == "equal":
        prices[:] = np.where(rng.random(1500) < 0.5, -1.0, 0.0)
    elif subsidies == "steep":
        prices[:] *= 40.0
    elif subsidies == "charges":
        prices[:] *= -1.0
    elif subsidies == "masked":
        prices[rng.random(1500) < 0.8] = np.inf
    users = rng.standard_normal((6, interests, 8))
    for k in (1, 7, 60):
        same(index, users, prices, k)


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
