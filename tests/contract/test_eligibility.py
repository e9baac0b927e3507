"""The contract of exact indexes under eligibility: the answers of the plainest search over the eligible items."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from contract.test_indexes import cases
from fairsync.catalog import Catalog
from fairsync.catalog.attributes import NumberColumn, make_column
from fairsync.catalog.conditions import Condition
from fairsync.catalog.lazy_selection import LazySelection
from fairsync.catalog.selection import Selection
from fairsync.search import ExactIndex, Hits, Index, OneHotIndex, ShardedIndex
from fairsync.search.eligibility import Eligibility
from fairsync.search.filtering import search_eligible
from fairsync.search.overlay import Overlay

Prices = npt.NDArray[np.float64] | None


class Unaware:
    """An index whose search knows nothing of eligibility."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog) -> None:
        self.exact = ExactIndex(catalog)

    def search(self, users: npt.NDArray[np.floating], prices: Prices, k: int) -> Hits:
        return self.exact.search(users, prices, k)


def changed(catalog: Catalog) -> Overlay:
    """An index over an earlier catalog: some items are new, some have changed, and the others had other rows."""
    rng = np.random.default_rng(len(catalog))
    rows = rng.permutation(len(catalog))[: max(1, 2 * len(catalog) // 3)]
    before = catalog.part(rows)
    return Overlay(OneHotIndex(before), np.where(rng.random(len(rows)) < 0.2, -1, rows), before.group_sizes, catalog)


KINDS: dict[str, Callable[[Catalog], Index]] = {
    "exact": ExactIndex,
    "one-hot": OneHotIndex,
    "shards": lambda catalog: ShardedIndex(catalog, 3),
    "overlay": changed,
    "unaware": Unaware,
}


@pytest.fixture(params=KINDS, scope="module")
def build(request: pytest.FixtureRequest) -> Callable[[Catalog], Index]:
    return KINDS[request.param]


def assert_plain(
    index: Index, catalog: Catalog, users: npt.NDArray[np.floating], prices: Prices, k: int, eligible: Eligibility
) -> None:
    hits = search_eligible(index, users, prices, k, eligible)
    sets = [set(np.flatnonzero(eligible.mask(i)).tolist()) for i in range(len(users))]
    rows, relevance = plain.search(catalog, users, prices, k, sets)
    assert hits.rows.tolist() == rows
    assert hits.relevance.tolist() == relevance
    assert eligible.counts.tolist() == [len(one) for one in sets]


def random_selection(rng: np.random.Generator, n_items: int, share: float) -> Selection:
    """Return some of the items, as a mask, or as a condition by which they are looked up one by one."""
    numbers, kind = rng.random(n_items), rng.integers(3)
    if kind == 0:
        return Selection(numbers < share)
    # A tiny sample: the share that is expected of the items can be far off.
    columns = [NumberColumn(numbers), make_column("half", rng.random(n_items) < share, n_items)]
    conditions = [Condition("number", high=share), Condition("half", (False,), negated=True)]
    return LazySelection(conditions[:kind], columns[:kind], rng.integers(n_items, size=3))


def random_eligibility(rng: np.random.Generator, n_items: int, n: int) -> Eligibility:
    """Conditions that all, most, some, few or no items meet, shared or not, and lists of excluded rows."""
    shares = rng.choice([0.0, 0.03, 0.3, 0.5, 0.9, 1.0], size=3)
    pool = [None, *(random_selection(rng, n_items, share) for share in shares)]
    chosen = [pool[at] for at in rng.integers(len(pool), size=n)] if rng.random() < 0.7 else [pool[1]] * n
    excluded = [rng.integers(n_items, size=rng.choice([0, 1, 3, n_items])) for _ in range(n)]
    return Eligibility.of(n_items, chosen, excluded if rng.random() < 0.7 else None)


@settings(max_examples=400, deadline=None)
@given(case=cases(), seed=st.integers(0, 2**32))
def test_the_answer_is_that_of_the_plainest_search(
    build: Callable[[Catalog], Index],
    case: tuple[Catalog, npt.NDArray[np.floating], Prices, int],
    seed: int,
) -> None:
    catalog, users, prices, k = case
    eligible = random_eligibility(np.random.default_rng(seed), len(catalog), len(users))
    assert_plain(build(catalog), catalog, users, prices, k, eligible)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("users", [1, 40])
@pytest.mark.parametrize("shared", [True, False])
def test_it_agrees_on_a_larger_catalog(
    build: Callable[[Catalog], Index], share: float, users: int, shared: bool
) -> None:
    """Large enough for several blocks, bundles and threads."""
    rng = np.random.default_rng(users)
    n = 20_000
    catalog = Catalog(rng.standard_normal((n, 16)).astype(np.float32), rng.integers(0, 9, n), rng.permutation(n))
    index = build(catalog)
    requests = rng.standard_normal((users, 2, 16))
    conditions = [random_selection(rng, n, share) for _ in range(1 if shared else users)]
    chosen = [conditions[i % len(conditions)] for i in range(users)]
    for prices in (None, rng.normal(size=9)):
        # What the search without conditions finds is what hurts most when it is excluded.
        best = index.search(requests, prices, 60).rows
        eligible = Eligibility.of(n, chosen, [np.append(row[:30], rng.integers(n, size=20)) for row in best])
        hits = search_eligible(index, requests, prices, 25, eligible)
        scores = (requests @ catalog.embeddings.astype(float).T).max(axis=1)
        priced = scores - (0.0 if prices is None else prices[catalog.group_of])
        for i in range(users):
            rows = np.flatnonzero(eligible.mask(i))
            expected = rows[np.argsort(-priced[i, rows])][:25]
            filled = hits.rows[i] >= 0
            assert hits.rows[i][filled].tolist() == expected.tolist()


def test_a_list_is_short_only_if_too_few_items_are_eligible(build: Callable[[Catalog], Index]) -> None:
    catalog = Catalog(np.array([[3.0], [2.0], [1.0]]), ["a", "b", "c"])
    eligible = Eligibility.of(3, [None, Selection(np.array([False, True, True]))], [[0, 1], [1]])
    found = search_eligible(build(catalog), np.ones((2, 1, 1)), None, 2, eligible)
    assert found.rows.tolist() == [[2, -1], [2, -1]]
    assert found.relevance.tolist() == [[1.0, -np.inf], [1.0, -np.inf]]


def test_a_user_of_zeros_gets_eligible_items_by_price_and_id(build: Callable[[Catalog], Index]) -> None:
    catalog = Catalog(np.eye(4), ["a", "b", "b", "a"], ids=["z", "y", "x", "w"])
    eligible = Eligibility.of(4, [None, None], [[3], [0, 1, 2, 3]])
    found = search_eligible(build(catalog), np.zeros((2, 1, 4)), np.array([0.0, -1.0]), 3, eligible)
    assert found.rows.tolist() == [[2, 1, 0], [-1, -1, -1]]
