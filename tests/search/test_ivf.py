import functools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, IvfIndex
from fairsync.search.inverted_lists import InvertedLists, stretch
from fairsync.search.quantization import STORAGES, QuantizedItems
from search.approximate import assert_honest, make_case, recall

SOME_PRICES = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])


def items_read(
    index: IvfIndex, users: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, k: int
) -> float:
    """The share of the catalog that is read for a request: the tests below would say nothing if it were all of it."""
    lists = index.lists
    assert lists is not None
    vectors = users[:, 0].astype(np.float32)
    scores = vectors @ lists.centres.T
    if prices is not None:
        scores -= prices[lists.group_of].astype(np.float32)
    chosen = index.tuning.choose(lists, vectors, scores, k)
    return float((chosen @ lists.sizes).mean()) / len(index.catalog)


@pytest.fixture(scope="module")
def case() -> tuple[Catalog, npt.NDArray[np.float64], IvfIndex]:
    catalog, users = make_case(0, n=12_000, users=100)
    return catalog, users, IvfIndex(catalog, recall=0.9, exact_below=0)


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
    # Along one of the directions in which lists are told apart, each list's spread is its own.
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


@pytest.mark.parametrize("storage", STORAGES)
def test_codes_score_items_as_they_should_with_the_lists_score_taken_in(storage: str) -> None:
    catalog, users = make_case(2, n=2000, dim=7)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    lists = InvertedLists.of(items, catalog.group_of)
    vectors = users[:, 0].astype(np.float32)
    price = SOME_PRICES.astype(np.float32)
    scores = vectors @ lists.centres.T - price[lists.group_of]
    rows, groups = QuantizedItems(items, lists, storage).search(vectors, scores > -np.inf, scores, fetch=100)
    truth = np.argsort(-(vectors @ items.T - price[catalog.group_of]), axis=1)[:, :20]
    found = np.mean([np.isin(wanted, got).mean() for wanted, got in zip(truth, rows, strict=True)])
    assert found >= {"2-bit": 0.93, "4-bit": 0.995}.get(storage, 1.0)
    assert (groups == catalog.group_of[rows]).all()


def test_lists_not_probed_are_not_read() -> None:
    catalog, users = make_case(3, n=2000)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    lists = InvertedLists.of(items, catalog.group_of)
    chosen = np.random.default_rng(3).random((40, len(lists.sizes))) < 0.3
    chosen[7] = False
    scores = np.zeros(chosen.shape, dtype=np.float32)
    rows, _ = QuantizedItems(items, lists).search(users[:, 0].astype(np.float32), chosen, scores, fetch=2000)
    for row, these in zip(rows, chosen, strict=True):
        assert sorted(row[row >= 0].tolist()) == np.flatnonzero(these[lists.list_of]).tolist()


@pytest.mark.parametrize("prices", [None, SOME_PRICES, 10 * SOME_PRICES])
def test_the_recall_asked_for_is_reached_with_and_without_prices(
    case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex], prices: npt.NDArray[np.float64] | None
) -> None:
    catalog, users, index = case
    assert items_read(index, users, prices, 50) < 0.5
    for k in (10, 50, 150):
        hits = assert_honest(index, catalog, users, prices, k)
        assert recall(hits, catalog, users, prices, k) >= 0.88  # tuned on other vectors than these


def test_more_recall_is_more_reading() -> None:
    catalog, users = make_case(4, n=12_000, users=100)
    few, many = (IvfIndex(catalog, recall=share, exact_below=0) for share in (0.7, 0.98))
    assert items_read(few, users, None, 10) < items_read(many, users, None, 10)
    few_hits, many_hits = (index.search(users, None, 10) for index in (few, many))
    assert recall(few_hits, catalog, users, None, 10) < recall(many_hits, catalog, users, None, 10)


def test_subsidies_narrow_the_reading(case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex]) -> None:
    _, users, index = case
    read = [items_read(index, users, prices, 50) for prices in (None, 4 * SOME_PRICES, 100 * SOME_PRICES)]
    assert read == sorted(read, reverse=True)
    assert read[2] < read[0] / 2


