"""The direct search for one request, and the scan that it replaces, against the plainest search."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog, Selection
from fairsync.search import ExactIndex, Hits, direct, exact
from fairsync.search.eligibility import Eligibility


def check(
    catalog: Catalog,
    user: npt.NDArray[np.float64],
    prices: npt.NDArray[np.float64] | None,
    k: int,
    *,
    scans: bool,
    eligible: Eligibility | None = None,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if scans:
            patch.setattr(exact, "is_direct", lambda *shape: False)
        patch.setattr(exact, "_SMALL", 0)  # few open rows are scored alone
        hits = ExactIndex(catalog).search(user[None], prices, k, eligible)
    allowed = None if eligible is None else [set(np.flatnonzero(eligible.mask(0)).tolist())]
    rows, relevance = plain.search(catalog, user[None], prices, k, allowed)
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
    share=st.sampled_from([None, 0.0, 0.05, 0.5, 1.0]),
    excluded=st.sampled_from([0, 1, 20]),
)
def test_one_request(
    seed: int, n: int, dim: int, interests: int, k: int, kind: type, whole: bool, scale: float, pricing: str,
    share: float | None, excluded: int,
) -> None:  # fmt: skip
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
    chosen = None if share is None else Selection(rng.random(n) < share)
    eligible = Eligibility.of(n, [chosen], [rng.integers(n, size=excluded)])
    for scans in (False, True):
        check(catalog, user, prices, k, scans=scans)
        check(catalog, user, prices, k, scans=scans, eligible=eligible)


@pytest.mark.parametrize("scans", [False, True])
@pytest.mark.parametrize("k", [1, 20, 300])
def test_larger_catalogs(k: int, scans: bool) -> None:
    rng = np.random.default_rng(k)
    catalog = Catalog(rng.standard_normal((700, 40)).astype(np.float32), np.arange(700) % 9)
    user, excluded = rng.standard_normal((1, 40)), [np.arange(0, 700, 3)]
    for prices in (None, rng.standard_normal(9), np.where(np.arange(9) < 7, np.inf, 0.5)):
        check(catalog, user, prices, k, scans=scans)
        for share in (0.02, 0.5):
            some = Eligibility.of(700, [Selection(rng.random(700) < share)], excluded)
            check(catalog, user, prices, k, scans=scans, eligible=some)


def test_a_part_of_a_batch_may_carry_the_condition_of_another_request() -> None:
    catalog = Catalog(np.random.default_rng(3).standard_normal((30, 4)), np.arange(30) % 2)
    both = Eligibility.of(30, [Selection(np.arange(30) < 15), None], [[1], [2, 20]])
    for i in range(2):
        check(catalog, np.ones((1, 4)), np.array([0.0, 0.5]), 30, scans=False, eligible=both.take(np.array([i])))


@pytest.mark.parametrize("k", [1, 20])
def test_the_items_that_meet_a_condition_may_be_the_best_or_the_worst(k: int) -> None:
    rng = np.random.default_rng(k)
    catalog = Catalog(rng.standard_normal((700, 40)).astype(np.float32), np.arange(700) % 9)
    user = rng.standard_normal((1, 40))
    scores = catalog.embeddings @ user[0]
    for prices in (None, rng.standard_normal(9)):
        for chosen in (scores < 0, scores > 0, scores <= np.sort(scores)[350], np.arange(700) < 200):
            eligible = Eligibility.of(700, [Selection(chosen)], [rng.integers(700, size=30)])
            check(catalog, user, prices, k, scans=False, eligible=eligible)


def test_few_rows_are_open_and_some_of_them_eligible() -> None:
    rng = np.random.default_rng(2)
    catalog = Catalog(rng.standard_normal((700, 6)), np.arange(700) % 35)
    prices = np.where(np.arange(35) == 3, 0.5, np.inf)
    for chosen in (None, Selection(np.arange(700) % 70 == 3), Selection(np.arange(700) % 70 == 4)):
        eligible = Eligibility.of(700, [chosen], [[3, 4, 38, 73]])
        check(catalog, rng.standard_normal((1, 6)), prices, 15, scans=False, eligible=eligible)


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


def test_only_single_requests_are_searched_directly(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert direct.is_direct(1 << 20, 64, 1)
    assert not direct.is_direct((1 << 20) + 1, 1, 1)
    assert not direct.is_direct(1 << 20, 65, 1)
    assert direct.is_direct(1 << 15, 64, 2)
    assert not direct.is_direct(1 << 15, 64, 3)
