"""The contract of approximate indexes, on a catalog that they do search approximately.

An answer may miss some of the best items. It must be complete (as many items as there are), free of duplicates,
eligible, scored exactly, in order of the priced scores, and near the true best on average.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, HnswIndex, Index, IvfIndex, ShardedIndex
from search.approximate import assert_honest, make_case, recall

Prices = npt.NDArray[np.float64] | None

ITEMS = 6000
CATALOG, USERS = make_case(0, n=ITEMS, dim=16, users=100)
# An index is tuned without prices, on vectors made from the catalog: under prices and for these users it may fall a
# little short of its recall.
RECALL, LEAST_RECALL = 0.95, 0.88

SINGLE: dict[str, Callable[[Catalog], IvfIndex | HnswIndex]] = {
    "ivf": lambda catalog: IvfIndex(catalog, recall=RECALL, exact_below=0),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=RECALL, exact_below=0),
}
KINDS: dict[str, Callable[[Catalog], Index]] = {
    **SINGLE,
    "shards of ivf": lambda catalog: ShardedIndex(catalog, 2, SINGLE["ivf"]),
}
MILD = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])
PRICES: dict[str, Prices] = {
    "none": None,
    "mild": MILD,
    "steep": 10 * MILD,
    "masked": np.where(np.arange(6) % 2 == 0, MILD, np.inf),
    "one small group open": np.where(np.arange(6) == 3, 0.0, np.inf),
}


@pytest.fixture(scope="module", params=KINDS)
def index(request: pytest.FixtureRequest) -> Index:
    return KINDS[request.param](CATALOG)


@pytest.fixture(params=SINGLE)
def build(request: pytest.FixtureRequest) -> Callable[[Catalog], IvfIndex | HnswIndex]:
    return SINGLE[request.param]


def test_it_is_approximate_and_misses_some_of_the_best(build: Callable[[Catalog], IvfIndex | HnswIndex]) -> None:
    """Otherwise this file would test exact search."""
    index = build(CATALOG)
    assert index.is_approximate
    assert recall(index.search(USERS, None, 100), CATALOG, USERS, None, 100) < 1


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("k", [1, 10, 100])
def test_the_answer_is_honest_and_reaches_the_recall(index: Index, prices: str, k: int) -> None:
    hits = assert_honest(index, CATALOG, USERS, PRICES[prices], k)
    assert recall(hits, CATALOG, USERS, PRICES[prices], k) >= LEAST_RECALL


@pytest.mark.parametrize("prices", ["none", "steep", "masked"])
@pytest.mark.parametrize("k", [ITEMS // 2, ITEMS - 1, ITEMS, ITEMS + 10])
def test_an_answer_as_long_as_the_catalog_is_exact(index: Index, prices: str, k: int) -> None:
    hits = assert_honest(index, CATALOG, USERS[:2], PRICES[prices], k)
    assert (hits.rows == ExactIndex(CATALOG).search(USERS[:2], PRICES[prices], k).rows).all()


def test_if_all_groups_are_masked_the_answer_is_empty(index: Index) -> None:
    assert (index.search(USERS, np.full(6, np.inf), 5).rows == -1).all()


def test_a_subsidy_brings_the_items_of_its_group(index: Index) -> None:
    prices = np.where(np.arange(6) == 5, -1e3, 0.0)
    assert (CATALOG.group_of[index.search(USERS, prices, 20).rows] == 5).all()


def test_users_of_zeros_get_the_cheapest_items_by_id(index: Index) -> None:
    users = np.concatenate([np.zeros((1, 1, 16)), USERS[:2]])
    for prices in (None, MILD):
        hits = assert_honest(index, CATALOG, users, prices, 30)
        assert (hits.rows[0] == ExactIndex(CATALOG).search(users[:1], prices, 30).rows[0]).all()


def test_the_best_of_several_interests_counts(index: Index) -> None:
    users = USERS.reshape(50, 2, 16)
    assert recall(assert_honest(index, CATALOG, users, MILD, 20), CATALOG, users, MILD, 20) >= LEAST_RECALL


def test_no_users_give_no_hits(index: Index) -> None:
    assert index.search(USERS[:0], MILD, 3).rows.shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_embeddings_of_any_float_type(
    build: Callable[[Catalog], IvfIndex | HnswIndex], dtype: type[np.floating]
) -> None:
    catalog, users = make_case(1, n=1000, users=10)
    catalog = Catalog(catalog.embeddings.astype(dtype), catalog.group_of, catalog.ids)
    assert_honest(build(catalog), catalog, users.astype(dtype), MILD, 10)


def test_calls_at_once_with_different_prices_are_not_torn(index: Index) -> None:
    every = [np.where(np.arange(6) == group, 0.0, 1.0 + group) for group in range(6)]
    alone = [index.search(USERS[:10], prices, 10).rows for prices in every]

    def work(turn: int) -> bool:
        return bool((index.search(USERS[:10], every[turn % 6], 10).rows == alone[turn % 6]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(48)))


def test_what_is_given_is_left_as_it_was(index: Index) -> None:
    before = CATALOG.embeddings.copy(), USERS.copy(), MILD.copy()
    index.search(USERS, MILD, 5)
    for now, then in zip((CATALOG.embeddings, USERS, MILD), before, strict=True):
        assert (now == then).all()


@pytest.mark.parametrize("prices", [[0.0], [np.nan] * 6, [-np.inf] * 6, [1e200] * 6])
def test_prices_without_meaning_are_refused(index: Index, prices: list[float]) -> None:
    with pytest.raises(InvalidInputError, match="price"):
        index.search(USERS, np.array(prices), 5)


def test_tuning_on_past_requests_reaches_the_recall_on_them(build: Callable[[Catalog], IvfIndex | HnswIndex]) -> None:
    # Requests along one axis: unlike the means of items on which an index is tuned by default.
    users = np.random.default_rng(2).normal(size=(200, 1, 16)) * np.array([5.0] + [0.3] * 15)
    index = build(CATALOG)
    assert index.tune(users[:100, 0]) is index
    assert recall(index.search(users[100:], None, 50), CATALOG, users[100:], None, 50) >= LEAST_RECALL
    for nothing in (USERS[:0], np.zeros((3, 1, 16))):
        with pytest.raises(InvalidInputError, match="past request"):
            index.tune(nothing)


@pytest.mark.parametrize("kind", [IvfIndex, HnswIndex])
def test_small_catalogs_are_searched_exactly(kind: type[IvfIndex | HnswIndex]) -> None:
    index = kind(CATALOG, recall=0.5)
    assert not index.is_approximate
    assert index.tune(USERS) is index
    assert (index.search(USERS, MILD, 50).rows == ExactIndex(CATALOG).search(USERS, MILD, 50).rows).all()


@pytest.mark.parametrize("kind", [IvfIndex, HnswIndex])
@pytest.mark.parametrize("share", [0.0, 1.0, 1.5])
def test_a_recall_out_of_range_is_refused(kind: type[IvfIndex | HnswIndex], share: float) -> None:
    with pytest.raises(InvalidInputError, match="exact"):
        kind(CATALOG, recall=share)
