"""The contract of exact indexes: the answers are those of the plainest search, to the last row, bit and tie.

What approximate indexes must hold is in test_approximate_indexes.py.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, Hits, Index, OneHotIndex, ShardedIndex, make_index

Build = Callable[[Catalog], Index]
Prices = npt.NDArray[np.float64] | None


KINDS: dict[str, Build] = {
    "exact": ExactIndex,
    "one-hot": OneHotIndex,
    "shards": lambda catalog: ShardedIndex(catalog, 3),
}


@pytest.fixture(params=KINDS, scope="module")
def build(request: pytest.FixtureRequest) -> Build:
    return KINDS[request.param]


def assert_plain(build: Build, catalog: Catalog, users: npt.NDArray[np.floating], prices: Prices, k: int) -> Hits:
    hits = build(catalog).search(users, prices, k)
    rows, relevance = plain.search(catalog, users, prices, k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == relevance
    assert (hits.rows.dtype.name, hits.relevance.dtype.name) == ("int64", "float64")
    return hits


def random_case(seed: int, n: int = 400, dim: int = 8, groups: int = 5) -> tuple[Catalog, npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    catalog = Catalog(rng.standard_normal((n, dim)).astype(np.float32), rng.integers(0, groups, n), rng.permutation(n))
    return catalog, rng.standard_normal((6, 1, dim))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Catalog, npt.NDArray[np.floating], Prices, int]:
    """Small catalogs, rich in what goes wrong: ties, masks, extreme scales and prices, any type, any k."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dim = draw(st.integers(1, 60)), draw(st.sampled_from([1, 2, 3, 8]))
    interests, n_users = draw(st.integers(1, 3)), draw(st.integers(1, 4))

    def values(shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        kind = draw(st.sampled_from(["normal", "small integers", "few distinct", "equal"]))
        if kind == "normal":
            return rng.standard_normal(shape)
        if kind == "small integers":
            return rng.integers(-2, 3, shape).astype(float)
        if kind == "equal":
            return np.full(shape, rng.standard_normal())
        # Copies with the dimensions in another order: sums that are equal, or equal up to rounding.
        one = rng.standard_normal(shape[-1])
        return np.array([rng.permutation(one) for _ in range(int(np.prod(shape[:-1])))]).reshape(shape)

    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    scale = 1.0 if dtype is np.float16 else draw(st.sampled_from([1.0, 1e-3, 1e3, 1e18, 1e-30]))
    user_scale = draw(st.sampled_from([1.0, 1e-3, 1e20]))
    embeddings = (values((n, dim)) * scale).astype(dtype)
    users = values((n_users, interests, dim)) * user_scale
    ids = draw(st.sampled_from([None, rng.permutation(n), [f"item-{i}" for i in rng.permutation(n)]]))
    catalog = Catalog(embeddings, rng.integers(0, draw(st.integers(1, 6)), n), ids)
    size = scale * user_scale
    price = st.one_of(
        st.sampled_from([0.0, np.inf, -1e6, 1e6, 1e18, size, -size, 1e-9 * size]),
        st.floats(-3.0, 3.0).map(lambda value: value * size),
    )
    prices = None
    if draw(st.booleans()):
        prices = np.array(draw(st.lists(price, min_size=catalog.n_groups, max_size=catalog.n_groups)))
    k = draw(st.one_of(st.integers(1, 10), st.sampled_from([max(1, n - 1), n, n + 3])))
    return catalog, users, prices, k


@settings(max_examples=300, deadline=None)
@given(case=cases())
def test_the_answer_is_that_of_the_plainest_search(
    build: Build, case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]
) -> None:
    assert_plain(build, *case)


@pytest.mark.parametrize("prices", [None, np.linspace(-0.5, 0.5, 5), np.array([0.0, np.inf, 0.0, -1e6, np.inf])])
def test_it_agrees_on_a_larger_catalog(build: Build, prices: Prices) -> None:
    catalog, users = random_case(1)
    assert_plain(build, catalog, users, prices, 20)


def test_a_price_is_subtracted_and_a_subsidy_added(build: Build) -> None:
    catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "b", "c"])
    index, user = build(catalog), np.ones((1, 1, 1))
    assert index.search(user, None, 3).rows.tolist() == [[0, 1, 2]]
    assert index.search(user, np.array([2.5, 0.0, 0.0]), 3).rows.tolist() == [[1, 2, 0]]
    found = index.search(user, np.array([0.0, 0.0, -1.5]), 2)
    assert found.rows.tolist() == [[0, 2]]
    assert found.relevance.tolist() == [[3.0, 1.0]]  # without the price


def test_ties_go_to_the_smaller_id_not_the_smaller_row(build: Build) -> None:
    catalog = Catalog(np.ones((4, 2)), [1, 1, 2, 2], ids=["d", "b", "c", "a"])
    assert build(catalog).search(np.ones((1, 1, 2)), None, 3).rows.tolist() == [[3, 1, 2]]


def test_an_item_counts_once_with_its_best_interest(build: Build) -> None:
    catalog = Catalog(np.array([[2.0, 1.0], [0.0, 1.5]]), ["a", "b"])
    found = build(catalog).search(np.eye(2)[None], None, 2)
    assert found.rows.tolist() == [[0, 1]]
    assert found.relevance.tolist() == [[2.0, 1.5]]


