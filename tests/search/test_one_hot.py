import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from contract.test_indexes import Prices, cases, random_case
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex
from fairsync.search.one_hot import OneHotFetch, widen
from fairsync.search.rounding import Float32Items


class Engine:
    """Holds widened items, ranks by inner product in float32, and remembers how many it was asked for."""

    def __init__(self, catalog: Catalog, items: Float32Items) -> None:
        self.held = widen(items.values, catalog.group_of, catalog.n_groups)
        self.counts: list[int] = []

    def __call__(
        self, vectors: npt.NDArray[np.float32], count: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        self.counts.append(count)
        scores = vectors @ self.held.T
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(scores, rows, axis=1), rows


def make(catalog: Catalog, most: int) -> tuple[OneHotFetch, Engine]:
    items = Float32Items.of(catalog.embeddings)
    engine = Engine(catalog, items)
    return OneHotFetch(catalog, items, engine, ExactIndex(catalog), most), engine


@settings(max_examples=150, deadline=None)
@given(case=cases())
def test_the_answer_is_exact(case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]) -> None:
    catalog, users, prices, k = case
    index, _ = make(catalog, most=40)
    hits, truth = index.search(users, prices, k), ExactIndex(catalog).search(users, prices, k)
    assert hits.rows.tolist() == truth.rows.tolist()
    assert hits.relevance.tolist() == truth.relevance.tolist()


@pytest.mark.parametrize("prices", [None, [0.0, -2.0, 1.0, 0.3, -0.2], [0.0, np.inf, -9.0, 0.5, 0.0]])
def test_one_fetch_is_enough_however_steep_the_prices(prices: list[float] | None) -> None:
    catalog, users = random_case(0)
    index, engine = make(catalog, most=400)
    given = None if prices is None else np.array(prices)
    hits = index.search(users, given, 10)
    assert (hits.rows == ExactIndex(catalog).search(users, given, 10).rows).all()
    assert engine.counts == [11 if prices is None else 21]
