import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, Hits
from fairsync.search.certified_search import OverFetch
from fairsync.search.rounding import Float32Items
from search.approximate import make_case


class Engine:
    """Ranks by inner product alone, exactly, in float32; remembers how many items it was asked for."""

    def __init__(self, items: Float32Items) -> None:
        self.items = items
        self.counts: list[int] = []

    def __call__(
        self, vectors: npt.NDArray[np.float32], count: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        self.counts.append(count)
        scores = vectors @ self.items.values.T
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(scores, rows, axis=1), rows


class NoExact:
    """Stands where an exact index would: being asked is the failure."""

    applies_prices = "bias"

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        raise AssertionError("over-fetching should have been enough")


def make(catalog: Catalog, most: int, exact: ExactIndex | NoExact) -> tuple[OverFetch, Engine]:
    items = Float32Items.of(catalog.embeddings)
    engine = Engine(items)
    return OverFetch(catalog, items, engine, exact, most), engine


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["normal", "ties"]),
    interests=st.integers(1, 3),
    k=st.sampled_from([1, 5, 30, 80, 90]),
    prices=st.lists(st.sampled_from([0.0, -0.5, 0.5, -3.0, 1e6, -1e6, np.inf]), min_size=3, max_size=3),
    most=st.sampled_from([0, 20, 80, 1000]),
)
def test_with_an_exact_engine_the_answer_is_exact(
    seed: int, kind: str, interests: int, k: int, prices: list[float], most: int
) -> None:
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal if kind == "normal" else lambda shape: rng.integers(-1, 2, shape).astype(float)
    catalog = Catalog(draw((80, 3)), np.concatenate([[0, 1, 2], rng.integers(0, 3, 77)]), rng.permutation(80))
    users = draw((4, interests, 3))
    index, _ = make(catalog, most, ExactIndex(catalog))
    hits = index.search(users, np.array(prices), k)
    rows, relevance = plain.search(catalog, users, np.array(prices), k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == relevance


def test_it_stops_as_soon_as_it_is_certain() -> None:
    catalog = Catalog(np.arange(1000.0, 0, -1)[:, None].astype(np.float32), (np.arange(1000) % 50 == 49) * 1)
    user = np.ones((1, 1, 1))
    for subsidy, last in ((3.0, 21), (25.0, 41), (100.0, 161)):
        index, engine = make(catalog, 1000, NoExact())
        hits = index.search(user, np.array([0.0, -subsidy]), 10)
        assert hits.rows.tolist() == plain.search(catalog, user, np.array([0.0, -subsidy]), 10)[0]
        # The tenth has 991 to 993; whatever is not fetched must be below that by more than the subsidy.
        assert engine.counts[-1] == last


def test_requests_beyond_the_limit_are_left_to_the_exact_index() -> None:
    catalog, users = make_case(0, n=1000)
    prices = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -50.0])
    index, engine = make(catalog, 100, NoExact())
    with pytest.raises(AssertionError, match="enough"):
        index.search(users, prices, 10)
    assert max(engine.counts) <= 101
    index, _ = make(catalog, 100, ExactIndex(catalog))
    assert (index.search(users, prices, 10).rows == ExactIndex(catalog).search(users, prices, 10).rows).all()


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dead=st.sampled_from([1, 10, 70]),
    known=st.booleans(),
    k=st.sampled_from([1, 5, 30, 80]),
    prices=st.lists(st.sampled_from([0.0, -0.5, 0.5, -30.0, 1e6, np.inf]), min_size=3, max_size=3),
)
def test_items_that_are_not_in_the_catalog_are_ignored(
    seed: int, dead: int, known: bool, k: int, prices: list[float]
) -> None:
    rng = np.random.default_rng(seed)
    held = rng.normal(size=(80 + dead, 3)).astype(np.float32)
    catalog = Catalog(held[:80], np.concatenate([[0, 1, 2], rng.integers(0, 3, 77)]))
    engine = Engine(Float32Items.of(held))

    def fetch(vectors: npt.NDArray[np.float32], count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        scores, rows = engine(vectors, count)
        return scores, np.where(rows < 80, rows, -1)

    alive = 80 / (80 + dead) if known else 1.0
    index = OverFetch(catalog, Float32Items.of(catalog.embeddings), fetch, ExactIndex(catalog), 1000, alive)
    users = rng.normal(size=(3, 2, 3))
    hits = index.search(users, np.array(prices), k)
    rows, relevance = plain.search(catalog, users, np.array(prices), k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == relevance
    assert max(engine.counts, default=0) <= 80  # as many as there are for certain