def test_tuning_on_requests_serves_those_requests() -> None:
    catalog, _ = make_case(5, n=12_000)
    # Requests that all lie along one axis: unlike means of items, but all alike.
    users = np.random.default_rng(5).normal(size=(200, 1, 8)) * np.array([5.0] + [0.3] * 7)
    index = IvfIndex(catalog, recall=0.95, exact_below=0)
    assert index.tune(users[:100, 0]) is index
    assert recall(index.search(users[100:], None, 50), catalog, users[100:], None, 50) >= 0.93


def test_several_interests_count_with_the_best() -> None:
    catalog, users = make_case(6, interests=3)
    index = IvfIndex(catalog, recall=0.95, exact_below=0).tune(users)
    assert recall(assert_honest(index, catalog, users, SOME_PRICES, 20), catalog, users, SOME_PRICES, 20) >= 0.93


def test_a_subsidised_small_group_is_really_looked_at(
    case: tuple[Catalog, npt.NDArray[np.float64], IvfIndex],
) -> None:
    catalog, users, index = case
    prices = np.where(np.arange(6) == 5, -100.0, 0.0)
    hits = index.search(users, prices, 20)
    assert (catalog.group_of[hits.rows] == 5).all()
    assert recall(hits, catalog, users, prices, 20) >= 0.97


@functools.cache
def rough(seed: int) -> tuple[Catalog, npt.NDArray[np.float64], IvfIndex]:
    catalog, users = make_case(seed, users=3, interests=1 + seed % 2)
    users[1] *= seed > 1  # a user of zeros, half of the time
    return catalog, users, IvfIndex(catalog, recall=0.5, exact_below=0)


@settings(max_examples=60, deadline=None)
@given(
    open_=st.lists(st.booleans(), min_size=6, max_size=6),
    k=st.sampled_from([1, 7, 60, 500, 3999, 4000, 4100]),
    scale=st.sampled_from([1.0, 1e-30, 1e18]),
    seed=st.integers(0, 3),
)
def test_the_answer_is_as_long_as_it_can_be(open_: list[bool], k: int, scale: float, seed: int) -> None:
    catalog, users, index = rough(seed)
    prices = np.where(open_, SOME_PRICES, np.inf)
    assert_honest(index, catalog, users * scale, prices * scale, k)


def test_what_is_small_deep_or_nearly_closed_is_exact() -> None:
    catalog, users = make_case(7)
    exact, index = ExactIndex(catalog), IvfIndex(catalog, recall=0.5, exact_below=0)
    assert items_read(index, users, None, 20) < 0.5
    small_group = np.where(np.arange(6) == 3, 0.0, np.inf)
    for prices, k in ((None, 3000), (small_group, 20)):
        assert (index.search(users, prices, k).rows == exact.search(users, prices, k).rows).all()
    assert IvfIndex(catalog).lists is None


def test_users_of_zeros_alone_and_no_users() -> None:
    catalog, _, index = rough(0)
    for users in (np.zeros((2, 1, 8)), np.zeros((0, 1, 8))):
        hits = assert_honest(index, catalog, users, SOME_PRICES, 20)
        assert (hits.rows == ExactIndex(catalog).search(users, SOME_PRICES, 20).rows).all()


def test_the_same_seed_gives_the_same_answer() -> None:
    catalog, users = make_case(8)
    first, second = (IvfIndex(catalog, recall=0.6, exact_below=0, seed=3).search(users, None, 20) for _ in range(2))
    assert (first.rows == second.rows).all()


def test_items_that_are_all_alike_or_zero() -> None:
    for value in (0.0, 1.0):
        catalog = Catalog(np.full((600, 4), value, dtype=np.float32), np.arange(600) % 3)
        assert_honest(IvfIndex(catalog, exact_below=0), catalog, np.ones((2, 1, 4)), np.array([0.1, 0.0, np.inf]), 30)


def test_what_cannot_be_asked_for_is_refused() -> None:
    catalog, users = make_case(9, n=100)
    with pytest.raises(InvalidInputError, match="exact"):
        IvfIndex(catalog, recall=1.0)
    with pytest.raises(InvalidInputError, match="4-bit"):
        IvfIndex(catalog, storage="5-bit", exact_below=0)
    with pytest.raises(InvalidInputError, match="past request"):
        IvfIndex(catalog).tune(users[:0])
