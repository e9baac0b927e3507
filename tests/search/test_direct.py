"""The direct search for one request in a small catalog, and the scan that it replaces, against the plainest search."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, Hits, direct, exact
from fairsync.search.rounding import Float32Items


def check(
    catalog: Catalog, user: npt.NDArray[np.float64], prices: npt.NDArray[np.float64] | None, k: int, *, scans: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if scans:
            patch.setattr(exact, "is_small", lambda items: False)
        hits = ExactIndex(catalog).search(user[None], prices, k)
    rows, relevance = plain.search(catalog, user[None], prices, k)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == relevance


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 90),
    dim=st.integers(1, 12),
    interests=st.integers(1, 3),
    k=st.integers(1, 30),
    kind=st.sampled_from([np.float16, np.float32, np.float64]),
    whole=st.booleans(),
    scale=st.sampled_from([1e-200, 1e-110, 1e-30, 1e-3, 1.0, 1e3, 1e60, 1e99]),
    pricing=st.sampled_from(["none", "usual", "masked", "all masked", "extreme"]),
)
def test_one_request(
    seed: int, n: int, dim: int, interests: int, k: int, kind: type, whole: bool, scale: float, pricing: str
) -> None:
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.integers(-2, 3, shape).astype(float)) if whole else rng.standard_normal
    catalog = Catalog(draw((n, dim)).astype(kind), rng.integers(0, 4, n), ids=rng.permutation(n).tolist())
    user = draw((interests, dim)) * scale
    groups = catalog.n_groups
    prices = {
        "none": None,
        "usual": draw(groups) * scale,
        "masked": np.where(rng.random(groups) < 0.5, np.inf, draw(groups) * scale),
        "all masked": np.full(groups, np.inf),
        "extreme": rng.choice([-1e100, -1.0, 0.0, 1e-100, 1e100], groups),
    }[pricing]
    for scans in (False, True):
        check(catalog, user, prices, k, scans=scans)


@pytest.mark.parametrize("scans", [False, True])
@pytest.mark.parametrize("k", [1, 20, 300])
def test_larger_catalogs(k: int, scans: bool) -> None:
    rng = np.random.default_rng(k)
    catalog = Catalog(rng.standard_normal((700, 40)).astype(np.float32), np.arange(700) % 9)
    for prices in (None, rng.standard_normal(9), np.where(np.arange(9) < 7, np.inf, 0.5)):
        check(catalog, rng.standard_normal((1, 40)), prices, k, scans=scans)


def test_all_items_tie() -> None:
    catalog = Catalog(np.ones((3_000, 30)), np.arange(3_000) % 2, ids=np.arange(3_000)[::-1].tolist())
    check(catalog, np.ones((1, 30)), np.array([0.5, 0.0]), 5, scans=False)


def test_prices_are_read_in_every_call() -> None:
    """The last prices are remembered by their value: an array that its owner changes is other prices."""
    rng = np.random.default_rng(1)
    catalog = Catalog(rng.standard_normal((50, 4)), np.arange(50) % 3)
    index, user = ExactIndex(catalog), rng.standard_normal((1, 1, 4))
    prices = np.array([0.0, 1.0, -1.0])
    first, again = index.search(user, prices, 5), prices.copy()
    prices[:] = [9.0, 9.0, -9.0]
    other = index.search(user, prices, 5)
    assert other.rows.tolist() == plain.search(catalog, user, prices, 5)[0]
    assert index.search(user, again, 5).rows.tolist() == first.rows.tolist()
    assert index.search(user, again, 6).rows.shape == (1, 6)
    assert index.search(user, np.zeros(3), 5).rows.tolist() == index.search(user, None, 5).rows.tolist()


def test_only_single_requests_in_small_catalogs_are_searched_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*given: object) -> Hits:
        calls.append(given)
        return direct.search_one(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(exact, "search_one", counted)
    index = ExactIndex(Catalog(np.eye(4), [0, 1, 0, 1]))
    index.search(np.ones((1, 1, 4)), None, 2)
    assert len(calls) == 1
    index.search(np.ones((2, 1, 4)), None, 2)
    index.search(np.zeros((1, 1, 4)), None, 2)
    assert len(calls) == 1
    assert direct.is_small(Float32Items(np.empty((1 << 15, 64), dtype=np.float32), 0, 1.0))
    assert not direct.is_small(Float32Items(np.empty((1 << 15, 65), dtype=np.float32), 0, 1.0))
    assert not direct.is_small(Float32Items(np.empty(((1 << 15) + 1, 1), dtype=np.float32), 0, 1.0))
