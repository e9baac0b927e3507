"""Remembering changes the time, never the answer."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.experiments.cached_index import CachedIndex
from fairsync.search import ExactIndex, Hits

Prices = npt.NDArray[np.float64] | None


def assert_equal(index: CachedIndex, users: npt.NDArray[np.floating], prices: object, k: int) -> None:
    priced = None if prices is None else np.asarray(prices, dtype=np.float64)
    expected = ExactIndex(index.catalog).search(users, priced, k)
    found = index.search(users, priced, k)
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.relevance.tolist() == expected.relevance.tolist()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_it_answers_as_exact_search_does(data: st.DataObject) -> None:
    """Ties, masks, extreme scales and prices, zero vectors, users of very different length, unknown requests."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, dim, interests = (
        data.draw(st.integers(1, 80)),
        data.draw(st.sampled_from([1, 3, 8])),
        data.draw(st.integers(1, 3)),
    )
    whole = data.draw(st.booleans())  # whole numbers tie
    draw = (lambda shape: rng.integers(-2, 3, shape).astype(float)) if whole else rng.standard_normal
    scale = data.draw(st.sampled_from([1.0, 1e-3, 1e18, 1e-30]))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    groups = data.draw(st.integers(1, 6))
    ids = data.draw(st.sampled_from([None, rng.permutation(n)]))
    catalog = Catalog((draw((n, dim)) * scale).astype(dtype), rng.integers(0, groups, n), ids)
    users = draw((6, interests, dim)) * rng.choice([1.0, 1e-6, 1e6], (6, 1, 1))
    users[2] = 0.0
    size = scale * float(np.abs(users).max())
    price = st.one_of(st.sampled_from([0.0, np.inf, -1e6, 1e18, size, 1e-9 * size]), st.floats(-3, 3).map(size.__mul__))
    prices = data.draw(st.one_of(st.none(), st.lists(price, min_size=catalog.n_groups, max_size=catalog.n_groups)))
    k = data.draw(st.one_of(st.integers(1, 10), st.sampled_from([n, n + 3])))
    index = CachedIndex(catalog, users[:4])  # the last two are unknown
    assert_equal(index, users, prices, k)
    assert_equal(index, users[1:2], prices, k)


@pytest.fixture(scope="module")
def world() -> tuple[Catalog, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    catalog = Catalog(rng.standard_normal((3_000, 16)).astype(np.float32), rng.integers(0, 20, 3_000))
    return catalog, rng.standard_normal((200, 2, 16)).astype(np.float32)


def test_more_requests_than_are_looked_at_at_once(world: tuple[Catalog, npt.NDArray[np.float32]]) -> None:
    catalog, users = world
    index, rng = CachedIndex(catalog, users), np.random.default_rng(2)
    for k in (1, 20, 50, 1_000):
        assert_equal(index, users[rng.permutation(200)], rng.normal(0, 0.5, 20), k)
    assert_equal(index, users, np.where(np.arange(20) == 3, 0.0, np.inf), 300)  # fewer than 300 are eligible


def test_known_requests_are_not_scored_again(
    world: tuple[Catalog, npt.NDArray[np.float32]], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, users = world
    index, partly = CachedIndex(catalog, users), CachedIndex(catalog, users, most_bytes=4 * 3_008 * 150)
    plain, asked = ExactIndex.search, []

    def counted(self: ExactIndex, users: npt.NDArray[np.floating], prices: Prices, k: int) -> Hits:
        asked.append(len(users))
        return plain(self, users, prices, k)

    monkeypatch.setattr(ExactIndex, "search", counted)
    index.search(users, None, 20)
    assert asked == []
    partly.search(users, None, 20)  # 150 of 200 fit
    assert asked == [50]
    CachedIndex(catalog, users, most_bytes=0).search(users, None, 20)
    assert asked == [50, 200]


def test_one_vector_per_request_will_do(world: tuple[Catalog, npt.NDArray[np.float32]]) -> None:
    catalog, users = world
    assert_equal(CachedIndex(catalog, users[:, 0]), users[:, :1], None, 5)