def test_masked_groups_leave_empty_places(build: Build) -> None:
    catalog = Catalog(np.ones((4, 2), dtype=np.float32), ["a", "a", "a", "b"])
    index, user = build(catalog), np.ones((1, 1, 2))
    found = index.search(user, np.array([np.inf, 7.0]), 3)
    assert found.rows.tolist() == [[3, -1, -1]]
    assert found.relevance.tolist() == [[2.0, -np.inf, -np.inf]]
    assert index.search(user, np.array([np.inf, np.inf]), 2).rows.tolist() == [[-1, -1]]


def test_one_extreme_price_does_not_blur_the_others(build: Build) -> None:
    catalog, users = random_case(2, groups=4)
    for extreme in (-1e6, 1e6, -1e18, 1e18):
        assert_plain(build, catalog, users, np.array([0.25, extreme, -0.125, 0.0]), 15)


def test_a_user_of_zeros_gets_the_cheapest_items_by_id(build: Build) -> None:
    catalog, users = random_case(3)
    users[2] = 0.0
    for prices in (None, np.array([0.5, 0.25, 0.25, np.inf, 0.5])):
        assert_plain(build, catalog, users, prices, 30)
        assert_plain(build, catalog, users[2:3], prices, 300)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_users_and_items_of_any_float_type(build: Build, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(4)
    catalog = Catalog(rng.standard_normal((300, 4)).astype(dtype), rng.integers(0, 3, 300))
    assert_plain(build, catalog, rng.standard_normal((3, 2, 4)).astype(dtype), np.array([0.1, 0.0, -0.2]), 10)


def test_items_that_float32_cannot_tell_apart_are_told_apart(build: Build) -> None:
    embeddings = 1.0 + np.random.default_rng(5).permutation(200)[:, None] * 1e-12
    hits = assert_plain(build, Catalog(embeddings, np.zeros(200, dtype=int)), np.ones((1, 1, 1)), None, 50)
    assert hits.rows[0, 0] == embeddings.argmax()


@pytest.mark.parametrize("order", [1, -1])
def test_items_in_order_of_score(build: Build, order: int) -> None:
    embeddings = np.sort(np.random.default_rng(6).standard_normal((3000, 1)), axis=0)[::order].astype(np.float32)
    assert_plain(build, Catalog(embeddings, np.arange(3000) % 7), np.ones((2, 1, 1)), np.linspace(0, 0.06, 7), 20)


def test_the_batch_does_not_matter(build: Build) -> None:
    catalog, _ = random_case(7, n=2000)
    index = build(catalog)
    users = np.random.default_rng(8).standard_normal((700, 1, 8))
    prices = np.linspace(-1, 1, 5)
    whole = index.search(users, prices, 12)
    for at in (slice(0, 1), slice(17, 40), slice(300, 700)):
        part = index.search(users[at], prices, 12)
        assert (part.rows == whole.rows[at]).all()
        assert (part.relevance == whole.relevance[at]).all()


def test_no_users_give_no_hits(build: Build) -> None:
    catalog, users = random_case(9)
    assert build(catalog).search(users[:0], None, 3).rows.shape == (0, 3)


def test_calls_at_once_with_different_prices_are_not_torn(build: Build) -> None:
    catalog, users = random_case(10, n=3000, groups=3)
    index = build(catalog)
    # Each price vector leaves one group, so an answer that mixes two of them is seen at once.
    every = [np.where(np.arange(3) == group, 0.0, np.inf) for group in range(3)]
    alone = [index.search(users, prices, 10).rows for prices in every]
    for group, rows in enumerate(alone):
        assert (catalog.group_of[rows] == group).all()
    start = threading.Barrier(6)

    def work(worker: int) -> list[bool]:
        start.wait()
        turns = [(worker + turn) % 3 for turn in range(30)]
        return [bool((index.search(users, every[turn], 10).rows == alone[turn]).all()) for turn in turns]

    with ThreadPoolExecutor(6) as pool:
        assert all(all(results) for results in pool.map(work, range(6)))


def test_what_is_given_is_left_as_it_was(build: Build) -> None:
    catalog, users = random_case(11)
    prices = np.linspace(-1, 1, 5)
    before = catalog.embeddings.copy(), users.copy(), prices.copy()
    build(catalog).search(users, prices, 5)
    for now, then in zip((catalog.embeddings, users, prices), before, strict=True):
        assert (now == then).all()


@pytest.mark.parametrize("prices", [[0.0], [0.0, np.nan, 0.0], [0.0, -np.inf, 0.0], [0.0, 1e200, 0.0]])
def test_prices_without_meaning_are_refused(build: Build, prices: list[float]) -> None:
    catalog, users = random_case(12, groups=3)
    with pytest.raises(InvalidInputError, match="price"):
        build(catalog).search(users, np.array(prices), 5)


def test_it_says_how_it_applies_prices(build: Build) -> None:
    assert build(random_case(13)[0]).applies_prices in ("bias", "one-hot", "over-fetch")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    catalog, _ = random_case(14)
    with pytest.raises(InvalidInputError, match="exact, one-hot"):
        make_index("exakt", catalog)
    with pytest.raises(InvalidInputError, match="exact, one-hot"):
        make_index(3, catalog)  # type: ignore[arg-type]


def test_an_index_object_is_used_as_it_is() -> None:
    catalog, _ = random_case(15)
    index = make_index("exact", catalog)
    assert make_index(index, catalog) is index
